"""What the demo serves: a stream of requests, and block contents that can be checked to the byte.

Owns the two inputs (conversations about real text, and a published trace) and the content of a block. Must
not know the store: it yields keys and bytes. Everything here repeats exactly for equal arguments.

    built_in()   many users ask about Python's own source files, in several turns, under shared system
                 prompts; a token is a byte; keys are chained hashes, so a shared prefix is a shared key
    trace(path)  Mooncake's JSONL format: timestamp, input_length, output_length, hash_ids
"""

from __future__ import annotations

import heapq
import json
import random
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooncake_store.errors import InvalidArgument
from mooncake_store.keys import BlockIdentity, block_keys

TRACE_BLOCK_TOKENS = 512
"""Tokens a block in the published trace."""
TRACE_LINE_BYTES_MAX = 1 << 20
"""Longest line that is read; 512-token blocks of a million-token prompt need 16 KiB."""

IDENTITY = BlockIdentity(model="demo/bytes-are-tokens", dtype="uint8")

DOCUMENT_BYTES_MIN, DOCUMENT_BYTES_MAX = 6_000, 40_000
"""Sizes of the source files that serve as documents: 12 to 80 blocks of 512 tokens."""

_ROLES = (
    "You are a careful reviewer of Python code. Quote the lines you speak about. Say when you are not sure.",
    "You are a teacher. Explain the module to somebody who knows C but no Python, with small examples.",
    "You are an auditor. List every place where the module touches files, sockets, processes or the clock.",
    "You are a technical writer. Describe the public interface of the module in complete sentences.",
)
_QUESTIONS = (
    "What does {name} do, and who would call it?",
    "Which errors can {name} raise, and when?",
    "Rewrite {name} so that it is easier to test, and explain each change.",
    "Is {name} safe to call from several threads at once? Point at the lines that decide it.",
    "What would break if {name} were removed?",
    "Compare {name} with how you would write it today.",
)


@dataclass(frozen=True)
class Request:
    """One prompt: its full input, cut into blocks.

    timestamp_ms: since the start of the stream. blocks: keys of the input, in order; equal keys mean equal
    tokens up to and including that block. output_blocks: keys of the further blocks that the answer fills
    (decode puts them; the next turn finds them); empty where the source does not say, as the trace does not.
    """

    timestamp_ms: int
    input_tokens: int
    output_tokens: int
    blocks: tuple[bytes, ...]
    output_blocks: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Summary:
    """What a stream holds, and the hit rates that a store which never evicts would reach."""

    requests: int
    block_reads: int
    distinct_blocks: int
    prefix_hits: int

    @property
    def prefix_hit_ratio(self) -> float:
        return self.prefix_hits / self.block_reads if self.block_reads else 0.0


def summarize(requests: Iterable[Request]) -> Summary:
    """Replay a stream against a set that forgets nothing."""
    known: set[bytes] = set()
    count = block_reads = prefix_hits = 0
    for request in requests:
        count += 1
        block_reads += len(request.blocks)
        hits = next((i for i, key in enumerate(request.blocks) if key not in known), len(request.blocks))
        prefix_hits += hits
        known.update(request.blocks, request.output_blocks)
    return Summary(count, block_reads, len(known), prefix_hits)


# Conversations about real text


def built_in(
    *,
    users: int = 120,
    turns: int = 4,
    documents: int = 80,
    system_prompts: int = 3,
    block_tokens: int = 512,
    think_ms: int = 4_000,
    seed: int = 1,
) -> Iterator[Request]:
    """Conversations in the order of their timestamps: `users` times `turns` requests.

    Each user takes one system prompt and one document, both by popularity (the n-th is asked for 1/n as
    often as the first), and asks `turns` questions; every question repeats the conversation so far. Users
    with the same prompt and document share all blocks up to their first question, one user's turns share
    the whole conversation, and users with the same prompt share its blocks.
    think_ms: mean time between a user's questions, and a tenth of it between the arrivals of users.
    Raises InvalidArgument for a number below 1, or when this Python has no source files to read.
    """
    settings = {"users": users, "turns": turns, "documents": documents, "system_prompts": system_prompts}
    for name, value in {**settings, "block_tokens": block_tokens, "think_ms": think_ms}.items():
        if value < 1:
            raise InvalidArgument(f"{name} is {value}; the built-in workload needs at least 1")
    if system_prompts > len(_ROLES):
        raise InvalidArgument(f"system_prompts is {system_prompts}; there are {len(_ROLES)}")
    texts = _documents(documents, seed)
    manual = _system_manual()
    prompts = [f"{role}\n\nHouse rules:\n{manual}\n".encode() for role in _ROLES[:system_prompts]]
    dice = random.Random(seed)
    streams = []
    arrival_ms = 0.0
    for user in range(users):
        prompt = prompts[_popular(dice, len(prompts))]
        name, text = texts[_popular(dice, len(texts))]
        opening = prompt + b"<document " + name.encode() + b">\n" + text + b"\n</document>\n"
        streams.append(
            _conversation(opening, text, turns, block_tokens, int(arrival_ms), think_ms, f"{seed}/{user}")
        )
        arrival_ms += dice.expovariate(10 / think_ms)
    yield from heapq.merge(*streams, key=lambda request: request.timestamp_ms)


