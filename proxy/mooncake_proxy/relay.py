"""The life of one request: read it, have its prompt prefilled, pass the decode instance's answer on.

Owns the order of the two phases, retries and deadlines. The rules:

- The prefill instance only warms. Whatever becomes of that phase (nobody there, refused, failed, too slow),
  the decode instance gets the request and answers it: without blocks it computes the prompt itself. So the
  answer, a refusal too, is always the decode instance's.
- Until the first byte of an answer has come nothing has gone to the client, and another instance may be
  asked. From then on a failure breaks the stream off where the client can see it.
- A client that leaves takes its requests at the instances with it: the handler is cancelled, and with it the
  connection on which an engine would go on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web
from multidict import CIMultiDict

from mooncake_proxy import headers
from mooncake_proxy.admission import Admission, too_large
from mooncake_proxy.bodies import BadBody, Body, decode_copy, parse, prefill_copy, transfer_of
from mooncake_proxy.config import PREFIX_AWARE, ProxyConfig, Secrets
from mooncake_proxy.deadlines import timeout
from mooncake_proxy.fleet import Fleet, Instance, Role
from mooncake_proxy.metrics import ProxyMetrics
from mooncake_proxy.prefixes import BlockFinder, Prefix, hashes_of
from mooncake_proxy.refusals import Refusal, error_object
from mooncake_proxy.scheduling import Policy, policy_of
from mooncake_proxy.upstream import FAILURES, cause_of, is_gone, post, small_body

log = logging.getLogger("mooncake_store.proxy")

TRIED_ELSEWHERE: Final = frozenset((500, 502, 503, 504))
"""An instance that answers so may be the only one that cannot: its blocks are gone, it is full, or it dies.
The last instance's answer is passed on as it is."""
EVENT_STREAM: Final = "text/event-stream"


@dataclass
class Job:
    """One request on its way."""

    path: str
    identity: str
    body: Body | None
    """None when nobody will be asked any more."""
    sent: CIMultiDict[str]
    """Headers for the instances."""
    began_s: float
    ends_s: float
    model: str | None
    prefix: Prefix = field(default_factory=Prefix)
    tried: list[Instance] = field(default_factory=list)

    def left_s(self, most_ms: int) -> float:
        return min(most_ms / 1_000, self.ends_s - time.monotonic())


@dataclass
class Begun:
    """An answer whose first bytes have come. `end` must follow; it lets go of connection and count."""

    instance: Instance
    answer: aiohttp.ClientResponse
    part: bytes

    def end(self) -> None:
        self.instance.running -= 1
        self.answer.release()  # closes the connection unless all of the answer has come


