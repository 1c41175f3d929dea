"""What the proxy knows of a prompt's prefix: hashes of its text, and where the store has its blocks.

The engines' block keys are hashes of tokens, and a proxy has no tokenizer. So there are two sources:

- **Text.** The prompt's text is cut into chunks of CHUNK_BYTES, each hashed together with all before it.
  Equal hashes mean equal text before that point, so, under one model, adapter and salt, equal tokens up to
  one or two at the cut. Unequal text may share blocks all the same (templates of the engine): not seen.
- **Keys**, where the operator has a function that knows them (`--prefix_keys`): the master is asked which
  exist and on whose host.

Neither decides anything but who is asked: a wrong guess costs a transfer or a prefill, never an answer.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import aiohttp
from yarl import URL

from mooncake_proxy.deadlines import timeout
from mooncake_proxy.upstream import FAILURES
from mooncake_store.endpoints import Endpoint, parse_endpoint
from mooncake_store.errors import InvalidArgument

log = logging.getLogger("mooncake_store.proxy")

CHUNK_BYTES: Final = 1_024
"""Some 256 tokens of English: below it a prefill costs less than what is won, and tables fill."""
CHUNKS_MAX: Final = 64
"""64 KiB of a prompt are looked at; what differs behind that differs for nobody."""
HOLDERS_MAX: Final = 4
"""Instances remembered of one chunk, the latest first."""
KEYS_MAX: Final = 48
"""Keys that the master is asked for: they go in a line of HTTP, of which servers take 8 KiB."""
KEYS_LINE_BYTES_MAX: Final = 7_000
ANSWER_BYTES_MAX: Final = 1 << 20

KeysOf = Callable[[str, dict[str, Any]], "Sequence[str] | Awaitable[Sequence[str]]"]


@dataclass(frozen=True)
class Prefix:
    """What is known. hashes: of the chunks, in order. blocks_at: blocks of it by the host they lie on."""

    hashes: Sequence[bytes] = ()
    blocks_at: Mapping[str, int] = field(default_factory=dict)


def hashes_of(fields: dict[str, Any]) -> list[bytes]:
    """Of the whole chunks of a request's prompt; a last one that is not full has none."""
    identity = [fields.get("model"), fields.get("cache_salt"), fields.get("tools")]
    previous = blake2b(_canonical(identity), digest_size=16).digest()
    text = _text(fields)[: CHUNK_BYTES * CHUNKS_MAX]
    found = []
    for start in range(0, len(text) - CHUNK_BYTES + 1, CHUNK_BYTES):
        previous = blake2b(previous + text[start : start + CHUNK_BYTES], digest_size=16).digest()
        found.append(previous)
    return found


def _text(fields: dict[str, Any]) -> bytes:
    if "messages" in fields:
        messages = fields["messages"]
        return b"\n".join(map(_canonical, messages)) if isinstance(messages, list) else b""
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]  # several prompts go together, and share one place
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass")
    return _canonical(prompt) if isinstance(prompt, list) else b""


def _canonical(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


class Affinity:
    """Which instances were lately asked for which chunks; at most `entries_max`, the latest used stay."""

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._holders: OrderedDict[bytes, tuple[str, ...]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def matches(self, hashes: Iterable[bytes]) -> dict[str, int]:
        """How many chunks from the first on each instance was asked for, by name."""
        found: dict[str, int] = {}
        for length, chunk in enumerate(hashes, start=1):
            holders = self._holders.get(chunk)
            if holders is None:
                break
            for name in holders:
                if found.get(name, 0) == length - 1:
                    found[name] = length
        return found

    def note(self, hashes: Sequence[bytes], name: str) -> None:
        # From the last on, so that of one prompt the first chunks, which most prompts share, stay longest.
        for chunk in reversed(hashes):
            others = tuple(other for other in self._holders.get(chunk, ()) if other != name)
            self._holders[chunk] = (name, *others[: HOLDERS_MAX - 1])
            self._holders.move_to_end(chunk)
        while len(self._holders) > self._entries_max:
            self._holders.popitem(last=False)


def keys_function(name: str) -> KeysOf:
    """The function that `module:function` names. Raises InvalidArgument."""
    module, colon, function = name.partition(":")
    try:
        if not colon:
            raise ValueError("write module:function")
        found = getattr(importlib.import_module(module), function)
        if not callable(found):
            raise ValueError(f"{function} cannot be called")
    except (ImportError, AttributeError, ValueError) as error:
        raise InvalidArgument(f"--prefix_keys: {name!r}: {error}") from error
    keys_of: KeysOf = found
    return keys_of


class BlockFinder:
    """Asks the master on which hosts the blocks of a prompt lie."""

    def __init__(
        self, session: aiohttp.ClientSession, master: Endpoint, keys_of: KeysOf, *, timeout_ms: int
    ) -> None:
        self._session = session
        self._url = f"http://{master}/batch_query_keys"
        self._keys_of = keys_of
        self._timeout_s = timeout_ms / 1_000

    async def blocks_at(self, path: str, fields: dict[str, Any]) -> dict[str, int]:
        """By host, up to the first block that nobody has. Empty where it cannot be told in time."""
        try:
            async with timeout(self._timeout_s):
                keys = self._keys_of(path, fields)
                if inspect.isawaitable(keys):
                    keys = await keys
                return await self._ask(_fitting(keys))
        except asyncio.TimeoutError:
            log.warning("no answer on blocks within --prefix_timeout_ms; chosen without")
        except FAILURES as error:
            log.warning("the master at %s does not tell where blocks are: %s", self._url, error)
        except Exception:  # the operator's function, or an answer that is none
            log.warning("--prefix_keys or the master's answer failed; chosen without", exc_info=True)
        return {}

    async def _ask(self, keys: list[str]) -> dict[str, int]:
        if not keys:
            return {}
        url = URL(self._url).with_query(keys=",".join(keys))
        async with self._session.get(url, allow_redirects=False) as answer:
            packed = await answer.content.read(ANSWER_BYTES_MAX)
            while not answer.content.at_eof() and len(packed) < ANSWER_BYTES_MAX:
                packed += await answer.content.read(ANSWER_BYTES_MAX)
        data = json.loads(packed)["data"]
        found: Counter[str] = Counter()
        for key in keys:
            if not data[key]["ok"]:
                break
            hosts = {
                parse_endpoint(place["transport_endpoint_"], field="transport_endpoint_").host
                for place in data[key]["values"]
            }
            found.update(hosts)
        return dict(found)


def _fitting(keys: Sequence[str]) -> list[str]:
    """The first keys, as many as one question holds. A comma cannot be asked for: it separates keys."""
    fitting: list[str] = []
    size = 0
    for key in keys[:KEYS_MAX]:
        size += 3 * len(key.encode()) + 3  # each byte may be escaped
        if size > KEYS_LINE_BYTES_MAX or "," in key:
            break
        fitting.append(key)
    return fitting
