"""Hypothesis drives the native state machine beside the plain model, answer for answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from metadata.harness import (
    FORCE,
    HARD_PIN,
    NO_RANGE,
    NO_SPACE,
    OK,
    REMOVE_COPIES,
    SEALED,
    SESSION_UNKNOWN,
    SOFT_PIN,
    UPSERT,
    VERBS,
    WITHOUT_HOLD,
    WRITE_FAIL,
    Grant,
    Harness,
)
from metadata.model import Key, Model, Segment, Session, Times

from mooncake_store import _core

TIMES = Times(
    client_ttl=1_000,
    session_grace=150,
    lease=100,
    hold=40,
    discard=300,
    release=700,
    soft_pin=200,
    high=0.9,
    ratio=0.1,
)
SETTINGS: dict[str, Any] = {
    "client_ttl_ms": TIMES.client_ttl,
    "session_grace_ms": TIMES.session_grace,
    "lease_ttl_ms": TIMES.lease,
    "exists_hold_ms": TIMES.hold,
    "put_start_discard_ms": TIMES.discard,
    "put_start_release_ms": TIMES.release,
    "soft_pin_ms": TIMES.soft_pin,
    "eviction_high_watermark_ratio": TIMES.high,
    "eviction_ratio": TIMES.ratio,
    "replay_window": 4,
    "repair_bytes_per_s": 0,  # test_copy_model.py has the copies
}
KEYS = [b"a", b"b", b"c", b"d", b"e"]
TENANTS = ["", "other"]
# Beside each deadline: one before, on it, one after; and steps that add up.
STEPS = [0, 1, 20, 39, 40, 41, 99, 100, 101, 149, 150, 199, 200, 299, 300, 699, 700, 999, 1_000]

keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4)
who = st.integers(0, 1)
# For what takes so much down that little would ever fill up.
rarely = st.sampled_from([False] * 7 + [True])
# Near the capacities below: a few values fill a segment, one fills it alone, one fits nowhere.
sizes = st.sampled_from([64, 64, 65, 0, 128, 192, 320, 640, 704])


CAPACITIES = st.lists(st.sampled_from([256, 256, 640]), min_size=1, max_size=2)
OUTCOMES = st.sampled_from([[OK, OK], [OK, OK], [SEALED, NO_RANGE], [NO_RANGE, OK], [NO_RANGE, NO_RANGE]])


class Comparison(RuleBasedStateMachine):
    """Two sessions of two tenants; the first one's process lends the segments."""

    policy = "lru"

    @initialize(capacities=CAPACITIES, copies=st.booleans())
    def start(self, capacities: list[int], copies: bool) -> None:
        # With two copies a value, room is ample: which segment pays for a put would be open otherwise.
        self.wanted = 2 if copies else 1
        self.capacities = [capacity * (40 if copies else 1) for capacity in capacities]
        self.pool = Harness(settings=SETTINGS | {"eviction_policy": self.policy})
        self.model = Model(TIMES, self.pool.now, is_lru=self.policy == "lru")
        self.granted: list[tuple[int, Grant]] = []
        self.ended: list[int] = []
        self.last: tuple[int, str, bytes, tuple[int, bytes]] | None = None
        self.parked: tuple[_core.MetadataCommand, int, Key, int, int] | None = None
        self.sessions = [0, 0]
        for index in (0, 1):
            self._open(index)
        for _ in self.capacities:
            self._mount()

    def _open(self, index: int) -> None:
        session = self.pool.open(tenant=TENANTS[index])
        self.sessions[index] = session
        self.model.sessions[session] = Session(TENANTS[index], self.pool.now)

    def _mount(self) -> None:
        capacity = self.capacities[len(self.model.segments) % len(self.capacities)]
        name = f"segment-{self.pool.next_sequence()}"
        segment = self.pool.mount(self.sessions[0], name, capacity)
        self.model.segments[segment] = Segment(capacity, self.sessions[0])
        self.last = None  # mounts and unmounts take places in the replay window, too

    def _key(self, index: int, key: bytes) -> Key:
        return (TENANTS[index], key)

    def _avoid(self, choice: int) -> tuple[int, ...]:
        segments = list(self.model.segments)
        return (segments[choice],) if choice < len(segments) else ()

    def _observed(self) -> None:
        self.model.observe(self.pool.effects)

    # -- reads

    @rule(index=who, names=keys, avoid=st.integers(0, 6), hold=st.booleans())
    def exists(self, index: int, names: list[bytes], avoid: int, hold: bool) -> None:
        away = self._avoid(avoid)
        flags = 0 if hold else WITHOUT_HOLD
        answers = self.pool.exists(self.sessions[index], *names, flags=flags, avoid=away)
        self._observed()
        assert answers == [self.model.exists(self._key(index, name), away, hold) for name in names]
        self.model.explained()

    @rule(index=who, names=keys, avoid=st.integers(0, 6))
    def match_prefix(self, index: int, names: list[bytes], avoid: int) -> None:
        away = self._avoid(avoid)
        answer = self.pool.match_prefix(self.sessions[index], *names, avoid=away)
        self._observed()
        length, miss = 0, OK
        for name in names:
            miss = self.model.exists(self._key(index, name), away, hold=True)
            if miss != OK:
                break
            length += 1
        assert answer == (length, miss)
        self.model.explained()

    @rule(index=who, names=keys, avoid=st.integers(0, 6))
    def lookup(self, index: int, names: list[bytes], avoid: int) -> None:
        away = self._avoid(avoid)
        answers = self.pool.lookup(self.sessions[index], *names, avoid=away)
        self._observed()
        for name, (status, put_id, size, lease_ms, places) in zip(names, answers, strict=True):
            expected = self.model.lookup(self._key(index, name), away)
            assert (status, put_id, size, dict(places)) == expected
            assert lease_ms == (TIMES.lease if status == OK else 0)
        self.model.explained()

    @rule(index=who, names=keys)
    def touch(self, index: int, names: list[bytes]) -> None:
        answers = self.pool.touch(self.sessions[index], *names)
        self._observed()
        assert answers == [self.model.touch_key(self._key(index, name), ()) for name in names]
        self.model.explained()

    @rule(index=who, names=keys)
    def release(self, index: int, names: list[bytes]) -> None:
        answers = self.pool.release(self.sessions[index], *names)
        self._observed()
        assert answers == [self.model.release(self._key(index, name)) for name in names]
        self.model.explained()

    # -- writes

    def _ask(self, session: int, verb: str, body: bytes) -> bytes:
        answer = self.pool.ask(verb, body)
        self.last = (session, verb, body, answer)
        assert answer[0] == OK
        self._observed()
        return answer[1]

    @rule(
        index=who,
        names=keys,
        size=sizes,
        flags=st.sampled_from([0, 0, 0, UPSERT, UPSERT, SOFT_PIN, HARD_PIN, SOFT_PIN | UPSERT]),
        ttl=st.sampled_from([0, 0, 0, 100]),
        avoid=st.integers(0, 6),
        ends=st.booleans(),
    )
    def put_start(
        self, index: int, names: list[bytes], size: int, flags: int, ttl: int, avoid: int, ends: bool
    ) -> None:
        away = self._avoid(avoid)
        session = self.sessions[index]
        body = _core.encode_put_start(
            session,
            self.pool.next_sequence(),
            names,
            [size] * len(names),
            replica_count=self.wanted,
            flags=flags,
            ttl_ms=ttl,
            avoid=away,
        )
        grants = [Grant(*one) for one in _core.parse_put_start_reply(self._ask(session, "put_start", body))]
        promised = self.model.promised()
        for name, grant in zip(names, grants, strict=True):
            self.model.put_start(
                session, self._key(index, name), size, self.wanted, flags, ttl, away, promised, grant
            )
            if grant.status == OK:
                self.granted.append((session, grant))
        self.model.relieve()
        self.model.explained()
        while ends and self.granted and self.granted[-1][1] in grants:
            self._end(session, self.granted.pop()[1], [OK, OK], session)

    @rule(index=who, size=st.sampled_from([64, 64, 65, 128]), flags=st.sampled_from([0, 0, UPSERT, SOFT_PIN]))
    def fill(self, index: int, size: int, flags: int) -> None:
        """Values for all keys that have none: what brings segments to their limits."""
        self.put_start(index, KEYS, size, flags, 0, 6, True)

    @rule(index=who, size=st.sampled_from([64, 128]))
    def refill(self, index: int, size: int) -> None:
        """As fill, after all that retires came back."""
        effects = self.pool.free(sorted(self.model.retiring))
        assert len(effects) == len(self.model.freed(sorted(self.model.retiring)))
        self.put_start(index, KEYS, size, 0, 0, 6, True)

    @rule(index=who, names=keys, size=st.sampled_from([64, 128]), step=st.sampled_from([0, 40, 100]))
    def press(self, index: int, names: list[bytes], size: int, step: int) -> None:
        """Some values are read, then the other tenant needs room: who goes tells the order."""
        self.fill(index, 64, 0)
        self.lookup(index, names, 6)
        self.refill(1 - index, size)
        self.advance(step, (True, True))

    @precondition(lambda self: self.parked is None and self.wanted == 1)
    @rule(
        index=who,
        name=st.sampled_from(KEYS),
        size=st.sampled_from([64, 64, 128, 256]),
        flags=st.sampled_from([0, 0, UPSERT]),
    )
    def park(self, index: int, name: bytes, size: int, flags: int) -> None:
        """A put whose driver waits while room is on its way, as the native master's does."""
        session = self.sessions[index]
        body = _core.encode_put_start(session, self.pool.next_sequence(), [name], [size], flags=flags)
        command = _core.Metadata.command(VERBS["put_start"], body)
        self.last = None
        self.parked = (command, session, self._key(index, name), size, flags)
        self.resume()

    @precondition(lambda self: self.parked is not None)
    @rule()
    def resume(self) -> None:
        """Tried again, as after bytes came back."""
        assert self.parked is not None
        command, session, key, size, flags = self.parked
        self.pool.effects = self.pool.machine.run(command, self.pool.now)
        self.pool.machine.check_invariants()
        self._observed()
        if command.done:
            self.parked = None
        if session not in self.model.sessions:
            assert command.status == SESSION_UNKNOWN
            self.model.promise = None
            return
        grant = Grant(*_core.parse_put_start_reply(command.body)[0]) if command.done else None
        self.model.put_start_parked(session, key, size, flags, grant)
        self.model.relieve()
        self.model.explained()
        if grant is not None and grant.status == OK:
            self.granted.append((session, grant))

    @precondition(lambda self: self.parked is not None)
    @rule()
    def give_up_waiting(self) -> None:
        assert self.parked is not None
        command, *_ = self.parked
        self.pool.machine.refuse_waiting(command, self.pool.now)
        self.pool.machine.check_invariants()
        assert _core.parse_put_start_reply(command.body) == [(NO_SPACE, 0, [])]
        self.parked = None
        self.model.promise = None

    @precondition(lambda self: self.granted)
    @rule(
        data=st.data(),
        outcome=OUTCOMES,
        foreign=st.sampled_from([False, False, False, True]),
    )
    def put_end(self, data: st.DataObject, outcome: list[int], foreign: bool) -> None:
        position = data.draw(st.integers(0, len(self.granted) - 1))
        owner, grant = self.granted[position]
        by = next(s for s in self.sessions if s != owner) if foreign else owner
        if by not in self.model.sessions:
            by = self.sessions[0]
        if by == owner:
            del self.granted[position]
        self._end(owner, grant, outcome, by)

    def _end(self, owner: int, grant: Grant, outcome: list[int], by: int) -> None:
        results = [
            (replica, WRITE_FAIL if status == NO_RANGE and not self._may_lack_ranges(segment) else status)
            for (replica, segment), status in zip(grant.places, outcome, strict=False)
        ]
        body = _core.encode_put_end(by, self.pool.next_sequence(), [(grant.put_id, results)])
        reply = self._ask(by, "put_end", body)
        status, retired = self.model.put_end(by, grant.put_id, dict(results))
        assert _core.parse_statuses(reply) == [status]
        assert sorted(self.pool.retired) == sorted(retired)
        self.model.explained()
        self.ended.append(grant.put_id)

    def _may_lack_ranges(self, segment: int) -> bool:
        """With two copies, one segment only: which of them pays for the next put would be open else."""
        return self.wanted == 1 or segment == min(self.model.segments, default=segment)

    @precondition(lambda self: self.ended)
    @rule(index=who, data=st.data())
    def put_end_again(self, index: int, data: st.DataObject) -> None:
        """With a new sequence: a put that is over cannot be ended, and nothing newer is touched."""
        put_id = data.draw(st.sampled_from(self.ended))
        body = _core.encode_put_end(
            self.sessions[index], self.pool.next_sequence(), [(put_id, [(put_id + 1, OK)])]
        )
        reply = self._ask(self.sessions[index], "put_end", body)
        status, _ = self.model.put_end(self.sessions[index], put_id, {put_id + 1: OK})
        assert _core.parse_statuses(reply) == [status]
        self.model.explained()

    @precondition(lambda self: self.granted)
    @rule(index=who, data=st.data())
    def put_revoke(self, index: int, data: st.DataObject) -> None:
        _, grant = data.draw(st.sampled_from(self.granted))
        body = _core.encode_put_revoke(self.sessions[index], self.pool.next_sequence(), [grant.put_id])
        reply = self._ask(self.sessions[index], "put_revoke", body)
        status, retired = self.model.put_revoke(self.sessions[index], grant.put_id)
        assert _core.parse_statuses(reply) == [status]
        assert sorted(self.pool.retired) == sorted(retired)
        self.model.explained()

    @rule(index=who, names=keys, force=st.booleans())
    def remove(self, index: int, names: list[bytes], force: bool) -> None:
        body = _core.encode_keys_request(
            self.sessions[index], names, sequence=self.pool.next_sequence(), flags=FORCE if force else 0
        )
        reply = self._ask(self.sessions[index], "remove", body)
        expected, retired = [], []
        for name in names:
            status, gone = self.model.remove(self._key(index, name), force)
            expected.append(status)
            retired += gone
        assert _core.parse_statuses(reply) == expected
        assert sorted(self.pool.retired) == sorted(retired)
        self.model.explained()

    @rule(index=who, names=keys, choice=st.integers(0, 3), force=st.booleans())
    def remove_copies(self, index: int, names: list[bytes], choice: int, force: bool) -> None:
        """As remove, of the copies that one segment has; now and then of a segment that is not there."""
        only = self._avoid(choice) or (1_000_000,)
        body = _core.encode_keys_request(
            self.sessions[index],
            names,
            sequence=self.pool.next_sequence(),
            flags=REMOVE_COPIES | (FORCE if force else 0),
            avoid=only,
        )
        reply = self._ask(self.sessions[index], "remove", body)
        expected, retired = [], []
        for name in names:
            status, gone = self.model.remove_copies(self._key(index, name), only, force)
            expected.append(status)
            retired += gone
        assert _core.parse_statuses(reply) == expected
        assert sorted(self.pool.retired) == sorted(retired)
        self.model.explained()

    @precondition(lambda self: self.last is not None)
    @rule()
    def repeat(self) -> None:
        """The last mutating request again, as after a lost answer: the same answer, and nothing happens."""
        assert self.last is not None
        session, verb, body, answer = self.last
        if session not in self.model.sessions:
            return
        assert self.pool.ask(verb, body) == answer
        assert self.pool.effects == []

    # -- nodes

    @rule(data=st.data(), again=st.booleans())
    def freed(self, data: st.DataObject, again: bool) -> None:
        """Some of what retires is free, in any order; ids long free or never known come along."""
        retiring = sorted(self.model.retiring)
        chosen = data.draw(st.permutations(retiring))[: data.draw(st.integers(0, len(retiring)))]
        reported = [*chosen, 7, *(chosen if again else [])]
        effects = self.pool.free(reported)
        returned = self.model.freed(reported)
        assert {segment for kind, segment, _, _ in effects if kind == "space_returned"} == returned
        assert len(effects) == len(returned)

    @precondition(lambda self: self.model.segments)
    @rule(data=st.data(), sure=rarely)
    def unmount(self, data: st.DataObject, sure: bool) -> None:
        if not sure:
            return
        segment = data.draw(st.sampled_from(list(self.model.segments)))
        assert self.pool.unmount(self.sessions[0], segment) == [OK]
        self.last = None
        self._observed()
        self.model.expel(segment)
        self.model.explained()

    @precondition(lambda self: len(self.model.segments) < len(self.capacities))
    @rule()
    def mount(self) -> None:
        self._mount()

    # -- time and sessions

    @rule(step=st.sampled_from(STEPS), beats=st.sampled_from([(True, True)] * 5 + [(True, False)]))
    def advance(self, step: int, beats: tuple[bool, bool]) -> None:
        for session, beat in zip(self.sessions, beats, strict=True):
            if beat:
                assert self.pool.heartbeat(session) == OK
                self.model.sessions[session].heard = self.pool.now
        self.pool.advance(step)
        self.model.now = self.pool.now
        self._observed()
        self.model.tick()
        self.model.explained()
        self._reopen()

    def _reopen(self) -> None:
        for index in (0, 1):
            if self.sessions[index] not in self.model.sessions:
                self._open(index)

    @rule(index=who, sure=rarely)
    def close(self, index: int, sure: bool) -> None:
        if not sure:
            return
        session = self.sessions[index]
        assert self.pool.close(session) == OK
        self._observed()
        self.model.close(session)
        self.model.explained()
        self._reopen()

    @rule(index=who)
    def attach(self, index: int) -> None:
        self.pool.machine.session_attached(self.sessions[index], self.pool.now)
        state = self.model.sessions[self.sessions[index]]
        state.attached = state.was_attached = True

    @rule(index=who)
    def detach(self, index: int) -> None:
        self.pool.machine.session_detached(self.sessions[index], self.pool.now)
        state = self.model.sessions[self.sessions[index]]
        if state.attached:
            state.attached, state.detached = False, self.pool.now

    # -- always

    @invariant()
    def accounts_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        infos = self.pool.segments(self.sessions[0])
        assert {info["segment"]: info["charged_bytes"] for info in infos} == {
            segment: self.model.charged(segment) for segment in self.model.segments
        }
        assert {info["segment"]: info["retiring_bytes"] for info in infos} == {
            segment: self.model.returning(segment) for segment in self.model.segments
        }
        stats = self.pool.machine.stats()
        assert stats["unfinished_put_count"] == len(self.model.puts)
        assert stats["evicted_keys_total"] == self.model.evicted

    @invariant()
    def lists_agree(self) -> None:
        if not hasattr(self, "model"):
            return
        for index in (0, 1):
            listed = {key: (size, put_id) for key, size, put_id, _, _ in self.pool.list(self.sessions[index])}
            expected = {
                key: (value.size, value.put_id)
                for (tenant, key), value in self.model.values.items()
                if tenant == TENANTS[index] and not (value.ttl_until and value.ttl_until <= self.pool.now)
            }
            assert listed == expected


class AnyOrder(Comparison):
    """What holds whatever the policy: how much goes, from where, and whose wishes come before."""

    policy = "adaptive"


TestModel: Callable[..., None] = Comparison.TestCase
TestAnyOrder: Callable[..., None] = AnyOrder.TestCase
