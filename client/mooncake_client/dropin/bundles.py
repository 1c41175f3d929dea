"""Several named payloads under one manifest: how they are named, cut into chunks, moved and removed.

Owns the manifest and the keys of a bundle, and which calls of a store move its bytes: those that take
addresses where the store has them, else `put` and `get`. Works with anything that has a store's methods. Must
not know what payloads mean.

A bundle's keys lie under `<key_prefix>/<object_id>`: `manifest`, `meta`, and `buffer/<name>` (cut: with
`/<number>` behind). The manifest is written last, so that a bundle is seen whole or not at all. A manifest
that was changed is not believed: no key outside the bundle is read or removed.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from mooncake_client.dropin.codes import INVALID_PARAMS, OBJECT_NOT_FOUND, OK

log = logging.getLogger("mooncake_store.dropin")

KEYS_TOLD_MAX: Final = 20
"""Of those left behind, in one line of the log."""

DEFAULT_BUNDLE_CHUNK_BYTES: Final = 64 << 20
MANIFEST_VERSION: Final = 1
INFLIGHT_MAX: Final = 64
"""Bound of `max_inflight_put`: a thread each."""
COPY_MODES: Final = ("auto", "copy", "zero_copy")
PUT_MODES: Final = ("auto", "parallel")

Bytes: TypeAlias = npt.NDArray[np.uint8]
Entry: TypeAlias = "dict[str, Any]"
"""Of a payload in a manifest: key, bytes, and chunks, each with key and bytes."""


@dataclass(frozen=True)
class BundleTransferPolicy:
    """How payloads are put.

    copy_mode: `copy` uses `put` alone; `zero_copy` refuses what cannot be put from where it lies; `auto`: as
    it can be. put_mode: `parallel` puts chunks by `max_inflight_put` threads at once.
    """

    copy_mode: str = "auto"
    put_mode: str = "auto"
    max_inflight_put: int = 4

    def __post_init__(self) -> None:
        if self.copy_mode not in COPY_MODES:
            raise ValueError(f"copy_mode {self.copy_mode!r} is not one of {', '.join(COPY_MODES)}")
        if self.put_mode not in PUT_MODES:
            raise ValueError(f"put_mode {self.put_mode!r} is not one of {', '.join(PUT_MODES)}")
        if not 1 <= self.max_inflight_put <= INFLIGHT_MAX:
            raise ValueError(f"max_inflight_put {self.max_inflight_put} is not in 1..{INFLIGHT_MAX}")


@dataclass
class RemoteBundleRef:
    """Names a bundle. manifest: as it was written; empty: to be read from the store."""

    manifest_key: str
    manifest: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Put:
    """Settings of one put."""

    chunk_bytes: int
    policy: BundleTransferPolicy
    config: Any = None


# ---- names


def checked_name(what: str, name: object) -> str:
    """One part of a key. Raises ValueError."""
    if not isinstance(name, str) or not name or "/" in name or not name.isprintable():
        raise ValueError(f"{what} {name!r} is not a printable name without a slash")
    return name


def checked_chunk_bytes(chunk_bytes: Any) -> int:
    if isinstance(chunk_bytes, bool) or not isinstance(chunk_bytes, int) or chunk_bytes <= 0:
        raise ValueError(f"chunk_bytes {chunk_bytes!r} is not a positive number")
    return chunk_bytes


def bytes_in(value: Any) -> Bytes:
    """Over the memory of anything contiguous with the buffer protocol; a copy of the rest."""
    view = memoryview(value)
    if not view.nbytes:
        return np.empty(0, dtype=np.uint8)
    return np.frombuffer(view if view.c_contiguous else view.tobytes(), dtype=np.uint8)


# ---- moving bytes


class Payloads:
    """A store's calls for payloads. Raises RuntimeError, naming key and code, where one fails."""

    def __init__(self, store: Any) -> None:
        self._store = store
        registers = self.has("register_buffer") and self.has("unregister_buffer")
        self.puts_addresses = registers and self.has("batch_put_from")
        self.reads_addresses = registers

    def has(self, method: str) -> bool:
        return callable(getattr(self._store, method, None))

    def call(self, method: str, *arguments: Any, config: Any = None) -> Any:
        """A method of the store; a configuration is passed only where there is one."""
        return getattr(self._store, method)(*arguments, *(() if config is None else (config,)))

    def put(self, key: str, value: Any, config: Any = None) -> None:
        code = self.call("put", key, value, config=config)
        if code != OK:
            raise RuntimeError(f"put of {key}: {code}")

    def put_payload(
        self, key: str, data: Bytes, put: Put, written: list[str], *, is_registered: bool = False
    ) -> Entry:
        """Put it in chunks; their keys are added to `written` before."""
        starts = range(0, len(data), put.chunk_bytes)
        pieces = [data[start : start + put.chunk_bytes] for start in starts]
        keys = [key] if len(pieces) == 1 else [f"{key}/{number}" for number in range(len(pieces))]
        written.extend(keys)
        mode = put.policy.copy_mode
        if mode == "zero_copy" and not self.puts_addresses:
            raise RuntimeError(f"zero-copy put requested of {key}, and the store puts from no addresses")
        if put.policy.put_mode == "parallel":
            with ThreadPoolExecutor(put.policy.max_inflight_put) as threads:
                list(threads.map(lambda at: self.put(keys[at], pieces[at], put.config), range(len(keys))))
        elif mode == "copy" or not self.puts_addresses:
            for name, piece in zip(keys, pieces, strict=True):
                self.put(name, piece, put.config)
        elif pieces:
            self._put_addresses(keys, pieces, put.config, is_registered)
        chunks = [{"key": name, "bytes": len(piece)} for name, piece in zip(keys, pieces, strict=True)]
        return {"key": key, "bytes": len(data), "chunks": chunks}

    def _put_addresses(self, keys: list[str], pieces: list[Bytes], config: Any, is_registered: bool) -> None:
        memory = [(int(piece.ctypes.data), len(piece)) for piece in pieces]
        with self._registered([] if is_registered else memory):
            pointers, sizes = map(list, zip(*memory, strict=True))
            codes = self.call("batch_put_from", keys, pointers, sizes, config=config)
        for name, code in zip(keys, codes, strict=True):
            if code != OK:
                raise RuntimeError(f"put of {name}: {code}")

    @contextmanager
    def _registered(self, memory: Sequence[tuple[int, int]]) -> Iterator[None]:
        """Memory that its owner has registered already stays so."""
        ours: list[int] = []
        try:
            for pointer, size in memory:
                code = self._store.register_buffer(pointer, size) or OK
                if code == OK:
                    ours.append(pointer)
                elif code != INVALID_PARAMS:
                    raise RuntimeError(f"register_buffer of {size} bytes: {code}")
            yield
        finally:
            for pointer in ours:
                self._store.unregister_buffer(pointer)

    def get(self, key: str, size: int | None = None) -> bytes:
        value = self._store.get(key)
        if not value:
            raise RuntimeError(f"get of {key}: there is no value")
        if size is not None and len(value) != size:
            raise RuntimeError(f"get of {key}: {len(value)} bytes where its manifest says {size}")
        return bytes(value)

    def read(self, entry: Entry) -> Bytes:
        """The whole payload in memory of its own."""
        data = np.empty(entry["bytes"], dtype=np.uint8)
        chunks = entry["chunks"]
        if not chunks:
            return data
        if self.reads_addresses and self.has("batch_get_into"):
            places = list(_places(chunks))
            pointers = [int(data.ctypes.data) + start for start, _ in places]
            sizes = [size for _, size in places]
            with self._registered([(int(data.ctypes.data), len(data))]):
                answers = self._store.batch_get_into([chunk["key"] for chunk in chunks], pointers, sizes)
            _check_read(chunks, answers, sizes)
            return data
        for (start, size), chunk in zip(_places(chunks), chunks, strict=True):
            data[start : start + size] = bytes_in(self.get(chunk["key"], size))
        return data

    def read_ranges(
        self, entry: Entry, ranges: Sequence[tuple[int, int]], target: Bytes, *, is_registered: bool = False
    ) -> None:
        """Those (offset, length) of the payload into `target`, one after the other."""
        by_chunk = _by_chunk(entry["chunks"], ranges)
        if not by_chunk:
            return
        keys = [entry["chunks"][at]["key"] for at in by_chunk]
        pointer, size = int(target.ctypes.data), len(target)
        whole = len(by_chunk) == 1 and list(ranges) == [(0, entry["bytes"])]
        if self.reads_addresses and self.has("get_into" if whole else "get_into_ranges"):
            with self._registered([] if is_registered else [(pointer, size)]):
                if whole:
                    answers, sizes = [self._store.get_into(keys[0], pointer, size)], [entry["bytes"]]
                    _check_read(entry["chunks"], answers, sizes)
                else:
                    self._read_addresses(keys, list(by_chunk.values()), pointer)
            return
        for key, pieces in zip(keys, by_chunk.values(), strict=True):
            value = bytes_in(self.get(key))
            for to, start, length in pieces:
                if start + length > len(value):
                    raise RuntimeError(f"get of {key}: {len(value)} bytes are fewer than its manifest says")
                target[to : to + length] = value[start : start + length]

    def _read_addresses(
        self, keys: list[str], pieces: list[list[tuple[int, int, int]]], pointer: int
    ) -> None:
        to, starts, lengths = ([[piece[at] for piece in one] for one in pieces] for at in range(3))
        [answers] = self._store.get_into_ranges([pointer], [keys], [to], [starts], [lengths])
        for key, answer, wanted in zip(keys, answers, lengths, strict=True):
            if list(answer) != wanted:
                raise RuntimeError(f"get of ranges of {key}: {list(answer)} where {wanted} were asked")

    def remove(self, keys: Sequence[str]) -> None:
        """By force; what is gone already is no error. Raises RuntimeError for what could not be removed."""
        left = list(dict.fromkeys(keys))
        if self.has("batch_remove"):
            codes = self._store.batch_remove(left, True)
            left = [key for key, code in zip(left, codes, strict=True) if code not in (OK, OBJECT_NOT_FOUND)]
        refused = {}
        for key in left:
            code = self._store.remove(key, True)
            if code not in (OK, OBJECT_NOT_FOUND):
                refused[key] = code
        if refused:
            raise RuntimeError(f"remove of {refused}")


