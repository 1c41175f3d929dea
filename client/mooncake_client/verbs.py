"""The verbs of `Store` and `AsyncStore`, each written once, as the steps of a call.

Owns the forms of arguments and answers: keys, values with dtype and shape, misses, errors that hold the
values. What is yielded is asked of the native client; whether the caller waits for it meanwhile or its event
loop goes on is up to who drives the steps (`store.py`, `async_store.py`). Each function's signature and text
are those of the method that it becomes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, Literal

from mooncake_client.answers import MISSES, Call, Key, Steps, positional, raise_if_unanswered, shown
from mooncake_client.arguments import (
    check_count,
    encode_all,
    first_refused,
    prefix_bytes,
    put_options,
    sequence,
)
from mooncake_client.handle import StoreHandle
from mooncake_client.records import (
    ABSENCES,
    ENDS,
    Explanation,
    ObjectInfo,
    SegmentUse,
    object_info,
    segment_use,
)
from mooncake_client.staging import get_in_parts, link_for, put_in_parts
from mooncake_client.story import EVENTS_MAX, Story
from mooncake_client.story import story as told
from mooncake_client.values import Encoded, decode, size_bytes, writable_memory
from mooncake_store import _core
from mooncake_store.errors import BufferTooSmall, InvalidArgument, ObjectNotFound, StoreError
from mooncake_store.keys import key_bytes
from mooncake_store.status import Status

PutAnswer = Literal["stored", "exists"]

_LIST_PAGE: Final = 1_000
EVENTS_SHOWN: Final = 100
_POOL, _KEY, _NAME = 0, 1, 2
_NAME_BYTES_MAX: Final = 255
_REOPENS_MAX: Final = 4
"""How often a read makes room anew for a value that was replaced by a larger one meanwhile."""


# ---- put


def put(
    store: StoreHandle,
    key: Key,
    value: object,
    *,
    replicas: int = 1,
    ttl_ms: int | None = None,
    soft_pin: bool | int = False,
    hard_pin: bool = False,
    replace: bool = False,
    parent: Key | None = None,
    prefer_local: bool = False,
    preferred_segments: Sequence[str] = (),
    timeout_ms: int | None = None,
) -> Steps[PutAnswer]:
    """Store a value: "stored", or "exists" when the key has one already (it stays as it is).

    value: anything with the buffer protocol, a numpy array or a torch tensor of any shape, contiguous
        or not; read until this returns. Tensors on a GPU go through pinned memory of the host, a part of
        the batch on the wire while the next one is copied.
    replicas: copies wanted, 1-8; fewer are made when fewer fit. ttl_ms: the value ends by itstore.
    soft_pin: evicted last, for so many ms (True: the master's default). hard_pin: never evicted.
    replace: put a new value even when there is one; readers see the old or the new, whole.
    parent: key of the block before this one. prefer_local, preferred_segments: where to put it if there
        is room.
    Raises NoSpace, ValueTooLarge, Unavailable (the value may appear later, whole, or never), ...
    """
    parents = None if parent is None else [parent]
    [answer] = yield from put_many(
        store,
        [key],
        [value],
        replicas=replicas,
        ttl_ms=ttl_ms,
        soft_pin=soft_pin,
        hard_pin=hard_pin,
        replace=replace,
        parents=parents,
        prefer_local=prefer_local,
        preferred_segments=preferred_segments,
        timeout_ms=timeout_ms,
    )
    if isinstance(answer, StoreError):
        raise answer
    return answer


def put_many(
    store: StoreHandle,
    keys: Sequence[Key],
    values: Sequence[object],
    *,
    replicas: int = 1,
    ttl_ms: int | None = None,
    soft_pin: bool | int = False,
    hard_pin: bool = False,
    replace: bool = False,
    parents: Sequence[Key | None] | None = None,
    prefer_local: bool = False,
    preferred_segments: Sequence[str] = (),
    timeout_ms: int | None = None,
) -> Steps[list[PutAnswer | StoreError]]:
    """Store many values, as `put` does: "stored", "exists" or a StoreError instance a key, in order."""
    keys, values = sequence(keys, "keys"), sequence(values, "values")
    check_count(keys, values, "values")
    client, timeout = store._client(), store._timeout(timeout_ms)
    options = put_options(replicas, ttl_ms, soft_pin, hard_pin, replace, prefer_local, preferred_segments)
    digests = _parent_digests(store.config.tenant, keys, parents)
    if not keys:
        return []
    with suppress(TypeError):  # other values than plain bytes are encoded one by one below
        packed = _core.PackedMemory.of_values(values)
        try:
            statuses: list[int] = yield client.put_many(
                keys, packed, parents=digests, timeout_ms=timeout, **options
            )
            answers = _put_answers(store, keys, statuses, timeout, packed.size_of)
            raise_if_unanswered(answers)
            return answers
        except ValueError as error:
            if isinstance(error, StoreError):
                raise  # else a key that cannot be one: below each is answered at its index
    encoded, refused = encode_all(values)
    column = encoded if digests is None else list(zip(encoded, digests, strict=True))

    def ask(keys: Sequence[Key], column: Sequence[Any]) -> Steps[list[PutAnswer | StoreError]]:
        values: Sequence[Encoded] = column if digests is None else [value for value, _ in column]
        buffers = [value.buffer for value in values]
        metadata = [value.metadata for value in values] if any(v.metadata for v in values) else None
        parents = None if digests is None else [digest for _, digest in column]

        def ask_part(part: slice, memory: list[Any], timeout_ms: int) -> Any:
            return client.put_many(
                keys[part],
                memory,
                user_metadata=metadata and metadata[part],
                parents=parents and parents[part],
                timeout_ms=timeout_ms,
                **options,
            )

        statuses: list[int]
        link = link_for(buffers)
        if link is None:
            statuses = yield ask_part(slice(None), buffers, timeout)
        else:
            statuses = yield from put_in_parts(link, buffers, timeout, ask_part)
        return _put_answers(store, keys, statuses, timeout, lambda i: size_bytes(values[i]))

    return (yield from positional(keys, column, refused, ask))


def _put_answers(
    store: StoreHandle,
    keys: Sequence[Key],
    statuses: Sequence[int],
    timeout: int,
    size_of: Callable[[int], int],
) -> list[PutAnswer | StoreError]:
    if not any(statuses):
        return ["stored"] * len(statuses)
    call: Call | None = None
    answers: list[PutAnswer | StoreError] = []
    for index, status in enumerate(statuses):
        if status == 0:
            answers.append("stored")
        elif status == Status.OBJECT_ALREADY_EXISTS:
            answers.append("exists")
        else:
            call = call or store._call("put", timeout)
            answers.append(call.error(status, keys[index], size_of(index)))
    return answers


def _parent_digests(
    tenant: str, keys: Sequence[Key], parents: Sequence[Key | None] | None
) -> list[int] | None:
    if parents is None:
        return None
    parents = sequence(parents, "parents")
    check_count(keys, parents, "parents")
    return [0 if parent is None else _core.key_digest(tenant, key_bytes(parent)) for parent in parents]


# ---- get


def get(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[bytes | None]:
    """The whole value as bytes; None is a miss, b"" an empty value."""
    timeout = store._timeout(timeout_ms)
    [answer] = yield store._client().get_many([key_bytes(key)], timeout_ms=timeout)
    if isinstance(answer, bytes):
        return answer
    store._is_there("get", key, answer, timeout)
    return None


def get_many(
    store: StoreHandle, keys: Sequence[Key], *, timeout_ms: int | None = None
) -> Steps[list[bytes | StoreError | None]]:
    """Many values, one request a node: bytes, None (a miss) or a StoreError instance a key, in order."""
    keys = sequence(keys, "keys")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return []

    def ask(keys: Sequence[Key], _: Sequence[Any]) -> Steps[list[bytes | StoreError | None]]:
        call: Call | None = None
        answers: list[bytes | StoreError | None] = []
        found: list[bytes | int] = yield client.get_many(keys, timeout_ms=timeout)
        for index, answer in enumerate(found):
            if isinstance(answer, bytes):
                answers.append(answer)
            elif answer in MISSES:
                answers.append(None)
            else:
                call = call or store._call("get", timeout)
                answers.append(call.error(answer, keys[index]))
        return answers

    return (yield from positional(keys, (), {}, ask))


def get_view(
    store: StoreHandle, key: Key, *, verify: bool = False, timeout_ms: int | None = None
) -> Steps[_core.View | None]:
    """The value where it lies, without a copy, read-only; None is a miss.

    Of a node on this host whose memory is mapped (`local_nodes`); of any other, and beyond an eighth of the
    node's memory, a private copy: `view.is_mapped` tells. Use it by the buffer protocol (`memoryview`,
    `numpy.frombuffer`, `torch.frombuffer`) or by DLPack 1.0 (`numpy.from_dlpack`), and release it: with a
    `with` block, `release()`, or its last reference. Until then its bytes stay as they are, whatever becomes
    of key, node or store, and the node cannot use that memory again. verify: compare a mapped value with its
    checksum, which reads all of it; copies always are, as `checksum` says. After a fork only the parent may
    touch what is mapped.
    """
    [answer] = yield from get_view_many(store, [key], verify=verify, timeout_ms=timeout_ms)
    if isinstance(answer, StoreError):
        raise answer
    return answer


def get_view_many(
    store: StoreHandle, keys: Sequence[Key], *, verify: bool = False, timeout_ms: int | None = None
) -> Steps[list[_core.View | StoreError | None]]:
    """Views of many values, as get_view: a view, None (a miss) or a StoreError instance a key, in order."""
    keys = sequence(keys, "keys")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return []

    def ask(keys: Sequence[Key], _: Sequence[Any]) -> Steps[list[_core.View | StoreError | None]]:
        call: Call | None = None
        answers: list[_core.View | StoreError | None] = []
        found: list[_core.View | int] = yield client.view_many(keys, verify=bool(verify), timeout_ms=timeout)
        for index, answer in enumerate(found):
            if isinstance(answer, _core.View):
                answers.append(answer)
            elif answer in MISSES:
                answers.append(None)
            else:
                call = call or store._call("get_view", timeout)
                answers.append(call.error(answer, keys[index]))
        return answers

    return (yield from positional(keys, (), {}, ask))


def get_tensor(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[Any]:
    """What was put, with its dtype and shape: a numpy array or a torch tensor of its own; None is a miss.

    Plain bytes come as a 1-D uint8 array. A torch tensor comes as a numpy array where torch is missing
    and numpy knows the dtype.
    """
    import numpy

    client, timeout = store._client(), store._timeout(timeout_ms)
    packed = [key_bytes(key)]
    for _ in range(_REOPENS_MAX):
        opened: _core.OpenValues = yield client.open(packed, user_metadata=True, timeout_ms=timeout)
        status = opened.statuses[0]
        if not store._is_there("get_tensor", key, status, timeout):
            return None
        data = numpy.empty(opened.sizes[0], dtype=numpy.uint8)
        (status,), (length,) = yield client.read_into(opened, [data.data], timeout_ms=timeout)
        if status == 0:
            return decode(data if length == data.size else data[:length], opened.user_metadata[0])
        if status != Status.BUFFER_OVERFLOW and not store._is_there("get_tensor", key, status, timeout):
            return None
    raise store._call("get_tensor", timeout).error(Status.BUSY, key)


def get_into(
    store: StoreHandle, key: Key, target: object, *, timeout_ms: int | None = None
) -> Steps[int | None]:
    """Read the value straight into `target`; its size in bytes, or None for a miss.

    target: writable contiguous memory, at least as large as the value; bytes beyond it are not touched. On a
        GPU: filled through pinned memory when this returns, after what its current stream had to do.
        On any error its content is undefined.
    Raises BufferTooSmall, InvalidArgument (not writable, not contiguous), ...
    """
    [answer] = yield from get_into_many(store, [key], [target], timeout_ms=timeout_ms)
    if isinstance(answer, StoreError):
        raise answer
    return answer


def get_into_many(
    store: StoreHandle, keys: Sequence[Key], targets: Sequence[object], *, timeout_ms: int | None = None
) -> Steps[list[int | StoreError | None]]:
    """Many values into memory of the caller: a size, None or a StoreError instance a key, in order."""
    keys, targets = sequence(keys, "keys"), sequence(targets, "targets")
    check_count(keys, targets, "targets")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return []
    with suppress(TypeError):  # a tensor, or one that cannot be filled: looked at one by one below
        packed = _core.PackedMemory.of_targets(targets)
        try:
            statuses, lengths = yield client.get_into_many(keys, packed, timeout_ms=timeout)
            return raise_if_unanswered(_read_answers(store, keys, statuses, lengths, timeout, packed.size_of))
        except ValueError as error:
            if isinstance(error, StoreError):
                raise  # else a key that cannot be one: below each is answered at its index
    memory: list[Any] = []
    refused: dict[int, StoreError] = {}
    for index, target in enumerate(targets):
        try:
            memory.append(writable_memory(target))
        except InvalidArgument as error:
            memory.append(None)
            refused[index] = error

    def ask(keys: Sequence[Key], memory: Sequence[Any]) -> Steps[list[int | StoreError | None]]:
        buffers = [piece.buffer for piece in memory]

        def ask_part(part: slice, memory: list[Any], timeout_ms: int) -> Any:
            return client.get_into_many(keys[part], memory, timeout_ms=timeout_ms)

        link = link_for(buffers)
        if link is None:
            statuses, lengths = yield ask_part(slice(None), buffers, timeout)
        else:
            statuses, lengths = yield from get_in_parts(link, buffers, timeout, ask_part)
        return _read_answers(store, keys, statuses, lengths, timeout, lambda i: memory[i].size_bytes)

    return (yield from positional(keys, memory, refused, ask))


def _read_answers(
    store: StoreHandle,
    keys: Sequence[Key],
    statuses: Sequence[int],
    lengths: Sequence[int],
    timeout: int,
    room_of: Callable[[int], int],
) -> list[int | StoreError | None]:
    if not any(statuses):
        return list(lengths)
    call = store._call("get", timeout)
    answers: list[int | StoreError | None] = []
    for index, status in enumerate(statuses):
        if status == 0:
            answers.append(lengths[index])
        elif status in MISSES:
            answers.append(None)
        elif status == Status.BUFFER_OVERFLOW:
            answers.append(
                BufferTooSmall(
                    f"the value of key {shown(keys[index])} has {lengths[index]} bytes; "
                    f"the buffer has {room_of(index)}"
                )
            )
        else:
            answers.append(call.error(status, keys[index]))
    return answers


# ---- what exists


def exists(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[bool]:
    """Whether the key has a readable value; it is then held for a moment."""
    timeout = store._timeout(timeout_ms)
    [status] = yield store._client().exists_many([key_bytes(key)], timeout_ms=timeout)
    return store._is_there("exists", key, status, timeout)


def exists_many(
    store: StoreHandle, keys: Sequence[Key], *, timeout_ms: int | None = None
) -> Steps[list[bool]]:
    """Which keys have a readable value, in order. A key about which nobody answered counts as missing.

    Raises InvalidArgument for a key that cannot be one, and when nobody answered about any of them.
    """
    keys = sequence(keys, "keys")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return []
    try:
        statuses: list[int] = yield client.exists_many(keys, timeout_ms=timeout)
    except (TypeError, ValueError) as error:
        raise first_refused(keys, error) from error
    if Status.INVALID_KEY in statuses:
        raise first_refused(keys, None)
    if not any(status == 0 or status in MISSES for status in statuses):
        raise store._call(f"exists of {len(keys)} keys", timeout).error(statuses[0])
    return [status == 0 for status in statuses]


def match_prefix(store: StoreHandle, keys: Sequence[Key], *, timeout_ms: int | None = None) -> Steps[int]:
    """How many of the keys are there before the first that is not."""
    keys = sequence(keys, "keys")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return 0
    try:
        length: int
        status, length, miss = yield client.match_prefix(keys, timeout_ms=timeout)
    except (TypeError, ValueError) as error:
        raise first_refused(keys, error) from error
    if Status.INVALID_KEY in (status, miss):
        raise first_refused(keys, None)
    # A long list is asked in parts: what was found before the master went away is true all the same.
    if status != 0 and length == 0:
        raise store._call(f"match_prefix of {len(keys)} keys", timeout).error(status)
    return length


def touch(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[bool]:
    """Make the value the most recently used; whether there is one."""
    timeout = store._timeout(timeout_ms)
    [status] = yield store._client().touch_many([key_bytes(key)], timeout_ms=timeout)
    return store._is_there("touch", key, status, timeout)


def why(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[Explanation]:
    """Why the key is not there, or that it is; touches and holds nothing. Asks the master each time."""
    timeout = store._timeout(timeout_ms)
    status, _, reason, ended_ms_ago = yield store._client().explain(key_bytes(key), timeout_ms=timeout)
    if status != 0:
        raise store._call("why", timeout).error(status, key)
    absence = ABSENCES[reason]
    return Explanation(absence, ended_ms_ago if absence in ENDS else None)


def inspect(
    store: StoreHandle, key: Key, *, events_max: int = EVENTS_SHOWN, timeout_ms: int | None = None
) -> Steps[Story]:
    """All that the master knows of the key: state, copies, and what happened to them lately.

    Touches and holds nothing. events_max: 1 to 1,024, the newest.
    """
    return (yield from _story(store, _KEY, key_bytes(key), events_max, timeout_ms))


def inspect_node(
    store: StoreHandle, name: str, *, events_max: int = EVENTS_SHOWN, timeout_ms: int | None = None
) -> Steps[Story]:
    """The same of a segment, node or host by its name."""
    return (yield from _story(store, _NAME, name.encode("utf-8", "replace"), events_max, timeout_ms))


def events(
    store: StoreHandle, *, events_max: int = EVENTS_SHOWN, timeout_ms: int | None = None
) -> Steps[Story]:
    """What happened lately to sessions, segments and the master's reign."""
    return (yield from _story(store, _POOL, b"", events_max, timeout_ms))


