"""The proxy's paths, and the one form of its errors."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from aiohttp import web

from mooncake_proxy.admin import InstancesAdmin
from mooncake_proxy.admission import Admission
from mooncake_proxy.fleet import Fleet, Role
from mooncake_proxy.metrics import ProxyMetrics
from mooncake_proxy.refusals import Refusal, error_response
from mooncake_proxy.relay import Relay
from mooncake_store._version import __version__

log = logging.getLogger("mooncake_store.proxy")

RELAYED: Final = ("/v1/completions", "/v1/chat/completions")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class ProxyHttp:
    """Routes and handlers; the daemon owns the listening socket."""

    def __init__(
        self,
        fleet: Fleet,
        relay: Relay,
        admin: InstancesAdmin,
        admission: Admission,
        metrics: ProxyMetrics,
        *,
        scheduling: str,
    ) -> None:
        self._fleet = fleet
        self._relay = relay
        self._admin = admin
        self._admission = admission
        self._metrics = metrics
        self._scheduling = scheduling

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._answered])
        for path in RELAYED:
            app.router.add_post(path, self._relay.serve)
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/status", self.status)
        app.router.add_get("/health", self.health)
        app.router.add_get("/metrics", self.metrics)
        app.router.add_post("/instances/add", self._admin.add)
        app.router.add_post("/instances/remove", self._admin.remove)
        return app

    async def models(self, request: web.Request) -> web.Response:
        """What the decode instances in the rotation serve, each model once."""
        found: dict[str, dict[str, Any]] = {}
        for instance in self._fleet.members(Role.DECODE):
            if instance.is_well:
                for name, entry in instance.models.items():
                    found.setdefault(name, entry)
        if not found:
            raise Refusal(503, self._fleet.why_none(Role.DECODE), reason="no_decode")
        return web.json_response({"object": "list", "data": list(found.values())})

    async def health(self, request: web.Request) -> web.Response:
        """200 while some decode instance takes requests."""
        well = {role.value: sum(i.is_well for i in self._fleet.members(role)) for role in Role}
        is_ok = well["decode"] > 0 and not self._admission.is_stopping
        status = "ok" if is_ok else "stopping" if self._admission.is_stopping else "no decode instance"
        body = {"status": status, "version": __version__, "well": well}
        return web.json_response(body, status=200 if is_ok else 503)

    async def status(self, request: web.Request) -> web.Response:
        prefill, decode = (self._fleet.members(role) for role in Role)
        instances = [
            {
                "instance": instance.name,
                "roles": [role.value for role in roles],
                "is_well": instance.is_well,
                "cause": instance.cause,
                "requests_running": instance.running,
                "requests": instance.totals["requests"],
                "failures": instance.totals["failures"],
                "models": list(instance.models),
            }
            for instance, roles in self._fleet.all()
        ]
        return web.json_response(
            {
                "prefill_node_count": len(prefill),
                "decode_node_count": len(decode),
                "prefill_nodes": [instance.name for instance in prefill],
                "decode_nodes": [instance.name for instance in decode],
                "model": self._fleet.model,
                "scheduling": self._scheduling,
                "requests_running": self._admission.running,
                "instances": instances,
            }
        )

    async def metrics(self, request: web.Request) -> web.Response:
        page, content_type = self._metrics.render()
        return web.Response(body=page, headers={"Content-Type": content_type})

    @property
    def _answered(self) -> Any:
        """Counts each answer, and puts what was refused into the form of errors."""
        metrics = self._metrics

        @web.middleware
        async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
            path = (
                request.match_info.route.resource.canonical if request.match_info.route.resource else "other"
            )
            try:
                response = await handler(request)
            except Refusal as refusal:
                metrics.refusals.labels(refusal.reason).inc()
                response = error_response(refusal.status, str(refusal))
            except web.HTTPException as error:  # of the router: 404, 405
                text = f"{request.method} {request.path[:200]}: {error.reason}"
                response = error_response(error.status, text)
                if isinstance(error, web.HTTPMethodNotAllowed):
                    response.headers["Allow"] = error.headers["Allow"]
            except Exception:
                log.exception("a request to %s failed by an error of the proxy", path)
                response = error_response(500, "an error of the proxy; its log has the details")
            metrics.requests.labels(path, str(response.status)).inc()
            if self._admission.is_stopping and not response.prepared:
                response.force_close()  # a kept connection would bring further requests
            return response

        return middleware