def _places(chunks: Sequence[Entry]) -> Iterator[tuple[int, int]]:
    """(start, size) of each chunk in its payload."""
    start = 0
    for chunk in chunks:
        yield start, chunk["bytes"]
        start += chunk["bytes"]


def _by_chunk(
    chunks: Sequence[Entry], ranges: Sequence[tuple[int, int]]
) -> dict[int, list[tuple[int, int, int]]]:
    """By index of a chunk: (offset in the target, offset in the chunk, length)."""
    places = list(_places(chunks))
    ends = np.cumsum([size for _, size in places]) if places else np.empty(0, dtype=np.int64)
    found: dict[int, list[tuple[int, int, int]]] = {}
    to = 0
    for offset, length in ranges:
        at = int(np.searchsorted(ends, offset, side="right"))
        while length > 0:
            start, size = places[at]
            taken = min(length, start + size - offset)
            found.setdefault(at, []).append((to, offset - start, taken))
            to, offset, length, at = to + taken, offset + taken, length - taken, at + 1
    return found


def _check_read(chunks: Sequence[Entry], answers: Sequence[int], sizes: Sequence[int]) -> None:
    for chunk, answer, size in zip(chunks, answers, sizes, strict=True):
        if answer != size:
            raise RuntimeError(f"get of {chunk['key']}: {answer} where {size} bytes were expected")


