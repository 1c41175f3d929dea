"""Keys: their bytes, and the chained hashes under which KV blocks are stored.

Owns the encodings, which are part of the contract: two processes, with any hash seed and in any language,
must derive the same key for the same block, and different keys for blocks that must not be shared (another
model, dtype, block size, tensor-parallel shard, salt or LoRA). Imports neither numpy nor the native module.

The encoding of a block key, so that other languages can follow it (integers little-endian):

    root   = BLAKE2b-256(person="mooncake-root-1",  field*)        field = u8 tag, u32 length, bytes
    key[i] = BLAKE2b-256(person="mooncake-blk-1", key[i-1] or root, u32 token * block_tokens)

The fields of the root are, in this order: 1 model, 2 dtype, 3 block_tokens, 4 tp_rank, 5 tp_size, 6 pp_rank,
7 pp_size, 8 salt, 9 lora; text is UTF-8, numbers are u64.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from mooncake_store.errors import InvalidArgument
from mooncake_store.status import Status

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

KEY_BYTES_MIN = 1
KEY_BYTES_MAX = 1024
BLOCK_KEY_BYTES = 32
"""A block key is 256 bits: users choose prompts, so two prompts with one key must be out of reach."""
TOKEN_MAX = 2**32 - 1

_ROOT_PERSON = b"mooncake-root-1"
_BLOCK_PERSON = b"mooncake-blk-1"


def key_bytes(key: str | bytes | int) -> bytes:
    """The bytes of a key: str is its UTF-8, bytes are themselves, int >= 0 its decimal digits.

    Equal bytes are one key: 12, "12" and b"12" name the same object.
    Raises InvalidArgument (code -400) for another type, a bool, or a length outside 1-1024 bytes.
    """
    if isinstance(key, str):
        try:
            encoded = key.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidArgument(
                f"key {key!r} has no UTF-8 form: {error}", code=Status.INVALID_KEY
            ) from error
    elif isinstance(key, bytes):
        encoded = key
    elif isinstance(key, int) and not isinstance(key, bool):
        if key < 0:
            raise InvalidArgument(f"key {key} is negative; an int key is >= 0", code=Status.INVALID_KEY)
        # Python refuses to print ints of more than 4,300 digits; decide before printing.
        if key.bit_length() > KEY_BYTES_MAX * 4:
            raise InvalidArgument(
                f"int key of {key.bit_length()} bits has more than {KEY_BYTES_MAX} digits",
                code=Status.INVALID_KEY,
            )
        encoded = b"%d" % key
    else:
        raise InvalidArgument(
            f"key must be str, bytes or int, not {type(key).__name__}: {key!r}", code=Status.INVALID_KEY
        )
    if not KEY_BYTES_MIN <= len(encoded) <= KEY_BYTES_MAX:
        shown = repr(key) if len(encoded) <= 64 else f"starting {encoded[:32]!r}"
        raise InvalidArgument(
            f"key {shown} has {len(encoded)} bytes; a key has {KEY_BYTES_MIN} to {KEY_BYTES_MAX}",
            code=Status.INVALID_KEY,
        )
    return encoded


@dataclass(frozen=True)
class BlockIdentity:
    """Everything besides the tokens that changes the bytes of a KV block.

    model: name and revision, as the engine was started with. dtype: of the cache, not of the weights
    (`fp8_e4m3` and `bfloat16` blocks of one model must never meet). salt: separates users who must not
    share. lora: name or digest of the adapter, empty for none.
    """

    model: str
    dtype: str
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    salt: str = ""
    lora: str = ""

    def __post_init__(self) -> None:
        if not self.model:
            raise InvalidArgument("BlockIdentity.model is empty; blocks of unnamed models must not be shared")
        if not self.dtype:
            raise InvalidArgument("BlockIdentity.dtype is empty; it must name the dtype of the cache")
        for kind in ("tp", "pp"):
            rank, size = getattr(self, f"{kind}_rank"), getattr(self, f"{kind}_size")
            if not 0 <= rank < size:
                raise InvalidArgument(
                    f"BlockIdentity.{kind}_rank {rank} is not in 0..{kind}_size-1 (size {size})"
                )


def root_hash(block_tokens: int, identity: BlockIdentity) -> bytes:
    """The 32 bytes that stand before a chain's first block: the identity and the block size."""
    if block_tokens < 1:
        raise InvalidArgument(f"block_tokens is {block_tokens}; a block holds at least one token")
    fields: tuple[str | int, ...] = (
        identity.model,
        identity.dtype,
        block_tokens,
        identity.tp_rank,
        identity.tp_size,
        identity.pp_rank,
        identity.pp_size,
        identity.salt,
        identity.lora,
    )
    digest = blake2b(digest_size=BLOCK_KEY_BYTES, person=_ROOT_PERSON)
    for tag, field in enumerate(fields, start=1):
        data = struct.pack("<Q", field) if isinstance(field, int) else field.encode("utf-8")
        digest.update(struct.pack("<BI", tag, len(data)))
        digest.update(data)
    return digest.digest()