def _conversation(
    opening: bytes, text: bytes, turns: int, block_tokens: int, start_ms: int, think_ms: int, seed: str
) -> Iterator[Request]:
    """The requests of one user. Answers are quotations of the document: real text, and cheap to make."""
    dice = random.Random(seed)
    lines = text.splitlines(keepends=True)
    names = _names(text)
    history = bytearray(opening)
    keys: list[bytes] = []
    now_ms = start_ms

    def extend(addition: str | bytes) -> tuple[bytes, ...]:
        """Append to the conversation; the keys of the blocks that became full."""
        history.extend(addition.encode() if isinstance(addition, str) else addition)
        parent = keys[-1] if keys else None
        fresh = block_keys(
            history[len(keys) * block_tokens :], block_tokens, identity=IDENTITY, parent=parent
        )
        keys.extend(fresh)
        return tuple(fresh)

    for _ in range(turns):
        extend(f"\n<user {seed}>\n{dice.choice(_QUESTIONS).format(name=dice.choice(names))}\n<assistant>\n")
        input_tokens, blocks = len(history), tuple(keys)
        first = dice.randrange(len(lines))
        answer = b"".join(lines[first : first + dice.randint(8, 60)])
        yield Request(now_ms, input_tokens, len(answer), blocks, extend(answer))
        now_ms += int(dice.expovariate(1 / think_ms)) + 1


def _popular(dice: random.Random, count: int) -> int:
    """An index below `count`, the n-th 1/n as likely as the first."""
    return dice.choices(range(count), weights=[1 / (rank + 1) for rank in range(count)])[0]


