"""A node that comes back from an earlier master, as the state machine of a later one hears it."""

from __future__ import annotations

from typing import Any

from metadata.harness import Harness, uuid
from mix64 import mix64
from node.value_header import value_header

from mooncake_store import _core

REBUILDING, STALE_EPOCH = -2003, -2007
WITH_INVENTORY = 1
FIRST, LAST = 1, 2
CLIENT_TTL_MS = 10_000
WINDOW_MS = 2 * CLIENT_TTL_MS
OLD = 1  # the epoch in which the values were put


def old_id(counter: int) -> int:
    return (OLD << 40) | counter


class Returning:
    """A node that followed an earlier master and holds what that one granted."""

    def __init__(
        self, pool: Harness, name: str, capacity: int = 1 << 20, known_epoch: int = OLD, **described: Any
    ) -> None:
        self.pool = pool
        self.known_epoch = known_epoch
        self.session = pool.open(host=f"host-{name}")
        self.described = pool.describe(name, capacity, **described)
        [(self.mount_status, self.segment)] = self.mount()
        self.count = self.checksum = 0

    def mount(self) -> list[tuple[int, int]]:
        return self.pool.mount_all(
            self.session,
            [self.described],
            known_epoch=self.known_epoch,
            known_master=uuid(77),
            flags=WITH_INVENTORY,
        )

    def tell(self, *held: tuple[int, bytes], flags: int = FIRST | LAST, lost: int = 0) -> int:
        """One chunk of (replica counter, encoded header); `lost` of an earlier one never came."""
        if flags & FIRST:
            self.count = self.checksum = 0
        items = [(old_id(replica), self.segment, header) for replica, header in held]
        self.count += len(items) + lost
        for replica, _, _ in items:
            self.checksum ^= mix64(replica)
        body = _core.encode_inventory(self.session, flags, items, self.count, self.checksum)
        return self.pool.ask("inventory", body)[0]


def held(
    replica: int, key: bytes, put: int | None = None, size: int = 64, **header: Any
) -> tuple[int, bytes]:
    return replica, value_header(key, size, put_id=old_id(replica if put is None else put), **header)