def block_keys(
    tokens: bytes | Sequence[int] | npt.NDArray[np.integer[Any]],
    block_tokens: int,
    *,
    identity: BlockIdentity,
    parent: bytes | None = None,
) -> list[bytes]:
    """Keys of the full blocks of `tokens`, in order: each covers the identity and every token before its end.

    tokens: bytes-like (each byte one token), a sequence of ints, or a 1-D numpy array of integers; each
        0..2^32-1. Equal tokens give equal keys in every form. A last block that is not full has no key.
    parent: key of the block before tokens[0] when a chain is continued; None starts one. The parent of
        block i is the key of block i-1.
    """
    previous = root_hash(block_tokens, identity)
    if parent is not None:
        if len(parent) != BLOCK_KEY_BYTES:
            raise InvalidArgument(f"parent has {len(parent)} bytes; a block key has {BLOCK_KEY_BYTES}")
        previous = parent
    packed = memoryview(_packed_tokens(tokens))
    stride = 4 * block_tokens
    keys = []
    for start in range(0, len(packed) - stride + 1, stride):
        digest = blake2b(previous, digest_size=BLOCK_KEY_BYTES, person=_BLOCK_PERSON)
        digest.update(packed[start : start + stride])
        previous = digest.digest()
        keys.append(previous)
    return keys


def _packed_tokens(tokens: Any) -> bytes | bytearray:
    """The tokens as little-endian u32."""
    if isinstance(tokens, (bytes, bytearray, memoryview)):
        view = memoryview(tokens)
        if view.itemsize != 1 or view.ndim != 1:
            raise InvalidArgument(
                f"tokens: a bytes-like must be 1-D of single bytes, not {view.ndim}-D {view.format!r}"
            )
        packed = bytearray(4 * len(view))
        packed[::4] = view
        return packed
    np = sys.modules.get("numpy")  # an array cannot exist before numpy was imported
    if np is not None and isinstance(tokens, np.ndarray):
        if tokens.ndim != 1 or tokens.dtype.kind not in "iu":
            raise InvalidArgument(
                f"tokens: an array must be 1-D of integers, not {tokens.ndim}-D {tokens.dtype}"
            )
        if tokens.size and (int(tokens.min()) < 0 or int(tokens.max()) > TOKEN_MAX):
            index = int(np.flatnonzero((tokens < 0) | (tokens > TOKEN_MAX))[0])
            raise InvalidArgument(f"tokens[{index}] is {int(tokens[index])}; a token is 0..{TOKEN_MAX}")
        return bytes(tokens.astype("<u4").tobytes())
    if isinstance(tokens, str):
        raise InvalidArgument("tokens: a str has no tokens; encode it first")
    try:
        words = array("I", tokens)
    except (OverflowError, TypeError) as error:
        for index, token in enumerate(tokens if isinstance(tokens, Sequence) else ()):
            if not isinstance(token, int) or not 0 <= token <= TOKEN_MAX:
                raise InvalidArgument(f"tokens[{index}] is {token!r}; a token is 0..{TOKEN_MAX}") from error
        raise InvalidArgument(f"tokens must be bytes, ints or an integer array: {error}") from error
    assert words.itemsize == 4, "unsigned int has 4 bytes on every supported platform"
    if sys.byteorder == "big":
        words.byteswap()
    return words.tobytes()
