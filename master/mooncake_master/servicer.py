"""The gRPC door: checks a request's form, packs it, asks the state machine, unpacks the answer.

Owns the translation between `proto/mooncake_store/v1` and the packed bodies of `native/wire`, nothing else:
no policy, no state. Whole-request refusals become gRPC codes through the table in `mooncake_store.errors`.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from mooncake_master.door import Door
from mooncake_master.inspected import inspect_reply
from mooncake_store import _core
from mooncake_store._version import __version__
from mooncake_store.errors import InvalidArgument, StoreError, grpc_code, to_grpc
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.v1 import master_pb2_grpc as pb_grpc
from mooncake_store.wire_flags import (
    PUT_HARD_PIN,
    PUT_KEEP_SOFT_PIN,
    PUT_LOCAL,
    PUT_SOFT_PIN,
    PUT_UPSERT,
    REQUEST_COPIES,
    REQUEST_FORCE,
    REQUEST_WITHOUT_HOLD,
    SUBJECT_KEY,
    SUBJECT_NAME,
    SUBJECT_POOL,
)

LIST_LIMIT_DEFAULT: Final = 1_000
BATCH_KEYS_MAX: Final = 16_384

_SUBJECTS: Final = {None: SUBJECT_POOL, "key": SUBJECT_KEY, "name": SUBJECT_NAME}

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Any, Context], Awaitable[Any]]


def refusing(method: Method) -> Method:
    """Turns a StoreError, and a value that does not fit its field, into the call's gRPC status."""

    @functools.wraps(method)
    async def call(self: Any, request: Any, context: Context) -> Any:
        try:
            return await method(self, request, context)
        except StoreError as error:
            await _abort(context, error)
        except (ValueError, OverflowError) as error:
            await _abort(context, InvalidArgument(f"{method.__name__}: {error}"))

    return call


async def _abort(context: Context, error: StoreError) -> None:
    _, details, metadata = to_grpc(error)
    await context.abort(grpc_code(error.code), details, metadata)


class RefusingMalformed(grpc.aio.ServerInterceptor):
    """Answers bytes that are no message with INVALID_ARGUMENT; gRPC itself would log a traceback for each."""

    async def intercept_service(self, continuation: Any, details: grpc.HandlerCallDetails) -> Any:
        handler = await continuation(details)
        if handler is None or handler.unary_unary is None:
            return handler

        def parse(packed: bytes) -> Any:
            try:
                return handler.request_deserializer(packed)
            except DecodeError:
                return None

        async def call(request: Any, context: Context) -> Any:
            if request is None:
                await _abort(
                    context, InvalidArgument(f"{details.method}: the bytes are no request of its type")
                )
            return await handler.unary_unary(request, context)

        return grpc.unary_unary_rpc_method_handler(call, parse, handler.response_serializer)


