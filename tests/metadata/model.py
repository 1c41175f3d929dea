"""The state machine again, as plainly as Python can say it: the reference for the native one.

Knows the rules (DESIGN §4), not the data structures: every list is searched from end to end. What the rules
leave open (which of several segments, which of equal victims) it takes from the observed answer and checks
that the choice was allowed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from metadata.harness import (
    ALREADY_EXISTS,
    HARD_PIN,
    HAS_LEASE,
    ILLEGAL_CLIENT,
    NO_RANGE,
    NO_REPLICA,
    NO_SPACE,
    NOT_FOUND,
    NOT_READY,
    OK,
    SEALED,
    SOFT_PIN,
    STALE_GRANT,
    UNREACHABLE,
    UPSERT,
    VALUE_TOO_LARGE,
    WRITE_FAIL,
    Effect,
    Grant,
)

Key = tuple[str, bytes]

PROMISE_MS = 1_000  # native/metadata/placement.cc
NO_RANGE_MS = 1_000


@dataclass
class Times:
    """Settings in milliseconds, and the two ratios."""

    client_ttl: int
    session_grace: int
    lease: int
    hold: int
    discard: int
    release: int
    soft_pin: int
    high: float
    ratio: float


@dataclass
class Segment:
    capacity: int
    owner: int
    # After its node found no range: free bytes that count as used, for a while.
    unusable: int = 0
    no_range: int = 0
    no_range_until: int = 0
    no_ranges: int = 0

    def range_found(self) -> None:
        self.unusable = self.no_range = self.no_range_until = self.no_ranges = 0


@dataclass
class Value:
    put_id: int
    size: int
    replicas: dict[int, int]  # replica -> segment
    pin: int
    stamp: int
    ttl_until: int
    soft_until: int
    lease_until: int = 0
    leases: int = 0
    hold_until: int = 0

    def is_leased(self, now: int) -> bool:
        return self.leases > 0 and self.lease_until > now

    def kept_until(self) -> int:
        return max(self.lease_until if self.leases else 0, self.hold_until)


@dataclass
class Put:
    session: int
    key: Key
    size: int
    replicas: dict[int, int]
    started: int
    pin: int
    ttl: int


@dataclass
class Promise:
    """Room that retirements will give to a put that waits for it."""

    segment: int
    size: int  # in charged bytes
    until: int


@dataclass
class Session:
    tenant: str
    heard: int
    attached: bool = False
    was_attached: bool = False
    detached: int = 0


def range_bytes(size: int) -> int:
    return max(1, (size + 63) // 64) * 64


@dataclass
class Model:
    times: Times
    now: int
    sessions: dict[int, Session] = field(default_factory=dict)
    segments: dict[int, Segment] = field(default_factory=dict)
    values: dict[Key, Value] = field(default_factory=dict)
    puts: dict[int, Put] = field(default_factory=dict)
    retiring: dict[int, tuple[int, int]] = field(default_factory=dict)  # replica -> (segment, bytes)
    ended: dict[int, Key] = field(default_factory=dict)  # replica -> key: was visible, maybe freed meanwhile
    promise: Promise | None = None  # to the one put that is parked
    clock: int = 0
    evicted: int = 0
    is_round_stuck: bool = False
    # Else any policy: among what nobody asked to keep it may take whatever it likes.
    is_lru: bool = True
    # The observed retirements that no rule has explained yet.
    observed: deque[int] = field(default_factory=deque)

    # -- what was observed

    def observe(self, effects: list[Effect]) -> None:
        self.observed = deque(replica for kind, _, replica, _ in effects if kind == "retire")

    def explained(self) -> None:
        assert not self.observed, f"retirements that no rule asks for: {list(self.observed)}"

    def _retire(self, key: Key | None, replicas: dict[int, int], size: int) -> list[int]:
        """These replicas end: those in the pool must have been told to, next."""
        told = [replica for replica, segment in replicas.items() if segment in self.segments]
        seen = [self.observed.popleft() for _ in range(min(len(told), len(self.observed)))]
        assert sorted(seen) == sorted(told), f"retired {seen}, expected {told}"
        for replica in told:
            self.retiring[replica] = (replicas[replica], range_bytes(size))
            if key is not None:
                self.ended[replica] = key
        return told

    # -- accounting

    def used(self, segment: int) -> int:
        live = sum(range_bytes(v.size) for v in self.values.values() if segment in v.replicas.values())
        begun = sum(range_bytes(p.size) for p in self.puts.values() if segment in p.replicas.values())
        return live + begun

    def returning(self, segment: int) -> int:
        return sum(size for where, size in self.retiring.values() if where == segment)

    def charged(self, segment: int) -> int:
        return self.used(segment) + self.returning(segment)

    def stays(self, segment: int) -> int:
        """What no eviction may take."""
        begun = sum(range_bytes(p.size) for p in self.puts.values() if segment in p.replicas.values())
        return begun + sum(
            range_bytes(v.size)
            for v in self.values.values()
            if segment in v.replicas.values() and v.pin == HARD_PIN
        )

    def found_no_range(self, segment: int, size: int) -> None:
        """The put is no longer among the puts."""
        state, need = self.segments[segment], range_bytes(size)
        room = max(0, state.capacity - self.used(segment) - need)
        most = max(0, state.capacity - self.stays(segment) - self.promised().get(segment, 0) - need)
        state.unusable = min(room + (need << min(state.no_ranges, 7)), most)
        state.no_range, state.no_range_until = need, self.now + NO_RANGE_MS
        state.no_ranges += 1

    def fits(self, segment: int, wanted: int, promised: dict[int, int]) -> bool:
        owed = max(0, promised.get(segment, 0) - self.returning(segment))
        state = self.segments[segment]
        return self.charged(segment) + owed + state.unusable + wanted <= state.capacity

    def will_fit(self, segment: int, wanted: int, promised: dict[int, int]) -> bool:
        state = self.segments[segment]
        return self.used(segment) + promised.get(segment, 0) + state.unusable + wanted <= state.capacity

    def promised(self) -> dict[int, int]:
        """By segment: what a parked put waits for."""
        return {self.promise.segment: self.promise.size} if self.promise else {}

    def answers(self, segment: int) -> bool:
        owner = self.sessions[self.segments[segment].owner]
        return owner.attached or not owner.was_attached

    # -- values

    def freshen(self, key: Key) -> None:
        value = self.values.get(key)
        if value is not None and value.ttl_until and value.ttl_until <= self.now:
            del self.values[key]
            self._retire(key, value.replicas, value.size)

    def awaited(self, key: Key) -> list[int]:
        """What had ended of this key, and its node has not confirmed."""
        return [replica for replica, of in self.ended.items() if of == key and replica in self.retiring]

    def end_value(self, key: Key) -> list[int]:
        value = self.values.pop(key)
        return self._retire(key, value.replicas, value.size)

    def drop_put(self, put_id: int) -> list[int]:
        put = self.puts.pop(put_id)
        return self._retire(None, put.replicas, put.size)

    def put_of(self, key: Key) -> int | None:
        return next((put_id for put_id, put in self.puts.items() if put.key == key), None)

    def touch(self, value: Value) -> None:
        self.clock += 1
        value.stamp = self.clock

    def is_reachable(self, value: Value, avoid: tuple[int, ...]) -> bool:
        return any(segment not in avoid for segment in value.replicas.values())

    def present(self, key: Key, avoid: tuple[int, ...] = ()) -> int:
        self.freshen(key)
        value = self.values.get(key)
        if value is None:
            return NOT_READY if self.put_of(key) is not None else NOT_FOUND
        return OK if self.is_reachable(value, avoid) else UNREACHABLE

    # -- reads

    def exists(self, key: Key, avoid: tuple[int, ...], hold: bool) -> int:
        status = self.present(key, avoid)
        if status == OK and hold:
            value = self.values[key]
            self.touch(value)
            value.hold_until = max(value.hold_until, self.now + self.times.hold)
        return status

    def lookup(self, key: Key, avoid: tuple[int, ...]) -> tuple[int, int, int, dict[int, int]]:
        status = self.present(key, avoid)
        if status != OK:
            return status, 0, 0, {}
        value = self.values[key]
        self.touch(value)
        if not (value.leases and value.lease_until > self.now):
            value.leases = 0
        value.leases += 1
        value.lease_until = self.now + self.times.lease
        places = {r: s for r, s in value.replicas.items() if s not in avoid}
        return OK, value.put_id, value.size, places

    def release(self, key: Key) -> int:
        status = self.present(key)
        if status == OK:
            value = self.values[key]
            if value.leases:
                value.leases -= 1
                if value.leases == 0:
                    value.lease_until = 0
        return status

    def touch_key(self, key: Key, avoid: tuple[int, ...]) -> int:
        status = self.present(key, avoid)
        if status == OK:
            self.touch(self.values[key])
        return status

    def remove(self, key: Key, force: bool) -> tuple[int, list[int]]:
        awaited = self.awaited(key)
        self.freshen(key)
        value = self.values.get(key)
        if value is None:
            put_id = self.put_of(key)
            if put_id is None:
                return NOT_FOUND, awaited
            return (OK, awaited + self.drop_put(put_id)) if force else (NOT_READY, awaited)
        if not force and value.leases and value.lease_until > self.now:
            return HAS_LEASE, awaited
        return OK, awaited + self.end_value(key)

    def remove_copies(self, key: Key, only: tuple[int, ...], force: bool) -> tuple[int, list[int]]:
        """As remove, but of the copies on some segments; the last one takes the value with it."""
        awaited = self.awaited(key)
        self.freshen(key)
        value = self.values.get(key)
        if value is None:
            return (NOT_FOUND if self.put_of(key) is None else NOT_READY), awaited
        if not force and value.is_leased(self.now):
            return HAS_LEASE, awaited
        going = {replica: segment for replica, segment in value.replicas.items() if segment in only}
        if not going:
            return NO_REPLICA, awaited
        if going == value.replicas:
            return OK, awaited + self.end_value(key)
        value.replicas = {r: s for r, s in value.replicas.items() if r not in going}
        return OK, awaited + self._retire(key, going, value.size)

    # -- puts

    def put_start(
        self,
        session: int,
        key: Key,
        size: int,
        wanted: int,
        flags: int,
        ttl: int,
        avoid: tuple[int, ...],
        promised: dict[int, int],
        grant: Grant,
    ) -> None:
        """Checks one key's answer and follows it; `promised` is what keys before it wait for."""
        expected = self._may_put(key, size, flags, avoid)
        if expected != OK:
            assert grant.status == expected, (grant, expected)
            return
        need = range_bytes(size)
        roomy = [s for s in self.segments if s not in avoid and self.fits(s, need, promised)]
        if not roomy:
            assert grant.status == NO_SPACE, grant
            self._make_room(need, avoid, promised)
            return
        assert grant.status == OK, grant
        replicas = dict(grant.places)
        assert len(replicas) == len(set(replicas.values())) == min(wanted, len(roomy))
        assert set(replicas.values()) <= set(roomy)
        assert all(grant.put_id > put_id for put_id in self.puts)
        pin = flags & HARD_PIN or flags & SOFT_PIN
        self.puts[grant.put_id] = Put(session, key, size, replicas, self.now, pin, ttl)

    def put_start_parked(self, session: int, key: Key, size: int, flags: int, grant: Grant | None) -> None:
        """A put of one copy whose driver may wait; `grant` is None if it does."""
        self.promise = None
        promised: dict[int, int] = {}
        if grant is not None:
            self.put_start(session, key, size, 1, flags, 0, (), promised, grant)
            assert not promised, "refused although room was on its way"
            return
        assert self._may_put(key, size, flags, ()) == OK
        need = range_bytes(size)
        assert not [segment for segment in self.segments if self.fits(segment, need, promised)]
        self._make_room(need, (), promised)
        [(segment, owed)] = promised.items()
        self.promise = Promise(segment, owed, self.now + PROMISE_MS)

    def _may_put(self, key: Key, size: int, flags: int, avoid: tuple[int, ...]) -> int:
        self.freshen(key)
        if key in self.values and not flags & UPSERT and self.is_reachable(self.values[key], avoid):
            return ALREADY_EXISTS
        put_id = self.put_of(key)
        if put_id is not None:
            put = self.puts[put_id]
            if put.session in self.sessions and self.now - put.started < self.times.discard:
                return NOT_READY
            self.drop_put(put_id)
        if not self.segments:
            return NO_SPACE
        if range_bytes(size) > max(segment.capacity for segment in self.segments.values()):
            return VALUE_TOO_LARGE
        return OK

    def _make_room(self, need: int, avoid: tuple[int, ...], promised: dict[int, int]) -> None:
        """No segment fits: retirements under way do, or victims of one segment go until it will fit."""
        candidates = []
        for number, segment in self.segments.items():
            if segment.capacity < need or number in avoid or not self.answers(number):
                continue
            if self.will_fit(number, need, promised):
                # Segments are asked in the order of their ids.
                promised[number] = promised.get(number, 0) + need
                return
            if self.stays(number) + promised.get(number, 0) + need <= segment.capacity:
                candidates.append(number)
        if not candidates:
            return
        for kept, soft in ((False, False), (True, False), (False, True), (True, True)):
            left = list(candidates)
            while left:
                ranked = self._victims(left, kept, soft)
                if not ranked:
                    break
                victim = self._follow(ranked)
                [chosen] = [s for s in left if s in victim.replicas.values()]
                while not self.will_fit(chosen, need, promised):
                    ranked = self._victims([chosen], kept, soft)
                    if not ranked:
                        break
                    self._evict(self._follow(ranked))
                else:
                    promised[chosen] = promised.get(chosen, 0) + need
                    return
                left.remove(chosen)

    # -- eviction

    def _victims(self, segments: list[int], kept: bool, soft: bool) -> list[tuple[int, Value]]:
        """Who may go in this pass with its rank, lowest first."""
        ranked = [
            (value.kept_until() if kept else value.stamp * self.is_lru, value)
            for value in self.values.values()
            if value.pin == (SOFT_PIN if soft else 0)
            and (value.kept_until() > self.now) == kept
            and any(segment in segments for segment in value.replicas.values())
        ]
        return sorted(ranked, key=lambda pair: pair[0])

    def _follow(self, ranked: list[tuple[int, Value]]) -> Value:
        """The victim that the machine took next, which must be one of the lowest rank."""
        assert self.observed, "nothing was evicted although something had to be"
        lowest = [value for rank, value in ranked if rank == ranked[0][0]]
        taken = [value for value in lowest if self.observed[0] in value.replicas]
        assert taken, f"evicted replica {self.observed[0]}, the order says one of {lowest}"
        return taken[0]

    def _evict(self, value: Value) -> int:
        key = next(key for key, other in self.values.items() if other is value)
        self.end_value(key)
        self.evicted += 1
        return range_bytes(value.size) * len(value.replicas)

    def _is_above_watermark(self) -> bool:
        capacity = sum(segment.capacity for segment in self.segments.values())
        return sum(self.used(number) for number in self.segments) > self.times.high * capacity

    def evict_at_watermark(self, may_take_pinned: bool = True) -> None:
        if not self._is_above_watermark():
            return
        capacity = sum(segment.capacity for segment in self.segments.values())
        used = sum(self.used(number) for number in self.segments)
        share = max(self.times.ratio, used / capacity - self.times.high + self.times.ratio)
        left = int(share * capacity) + 1
        for kept, soft in ((False, False), (True, False), (False, True)):
            if soft and (not may_take_pinned or any(value.pin == 0 for value in self.values.values())):
                return
            while left > 0 and (ranked := self._victims(list(self.segments), kept, soft)):
                # Among those of one rank the machine looks at any one: it may be a leased one.
                lowest = [value for rank, value in ranked if rank == ranked[0][0]]
                if any(value.is_leased(self.now) for value in lowest):
                    taken = self.observed and any(self.observed[0] in value.replicas for value in lowest)
                    if not taken:
                        break
                left -= self._evict(self._follow(ranked))

    def relieve(self) -> None:
        """After a put took space; in vain at most once between two ticks."""
        if not self.is_round_stuck:
            self.evict_at_watermark(may_take_pinned=False)
            self.is_round_stuck = self._is_above_watermark()

    # -- ends of puts

    def put_end(self, session: int, put_id: int, results: dict[int, int]) -> tuple[int, list[int]]:
        put = self.puts.get(put_id)
        if put is None:
            return STALE_GRANT, []
        if put.session != session:
            return ILLEGAL_CLIENT, []
        written = {r: s for r, s in put.replicas.items() if results.get(r) in (OK, SEALED)}
        failed = {r: s for r, s in put.replicas.items() if r not in written}
        del self.puts[put_id]
        retired = self.awaited(put.key)
        for replica, segment in failed.items():
            if results.get(replica) == NO_RANGE and segment in self.segments:
                self.found_no_range(segment, put.size)
        self._retire(None, failed, put.size)
        for segment in written.values():
            if self.segments[segment].no_ranges and range_bytes(put.size) >= self.segments[segment].no_range:
                self.segments[segment].range_found()
        if not written:
            return WRITE_FAIL, []
        retired += self.end_value(put.key) if put.key in self.values else []
        self.clock += 1
        self.values[put.key] = Value(
            put_id,
            put.size,
            written,
            put.pin,
            self.clock,
            self.now + put.ttl if put.ttl else 0,
            self.now + self.times.soft_pin if put.pin == SOFT_PIN else 0,
        )
        return OK, retired

    def put_revoke(self, session: int, put_id: int) -> tuple[int, list[int]]:
        put = self.puts.get(put_id)
        if put is None:
            return OK, []
        if put.session != session:
            return ILLEGAL_CLIENT, []
        return OK, self.drop_put(put_id)

    # -- sessions, segments, time

    def freed(self, replicas: list[int]) -> set[int]:
        """The segments that got bytes back."""
        return {self.retiring.pop(replica)[0] for replica in replicas if replica in self.retiring}

    def expel(self, segment: int) -> None:
        del self.segments[segment]
        if self.promise and self.promise.segment == segment:
            self.promise = None
        for key, value in list(self.values.items()):
            value.replicas = {r: s for r, s in value.replicas.items() if s != segment}
            if not value.replicas:
                del self.values[key]
        for put in self.puts.values():
            put.replicas = {r: s for r, s in put.replicas.items() if s != segment}
        self.retiring = {r: place for r, place in self.retiring.items() if place[0] != segment}

    def end_session(self, session: int) -> None:
        """Its segments leave; its puts are revoked, with the same request or the next tick."""
        del self.sessions[session]
        for segment in [number for number, one in self.segments.items() if one.owner == session]:
            self.expel(segment)

    def _revoke_puts(self, session: int) -> None:
        for put_id in [put_id for put_id, put in self.puts.items() if put.session == session]:
            put = self.puts.pop(put_id)
            told = {r: s for r, s in put.replicas.items() if s in self.segments}
            assert set(told) <= set(self.observed), f"put {put_id} of session {session} was not revoked"
            for replica in told:
                self.observed.remove(replica)
                self.retiring[replica] = (told[replica], range_bytes(put.size))

    def close(self, session: int) -> None:
        self.end_session(session)
        self._revoke_puts(session)

    def tick(self) -> None:
        """Everything that is due; within one tick the order of unrelated events is open.

        What was due before its segment left has retired first, and was observed; else it went with it.
        """
        self._end_silent_puts(observed_only=True)
        self._expire_values(observed_only=True)
        ended = [s for s, state in self.sessions.items() if self.now - state.heard >= self.times.client_ttl]
        for session in ended:
            self.end_session(session)
        for session in ended:
            self._revoke_puts(session)
        self._end_silent_puts()
        self._expire_values()
        for put_id, put in list(self.puts.items()):
            if self.now - put.started >= self.times.release:
                del self.puts[put_id]
                self._take_out(None, put.replicas, put.size)
        for segment in self.segments.values():
            if segment.no_ranges and segment.no_range_until <= self.now:
                segment.range_found()
        if self.promise and self.promise.until <= self.now:
            self.promise = None
        self.is_round_stuck = False
        self.evict_at_watermark()

    def _end_silent_puts(self, observed_only: bool = False) -> None:
        for session, state in self.sessions.items():
            is_silent = state.was_attached and not state.attached
            if not is_silent or self.now - state.detached < self.times.session_grace:
                continue
            for put_id, put in list(self.puts.items()):
                # One begun later than that comes by another door, and ends with the session.
                is_older = put.started < state.detached + self.times.session_grace
                if put.session == session and is_older and self._is_told(put.replicas, observed_only):
                    del self.puts[put_id]
                    self._take_out(None, put.replicas, put.size)

    def _expire_values(self, observed_only: bool = False) -> None:
        for key, value in list(self.values.items()):
            if value.ttl_until and value.ttl_until <= self.now:
                if self._is_told(value.replicas, observed_only):
                    del self.values[key]
                    self._take_out(key, value.replicas, value.size)
            elif value.soft_until and value.soft_until <= self.now:
                value.soft_until = value.pin = 0

    def _is_told(self, replicas: dict[int, int], observed_only: bool) -> bool:
        return not observed_only or any(replica in self.observed for replica in replicas)

    def _take_out(self, key: Key | None, replicas: dict[int, int], size: int) -> None:
        for replica, segment in replicas.items():
            assert replica in self.observed, f"replica {replica} was due and did not retire"
            self.observed.remove(replica)
            self.retiring[replica] = (segment, range_bytes(size))
            if key is not None:
                self.ended[replica] = key
