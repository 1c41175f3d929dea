"""The gRPC message of what the state machine tells operators (verb inspect). Translation only."""

from __future__ import annotations

from typing import Any

from mooncake_store import _core
from mooncake_store.v1 import master_pb2 as pb
from mooncake_store.wire_flags import (
    PUT_HARD_PIN,
    PUT_SOFT_PIN,
    SEGMENT_CONNECTED,
    SEGMENT_SUSPECTED,
    SEGMENT_TOLD,
)


def inspect_reply(reply: _core.InspectReply) -> pb.InspectReply:
    """The message of a parsed answer."""
    return pb.InspectReply(
        key=None if reply["key"] is None else _key(reply["key"]),
        copies=[_copy(copy) for copy in reply["copies"]],
        segments=[_segment(segment) for segment in reply["segments"]],
        events=[
            pb.InspectReply.Event(
                ms_ago=event["ms_ago"],
                kind=event["kind"],
                reason=event["reason"],
                replica=event["id"],
                segment=event["segment"],
                session=event["session"],
                number=event["number"],
                name=event["name"],
            )
            for event in reply["events"]
        ],
        has_older_events=reply["has_older_events"],
        dropped_events=reply["dropped_events"],
        oldest_event_ms_ago=reply["oldest_event_ms_ago"],
    )


def _key(key: _core.InspectedKey) -> pb.InspectReply.Key:
    fields: dict[str, Any] = dict(key)
    flags = fields.pop("flags")
    return pb.InspectReply.Key(
        **fields, hard_pinned=bool(flags & PUT_HARD_PIN), soft_pinned=bool(flags & PUT_SOFT_PIN)
    )


def _copy(copy: _core.InspectedCopy) -> pb.InspectReply.Copy:
    fields: dict[str, Any] = dict(copy)
    return pb.InspectReply.Copy(segment_left=fields.pop("has_left"), **fields)


def _segment(segment: _core.InspectedSegment) -> pb.InspectReply.Segment:
    fields: dict[str, Any] = dict(segment)
    flags = fields.pop("flags")
    return pb.InspectReply.Segment(
        owner_session=fields.pop("owner"),
        connected=bool(flags & SEGMENT_CONNECTED),
        told=bool(flags & SEGMENT_TOLD),
        suspected=bool(flags & SEGMENT_SUSPECTED),
        **fields,
    )