class MasterServicer(pb_grpc.MasterServiceServicer):
    """One method a verb; each asks the state machine once."""

    def __init__(
        self,
        door: Door,
        *,
        epoch: Callable[[], int],
        hear_of_reign: Callable[[int, bytes], int],
        master_uuid: bytes,
        lane_endpoint: str,
    ) -> None:
        """lane_endpoint: "host:port" as told to clients; a wildcard host means the one that they dialled."""
        self._door = door
        self._epoch = epoch
        self._hear_of_reign = hear_of_reign
        self._master_uuid = master_uuid
        self._lane_endpoint = lane_endpoint

    @refusing
    async def Discover(self, request: pb.DiscoverRequest, context: Context) -> pb.DiscoverReply:
        deposed_by = self._hear_of_reign(
            request.followed_epoch, _uuid("followed_master", request.followed_master or bytes(16))
        )
        return pb.DiscoverReply(
            lane_endpoint=self._lane_endpoint,
            epoch=self._epoch(),
            master_uuid=self._master_uuid,
            software=__version__,
            deposed_by_epoch=deposed_by,
        )

    @refusing
    async def OpenSession(self, request: pb.OpenSessionRequest, context: Context) -> pb.OpenSessionReply:
        body = _core.encode_open_session(
            _uuid("process_uuid", request.process_uuid), request.name, request.host_id, request.tenant
        )
        reply = _core.parse_open_session_reply(await self._door.ask("open_session", body))
        return pb.OpenSessionReply(
            session=reply["session"],
            epoch=reply["epoch"],
            master_uuid=reply["master"],
            client_ttl_ms=reply["client_ttl_ms"],
            heartbeat_interval_ms=reply["heartbeat_interval_ms"],
            lease_ttl_ms=reply["lease_ttl_ms"],
            exists_hold_ms=reply["exists_hold_ms"],
            lane_endpoint=self._lane_endpoint,
        )

    @refusing
    async def Heartbeat(self, request: pb.HeartbeatRequest, context: Context) -> pb.HeartbeatReply:
        body = _core.encode_heartbeat(
            request.session, list(request.unreachable_segments), list(map(int, request.failures))
        )
        await self._door.ask("heartbeat", body)
        return pb.HeartbeatReply(epoch=self._epoch())

    @refusing
    async def CloseSession(self, request: pb.CloseSessionRequest, context: Context) -> pb.CloseSessionReply:
        await self._door.ask("close_session", _core.encode_prefix(request.session))
        return pb.CloseSessionReply()

    @refusing
    async def MountSegments(
        self, request: pb.MountSegmentsRequest, context: Context
    ) -> pb.MountSegmentsReply:
        known_master = _uuid("known_master", request.known_master) if request.known_master else bytes(16)
        body = _core.encode_mount(
            request.session,
            request.sequence,
            request.known_epoch,
            known_master,
            [_segment_dict(segment) for segment in request.segments],
        )
        answers = _core.parse_mount_reply(await self._door.ask("mount", body))
        return pb.MountSegmentsReply(
            answers=[
                pb.MountSegmentsReply.Answer(status=_enum(status), segment=segment)
                for status, segment in answers
            ]
        )

    @refusing
    async def UnmountSegments(self, request: pb.UnmountSegmentsRequest, context: Context) -> pb.StatusesReply:
        body = _core.encode_segment_ids(request.session, list(request.segments), request.sequence)
        return _statuses(await self._door.ask("unmount", body))

    @refusing
    async def GetSegments(self, request: pb.GetSegmentsRequest, context: Context) -> pb.GetSegmentsReply:
        body = _core.encode_segment_ids(request.session, list(request.segments))
        infos = _core.parse_segments_reply(await self._door.ask("segments", body))
        return pb.GetSegmentsReply(segments=[_segment_info(info) for info in infos])

    @refusing
    async def Exists(self, request: pb.KeysRequest, context: Context) -> pb.StatusesReply:
        return _statuses(await self._door.ask("exists", _keys_body(request)))

    @refusing
    async def MatchPrefix(self, request: pb.KeysRequest, context: Context) -> pb.MatchPrefixReply:
        packed = await self._door.ask("match_prefix", _keys_body(request))
        length, miss = _core.parse_match_prefix_reply(packed)
        return pb.MatchPrefixReply(length=length, miss=_enum(miss))

    @refusing
    async def Lookup(self, request: pb.KeysRequest, context: Context) -> pb.LookupReply:
        packed = await self._door.ask("lookup", _keys_body(request))
        return pb.LookupReply(
            found=[
                pb.LookupReply.Found(
                    status=_enum(status),
                    put_id=put_id,
                    size=size,
                    lease_ms=lease_ms,
                    places=_places(places),
                )
                for status, put_id, size, lease_ms, places in _core.parse_lookup_reply(packed)
            ]
        )

    @refusing
    async def PutStart(self, request: pb.PutStartRequest, context: Context) -> pb.PutStartReply:
        _check_count("keys", request.keys)
        body = _core.encode_put_start(
            request.session,
            request.sequence,
            list(request.keys),
            list(request.sizes),
            list(request.parent_digests),
            replica_count=request.replica_count or 1,
            flags=PUT_HARD_PIN * request.hard_pin
            | PUT_SOFT_PIN * request.soft_pin
            | PUT_UPSERT * request.upsert
            | PUT_LOCAL * request.prefer_local
            | PUT_KEEP_SOFT_PIN * request.keep_soft_pin,
            preferred=list(request.preferred_segments),
            soft_pin_ms=request.soft_pin_ms,
            ttl_ms=request.ttl_ms,
            avoid=list(request.avoid_segments),
        )
        packed = await self._door.ask("put_start", body)
        return pb.PutStartReply(
            grants=[
                pb.PutStartReply.Grant(status=_enum(status), put_id=put_id, places=_places(places))
                for status, put_id, places in _core.parse_put_start_reply(packed)
            ]
        )

    @refusing
    async def PutEnd(self, request: pb.PutEndRequest, context: Context) -> pb.StatusesReply:
        _check_count("items", request.items)
        items = [
            (item.put_id, [(result.replica, int(result.status)) for result in item.results])
            for item in request.items
        ]
        body = _core.encode_put_end(request.session, request.sequence, items)
        return _statuses(await self._door.ask("put_end", body))

    @refusing
    async def PutRevoke(self, request: pb.PutRevokeRequest, context: Context) -> pb.StatusesReply:
        body = _core.encode_put_revoke(request.session, request.sequence, list(request.put_ids))
        return _statuses(await self._door.ask("put_revoke", body))

    @refusing
    async def Remove(self, request: pb.RemoveRequest, context: Context) -> pb.StatusesReply:
        _check_count("keys", request.keys)
        body = _core.encode_keys_request(
            request.session,
            list(request.keys),
            sequence=request.sequence,
            flags=REQUEST_FORCE * request.force | REQUEST_COPIES * bool(request.only_segments),
            avoid=list(request.only_segments),
        )
        return _statuses(await self._door.ask("remove", body))

    @refusing
    async def Touch(self, request: pb.KeysRequest, context: Context) -> pb.StatusesReply:
        return _statuses(await self._door.ask("touch", _keys_body(request)))

    @refusing
    async def Release(self, request: pb.KeysRequest, context: Context) -> pb.ReleaseReply:
        await self._door.ask("release", _keys_body(request))
        return pb.ReleaseReply()

    @refusing
    async def Why(self, request: pb.KeysRequest, context: Context) -> pb.WhyReply:
        answers = _core.parse_why_reply(await self._door.ask("why", _keys_body(request)))
        return pb.WhyReply(
            answers=[
                pb.WhyReply.Answer(
                    status=_enum(status),
                    reason=pb.Absence.Name(reason),
                    ended_ms_ago=ended_ms_ago,
                )
                for status, reason, ended_ms_ago in answers
            ]
        )

    @refusing
    async def Inspect(self, request: pb.InspectRequest, context: Context) -> pb.InspectReply:
        chosen = request.WhichOneof("subject")
        name = request.key if chosen == "key" else request.name.encode() if chosen == "name" else b""
        body = _core.encode_inspect(
            request.session,
            _SUBJECTS[chosen],
            name,
            request.events_max,
            list(request.avoid_segments),
        )
        return inspect_reply(_core.parse_inspect_reply(await self._door.ask("inspect", body)))

    @refusing
    async def CreateCopyTask(self, request: pb.CreateCopyTaskRequest, context: Context) -> pb.CreateTaskReply:
        body = _core.encode_create_task(request.session, request.sequence, request.key, list(request.targets))
        packed = await self._door.ask("create_copy_task", body)
        return pb.CreateTaskReply(task=_core.parse_create_task_reply(packed))

    @refusing
    async def CreateMoveTask(self, request: pb.CreateMoveTaskRequest, context: Context) -> pb.CreateTaskReply:
        body = _core.encode_create_task(
            request.session, request.sequence, request.key, [request.target], request.source
        )
        packed = await self._door.ask("create_move_task", body)
        return pb.CreateTaskReply(task=_core.parse_create_task_reply(packed))

    @refusing
    async def QueryTask(self, request: pb.QueryTaskRequest, context: Context) -> pb.QueryTaskReply:
        packed = await self._door.ask("query_task", _core.encode_query_task(request.session, request.task))
        fields: dict[str, Any] = dict(_core.parse_query_task_reply(packed))
        return pb.QueryTaskReply(**fields)

    @refusing
    async def List(self, request: pb.ListRequest, context: Context) -> pb.ListReply:
        limit = request.limit or LIST_LIMIT_DEFAULT
        if limit > BATCH_KEYS_MAX:
            raise InvalidArgument(f"limit {limit} is over {BATCH_KEYS_MAX}")
        body = _core.encode_list(request.session, request.cursor, limit, request.key_prefix)
        cursor, objects = _core.parse_list_reply(await self._door.ask("list", body))
        return pb.ListReply(
            cursor=cursor,
            objects=[
                pb.ListReply.Object(
                    key=key,
                    size=size,
                    put_id=put_id,
                    replica_count=replicas,
                    hard_pinned=bool(flags & PUT_HARD_PIN),
                    soft_pinned=bool(flags & PUT_SOFT_PIN),
                )
                for key, size, put_id, replicas, flags in objects
            ],
        )

    @refusing
    async def Stats(self, request: pb.StatsRequest, context: Context) -> pb.StatsReply:
        packed = await self._door.ask("stats", _core.encode_prefix(request.session))
        return pb.StatsReply(stats=_core.parse_stats_reply(packed))