def _story(
    store: StoreHandle, subject: int, name: bytes, events_max: int, timeout_ms: int | None
) -> Steps[Story]:
    if not 1 <= events_max <= EVENTS_MAX:
        raise InvalidArgument(f"events_max is 1 to {EVENTS_MAX}, not {events_max}")
    if subject == _NAME and not 1 <= len(name) <= _NAME_BYTES_MAX:
        raise InvalidArgument(f"a name has 1 to {_NAME_BYTES_MAX} bytes, this one has {len(name)}")
    timeout = store._timeout(timeout_ms)
    status, packed = yield store._client().inspect(subject, name, limit=events_max, timeout_ms=timeout)
    if status != 0:
        raise store._call("inspect", timeout).error(status)
    return told(packed)


def stat(store: StoreHandle, key: Key, *, timeout_ms: int | None = None) -> Steps[ObjectInfo]:
    """Size and put_id of the value. Raises ObjectNotFound."""
    timeout = store._timeout(timeout_ms)
    packed = key_bytes(key)
    opened: _core.OpenValues = yield store._client().open([packed], to_read=False, timeout_ms=timeout)
    status = opened.statuses[0]
    if not store._is_there("stat", key, status, timeout):
        raise ObjectNotFound(f"stat of key {shown(key)}: there is no such object", code=status)
    return ObjectInfo(packed, opened.sizes[0], opened.put_ids[0])


