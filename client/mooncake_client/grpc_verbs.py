"""A request of the lane as a message of the public gRPC contract, and the reply back as the lane's answer.

Owns the translation of each verb that a client asks; `mooncake_master.servicer` is its mirror. Imports
protobuf, so it is imported only where the master is asked over gRPC. Must not know connections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from mooncake_store import _core
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.wire_flags import (
    PUT_HARD_PIN,
    PUT_KEEP_SOFT_PIN,
    PUT_LOCAL,
    PUT_SOFT_PIN,
    PUT_UPSERT,
    REQUEST_COPIES,
    REQUEST_FORCE,
    REQUEST_WITHOUT_HOLD,
    SEGMENT_CONNECTED,
    SEGMENT_SUSPECTED,
    SEGMENT_TOLD,
    SUBJECT_KEY,
    SUBJECT_NAME,
)

_STATUS_MIN: Final = -(1 << 15)


class Verb(NamedTuple):
    """request: of a packed body. answer: the packed body of a reply; ValueError for what cannot be one."""

    method: str
    request: Callable[[bytes], Any]
    answer: Callable[[Any], bytes]


# ---- sessions and segments


def _open_session(body: bytes) -> pb.OpenSessionRequest:
    asked = _core.parse_open_session(body)
    return pb.OpenSessionRequest(
        process_uuid=asked["process"], name=asked["name"], host_id=asked["host_id"], tenant=asked["tenant"]
    )


def _session_opened(reply: pb.OpenSessionReply) -> bytes:
    return _core.encode_open_session_reply(
        reply.session,
        reply.epoch,
        reply.master_uuid,
        reply.client_ttl_ms,
        reply.heartbeat_interval_ms,
        reply.lease_ttl_ms,
        reply.exists_hold_ms,
    )


def _heartbeat(body: bytes) -> pb.HeartbeatRequest:
    asked = _core.parse_heartbeat(body)
    failures: Any = asked["failures"]
    return pb.HeartbeatRequest(
        session=asked["session"], unreachable_segments=asked["avoid"], failures=failures
    )


def _close_session(body: bytes) -> pb.CloseSessionRequest:
    return pb.CloseSessionRequest(session=_core.parse_prefix(body)["session"])


def _get_segments(body: bytes) -> pb.GetSegmentsRequest:
    asked = _core.parse_segment_ids(body)
    return pb.GetSegmentsRequest(session=asked["session"], segments=asked["ids"])


def _segments(reply: pb.GetSegmentsReply) -> bytes:
    return _core.encode_segments_reply([_segment_info(info) for info in reply.segments])


def _segment_info(info: pb.SegmentInfo) -> _core.SegmentInfo:
    told = info.description
    return {
        "status": _status(info.status),
        "segment": info.segment,
        "owner": info.owner_session,
        "charged_bytes": info.charged_bytes,
        "retiring_bytes": info.retiring_bytes,
        "replica_count": info.replica_count,
        "tier": _byte("tier", told.tier),
        "capacity_bytes": told.capacity_bytes,
        "incarnation": told.incarnation or bytes(16),  # of a segment that has left nothing else is told
        "name": told.name,
        "host_id": told.host_id,
        "endpoints": list(told.endpoints),
    }


# ---- objects


def _keys(body: bytes) -> pb.KeysRequest:
    asked = _core.parse_keys_request(body)
    return pb.KeysRequest(
        session=asked["session"],
        keys=asked["keys"],
        avoid_segments=asked["avoid"],
        sequence=asked["sequence"],
        without_hold=bool(asked["flags"] & REQUEST_WITHOUT_HOLD),
    )


def _remove(body: bytes) -> pb.RemoveRequest:
    asked = _core.parse_keys_request(body)
    return pb.RemoveRequest(
        session=asked["session"],
        sequence=asked["sequence"],
        keys=asked["keys"],
        force=bool(asked["flags"] & REQUEST_FORCE),
        only_segments=asked["avoid"] if asked["flags"] & REQUEST_COPIES else (),
    )


def _statuses(reply: pb.StatusesReply) -> bytes:
    return _core.encode_statuses([_status(number) for number in reply.statuses])


def _nothing(reply: object) -> bytes:
    return b""


def _matched(reply: pb.MatchPrefixReply) -> bytes:
    return _core.encode_match_prefix_reply(reply.length, _status(reply.miss))


def _found(reply: pb.LookupReply) -> bytes:
    return _core.encode_lookup_reply(
        [
            (_status(found.status), found.put_id, found.size, found.lease_ms, _places(found.places))
            for found in reply.found
        ]
    )


def _put_start(body: bytes) -> pb.PutStartRequest:
    asked = _core.parse_put_start(body)
    flags = asked["put_flags"]
    return pb.PutStartRequest(
        session=asked["session"],
        sequence=asked["sequence"],
        keys=asked["keys"],
        sizes=asked["sizes"],
        parent_digests=asked["parents"] if any(asked["parents"]) else (),
        avoid_segments=asked["avoid"],
        replica_count=asked["replica_count"],
        hard_pin=bool(flags & PUT_HARD_PIN),
        soft_pin=bool(flags & PUT_SOFT_PIN),
        soft_pin_ms=asked["soft_pin_ms"],
        ttl_ms=asked["ttl_ms"],
        upsert=bool(flags & PUT_UPSERT),
        prefer_local=bool(flags & PUT_LOCAL),
        preferred_segments=asked["preferred"],
        keep_soft_pin=bool(flags & PUT_KEEP_SOFT_PIN),
    )


def _granted(reply: pb.PutStartReply) -> bytes:
    return _core.encode_put_start_reply(
        [(_status(grant.status), grant.put_id, _places(grant.places)) for grant in reply.grants]
    )


def _put_end(body: bytes) -> pb.PutEndRequest:
    asked = _core.parse_put_end(body)
    result: Any = pb.PutEndRequest.Result  # an enum field takes any number
    return pb.PutEndRequest(
        session=asked["session"],
        sequence=asked["sequence"],
        items=[
            pb.PutEndRequest.Item(
                put_id=put_id,
                results=[result(replica=replica, status=status) for replica, status in results],
            )
            for put_id, results in asked["items"]
        ],
    )


def _put_revoke(body: bytes) -> pb.PutRevokeRequest:
    asked = _core.parse_put_revoke(body)
    return pb.PutRevokeRequest(session=asked["session"], sequence=asked["sequence"], put_ids=asked["put_ids"])


def _reasons(reply: pb.WhyReply) -> bytes:
    return _core.encode_why_reply(
        [
            (_status(answer.status), _byte("reason", answer.reason), answer.ended_ms_ago)
            for answer in reply.answers
        ]
    )


def _list(body: bytes) -> pb.ListRequest:
    asked = _core.parse_list(body)
    return pb.ListRequest(
        session=asked["session"],
        cursor=asked["cursor"],
        limit=asked["limit"],
        key_prefix=asked["key_prefix"],
    )


def _listed(reply: pb.ListReply) -> bytes:
    return _core.encode_list_reply(
        reply.cursor,
        [
            (
                found.key,
                found.size,
                found.put_id,
                _byte("replica_count", found.replica_count),
                _pins(found.hard_pinned, found.soft_pinned),
            )
            for found in reply.objects
        ],
    )


# ---- tasks, operators' questions


def _copy_task(body: bytes) -> pb.CreateCopyTaskRequest:
    asked = _core.parse_create_task(body)
    return pb.CreateCopyTaskRequest(
        session=asked["session"], sequence=asked["sequence"], key=asked["key"], targets=asked["targets"]
    )


def _move_task(body: bytes) -> pb.CreateMoveTaskRequest:
    asked = _core.parse_create_task(body)
    [target] = asked["targets"]
    return pb.CreateMoveTaskRequest(
        session=asked["session"],
        sequence=asked["sequence"],
        key=asked["key"],
        source=asked["source"],
        target=target,
    )


def _task_made(reply: pb.CreateTaskReply) -> bytes:
    return _core.encode_create_task_reply(reply.task)


def _query_task(body: bytes) -> pb.QueryTaskRequest:
    asked = _core.parse_query_task(body)
    return pb.QueryTaskRequest(session=asked["session"], task=asked["task"])


def _task(reply: pb.QueryTaskReply) -> bytes:
    return _core.encode_query_task_reply(
        reply.task,
        type=_byte("type", reply.type),
        status=_byte("status", reply.status),
        created_ms_ago=reply.created_ms_ago,
        updated_ms_ago=reply.updated_ms_ago,
        node=reply.node,
        message=reply.message,
    )


def _inspect(body: bytes) -> pb.InspectRequest:
    asked = _core.parse_inspect(body)
    subject = asked["subject"]
    return pb.InspectRequest(
        session=asked["session"],
        key=asked["name"] if subject == SUBJECT_KEY else None,
        name=asked["name"].decode("utf-8", "replace") if subject == SUBJECT_NAME else None,
        events_max=asked["limit"],
        avoid_segments=asked["avoid"],
    )


def _inspected(reply: pb.InspectReply) -> bytes:
    return _core.encode_inspect_reply(
        {
            "dropped_events": reply.dropped_events,
            "oldest_event_ms_ago": reply.oldest_event_ms_ago,
            "has_older_events": reply.has_older_events,
            "key": _inspected_key(reply.key) if reply.HasField("key") else None,
            "copies": [
                {
                    "replica": copy.replica,
                    "segment": copy.segment,
                    "charged_bytes": copy.charged_bytes,
                    "status": _byte("status", copy.status),
                    "tier": _byte("tier", copy.tier),
                    "has_left": copy.segment_left,
                    "segment_name": copy.segment_name,
                    "host_id": copy.host_id,
                }
                for copy in reply.copies
            ],
            "segments": [_inspected_segment(segment) for segment in reply.segments],
            "events": [
                {
                    "ms_ago": event.ms_ago,
                    "id": event.replica,
                    "segment": event.segment,
                    "session": event.session,
                    "number": event.number,
                    "kind": _byte("kind", event.kind),
                    "reason": _byte("reason", event.reason),
                    "name": event.name,
                }
                for event in reply.events
            ],
        }
    )


def _inspected_key(key: pb.InspectReply.Key) -> _core.InspectedKey:
    return {
        "status": _status(key.status),
        "reason": _byte("reason", key.reason),
        "ended_ms_ago": key.ended_ms_ago,
        "put_id": key.put_id,
        "size": key.size,
        "flags": _pins(key.hard_pinned, key.soft_pinned),
        "lease_count": key.lease_count,
        "lease_ms": key.lease_ms,
        "hold_ms": key.hold_ms,
        "soft_pin_ms": key.soft_pin_ms,
        "ttl_ms": key.ttl_ms,
        "unfinished_put_id": key.unfinished_put_id,
        "unfinished_size": key.unfinished_size,
        "unfinished_age_ms": key.unfinished_age_ms,
        "unfinished_owner": key.unfinished_owner,
        "unfinished_owner_name": key.unfinished_owner_name,
    }


def _inspected_segment(segment: pb.InspectReply.Segment) -> _core.InspectedSegment:
    return {
        "segment": segment.segment,
        "owner": segment.owner_session,
        "capacity_bytes": segment.capacity_bytes,
        "charged_bytes": segment.charged_bytes,
        "retiring_bytes": segment.retiring_bytes,
        "replica_count": segment.replica_count,
        "heard_ms_ago": segment.heard_ms_ago,
        "tier": _byte("tier", segment.tier),
        "flags": SEGMENT_CONNECTED * segment.connected
        | SEGMENT_TOLD * segment.told
        | SEGMENT_SUSPECTED * segment.suspected,
        "name": segment.name,
        "host_id": segment.host_id,
        "owner_name": segment.owner_name,
        "endpoint": segment.endpoint,
    }


def _stats(body: bytes) -> pb.StatsRequest:
    return pb.StatsRequest(session=_core.parse_prefix(body)["session"])


def _counted(reply: pb.StatsReply) -> bytes:
    return _core.encode_stats_reply(dict(reply.stats))


# ---- numbers


def _status(number: int) -> int:
    """An open enum of 32 bits may hold what a frame has no room for."""
    if not _STATUS_MIN <= number <= 0:
        raise ValueError(f"a status is {_STATUS_MIN}..0, not {number}")
    return number


def _byte(name: str, number: int) -> int:
    if not 0 <= number <= 255:
        raise ValueError(f"{name} is 0..255, not {number}")
    return number


def _places(places: Iterable[pb.Place]) -> list[tuple[int, int]]:
    return [(place.replica, place.segment) for place in places]


def _pins(hard: bool, soft: bool) -> int:
    return PUT_HARD_PIN * hard | PUT_SOFT_PIN * soft


VERBS: Final[dict[str, Verb]] = {
    "open_session": Verb("OpenSession", _open_session, _session_opened),
    "heartbeat": Verb("Heartbeat", _heartbeat, _nothing),
    "close_session": Verb("CloseSession", _close_session, _nothing),
    "segments": Verb("GetSegments", _get_segments, _segments),
    "exists": Verb("Exists", _keys, _statuses),
    "match_prefix": Verb("MatchPrefix", _keys, _matched),
    "lookup": Verb("Lookup", _keys, _found),
    "put_start": Verb("PutStart", _put_start, _granted),
    "put_end": Verb("PutEnd", _put_end, _statuses),
    "put_revoke": Verb("PutRevoke", _put_revoke, _statuses),
    "remove": Verb("Remove", _remove, _statuses),
    "touch": Verb("Touch", _keys, _statuses),
    "release": Verb("Release", _keys, _nothing),
    "why": Verb("Why", _keys, _reasons),
    "inspect": Verb("Inspect", _inspect, _inspected),
    "create_copy_task": Verb("CreateCopyTask", _copy_task, _task_made),
    "create_move_task": Verb("CreateMoveTask", _move_task, _task_made),
    "query_task": Verb("QueryTask", _query_task, _task),
    "list": Verb("List", _list, _listed),
    "stats": Verb("Stats", _stats, _counted),
}
"""By the lane's name. What is missing (mount, reports) is asked by nodes, which speak only the lane."""
