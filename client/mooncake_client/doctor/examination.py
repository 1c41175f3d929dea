"""The whole examination, in the order in which a fault of one thing explains those after it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from mooncake_client.doctor.checks import Check
from mooncake_client.doctor.gpu import gpu_checks
from mooncake_client.doctor.machine import machine_checks
from mooncake_client.doctor.pool import pool_checks
from mooncake_client.doctor.settings import settings_checks, settings_of
from mooncake_store.errors import InvalidArgument


def examine(
    master: str,
    *,
    tenant: str = "default",
    control: str | None = None,
    name: str = "mooncake-doctor",
    environment: Mapping[str, str] = os.environ,
) -> list[Check]:
    """All findings; raises nothing. Each check is bounded in time, and the nodes together by 20 s."""
    found = machine_checks()
    try:
        config = settings_of(master, tenant, control, environment)
    except InvalidArgument as error:
        found += settings_checks(None, environment)
        found.append(Check("config.client", "fail", str(error), "set what it names to a value that it takes"))
        return found + gpu_checks()
    found += settings_checks(config, environment)
    return found + pool_checks(config, name) + gpu_checks()
