"""Who may have a master resign over HTTP: its own host, as there are no tokens yet."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp.test_utils import make_mocked_request

from mooncake_master.http import AdminHttp


async def ask(remote: str | None, *, resigned: list[bool], leads: bool = True) -> tuple[int, str]:
    def resign() -> bool:
        resigned.append(True)
        return leads

    nothing: Any = None
    http = AdminHttp(nothing, nothing, describe=dict, resign=resign)
    answer = await http.resign(make_mocked_request("POST", "/api/v1/ha/resign").clone(remote=remote))
    assert isinstance(answer.body, bytes)
    return answer.status, json.loads(answer.body).get("error_message", "")


@pytest.mark.parametrize("remote", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
async def test_this_host_is_obeyed(remote: str) -> None:
    resigned: list[bool] = []
    assert await ask(remote, resigned=resigned) == (200, "")
    assert resigned == [True]


@pytest.mark.parametrize("remote", ["10.0.0.7", "::ffff:10.0.0.7", "fe80::1", "", "name"])
async def test_others_are_refused_and_nothing_changes(remote: str) -> None:
    resigned: list[bool] = []
    status, message = await ask(remote, resigned=resigned)
    assert (status, resigned) == (403, [])
    assert f"not to {remote}: ask at 127.0.0.1" in message


async def test_who_has_no_term_says_so() -> None:
    status, message = await ask("::1", resigned=[], leads=False)
    assert status == 409
    assert "--enable_ha" in message
