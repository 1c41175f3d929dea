"""What a program started here would hear: the environment and the file that MOONCAKE_CONFIG_PATH names.

Owns which variables are told and that secrets are not. Must not connect.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from mooncake_client.client_config import ClientConfig, client_config
from mooncake_client.doctor.checks import Check, checked
from mooncake_store.endpoints import Endpoint
from mooncake_store.errors import InvalidArgument
from mooncake_store.masking import mask_secrets

CHECK_S: Final = 5.0
"""Of one check: the file may lie on a network's file system."""
PREFIXES: Final = ("MOONCAKE_", "MC_", "LOCAL_HOSTNAME")
FILE_VARIABLE: Final = "MOONCAKE_CONFIG_PATH"
VALUE_SHOWN: Final = 200


def settings_checks(config: ClientConfig | None, environment: Mapping[str, str] = os.environ) -> list[Check]:
    """config: of the pool that is examined; None: it could not be made, which is told elsewhere."""
    found = [_environment(environment)]
    path = environment.get(FILE_VARIABLE, "")
    if path:
        found += checked(
            "config.file",
            CHECK_S,
            lambda: _file(path, config),
            f"see that {FILE_VARIABLE} names a file that can be read here",
        )
    return found


def master_of_file(environment: Mapping[str, str] = os.environ) -> str:
    """The masters that the file of MOONCAKE_CONFIG_PATH names; empty where none does or it is wrong."""
    path = environment.get(FILE_VARIABLE, "")
    if not path:
        return ""
    found = checked("config.file", CHECK_S, lambda: [Check("master", "ok", _masters(_load(path)))])
    return found[0].reason if found[0].verdict == "ok" else ""


def settings_of(
    master: str, tenant: str, control: str | None, environment: Mapping[str, str] = os.environ
) -> ClientConfig:
    """As `Store` hears them. Raises InvalidArgument, naming the setting."""
    return client_config(master, {"tenant": tenant, "control": control}, environment=environment)


def _environment(environment: Mapping[str, str]) -> Check:
    heard = sorted(name for name in environment if name.startswith(PREFIXES))
    if not heard:
        return Check("config.environment", "ok", "no variable of the store is set; defaults hold")
    said = ", ".join(mask_secrets(f"{name}={environment[name][:VALUE_SHOWN]}") for name in heard)
    return Check("config.environment", "ok", said)


def _file(path: str, config: ClientConfig | None) -> Sequence[Check]:
    try:
        loaded = _load(path)
        masters = _masters(loaded)
    except (InvalidArgument, OSError, ValueError) as error:
        return [
            Check(
                "config.file",
                "fail",
                mask_secrets(f"{FILE_VARIABLE}={path}: {error}"),
                "mend the file: a drop-in store (vLLM, LMCache, SGLang) does not start with it",
            )
        ]
    said = f"{path} names the master {masters} and lends {loaded.global_segment_size} bytes"
    if (
        config is not None
        and config.master_server_addr
        and set(loaded.masters()) != set(config.master_server_addr)
    ):
        asked = ",".join(map(str, config.master_server_addr))
        return [
            Check(
                "config.file", "warn", f"{said}; examined is {asked}", "mooncake doctor --master " + masters
            )
        ]
    return [Check("config.file", "ok", mask_secrets(said))]


def _load(path: str) -> Any:
    from mooncake_client.dropin.mooncake_config import load_config

    return load_config(path, {})


def _masters(loaded: Any) -> str:
    masters: tuple[Endpoint, ...] = loaded.masters()
    return ",".join(map(str, masters))