def _check_count(field: str, values: Sequence[object]) -> None:
    if len(values) > BATCH_KEYS_MAX:
        raise InvalidArgument(f"{len(values)} {field} in one request; at most {BATCH_KEYS_MAX}")


def _keys_body(request: pb.KeysRequest) -> bytes:
    _check_count("keys", request.keys)
    return _core.encode_keys_request(
        request.session,
        list(request.keys),
        sequence=request.sequence,
        flags=REQUEST_WITHOUT_HOLD if request.without_hold else 0,
        avoid=list(request.avoid_segments),
    )


def _uuid(field: str, value: bytes) -> bytes:
    if len(value) != 16:
        raise InvalidArgument(f"{field} has {len(value)} bytes; a uuid has 16")
    return value


def _enum(number: int) -> Any:
    """A number for an enum field; proto3 enums are open, so one we do not list still arrives."""
    return number


def _statuses(packed: bytes) -> pb.StatusesReply:
    statuses: Any = _core.parse_statuses(packed)
    return pb.StatusesReply(statuses=statuses)


def _places(places: Sequence[tuple[int, int]]) -> list[pb.Place]:
    return [pb.Place(replica=replica, segment=segment) for replica, segment in places]


def _segment_dict(segment: pb.SegmentDescription) -> _core.SegmentDescription:
    return {
        "tier": int(segment.tier),
        "capacity_bytes": segment.capacity_bytes,
        "incarnation": _uuid("incarnation", segment.incarnation),
        "name": segment.name,
        "host_id": segment.host_id,
        "endpoints": list(segment.endpoints),
    }


def _segment_info(info: _core.SegmentInfo) -> pb.SegmentInfo:
    return pb.SegmentInfo(
        status=_enum(info["status"]),
        segment=info["segment"],
        owner_session=info["owner"],
        charged_bytes=info["charged_bytes"],
        retiring_bytes=info["retiring_bytes"],
        replica_count=info["replica_count"],
        description=pb.SegmentDescription(
            tier=_enum(info["tier"]),
            capacity_bytes=info["capacity_bytes"],
            incarnation=info["incarnation"],
            name=info["name"],
            host_id=info["host_id"],
            endpoints=info["endpoints"],
        ),
    )