class Relay:
    """Handler of the paths that are passed on."""

    def __init__(
        self,
        config: ProxyConfig,
        secrets: Secrets,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        admission: Admission,
        metrics: ProxyMetrics,
        blocks: BlockFinder | None = None,
    ) -> None:
        """blocks: None where nobody asks the master."""
        self._config = config
        self._key = secrets.upstream_api_key
        self._fleet = fleet
        self._session = session
        self._admission = admission
        self._metrics = metrics
        self._policies: dict[Role, Policy] = {role: policy_of(config) for role in Role}
        self._blocks = blocks

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """The answer, or a Refusal. Cancelled when the client leaves."""
        self._admission.enter()
        try:
            began_s = time.monotonic()
            held = self._admission.hold(request.content_length)
            try:
                job = await self._read(request, began_s)
                begun = await self._begin(job)
            finally:
                # From here on nobody is asked again: a stream of hours keeps no body alive.
                self._admission.let_go(held)
            job.body = None
            try:
                return await self._pass_on(request, job, begun)
            finally:
                begun.end()
        except asyncio.CancelledError:
            self._metrics.clients_left.inc()
            raise
        finally:
            self._admission.leave()

    async def _read(self, request: web.Request, began_s: float) -> Job:
        kind = request.content_type
        if kind != "application/json" and "Content-Type" in request.headers:
            raise Refusal(
                415, f"Content-Type {kind!r}: only application/json is served", reason="content_type"
            )
        try:
            if request.content.is_eof():  # all of it has come; a timer would be the dearest part
                raw = await self._raw(request)
            else:
                async with timeout(self._config.body_timeout_ms / 1_000):
                    raw = await self._raw(request)
        except asyncio.TimeoutError:
            raise Refusal(
                408,
                f"no whole body within {self._config.body_timeout_ms} ms (--body_timeout)",
                reason="body_timeout",
            ) from None
        try:
            body = parse(raw)
        except BadBody as error:
            raise Refusal(400, str(error), reason="bad_body") from None
        if body.model is not None and not self._fleet.knows_model(body.model):
            raise Refusal(
                404,
                f"The model `{body.model[:200]}` does not exist; {self._fleet.model} does",
                reason="model",
            )
        identity = headers.request_id(request.headers)
        return Job(
            path=request.path,
            identity=identity,
            body=body,
            sent=headers.to_instance(request.headers, identity, self._key),
            began_s=began_s,
            ends_s=began_s + self._config.request_timeout_ms / 1_000,
            model=self._fleet.model_asked_of(body.model),
        )

    async def _raw(self, request: web.Request) -> bytes:
        """Not by `request.read`, which would keep the body as long as the request."""
        most = self._config.body_bytes_max
        parts: list[bytes] = []
        size = 0
        while part := await request.content.readany():
            size += len(part)
            if size > most:  # what was compressed shows its length only now
                raise too_large(most)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _begin(self, job: Job) -> Begun:
        """Both phases up to the first byte of the answer."""
        if not self._fleet.candidates(Role.DECODE, job.model):
            raise Refusal(503, self._fleet.why_none(Role.DECODE), reason="no_decode")
        job.prefix = await self._prefix_of(job)
        prefiller = self._choose(Role.PREFILL, job)
        decoder: Instance | None = None
        transfer = None
        if prefiller is not None and self._fleet.find(prefiller.endpoint, Role.DECODE) is prefiller:
            decoder = self._choose(Role.DECODE, job)  # both roles at one address: one request may do for both
        if prefiller is None:
            self._metrics.prefills["none"].inc()
        elif prefiller is decoder:
            self._metrics.prefills["same_instance"].inc()
        else:
            transfer = await self._prefill(prefiller, job)
        if decoder is None or not decoder.is_well:
            # Only now: by the loads after the prefill.
            decoder = self._choose(Role.DECODE, job)
        if decoder is None:
            raise Refusal(503, self._fleet.why_none(Role.DECODE), reason="no_decode")
        return await self._decode(decoder, job, transfer)

    def _choose(self, role: Role, job: Job) -> Instance | None:
        candidates = self._fleet.candidates(role, job.model, job.tried)
        return self._policies[role].choose(candidates, job.prefix) if candidates else None

    async def _prefix_of(self, job: Job) -> Prefix:
        assert job.body is not None
        if self._config.scheduling != PREFIX_AWARE:
            return Prefix()
        try:
            hashes = hashes_of(job.body.fields)
        except RecursionError:
            raise Refusal(400, "the body is nested too deeply", reason="bad_body") from None
        if self._blocks is None:
            return Prefix(hashes)
        return Prefix(hashes, await self._blocks.blocks_at(job.path, job.body.fields))

    # --- prefill -------------------------------------------------------------------------------------------

    async def _prefill(self, first: Instance, job: Job) -> dict[str, Any] | None:
        """What the instance says of its blocks, if anything."""
        assert job.body is not None
        try:
            body = prefill_copy(job.body)
        except BadBody as error:
            raise Refusal(400, str(error), reason="bad_body") from None
        sent = job.sent.copy()
        sent["Accept-Encoding"] = "identity"
        began_s = time.monotonic()
        instance: Instance | None = first
        try:
            async with timeout(job.left_s(self._config.prefill_timeout_ms)):
                for attempt in range(self._config.attempts_max):
                    if instance is None:
                        break
                    if attempt:
                        self._metrics.retries[Role.PREFILL].inc()
                    job.tried.append(instance)
                    is_over, transfer = await self._prefill_at(instance, body, sent, job)
                    if is_over:
                        self._metrics.prefills["done"].inc()
                        self._metrics.prefill_seconds.observe(time.monotonic() - began_s)
                        return transfer
                    instance = self._choose(Role.PREFILL, job)
        except asyncio.TimeoutError:
            log.warning(
                "prefill at %s was not done within --prefill_timeout; decode computes the prompt",
                job.tried[-1].name,
            )
        finally:
            job.tried.clear()
        self._metrics.prefills["failed"].inc()
        return None

    async def _prefill_at(
        self, instance: Instance, body: bytes, sent: CIMultiDict[str], job: Job
    ) -> tuple[bool, dict[str, Any] | None]:
        """Whether this phase is over, and what came of it."""
        count_in(instance)
        try:
            async with post(self._session, instance, job.path, body, sent) as answer:
                packed = await small_body(answer)
                status = answer.status
        except FAILURES as error:
            if isinstance(error, asyncio.TimeoutError) and not is_gone(error):
                raise
            self._failed(instance, Role.PREFILL, error)
            return False, None
        finally:
            instance.running -= 1
        self._fleet.answered(instance)
        if status in TRIED_ELSEWHERE:
            self._failed(instance, Role.PREFILL, status)
            return False, None
        # What it refuses (4xx) the decode instance refuses as well, and in its own words.
        return True, transfer_of(packed) if status == 200 else None

    # --- decode --------------------------------------------------------------------------------------------

    async def _decode(self, first: Instance, job: Job, transfer: dict[str, Any] | None) -> Begun:
        """The begun answer of the first instance that gives one. Raises Refusal when none does."""
        assert job.body is not None
        body = decode_copy(job.body, transfer)
        most_ms = self._config.first_byte_timeout_ms
        if not job.body.is_streamed:  # begins when all of it has been computed
            most_ms = self._config.request_timeout_ms
        instance: Instance | None = first
        failure = Refusal(502, "no decode instance was asked", reason="bad_gateway")
        for attempt in range(self._config.attempts_max):
            if instance is None:
                break
            if attempt:
                self._metrics.retries[Role.DECODE].inc()
            job.tried.append(instance)
            begun = await self._decode_at(instance, body, job, most_ms)
            if isinstance(begun, Begun):
                others = self._fleet.candidates(Role.DECODE, job.model, job.tried)
                if begun.answer.status not in TRIED_ELSEWHERE:
                    self._fleet.answered(instance)
                    return begun
                self._failed(instance, Role.DECODE, begun.answer.status)
                if attempt + 1 == self._config.attempts_max or not others:
                    return begun
                begun.end()
            else:
                failure = begun
                if failure.status == 504:  # the time is gone
                    break
            instance = self._choose(Role.DECODE, job)
        raise failure

    async def _decode_at(self, instance: Instance, body: bytes, job: Job, most_ms: int) -> Begun | Refusal:
        count_in(instance)
        answer: aiohttp.ClientResponse | None = None
        try:
            async with timeout(job.left_s(most_ms)):
                answer = await post(self._session, instance, job.path, body, job.sent)
                part = await answer.content.readany()
            return Begun(instance, answer, part)
        except BaseException as error:
            instance.running -= 1
            if answer is not None:
                answer.close()
            if not isinstance(error, FAILURES):
                raise
            return self._gave_no_answer(instance, error)

    def _gave_no_answer(self, instance: Instance, error: BaseException) -> Refusal:
        if isinstance(error, asyncio.TimeoutError) and not is_gone(error):
            log.warning("%s did not begin its answer in time", instance.name)
            return Refusal(
                504,
                f"{instance.name} did not begin its answer in time (--first_byte_timeout, --request_timeout)",
                reason="first_byte_timeout",
            )
        self._failed(instance, Role.DECODE, error)
        return Refusal(502, f"decode instance {instance.name}: {cause_of(error)}", reason="bad_gateway")

    # --- the answer ----------------------------------------------------------------------------------------

    async def _pass_on(self, request: web.Request, job: Job, begun: Begun) -> web.StreamResponse:
        """The answer as it comes. Its status and headers are the instance's."""
        answer = begun.answer
        self._metrics.first_byte_seconds.observe(time.monotonic() - job.began_s)
        shown = headers.to_client(answer.headers, job.identity)
        if answer.content.at_eof():
            return web.Response(status=answer.status, reason=answer.reason, headers=shown, body=begun.part)
        length = answer.headers.get("Content-Length")
        if length is not None:
            shown["Content-Length"] = length
        response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=shown)
        stall_ms = self._config.stall_timeout_ms
        part = begun.part
        try:
            async with timeout(stall_ms / 1_000):
                await response.prepare(request)
        except (ConnectionError, asyncio.TimeoutError):
            return self._client_left(request, response)
        while part:
            try:
                async with timeout(stall_ms / 1_000):
                    await response.write(part)
            except (ConnectionError, asyncio.TimeoutError):
                return self._client_left(request, response)
            last = part
            try:
                async with timeout(job.left_s(stall_ms)):
                    part = await answer.content.readany()
            except FAILURES as error:
                return await self._break_off(request, begun.instance, response, last, error)
        return response

    async def _break_off(
        self,
        request: web.Request,
        instance: Instance,
        response: web.StreamResponse,
        last: bytes,
        error: BaseException,
    ) -> web.StreamResponse:
        """End the client's connection without the end of the answer, lest it pass for a whole one."""
        self._failed(instance, Role.DECODE, error)
        self._metrics.broken_streams.inc()
        text = f"decode instance {instance.name}: {cause_of(error)} after the answer had begun"
        if response.content_type == EVENT_STREAM and last.endswith(b"\n\n"):
            event = f"data: {json.dumps(error_object(502, text))}\n\n"
            try:
                async with timeout(1):
                    await response.write(event.encode())
            except (ConnectionError, asyncio.TimeoutError):
                pass
        _cut(request)
        return response

    def _client_left(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """It is gone, or it takes nothing for --stall_timeout."""
        self._metrics.clients_left.inc()
        _cut(request)
        return response

    def _failed(self, instance: Instance, role: Role, error: BaseException | int) -> None:
        if isinstance(error, int):
            instance.totals["failures"] += 1
            log.warning("%s instance %s answered %d", role.value, instance.name, error)
            return
        cause = cause_of(error)
        left = self._fleet.failed(instance, cause, is_gone=is_gone(error))
        log.warning(
            "%s instance %s: %s%s", role.value, instance.name, cause, "; out of the rotation" if left else ""
        )


def count_in(instance: Instance) -> None:
    instance.running += 1
    instance.totals["requests"] += 1


def _cut(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.close()
