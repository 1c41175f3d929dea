"""gRPC requests with any field values, and bytes that are no request: a status, never a traceback."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from hypothesis import example, given
from hypothesis import strategies as st
from master.doors import HANG_S, GrpcDoor
from master.running import RunningMaster

from mooncake_store.v1 import master_pb2 as pb

SERVICE = pb.DESCRIPTOR.services_by_name["MasterService"]
METHODS = sorted(method.name for method in SERVICE.methods)

# What gRPC makes of an exception that nobody handled, a bug that we name ourselves, and no answer.
UNHANDLED = (grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DEADLINE_EXCEEDED)

# Edges of the widths that the packed bodies have, and ids that the master may well have given.
UINT64 = st.one_of(
    st.integers(0, 8),
    st.sampled_from([2**bits - less for bits in (8, 16, 32, 40, 63, 64) for less in (1, 2)]),
)
UINT32 = st.one_of(st.integers(0, 8), st.sampled_from([2**bits - 1 for bits in (8, 16, 31, 32)]))
ENUM = st.one_of(
    st.integers(-4, 4), st.sampled_from([-(2**31), -(2**15) - 1, -1000, 255, 256, 2**15, 2**31 - 1])
)
BYTES = st.one_of(st.binary(max_size=4), st.binary(min_size=16, max_size=16), st.just(b"k" * 1025))
TEXT = st.one_of(st.text(max_size=4), st.sampled_from(["n" * 256, "tcp://127.0.0.1:1", "tcp://", "ü" * 128]))
VALUES = {
    FieldDescriptor.TYPE_UINT64: UINT64,
    FieldDescriptor.TYPE_UINT32: UINT32,
    FieldDescriptor.TYPE_ENUM: ENUM,
    FieldDescriptor.TYPE_BOOL: st.booleans(),
    FieldDescriptor.TYPE_BYTES: BYTES,
    FieldDescriptor.TYPE_STRING: TEXT,
}


@pytest.fixture(scope="module")
def master() -> Iterator[RunningMaster]:
    running = RunningMaster(
        "--remove_confirm_timeout_ms=20", "--enable_metric_reporting=false", "--dial_back=false"
    )
    with running:
        yield running


@pytest.fixture(scope="module")
def session(master: RunningMaster) -> Iterator[int]:
    """With a segment, so that puts are granted."""
    door = GrpcDoor(master.daemon.grpc_port)
    door.open_session("hostile")
    door.mount("segment", 1 << 26)
    yield door.session
    door.close()


@pytest.fixture(scope="module")
def channel(master: RunningMaster) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{master.daemon.grpc_port}") as channel:
        yield channel


def fill(data: st.DataObject, message: Message, session: int) -> Message:
    """Each field with any value of its type, or left out."""
    for field in message.DESCRIPTOR.fields:
        if field.name == "session":
            # Closed, it would leave the other methods nothing to do.
            known = [session] * 3 if message.DESCRIPTOR.name != "CloseSessionRequest" else []
            message.session = data.draw(st.sampled_from([*known, session + 1, 0, 2**64 - 1]))
            continue
        if field.name == "followed_epoch":  # a later one would depose the master of all these tests
            message.followed_epoch = data.draw(st.sampled_from([0, 2**24, 2**64 - 1]))
            continue
        count = data.draw(st.integers(0, 3 if field.is_repeated else 1), field.name)
        for _ in range(count):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                fill(data, getattr(message, field.name).add(), session)
            elif field.is_repeated:
                getattr(message, field.name).append(data.draw(VALUES[field.type], field.name))
            else:
                setattr(message, field.name, data.draw(VALUES[field.type], field.name))
    return message


def ask(channel: grpc.Channel, method: str, request: bytes) -> tuple[grpc.StatusCode, str]:
    call = channel.unary_unary(f"/{SERVICE.full_name}/{method}")
    try:
        call(request, timeout=HANG_S)
    except grpc.RpcError as error:
        return error.code(), error.details() or ""
    return grpc.StatusCode.OK, ""


@pytest.mark.parametrize("method", METHODS)
@given(data=st.data())
def test_any_field_values_get_an_answer(
    master: RunningMaster, channel: grpc.Channel, session: int, method: str, data: st.DataObject
) -> None:
    request = fill(data, GetMessageClass(SERVICE.methods_by_name[method].input_type)(), session)
    code, details = ask(channel, method, request.SerializeToString())
    assert code not in UNHANDLED, f"{code}: {details}"
    native = master.daemon._native
    assert native is not None
    native.check_invariants()


@pytest.mark.parametrize("method", METHODS)
@example(request_bytes=b"\xff")
@given(request_bytes=st.binary(max_size=64))
def test_bytes_that_are_no_request_are_refused(
    channel: grpc.Channel, method: str, request_bytes: bytes
) -> None:
    code, details = ask(channel, method, request_bytes)
    assert code not in UNHANDLED, f"{code}: {details}"
