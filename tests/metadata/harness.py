"""A state machine with a clock in the test's hand, and its verbs as methods; checks invariants after each."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from mooncake_store import _core

OK = 0
SEGMENT_NOT_FOUND = -101
SEGMENT_ALREADY_EXISTS = -102
NO_SPACE = -200
INVALID_KEY = -400
WRITE_FAIL = -500
INVALID_PARAMS = -600
ILLEGAL_CLIENT = -601
NOT_READY = -703
NOT_FOUND = -704
ALREADY_EXISTS = -705
HAS_LEASE = -706
NO_REPLICA = -710
STALE_GRANT = -2000
BUSY = -2001
NO_RANGE = -2002
GONE = -2004
SEALED = -2006
STALE_REQUEST = -2008
SESSION_UNKNOWN = -2009
UNREACHABLE = -2012
VALUE_TOO_LARGE = -2015
MALFORMED = -2016

HARD_PIN, SOFT_PIN, UPSERT, LOCAL, KEEP_SOFT_PIN = 1, 2, 4, 8, 16
FORCE = 1
WITHOUT_HOLD = 2
REMOVE_COPIES = 8

VERBS = _core.verb_numbers()
MASTER = b"master-life-0001"

Effect = tuple[str, int, int, int]
Places = list[tuple[int, int]]


def uuid(number: int) -> bytes:
    return number.to_bytes(16, "big")


def statuses(answer: tuple[int, bytes]) -> list[int]:
    status, body = answer
    assert status == OK, (status, body)
    return _core.parse_statuses(body)


@dataclass
class Grant:
    """One key's answer of put_start."""

    status: int
    put_id: int
    places: Places

    @property
    def written(self) -> tuple[int, list[tuple[int, int]]]:
        """The put_end item that reports every replica written."""
        return (self.put_id, [(replica, OK) for replica, _ in self.places])


