"""What a status of the native client becomes for a caller: a miss, or an error that holds the values.

Owns the texts. Must not call the client: what it could say is passed in as `Call`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from mooncake_store.errors import ClosedError, InvalidArgument, StoreError, Unavailable, error_for
from mooncake_store.keys import key_bytes
from mooncake_store.status import Status, status_of

Key = str | bytes | int
AnswerT = TypeVar("AnswerT")

Steps: TypeAlias = Generator[Any, Any, AnswerT]
"""A verb under way: yields what a method of the native client gave, takes the call's answer, returns a value.

`_core.Client` gives the answer itself, `_core.AsyncClient` a PendingCall; who drives the steps knows which.
"""

MISSES: Final = frozenset(
    (
        Status.OBJECT_NOT_FOUND,
        Status.REPLICA_NOT_FOUND,
        Status.REPLICA_IS_GONE,
        Status.REPLICA_IS_NOT_READY,
        Status.REBUILDING,
        Status.GONE,
        Status.UNREACHABLE,
    )
)
"""Statuses of a read that mean "not there": a miss, never an error. A put under way is not there yet, and a
value whose nodes do not answer is there no more. (A master that does not answer is an error, RPC_FAIL.)"""

_TEXTS: Final[Mapping[Status, str]] = {
    Status.OBJECT_NOT_FOUND: "there is no such object",
    Status.OBJECT_HAS_LEASE: "a reader holds a lease on it, and force is off",
    Status.REPLICA_IS_NOT_READY: "another put of the key was still under way at the deadline",
    Status.NO_AVAILABLE_HANDLE: "no segment has room and nothing there may be evicted",
    Status.SEGMENT_NOT_FOUND: "no node lends memory to the pool",
    Status.NO_RANGE: "its nodes have no free range of that size",
    Status.VALUE_TOO_LARGE: "no segment could hold it even if it were empty",
    Status.CHECKSUM_MISMATCH: "the bytes that came are not those that were put",
    Status.BUSY: "too much is under way at its node, or on this store's connections to it",
    Status.UNREACHABLE: "nobody answers",
    Status.CLOSED: "the store is closed",
    Status.DEADLINE: "no answer within the deadline",
}


@dataclass(frozen=True)
class Call:
    """One call, for the text of its errors. why: what the native client says went wrong last."""

    verb: str
    timeout_ms: int
    where: str
    why: str = ""
    setting: str = "rpc_timeout_ms"  # or the argument that timeout_ms is

    def error(self, status: int, key: Key | None = None, size_bytes: int | None = None) -> StoreError:
        """The exception for one status, naming the key, its size, the deadline or the address."""
        known = status_of(status)
        if known is Status.INVALID_KEY and key is not None:
            return invalid_key(key)
        subject = self.verb if key is None else f"{self.verb} of key {shown(key)}"
        if size_bytes is not None:
            subject += f" ({size_bytes} bytes)"
        text = _TEXTS.get(known, f"status {status} ({known.name})")
        exception = error_for(status, "")
        if known is not Status.CLOSED and isinstance(exception, Unavailable):
            text += f"; deadline {self.timeout_ms} ms ({self.setting}), master {self.where}"
        if self.why and self.why not in text:
            text += f": {self.why}"
        return error_for(status, f"{subject}: {text}")


def shown(key: Key) -> str:
    """A key in a message, cut where it is long."""
    text = repr(key) if not isinstance(key, int) or key.bit_length() < 1024 else "(a long int)"
    return text if len(text) <= 80 else f"{text[:64]}... ({len(text)} characters)"


def invalid_key(key: Key) -> StoreError:
    """Why this key cannot be one."""
    try:
        key_bytes(key)
    except InvalidArgument as error:
        return error
    return InvalidArgument(f"key {shown(key)} was refused by the master", code=Status.INVALID_KEY)


def refused_keys(keys: Sequence[Key]) -> dict[int, StoreError]:
    """By index: the keys that cannot be keys, and why."""
    refused: dict[int, StoreError] = {}
    for index, key in enumerate(keys):
        try:
            key_bytes(key)
        except InvalidArgument as error:
            refused[index] = error
    return refused


def positional(
    keys: Sequence[Key],
    column: Sequence[Any],
    refused: dict[int, StoreError],
    ask: Callable[[Sequence[Key], Sequence[Any]], Steps[list[AnswerT]]],
) -> Steps[list[AnswerT | StoreError]]:
    """One answer a key, in order: what was refused here stays at its index, `ask` answers the others.

    column: what belongs to each key (a value, a target); empty where there is nothing. refused: what is wrong
    with entries of the column. Raises the error of a batch that nobody answered.
    """
    if not refused:
        try:
            return raise_if_unanswered((yield from ask(keys, column)))
        except (TypeError, ValueError) as error:
            if isinstance(error, StoreError):
                raise
            # The native client names one bad key and does nothing; here each is answered at its index.
            refused = refused_keys(keys)
            if not refused:
                raise InvalidArgument(str(error)) from error
    else:
        refused = refused_keys(keys) | refused
    good = [index for index in range(len(keys)) if index not in refused]
    answers: list[AnswerT | StoreError] = list(refused.values())
    if good:
        answered = yield from ask(
            [keys[index] for index in good], [column[index] for index in good] if column else []
        )
        answers = raise_if_unanswered(answered)
    rest = iter(answers)
    return [refused[index] if index in refused else next(rest) for index in range(len(keys))]


def raise_if_unanswered(answers: Sequence[AnswerT | StoreError]) -> list[AnswerT | StoreError]:
    """The answers; raises the first when all of them say that nobody answered."""
    for answer in answers:
        if not isinstance(answer, (Unavailable, ClosedError)):
            break
    else:
        if answers:
            first = answers[0]
            assert isinstance(first, StoreError)
            raise first
    return list(answers)