# ---- remove


def remove(
    store: StoreHandle,
    key: Key,
    *,
    missing_ok: bool = True,
    force: bool = True,
    timeout_ms: int | None = None,
) -> Steps[bool]:
    """End the value: nobody starts a read of it any more. Whether there was one.

    force: also while a reader holds a lease (what is being read ends whole); else Busy is raised.
    Raises ObjectNotFound when it was not there and missing_ok is false.
    """
    timeout = store._timeout(timeout_ms)
    [status] = yield store._client().remove_many([key_bytes(key)], force=bool(force), timeout_ms=timeout)
    was_there = store._is_there("remove", key, status, timeout)
    if not was_there and not missing_ok:
        raise ObjectNotFound(f"remove of key {shown(key)}: there is no such object", code=status)
    return was_there


def remove_many(
    store: StoreHandle, keys: Sequence[Key], *, force: bool = True, timeout_ms: int | None = None
) -> Steps[list[bool | StoreError]]:
    """End many values: whether there was one, or a StoreError instance, a key, in order."""
    keys = sequence(keys, "keys")
    client, timeout = store._client(), store._timeout(timeout_ms)
    if not keys:
        return []

    def ask(keys: Sequence[Key], _: Sequence[Any]) -> Steps[list[bool | StoreError]]:
        statuses: list[int] = yield client.remove_many(keys, force=bool(force), timeout_ms=timeout)
        call = store._call("remove", timeout)
        return [
            status == 0 if status == 0 or status in MISSES else call.error(status, keys[index])
            for index, status in enumerate(statuses)
        ]

    return (yield from positional(keys, (), {}, ask))