@dataclass
class Harness:
    """Owns the clock (`now`), the sequences and what was observed last (`effects`, `retired`)."""

    settings: dict[str, Any] = field(default_factory=dict)
    epoch: int = 1
    seed: int = 1
    now: int = 1_000
    effects: list[Effect] = field(default_factory=list)
    retired: list[int] = field(default_factory=list)
    owners: dict[int, int] = field(default_factory=dict)  # of the segments mounted by mount()
    check_each_step: bool = True  # False where so many keys are put that it would take minutes

    def __post_init__(self) -> None:
        # Unless a test is about another policy: the one whose order can be told in advance.
        settings = {"eviction_policy": "lru"} | self.settings
        self.machine = _core.Metadata(epoch=self.epoch, master=MASTER, seed=self.seed, **settings)
        self._sequence = 0
        self._processes = 0
        self._incarnations = 1_000

    # -- the machine

    def ask(self, verb: str, body: bytes) -> tuple[int, bytes]:
        status, reply, self.effects, self.retired, _ = self.machine.execute(VERBS[verb], body, self.now)
        if self.check_each_step:
            self.machine.check_invariants()
        return status, reply

    def next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def tick(self, steps_max: int = 10_000) -> list[Effect]:
        """Tick until nothing is left to do now."""
        seen: list[Effect] = []
        for _ in range(steps_max):
            idle, effects = self.machine.tick(self.now)
            self.machine.check_invariants()
            seen += effects
            if idle:
                self.effects = seen
                return seen
        raise AssertionError("tick found no end")

    def advance(self, milliseconds: int) -> list[Effect]:
        self.now += milliseconds
        return self.tick()

    def free(self, replicas: list[int]) -> list[Effect]:
        self.effects = self.machine.freed(replicas)
        self.machine.check_invariants()
        return self.effects

    # -- copies

    def ordered(self) -> list[int]:
        """Targets of the copies that the last effects ordered."""
        return [replica for kind, _, replica, _ in self.effects if kind == "copy"]

    def copied(self, target: int, status: int = OK, node: int | None = None) -> list[Effect]:
        """The target's node (or another one) answers for the copy."""
        by = node if node is not None else self.node_of(target)
        self.effects = self.machine.copy_answered(by, target, status, self.now)
        self.machine.check_invariants()
        return self.effects

    def node_of(self, target: int) -> int:
        order = self.machine.copy_order(target)
        return self.owners[order["segment"]] if order is not None else 0

    def drain(self, session: int, *segments: int) -> tuple[int, int]:
        """How many replicas were moved away, and how much is left to do."""
        status, reply = self.ask("drain", _core.encode_segment_ids(session, segments))
        assert status == OK, reply
        moved, left = struct.unpack("<QQ", reply)
        return moved, left

    def free_retired(self) -> list[Effect]:
        """Every replica that the last effects told to go reports its range freed."""
        return self.free([replica for kind, _, replica, _ in self.effects if kind == "retire"])

    def stat(self, name: str) -> int:
        return self.machine.stats()[name]

    # -- sessions and segments

    def open(self, tenant: str = "", host: str = "host-a", process: bytes | None = None) -> int:
        self._processes += 1
        body = _core.encode_open_session(process or uuid(self._processes), "test", host, tenant)
        status, reply = self.ask("open_session", body)
        assert status == OK, reply
        return _core.parse_open_session_reply(reply)["session"]

    def heartbeat(self, session: int) -> int:
        return self.ask("heartbeat", _core.encode_prefix(session))[0]

    def close(self, session: int) -> int:
        return self.ask("close_session", _core.encode_prefix(session))[0]

    def describe(self, name: str, capacity: int, **changes: Any) -> _core.SegmentDescription:
        self._incarnations += 1
        segment = {
            "tier": 1,
            "capacity_bytes": capacity,
            "incarnation": uuid(self._incarnations),
            "name": name,
            "host_id": f"host-{name}",
            "endpoints": [f"tcp://{name}:1"],
        }
        return {**segment, **changes}  # type: ignore[typeddict-item]

    def mount_all(
        self,
        session: int,
        segments: list[_core.SegmentDescription],
        known_epoch: int = 0,
        known_master: bytes = bytes(16),
        flags: int = 0,
    ) -> list[tuple[int, int]]:
        body = _core.encode_mount(session, self.next_sequence(), known_epoch, known_master, segments, flags)
        status, reply = self.ask("mount", body)
        assert status == OK, reply
        return _core.parse_mount_reply(reply)

    def mount(self, session: int, name: str, capacity: int, **changes: Any) -> int:
        [(status, segment)] = self.mount_all(session, [self.describe(name, capacity, **changes)])
        assert status == OK
        self.owners[segment] = session
        return segment

    def unmount(self, session: int, *segments: int) -> list[int]:
        body = _core.encode_segment_ids(session, segments, sequence=self.next_sequence())
        return statuses(self.ask("unmount", body))

    def segments(self, session: int, *ids: int) -> list[_core.SegmentInfo]:
        status, reply = self.ask("segments", _core.encode_segment_ids(session, ids))
        assert status == OK
        return _core.parse_segments_reply(reply)

    def charged(self, session: int) -> list[int]:
        return [info["charged_bytes"] for info in self.segments(session)]

    # -- objects

    def _keys(self, verb: str, session: int, keys: tuple[bytes, ...], **prefix: Any) -> tuple[int, bytes]:
        return self.ask(verb, _core.encode_keys_request(session, list(keys), **prefix))

    def exists(self, session: int, *keys: bytes, flags: int = 0, avoid: tuple[int, ...] = ()) -> list[int]:
        return statuses(self._keys("exists", session, keys, flags=flags, avoid=avoid))

    def match_prefix(self, session: int, *keys: bytes, avoid: tuple[int, ...] = ()) -> tuple[int, int]:
        status, reply = self._keys("match_prefix", session, keys, avoid=avoid)
        assert status == OK
        return _core.parse_match_prefix_reply(reply)

    def lookup(
        self, session: int, *keys: bytes, avoid: tuple[int, ...] = ()
    ) -> list[tuple[int, int, int, int, Places]]:
        status, reply = self._keys("lookup", session, keys, avoid=avoid)
        assert status == OK
        return _core.parse_lookup_reply(reply)

    def touch(self, session: int, *keys: bytes) -> list[int]:
        return statuses(self._keys("touch", session, keys))

    def release(self, session: int, *keys: bytes) -> list[int]:
        return statuses(self._keys("release", session, keys))

    def remove(
        self,
        session: int,
        *keys: bytes,
        flags: int = 0,
        sequence: int | None = None,
        avoid: tuple[int, ...] = (),
    ) -> list[int]:
        number = self.next_sequence() if sequence is None else sequence
        return statuses(self._keys("remove", session, keys, flags=flags, sequence=number, avoid=avoid))

    def put_start(
        self,
        session: int,
        *keys: bytes,
        size: int | list[int] = 64,
        sequence: int | None = None,
        **options: Any,
    ) -> list[Grant]:
        sizes = size if isinstance(size, list) else [size] * len(keys)
        number = self.next_sequence() if sequence is None else sequence
        body = _core.encode_put_start(session, number, list(keys), sizes, **options)
        status, reply = self.ask("put_start", body)
        assert status == OK, (status, reply)
        return [Grant(*answer) for answer in _core.parse_put_start_reply(reply)]

    def put_end(
        self, session: int, *items: tuple[int, list[tuple[int, int]]], sequence: int | None = None
    ) -> list[int]:
        number = self.next_sequence() if sequence is None else sequence
        return statuses(self.ask("put_end", _core.encode_put_end(session, number, list(items))))

    def put_revoke(self, session: int, *put_ids: int) -> list[int]:
        body = _core.encode_put_revoke(session, self.next_sequence(), put_ids)
        return statuses(self.ask("put_revoke", body))

    def put(self, session: int, *keys: bytes, size: int | list[int] = 64, **options: Any) -> list[int]:
        """put_start and, for what was granted, put_end; the statuses of the puts."""
        grants = self.put_start(session, *keys, size=size, **options)
        granted = [grant.written for grant in grants if grant.status == OK]
        if granted:
            assert self.put_end(session, *granted) == [OK] * len(granted)
        return [grant.status for grant in grants]

    def list(
        self, session: int, limit: int = 0, prefix: bytes = b""
    ) -> list[tuple[bytes, int, int, int, int]]:
        """All pages of a list."""
        cursor, objects = 0, []
        while True:
            status, reply = self.ask("list", _core.encode_list(session, cursor, limit, prefix))
            assert status == OK
            cursor, page = _core.parse_list_reply(reply)
            objects += page
            if cursor == 0:
                return objects
