"""Statuses are Mooncake's numbers where it has the case, and every one can be raised and sent over gRPC."""

import pickle
import re
from pathlib import Path

import grpc
import pytest

from mooncake_store import errors, status
from mooncake_store.errors import StoreError
from mooncake_store.status import Status, nearest_mooncake_code

ROOT = Path(__file__).parents[2]
FAILURES = [item for item in Status if item is not Status.OK]

# Mooncake's published numbers, written down once more: a slip in the enum must not pass.
MOONCAKE_NUMBERS = """
0 -1 -10 -100 -101 -102 -103 -200 -300 -400 -500 -600 -601 -700 -701 -702 -703 -704 -705 -706 -707 -708 -709
-710 -711 -712 -713 -714 -800 -801 -900 -901 -1000 -1001 -1002 -1003 -1004 -1005 -1006 -1007 -1010 -1011 -1012
-1100 -1101 -1102 -1103 -1104 -1105 -1106 -1200 -1201 -1202 -1203 -1300 -1301 -1400 -1401 -1402 -1500 -1501
-1502 -1503 -1600 -1601 -1602 -1603 -1604 -1605 -1700 -1701 -1702
"""


def exception_classes() -> list[type[StoreError]]:
    return [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, StoreError)]


def test_status_holds_every_number_of_mooncake_and_ours_below() -> None:
    theirs = {int(number) for number in MOONCAKE_NUMBERS.split()}
    assert {item.value for item in Status if not item.is_ours} == theirs
    assert all(item <= status.OURS_MAX for item in Status if item.value not in theirs)


def test_native_status_has_the_same_numbers() -> None:
    header = (ROOT / "native/wire/status.h").read_text()
    native = dict(re.findall(r"^\s+k(\w+) = (-?\d+),", header, re.MULTILINE))
    renamed = {"NO_SPACE": "NO_AVAILABLE_HANDLE", "NOT_READY": "REPLICA_IS_NOT_READY"}
    assert len(native) > 30
    for camel, number in native.items():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", camel).upper()
        assert Status[renamed.get(name, name)] == int(number)
    assert {item.name for item in Status if item.is_ours} <= {
        re.sub(r"(?<!^)(?=[A-Z])", "_", camel).upper() for camel in native
    }


def test_the_public_contract_has_the_same_numbers() -> None:
    proto = (ROOT / "proto/mooncake_store/v1/master.proto").read_text()
    body = proto.partition("enum Status {")[2].partition("}")[0]
    public = {name: int(number) for name, number in re.findall(r"^\s+(\w+) = (-?\d+);", body, re.MULTILINE)}
    assert len(public) > 30
    assert public == {name: Status[name].value for name in public}
    assert {item.name for item in Status if item.is_ours} <= set(public)


def test_there_are_fewer_than_fifteen_exception_classes() -> None:
    assert 8 <= len(exception_classes()) < 15


@pytest.mark.parametrize("item", FAILURES)
def test_every_failure_has_an_exception_and_a_grpc_code(item: Status) -> None:
    error = errors.error_for(item, "12 bytes")
    assert error.code == item
    assert str(error) == "12 bytes"
    assert errors.grpc_code(item) is grpc.StatusCode[errors.grpc_name(item)]


@pytest.mark.parametrize("item", FAILURES)
def test_every_failure_survives_a_trip_over_grpc(item: Status) -> None:
    sent = errors.error_for(item, "text")
    received = errors.from_grpc(*errors.to_grpc(sent))
    assert (type(received), received.code, str(received)) == (type(sent), item, "text")


@pytest.mark.parametrize("exception", exception_classes())
def test_every_exception_class_is_what_its_default_code_becomes(exception: type[StoreError]) -> None:
    raised = exception("why")
    assert type(errors.error_for(raised.code, "why")) is exception
    assert exception.__doc__


def test_every_grpc_code_without_our_metadata_becomes_an_exception_of_that_code() -> None:
    names = {code.name for code in grpc.StatusCode} - {"OK"}
    assert set(errors.GRPC_DEFAULTS) == names
    for name in names:
        assert isinstance(errors.from_grpc(name, "x"), StoreError)
    assert isinstance(errors.from_grpc("DEADLINE_EXCEEDED", "x"), errors.DeadlineExceeded)
    assert isinstance(errors.from_grpc("UNAVAILABLE", "x"), errors.Unavailable)
    assert isinstance(errors.from_grpc("INVALID_ARGUMENT", "x"), errors.InvalidArgument)


@pytest.mark.parametrize("value", ["", "abc", "0", "7", b"\xff", "-99999999999999999999"])
def test_a_hostile_status_in_the_metadata_is_still_an_error(value: str | bytes) -> None:
    error = errors.from_grpc("UNAVAILABLE", "x", [("other", "1"), (errors.STATUS_METADATA_KEY, value)])
    assert isinstance(error, StoreError)
    assert error.code < 0


def test_a_number_that_a_newer_peer_sends_is_kept() -> None:
    error = errors.error_for(-2999, "later")
    assert (type(error), error.code) == (StoreError, -2999)


def test_callers_may_catch_the_builtin_errors_they_know() -> None:
    assert issubclass(errors.InvalidArgument, ValueError)
    assert issubclass(errors.DeadlineExceeded, TimeoutError)
    assert issubclass(errors.DeadlineExceeded, errors.Unavailable)


def test_errors_can_be_pickled_with_their_code() -> None:
    error = pickle.loads(pickle.dumps(errors.error_for(Status.NO_RANGE, "full")))
    assert (type(error), error.code, str(error)) == (errors.NoSpace, Status.NO_RANGE, "full")


@pytest.mark.parametrize("item", list(Status))
def test_the_drop_in_door_answers_numbers_of_mooncake_only(item: Status) -> None:
    nearest = nearest_mooncake_code(item)
    assert not Status(nearest).is_ours
    assert (nearest == item) is not item.is_ours
    assert (nearest == 0) is (item is Status.OK)