def _documents(count: int, seed: int) -> list[tuple[str, bytes]]:
    """Source files of the standard library, by name; which ones, and in which order, the seed decides."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    paths = sorted(folder.glob("*.py")) + sorted(folder.glob("[a-z]*/*.py"))
    skipped = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3"}
    fitting = [
        path
        for path in paths
        if path.is_file()
        and path.parent.name not in skipped
        and DOCUMENT_BYTES_MIN <= path.stat().st_size <= DOCUMENT_BYTES_MAX
    ]
    if len(fitting) < count:
        raise InvalidArgument(
            f"documents is {count}, but {folder} holds {len(fitting)} source files of {DOCUMENT_BYTES_MIN} "
            f"to {DOCUMENT_BYTES_MAX} bytes"
        )
    chosen = random.Random(seed).sample(fitting, count)
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in chosen]


def _system_manual() -> str:
    """A few thousand characters that every system prompt shares after its first lines."""
    import argparse
    import string

    return f"{argparse.__doc__ or ''}\n{string.Formatter.vformat.__doc__ or ''}\n" + "\n".join(_QUESTIONS)


def _names(text: bytes) -> list[str]:
    """Names that the document defines, to ask about."""
    words = [
        line.split()[1]
        for line in text.splitlines()
        if line.startswith((b"def ", b"class ")) and b" " in line
    ]
    found = [word.split(b"(")[0].rstrip(b":").decode("utf-8", "replace") for word in words]
    return found or ["the module"]


# The published trace


def trace(path: str | Path, *, limit: int | None = None) -> Iterator[Request]:
    """Requests of a trace in Mooncake's JSONL format, in order, read line by line.

    limit: stop after so many requests. Raises InvalidArgument naming file, line and field when a line does
    not hold what the format says: four fields, timestamps (ms) that do not fall, lengths in tokens, and
    one hash id for each 512-token block of the input, the last one possibly not full.
    """
    path = Path(path)
    try:
        file = path.open("rb")
    except OSError as error:
        raise InvalidArgument(f"trace {str(path)!r} cannot be read: {error.strerror}") from error
    keys: dict[int, bytes] = {}
    previous_ms = 0
    count = 0
    with file:
        number = 0
        while limit is None or count < limit:
            line = file.readline(TRACE_LINE_BYTES_MAX + 1)
            number += 1
            if not line:
                break
            where = f"{path} line {number}"
            if len(line) > TRACE_LINE_BYTES_MAX:
                raise InvalidArgument(f"{where}: longer than {TRACE_LINE_BYTES_MAX} bytes")
            if not line.strip():
                continue
            record = _trace_record(line, where)
            if record["timestamp"] < previous_ms:
                raise InvalidArgument(
                    f"{where}: timestamp {record['timestamp']} is before {previous_ms}, the line before"
                )
            previous_ms = record["timestamp"]
            ids: list[int] = record["hash_ids"]
            blocks = tuple(keys.get(item) or keys.setdefault(item, trace_key(item)) for item in ids)
            yield Request(record["timestamp"], record["input_length"], record["output_length"], blocks)
            count += 1
    if count == 0 and limit != 0:
        raise InvalidArgument(f"trace {str(path)!r} holds no request")


def trace_key(hash_id: int) -> bytes:
    """The key of a block of the trace: 32 bytes, as block keys have."""
    return blake2b(b"%d" % hash_id, digest_size=32, person=b"mooncake-trace").digest()


def _trace_record(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"{where}: not JSON: {error}") from error
    if not isinstance(record, dict):
        raise InvalidArgument(f"{where}: a {type(record).__name__}, not an object with the four fields")
    for name, lowest in (("timestamp", 0), ("input_length", 1), ("output_length", 0)):
        value: Any = record.get(name)
        if not _is_int(value) or value < lowest:
            raise InvalidArgument(f"{where}: {name} is {_short(value)}; a whole number >= {lowest} is needed")
    ids = record.get("hash_ids")
    if not isinstance(ids, list) or not all(_is_int(item) and item >= 0 for item in ids):
        raise InvalidArgument(f"{where}: hash_ids is {_short(ids)}; a list of whole numbers >= 0 is needed")
    needed = -(-record["input_length"] // TRACE_BLOCK_TOKENS)
    if len(ids) != needed:
        raise InvalidArgument(
            f"{where}: {len(ids)} hash_ids, but an input_length of {record['input_length']} has {needed} "
            f"blocks of {TRACE_BLOCK_TOKENS} tokens"
        )
    return record


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 63


def _short(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, int) and value.bit_length() > 63:  # Python may refuse to print it
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 60 else text[:60] + "..."


# Contents of blocks

_MIX = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB))
_pattern = np.empty(0, np.uint64)


def block_bytes(key: bytes, size: int) -> npt.NDArray[np.uint8]:
    """The `size` bytes that stand under `key`; equal arguments give equal bytes in every process.

    Word i is pattern[i] XOR a seed made of key and size. The pattern's words all differ, so a piece that
    is missing, shifted, swapped, or belongs to another block (or to the same key in another size) shows.
    """
    content = np.empty(size, np.uint8)
    fill_block(key, content)
    return content


def fill_block(key: bytes, target: Any) -> None:
    """Write the block's bytes into a writable buffer; its length is the block's size."""
    view = _as_bytes(target)
    if view.size == 0:
        return
    seed, pattern, words = _seed(key, view.size), _words((view.size + 7) // 8), view.size // 8
    np.bitwise_xor(pattern[:words], seed, out=view[: words * 8].view(np.uint64))
    if view.size % 8:
        view[words * 8 :] = (pattern[words : words + 1] ^ seed).view(np.uint8)[: view.size % 8]


def verify_block(key: bytes, buffer: Any) -> bool:
    """Whether a buffer holds exactly the bytes of `block_bytes(key, len(buffer))`."""
    view = _as_bytes(buffer)
    step = 1 << 18  # compares in pieces that stay in the cache
    if view.size == 0:
        return True
    seed, pattern, words = _seed(key, view.size), _words((view.size + 7) // 8), view.size // 8
    found = view[: words * 8].view(np.uint64)
    for start in range(0, words, step):
        end = min(start + step, words)
        if not np.array_equal(found[start:end] ^ seed, pattern[start:end]):
            return False
    rest = (pattern[words:] ^ seed)[:1].view(np.uint8)[: view.size % 8]
    return bool(np.array_equal(view[words * 8 :], rest))


def _as_bytes(buffer: Any) -> npt.NDArray[np.uint8]:
    if isinstance(buffer, np.ndarray):
        if not buffer.flags.c_contiguous:  # reshape would copy, and the block be written into the copy
            raise InvalidArgument(f"the buffer, an array of shape {buffer.shape}, is not contiguous")
        return buffer.reshape(-1).view(np.uint8)
    return np.frombuffer(buffer, np.uint8)


def _seed(key: bytes, size: int) -> np.uint64:
    digest = blake2b(key, digest_size=8, person=b"block-bytes", salt=size.to_bytes(8, "little")).digest()
    seed: np.uint64 = np.frombuffer(digest, "<u8")[0]
    return seed


def _words(count: int) -> npt.NDArray[np.uint64]:
    """The first `count` words of the pattern: the finalizer of splitmix64 over 1, 2, 3, ... (a bijection)."""
    global _pattern
    pattern: npt.NDArray[np.uint64] = _pattern
    if pattern.size < count:
        words = np.arange(1, max(count, 8_192) + 1, dtype=np.uint64) * _MIX[0]
        words = (words ^ (words >> np.uint64(30))) * _MIX[1]
        words = (words ^ (words >> np.uint64(27))) * _MIX[2]
        pattern = words ^ (words >> np.uint64(31))
        pattern.flags.writeable = False
        _pattern = pattern  # another thread may do the same; both are equal
    return pattern[:count]
