"""/instances/add and /instances/remove: who may, what is checked, what is answered.

The texts before the colon are those of the guide's proxy.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
from typing import Final

from aiohttp import web

from mooncake_proxy.config import Secrets
from mooncake_proxy.deadlines import timeout
from mooncake_proxy.fleet import INSTANCES_MAX, Fleet, Instance, Role
from mooncake_proxy.prober import NotWell, Prober
from mooncake_proxy.refusals import Refusal
from mooncake_store.endpoints import Endpoint, is_wildcard, parse_endpoint
from mooncake_store.errors import InvalidArgument

log = logging.getLogger("mooncake_store.proxy")

BODY_BYTES_MAX: Final = 65_536
BODY_S: Final = 10.0
ROLES: Final = {role.value: role for role in Role}


class InstancesAdmin:
    """Handlers of the two paths."""

    def __init__(self, secrets: Secrets, fleet: Fleet, prober: Prober) -> None:
        self._key = secrets.admin_api_key.encode()
        self._fleet = fleet
        self._prober = prober

    async def add(self, request: web.Request) -> web.Response:
        self._authenticate(request)
        endpoint, role = await _named(request)
        if self._fleet.find(endpoint, role) is not None:
            raise Refusal(
                400, f"Instance already exists.: {endpoint} is a {role.value} instance", reason="admin"
            )
        if len(self._fleet) >= INSTANCES_MAX:
            raise Refusal(400, f"{INSTANCES_MAX} instances are the most that one proxy has", reason="admin")
        try:
            models = await self._prober.ask(Instance(endpoint))
            unfit = self._fleet.why_unfit(models)
        except NotWell as error:
            unfit = str(error)
        if unfit:
            raise Refusal(400, f"Instance validation failed.: {endpoint}: {unfit}", reason="admin")
        if self._fleet.find(endpoint, role) is not None:  # somebody else's add, meanwhile
            raise Refusal(
                400, f"Instance already exists.: {endpoint} is a {role.value} instance", reason="admin"
            )
        instance = self._fleet.add(endpoint, role)
        self._fleet.well(instance, models)
        log.info("%s instance %s was added", role.value, endpoint)
        return web.json_response({"message": f"Added {endpoint} to {role.value}_instances."})

    async def remove(self, request: web.Request) -> web.Response:
        """It takes nothing more from now on; what it has goes on to its end."""
        self._authenticate(request)
        endpoint, role = await _named(request)
        if self._fleet.find(endpoint, role) is None:
            raise Refusal(404, f"Instance not found.: {endpoint} is no {role.value} instance", reason="admin")
        instance = self._fleet.remove(endpoint, role)
        log.info("%s instance %s was removed; %d requests run there", role.value, endpoint, instance.running)
        if not self._fleet.members(role):
            log.warning("there is no %s instance any more", role.value)
        return web.json_response(
            {
                "message": f"Removed {endpoint} from {role.value}_instances.",
                "requests_running": instance.running,
            }
        )

    def _authenticate(self, request: web.Request) -> None:
        given = request.headers.get("X-API-Key")
        if not self._key:
            raise Refusal(
                403,
                "instances cannot be changed: ADMIN_API_KEY is not set in the proxy's environment",
                reason="admin",
            )
        if given is None:
            raise Refusal(401, "the header X-API-Key is missing", reason="admin")
        if not hmac.compare_digest(given.encode("utf-8", "surrogateescape"), self._key):
            log.warning("%s: refused, the X-API-Key of %s is wrong", request.path, request.remote)
            raise Refusal(403, "Forbidden: Invalid API Key.", reason="admin")


async def _named(request: web.Request) -> tuple[Endpoint, Role]:
    """The instance and role that a request names. Raises Refusal."""
    try:
        async with timeout(BODY_S):
            raw = await request.content.read(BODY_BYTES_MAX + 1)
            while len(raw) <= BODY_BYTES_MAX and not request.content.at_eof():
                raw += await request.content.read(BODY_BYTES_MAX + 1)
    except asyncio.TimeoutError:
        raise Refusal(408, f"no whole body within {BODY_S:.0f} s", reason="admin") from None
    if len(raw) > BODY_BYTES_MAX:
        raise Refusal(413, f"the body is larger than {BODY_BYTES_MAX} bytes", reason="admin")
    try:
        named = json.loads(raw)
    except (ValueError, RecursionError):
        named = None
    if not isinstance(named, dict):
        raise Refusal(
            400, 'the body must be {"type": "prefill|decode", "instance": "host:port"}', reason="admin"
        )
    role = ROLES.get(named["type"]) if isinstance(named.get("type"), str) else None
    if role is None:
        raise Refusal(400, f"Invalid instance type.: one of {', '.join(ROLES)}", reason="admin")
    text = named.get("instance")
    if not isinstance(text, str):
        raise Refusal(400, "Invalid instance format.: host:port, as a string", reason="admin")
    try:
        endpoint = parse_endpoint(text, field="instance")
    except InvalidArgument as error:
        raise Refusal(400, f"Invalid instance format.: {error}", reason="admin") from None
    if is_wildcard(endpoint.host):
        raise Refusal(400, f"Invalid instance address.: {endpoint} means every interface", reason="admin")
    return endpoint, role