# ---- manifests


def checked_manifest(manifest_key: str, manifest: Any) -> dict[str, Any]:
    """Raises ValueError for a manifest that is not this key's, or that names keys of others."""
    if not isinstance(manifest, dict) or manifest.get("version") != MANIFEST_VERSION:
        raise ValueError(f"{manifest_key} is not a bundle of version {MANIFEST_VERSION}")
    object_id, root = manifest.get("object_id"), manifest_key.removesuffix("/manifest")
    if manifest.get("layout") != "bundle" or not isinstance(object_id, str):
        raise ValueError(f"{manifest_key} has no layout or object_id of a bundle")
    if root == manifest_key or not root.endswith(f"/{object_id}"):
        raise ValueError(f"manifest_key {manifest_key!r} is not that of {object_id!r}")
    partition = object_id.rpartition("/")[0]
    extended = manifest.get("extends", [])
    if not all(isinstance(one, str) and one.rpartition("/")[0] == partition for one in extended):
        raise ValueError(f"{manifest_key} extends objects outside of its namespace")
    roots = tuple(f"{root.removesuffix(object_id)}{one}/" for one in (object_id, *extended))
    for entry in (manifest["meta"], *manifest["buffers"].values()):
        keys = [entry["key"], *(chunk["key"] for chunk in entry["chunks"])]
        if not all(isinstance(key, str) and key.startswith(roots) for key in keys):
            raise ValueError(f"{manifest_key} has payloads outside of its namespace: {keys}")
        sizes = [chunk["bytes"] for chunk in entry["chunks"]]
        if not all(isinstance(size, int) and size > 0 for size in sizes) or sum(sizes) != entry["bytes"]:
            raise ValueError(f"{manifest_key}: the chunks of {entry['key']} are not {entry['bytes']} bytes")
    if not all(isinstance(key, str) and key.startswith(roots) for key in manifest.get("cleanup_keys", [])):
        raise ValueError(f"{manifest_key} has cleanup_keys outside of its namespace")
    return manifest


