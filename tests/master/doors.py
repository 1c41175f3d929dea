"""One vocabulary over both doors of a master, the lane's frames and gRPC: one suite can judge both."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any, Protocol

import grpc
from google.protobuf.message import Message
from lane_peer import CLIENT, HANG_S, NODE, LanePeer

from mooncake_store import _core
from mooncake_store.errors import StoreError, error_for, from_grpc
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.v1 import master_pb2_grpc as pb_grpc
from mooncake_store.wire_flags import REQUEST_COPIES, REQUEST_FORCE

Places = list[tuple[int, int]]

# Nobody listens there; an endpoint that an older segment advertised would expel that one.
_PORTS = itertools.count(1)


class Door(Protocol):
    """A session's view of a master. Refusals of a whole request are StoreErrors over either door."""

    session: int

    def open_session(self, tenant: str) -> int: ...
    def heartbeat(self) -> None: ...
    def mount(self, name: str, capacity: int) -> tuple[int, int]: ...
    def exists(self, keys: Sequence[bytes], avoid: Sequence[int] = ()) -> list[int]: ...
    def match_prefix(self, keys: Sequence[bytes]) -> tuple[int, int]: ...
    def why(self, keys: Sequence[bytes]) -> list[tuple[int, int, int]]: ...
    def inspect(self, *, key: bytes = b"", name: str = "", events_max: int = 0) -> dict[str, Any]: ...
    def create_copy_task(self, key: bytes, targets: Sequence[str], sequence: int | None = None) -> int: ...
    def create_move_task(self, key: bytes, source: str, target: str) -> int: ...
    def query_task(self, task: int) -> dict[str, Any]: ...
    def lookup(self, keys: Sequence[bytes]) -> list[tuple[int, int, int, Places]]: ...
    def put_start(
        self,
        keys: Sequence[bytes],
        sizes: Sequence[int],
        *,
        sequence: int | None = None,
        upsert: bool = False,
    ) -> list[tuple[int, int, Places]]: ...
    def put_end(self, items: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> list[int]: ...
    def put_revoke(self, put_ids: Sequence[int]) -> list[int]: ...
    def remove(
        self,
        keys: Sequence[bytes],
        *,
        sequence: int | None = None,
        force: bool = False,
        only_segments: Sequence[int] = (),
    ) -> list[int]: ...
    def keys(self, prefix: bytes = b"") -> list[bytes]: ...
    def stats(self) -> dict[str, int]: ...
    def close(self) -> None: ...


class LaneDoor:
    def __init__(self, lane_port: int) -> None:
        self._peer = LanePeer(lane_port, CLIENT)
        self._node = LanePeer(lane_port, NODE)  # clients may not mount
        self._sequences = itertools.count(1)
        self.session = 0

    def _ask(self, verb: str, body: bytes) -> bytes:
        status, packed = self._peer.ask(verb, body)
        if status != 0:
            raise error_for(status, packed[2:].decode())
        return packed

    def open_session(self, tenant: str) -> int:
        body = _core.encode_open_session(self._peer.process, "test", "host-a", tenant)
        self.session = _core.parse_open_session_reply(self._ask("open_session", body))["session"]
        return self.session

    def heartbeat(self) -> None:
        self._ask("heartbeat", _core.encode_prefix(self.session))

    def mount(self, name: str, capacity: int) -> tuple[int, int]:
        segment: _core.SegmentDescription = {
            "tier": 1,
            "capacity_bytes": capacity,
            "incarnation": os.urandom(16),
            "name": name,
            "host_id": "host-a",
            "endpoints": [f"tcp://127.0.0.1:{next(_PORTS)}"],
        }
        node = self._node
        node.session = node.session or node.open_session()
        body = _core.encode_mount(node.session, next(node.sequences), 0, bytes(16), [segment])
        status, packed = node.ask("mount", body)
        assert status == 0, packed
        [answer] = _core.parse_mount_reply(packed)
        return answer

    def exists(self, keys: Sequence[bytes], avoid: Sequence[int] = ()) -> list[int]:
        body = _core.encode_keys_request(self.session, keys, avoid=avoid)
        return _core.parse_statuses(self._ask("exists", body))

    def match_prefix(self, keys: Sequence[bytes]) -> tuple[int, int]:
        body = _core.encode_keys_request(self.session, keys)
        return _core.parse_match_prefix_reply(self._ask("match_prefix", body))

    def why(self, keys: Sequence[bytes]) -> list[tuple[int, int, int]]:
        body = _core.encode_keys_request(self.session, keys)
        return _core.parse_why_reply(self._ask("why", body))

    def inspect(self, *, key: bytes = b"", name: str = "", events_max: int = 0) -> dict[str, Any]:
        subject = 1 if key else 2 if name else 0
        body = _core.encode_inspect(self.session, subject, key or name.encode(), events_max)
        return dict(_core.parse_inspect_reply(self._ask("inspect", body)))

    def create_copy_task(self, key: bytes, targets: Sequence[str], sequence: int | None = None) -> int:
        number = next(self._sequences) if sequence is None else sequence
        body = _core.encode_create_task(self.session, number, key, targets)
        return _core.parse_create_task_reply(self._ask("create_copy_task", body))

    def create_move_task(self, key: bytes, source: str, target: str) -> int:
        body = _core.encode_create_task(self.session, next(self._sequences), key, [target], source)
        return _core.parse_create_task_reply(self._ask("create_move_task", body))

    def query_task(self, task: int) -> dict[str, Any]:
        body = _core.encode_query_task(self.session, task)
        return dict(_core.parse_query_task_reply(self._ask("query_task", body)))

    def lookup(self, keys: Sequence[bytes]) -> list[tuple[int, int, int, Places]]:
        body = _core.encode_keys_request(self.session, keys)
        found = _core.parse_lookup_reply(self._ask("lookup", body))
        return [(status, put_id, size, places) for status, put_id, size, _, places in found]

    def put_start(
        self,
        keys: Sequence[bytes],
        sizes: Sequence[int],
        *,
        sequence: int | None = None,
        upsert: bool = False,
    ) -> list[tuple[int, int, Places]]:
        number = next(self._sequences) if sequence is None else sequence
        body = _core.encode_put_start(self.session, number, keys, sizes, flags=4 if upsert else 0)
        return _core.parse_put_start_reply(self._ask("put_start", body))

    def put_end(self, items: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> list[int]:
        body = _core.encode_put_end(self.session, next(self._sequences), items)
        return _core.parse_statuses(self._ask("put_end", body))

    def put_revoke(self, put_ids: Sequence[int]) -> list[int]:
        body = _core.encode_put_revoke(self.session, next(self._sequences), put_ids)
        return _core.parse_statuses(self._ask("put_revoke", body))

    def remove(
        self,
        keys: Sequence[bytes],
        *,
        sequence: int | None = None,
        force: bool = False,
        only_segments: Sequence[int] = (),
    ) -> list[int]:
        number = next(self._sequences) if sequence is None else sequence
        flags = REQUEST_FORCE * force | REQUEST_COPIES * bool(only_segments)
        body = _core.encode_keys_request(self.session, keys, number, flags, list(only_segments))
        return _core.parse_statuses(self._ask("remove", body))

    def keys(self, prefix: bytes = b"") -> list[bytes]:
        found: list[bytes] = []
        cursor = 0
        while True:
            body = _core.encode_list(self.session, cursor, 2, prefix)
            cursor, objects = _core.parse_list_reply(self._ask("list", body))
            found += [key for key, *_ in objects]
            if cursor == 0:
                return found

    def stats(self) -> dict[str, int]:
        return _core.parse_stats_reply(self._ask("stats", _core.encode_prefix(self.session)))

    def close(self) -> None:
        self._peer.close()
        self._node.close()


class GrpcDoor:
    def __init__(self, grpc_port: int) -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{grpc_port}")
        self._stub = pb_grpc.MasterServiceStub(self._channel)  # type: ignore[no-untyped-call]
        self._sequences = itertools.count(1)
        self.session = 0

    def _ask(self, method: str, request: object) -> object:
        try:
            return getattr(self._stub, method)(request, timeout=HANG_S)
        except grpc.RpcError as error:
            raise _store_error(error) from error

    def open_session(self, tenant: str) -> int:
        request = pb.OpenSessionRequest(
            process_uuid=os.urandom(16), name="test", host_id="host-a", tenant=tenant
        )
        self.session = self._ask("OpenSession", request).session
        return self.session

    def heartbeat(self) -> None:
        self._ask("Heartbeat", pb.HeartbeatRequest(session=self.session))

    def mount(self, name: str, capacity: int) -> tuple[int, int]:
        segment = pb.SegmentDescription(
            tier=pb.TIER_DRAM,
            capacity_bytes=capacity,
            incarnation=os.urandom(16),
            name=name,
            host_id="host-a",
            endpoints=[f"tcp://127.0.0.1:{next(_PORTS)}"],
        )
        request = pb.MountSegmentsRequest(
            session=self.session, sequence=next(self._sequences), segments=[segment]
        )
        [answer] = self._ask("MountSegments", request).answers
        return answer.status, answer.segment

    def exists(self, keys: Sequence[bytes], avoid: Sequence[int] = ()) -> list[int]:
        request = pb.KeysRequest(session=self.session, keys=keys, avoid_segments=avoid)
        return list(self._ask("Exists", request).statuses)

    def match_prefix(self, keys: Sequence[bytes]) -> tuple[int, int]:
        reply = self._ask("MatchPrefix", pb.KeysRequest(session=self.session, keys=keys))
        return reply.length, reply.miss

    def why(self, keys: Sequence[bytes]) -> list[tuple[int, int, int]]:
        reply = self._ask("Why", pb.KeysRequest(session=self.session, keys=keys))
        return [(one.status, one.reason, one.ended_ms_ago) for one in reply.answers]

    def inspect(self, *, key: bytes = b"", name: str = "", events_max: int = 0) -> dict[str, Any]:
        request = pb.InspectRequest(session=self.session, events_max=events_max)
        if key:
            request.key = key
        elif name:
            request.name = name
        return _inspected(self._ask("Inspect", request))

    def create_copy_task(self, key: bytes, targets: Sequence[str], sequence: int | None = None) -> int:
        number = next(self._sequences) if sequence is None else sequence
        request = pb.CreateCopyTaskRequest(session=self.session, sequence=number, key=key, targets=targets)
        return int(self._ask("CreateCopyTask", request).task)

    def create_move_task(self, key: bytes, source: str, target: str) -> int:
        request = pb.CreateMoveTaskRequest(
            session=self.session, sequence=next(self._sequences), key=key, source=source, target=target
        )
        return int(self._ask("CreateMoveTask", request).task)

    def query_task(self, task: int) -> dict[str, Any]:
        reply = self._ask("QueryTask", pb.QueryTaskRequest(session=self.session, task=task))
        return {field.name: getattr(reply, field.name) for field in reply.DESCRIPTOR.fields}

    def lookup(self, keys: Sequence[bytes]) -> list[tuple[int, int, int, Places]]:
        reply = self._ask("Lookup", pb.KeysRequest(session=self.session, keys=keys))
        return [(one.status, one.put_id, one.size, _places(one.places)) for one in reply.found]

    def put_start(
        self,
        keys: Sequence[bytes],
        sizes: Sequence[int],
        *,
        sequence: int | None = None,
        upsert: bool = False,
    ) -> list[tuple[int, int, Places]]:
        number = next(self._sequences) if sequence is None else sequence
        request = pb.PutStartRequest(
            session=self.session, sequence=number, keys=keys, sizes=sizes, upsert=upsert
        )
        grants = self._ask("PutStart", request).grants
        return [(grant.status, grant.put_id, _places(grant.places)) for grant in grants]

    def put_end(self, items: Sequence[tuple[int, Sequence[tuple[int, int]]]]) -> list[int]:
        request = pb.PutEndRequest(
            session=self.session,
            sequence=next(self._sequences),
            items=[
                pb.PutEndRequest.Item(
                    put_id=put_id,
                    results=[
                        pb.PutEndRequest.Result(replica=replica, status=status) for replica, status in results
                    ],
                )
                for put_id, results in items
            ],
        )
        return list(self._ask("PutEnd", request).statuses)

    def put_revoke(self, put_ids: Sequence[int]) -> list[int]:
        request = pb.PutRevokeRequest(session=self.session, sequence=next(self._sequences), put_ids=put_ids)
        return list(self._ask("PutRevoke", request).statuses)

    def remove(
        self,
        keys: Sequence[bytes],
        *,
        sequence: int | None = None,
        force: bool = False,
        only_segments: Sequence[int] = (),
    ) -> list[int]:
        number = next(self._sequences) if sequence is None else sequence
        request = pb.RemoveRequest(
            session=self.session, sequence=number, keys=keys, force=force, only_segments=only_segments
        )
        return list(self._ask("Remove", request).statuses)

    def keys(self, prefix: bytes = b"") -> list[bytes]:
        found: list[bytes] = []
        cursor = 0
        while True:
            request = pb.ListRequest(session=self.session, cursor=cursor, limit=2, key_prefix=prefix)
            reply = self._ask("List", request)
            found += [one.key for one in reply.objects]
            cursor = reply.cursor
            if cursor == 0:
                return found

    def stats(self) -> dict[str, int]:
        return dict(self._ask("Stats", pb.StatsRequest(session=self.session)).stats)

    def close(self) -> None:
        self._channel.close()


def _inspected(reply: pb.InspectReply) -> dict[str, Any]:
    """A message in the terms of `_core.parse_inspect_reply`."""

    def fields(message: Message) -> dict[str, Any]:
        return {field.name: getattr(message, field.name) for field in message.DESCRIPTOR.fields}

    key = fields(reply.key)
    key["flags"] = key.pop("hard_pinned") | key.pop("soft_pinned") << 1
    copies = [fields(copy) for copy in reply.copies]
    segments = [fields(segment) for segment in reply.segments]
    events = [fields(event) for event in reply.events]
    for copy in copies:
        copy["has_left"] = copy.pop("segment_left")
    for segment in segments:
        segment["owner"] = segment.pop("owner_session")
        segment["flags"] = segment.pop("connected") | segment.pop("told") << 1 | segment.pop("suspected") << 2
    for event in events:
        event["id"] = event.pop("replica")
    return {
        **fields(reply),
        "key": key if reply.HasField("key") else None,
        "copies": copies,
        "segments": segments,
        "events": events,
    }


def _places(places: Sequence[pb.Place]) -> Places:
    return [(place.replica, place.segment) for place in places]


def _store_error(error: grpc.RpcError) -> StoreError:
    metadata = [(pair[0], pair[1]) for pair in error.trailing_metadata() or ()]
    return from_grpc(error.code().name, error.details() or "", metadata)