def remove_all(
    store: StoreHandle,
    prefix: Key = b"",
    *,
    pattern: str | bytes | None = None,
    force: bool = True,
    timeout_ms: int | None = None,
) -> Steps[int]:
    """End all values whose keys begin with `prefix`; how many there were.

    pattern: only those whose keys it matches anywhere (of Python's `re`; bytes, or its UTF-8). force: as in
        remove; without it those that a reader holds stay, and are not counted.
    timeout_ms: of each request; a page of keys is two. What is put meanwhile may stay.
    """
    page = pages(store, prefix, timeout_ms)
    matches = _key_pattern(pattern)
    removed, cursor = 0, 0
    while True:
        found, cursor = yield from page(cursor)
        keys = [entry.key for entry in found if matches is None or matches.search(entry.key)]
        answers = yield from remove_many(store, keys, force=force, timeout_ms=timeout_ms)
        for answer in answers:
            if isinstance(answer, StoreError) and answer.code != Status.OBJECT_HAS_LEASE:
                raise answer
            removed += answer is True
        if cursor == 0:
            return removed


def _key_pattern(pattern: str | bytes | None) -> re.Pattern[bytes] | None:
    if pattern is None:
        return None
    try:
        return re.compile(pattern.encode("utf-8") if isinstance(pattern, str) else pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidArgument(f"pattern {pattern!r} is not a regular expression: {error}") from error


# ---- looking at the pool


def pages(
    store: StoreHandle, prefix: Key, timeout_ms: int | None
) -> Callable[[int], Steps[tuple[list[ObjectInfo], int]]]:
    """What lists the page at a cursor (0: the first) and gives the next page's (0: that was all)."""
    packed = prefix_bytes(prefix)
    client, timeout = store._client(), store._timeout(timeout_ms)

    def page(cursor: int) -> Steps[tuple[list[ObjectInfo], int]]:
        status, cursor, found = yield client.list_keys(
            cursor, limit=_LIST_PAGE, key_prefix=packed, timeout_ms=timeout
        )
        if status != 0:
            raise store._call("listing", timeout).error(status)
        return [object_info(*fields) for fields in found], cursor

    return page


def segments(store: StoreHandle, *, timeout_ms: int | None = None) -> Steps[list[SegmentUse]]:
    """The memory of the pool, and how full it is."""
    timeout = store._timeout(timeout_ms)
    status, found = yield store._client().segments(timeout_ms=timeout)
    if status != 0:
        raise store._call("segments", timeout).error(status)
    return [segment_use(segment) for segment in found]


def stats(store: StoreHandle, *, timeout_ms: int | None = None) -> Steps[dict[str, int]]:
    """The master's counters (`..._total`) and gauges by name; units are in the names."""
    timeout = store._timeout(timeout_ms)
    values: dict[str, int]
    status, values = yield store._client().stats(timeout_ms=timeout)
    if status != 0:
        raise store._call("stats", timeout).error(status)
    return values