def keys_of_bundle(manifest_key: str, manifest: Mapping[str, Any]) -> list[str]:
    """All that goes with it, the manifest first: then nobody finds a bundle that is half removed."""
    entries = (manifest["meta"], *manifest["buffers"].values())
    chunks = [chunk["key"] for entry in entries for chunk in entry["chunks"]]
    return [manifest_key, *chunks, *manifest.get("cleanup_keys", [])]


PutMember: TypeAlias = Callable[[str, list[str]], Entry]
"""Puts one payload under a key, adding what it writes to the list."""


class Bundles:
    """The part of a transfer that puts and removes bundles of bytes."""

    def __init__(
        self,
        store: Any,
        key_prefix: str = "bundle",
        default_chunk_bytes: int = DEFAULT_BUNDLE_CHUNK_BYTES,
        buffer_pool: Any = None,
    ) -> None:
        """buffer_pool: kept for callers; values go straight from and to their memory."""
        prefix = key_prefix.strip("/") if isinstance(key_prefix, str) else ""
        if not prefix or not prefix.isprintable():
            raise ValueError(f"key_prefix {key_prefix!r} is empty or not printable")
        self.store = store
        self.key_prefix = prefix
        self.default_chunk_bytes = checked_chunk_bytes(default_chunk_bytes)
        self.buffer_pool = buffer_pool
        self._payloads = Payloads(store)

    def put_bundle(
        self,
        meta: Any,
        buffers: Mapping[str, Any],
        *,
        partition: str = "default",
        namespace: str = "",
        chunk_bytes: int | None = None,
        max_inflight_put: int | None = None,
        policy: BundleTransferPolicy | None = None,
        config: Any = None,
    ) -> RemoteBundleRef:
        """Put bytes under names, and `meta` beside. config: a ReplicateConfig for all of them.

        Raises RuntimeError where the store refuses something; then nothing is left there.
        """
        put = self._put_settings(chunk_bytes, policy, config, max_inflight_put)

        def member(data: Bytes) -> PutMember:
            return lambda key, written: self._payloads.put_payload(key, data, put, written)

        members = {
            checked_name("buffer name", name): member(bytes_in(value)) for name, value in buffers.items()
        }
        return self._write(bytes(meta), members, put, partition, namespace)

    def remove_bundle(self, ref: RemoteBundleRef | Mapping[str, Any]) -> None:
        """Remove all of it, also while somebody reads. Raises RuntimeError for what could not be."""
        found = self._resolved(ref)
        self._payloads.remove(keys_of_bundle(found.manifest_key, found.manifest))

    def _put_settings(
        self,
        chunk_bytes: int | None,
        policy: BundleTransferPolicy | None,
        config: Any,
        max_inflight_put: int | None = None,
    ) -> Put:
        policy = policy or BundleTransferPolicy()
        if max_inflight_put is not None:
            policy = replace(policy, max_inflight_put=max_inflight_put)
        chunk = self.default_chunk_bytes if chunk_bytes is None else checked_chunk_bytes(chunk_bytes)
        return Put(chunk, policy, config)

    def _write(
        self,
        meta: bytes,
        members: Mapping[str, PutMember],
        put: Put,
        partition: str,
        namespace: str,
        beside: Mapping[str, Any] | None = None,
    ) -> RemoteBundleRef:
        """beside: more of the manifest, with `buffers` that lie elsewhere already."""
        folder = checked_name("partition", partition)
        if namespace:
            folder = f"{checked_name('namespace', namespace)}/{folder}"
        object_id = f"{folder}/{uuid.uuid4().hex}"
        root = f"{self.key_prefix}/{object_id}"
        written: list[str] = []
        try:
            beside = dict(beside or {})
            buffers = {
                **beside.pop("buffers", {}),
                **{
                    name: put_member(f"{root}/buffer/{name}", written) for name, put_member in members.items()
                },
            }
            size = max(put.chunk_bytes, DEFAULT_BUNDLE_CHUNK_BYTES)  # few bytes: not worth more keys
            copied = Put(size, BundleTransferPolicy(copy_mode="copy"), put.config)
            told = self._payloads.put_payload(f"{root}/meta", bytes_in(meta), copied, written)
            manifest = {
                "version": MANIFEST_VERSION,
                "layout": "bundle",
                "object_id": object_id,
                "meta": told,
                "buffers": buffers,
                **beside,
            }
            manifest_key = f"{root}/manifest"
            written.append(manifest_key)
            self._payloads.put(manifest_key, json.dumps(manifest, separators=(",", ":")).encode(), put.config)
        except BaseException:
            self._forget(written)
            raise
        return RemoteBundleRef(manifest_key, manifest)

    def _forget(self, written: Sequence[str]) -> None:
        """Remove what a failed put has written, as far as it can be: its own error is told."""
        try:
            self._payloads.remove(written)
        except Exception:
            left = [key for key in written if not self._is_removed(key)]
            if left:
                log.warning(
                    "%d keys of a bundle whose put failed could not be removed and stay in the pool: %s",
                    len(left),
                    ", ".join(map(repr, left[:KEYS_TOLD_MAX]))
                    + (", ..." if len(left) > KEYS_TOLD_MAX else ""),
                )

    def _is_removed(self, key: str) -> bool:
        try:
            self._payloads.remove([key])
        except Exception as error:
            log.debug("remove of %r: %s", key, error)
            return False
        return True

    def _resolved(self, ref: RemoteBundleRef | Mapping[str, Any]) -> RemoteBundleRef:
        """The reference with its manifest, read where it has none, and checked."""
        if isinstance(ref, Mapping):
            ref = RemoteBundleRef(str(ref["manifest_key"]), dict(ref.get("manifest") or {}))
        manifest: Any = ref.manifest
        if not manifest:
            try:
                manifest = json.loads(self._payloads.get(ref.manifest_key))
            except ValueError as error:
                raise ValueError(f"{ref.manifest_key} is not JSON: {error}") from error
        return RemoteBundleRef(ref.manifest_key, checked_manifest(ref.manifest_key, manifest))
