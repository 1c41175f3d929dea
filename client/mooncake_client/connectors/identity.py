"""The bytes before every key of an engine: all that changes the content of a block but its tokens.

Two engines find each other's blocks only when every field is equal. Fields are written with their names and
lengths, so that no two lists of fields have the same bytes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

IDENTITY_BYTES: Final = 16
"""Names are chosen by who runs the engines, not by its users, so that half a block key's length is enough."""


def identity(engine: str, **fields: object) -> bytes:
    """`ENGINE/` and a digest of the fields in hexadecimal digits, and `/`; ASCII, so that people can list."""
    digest = blake2b(digest_size=IDENTITY_BYTES, person=b"mooncake-engine1")
    for name, value in sorted(fields.items()):
        for text in (name, repr(value)):
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return f"{engine}/{digest.hexdigest()}/".encode("ascii")
