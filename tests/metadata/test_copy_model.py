"""Hypothesis drives copies: nodes come, leave and are lost, answers come late, twice, wrong or never.

The model knows which replicas each value must have; who copies what from where is the machine's choice, which
must be an allowed one. Whatever happened, in the end every value has the replicas that its put asked for, as
far as there are nodes for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from metadata.harness import FORCE, GONE, NOT_FOUND, OK, SEALED, UPSERT, Effect, Harness

KEYS = [b"a", b"b", b"c", b"d", b"e", b"f"]
NODES_MAX = 5
TIMEOUT_MS = 3_000
COPIES_MAX, COPIES_A_NODE_MAX = 4, 2
# Ample, or so little that puts evict what is not being copied.
CAPACITIES = [64 * 1_000, 64 * 5]

some_key = st.sampled_from(KEYS)


@dataclass
class Value:
    put_id: int
    wanted: int
    replicas: dict[int, int]  # replica -> segment


@dataclass
class Copy:
    key: bytes
    put_id: int
    source: int
    segment: int
    node: int


@dataclass
class Pool:
    values: dict[bytes, Value] = field(default_factory=dict)
    copies: dict[int, Copy] = field(default_factory=dict)  # by target
    ended: list[tuple[int, int]] = field(default_factory=list)  # (target, node) of copies that are over
    nodes: dict[int, int] = field(default_factory=dict)  # segment -> session
    leaving: set[int] = field(default_factory=set)  # segments

    def key_of(self, replica: int) -> bytes | None:
        return next((key for key, value in self.values.items() if replica in value.replicas), None)

    def end_copy(self, target: int) -> None:
        copy = self.copies.pop(target)
        self.ended.append((target, copy.node))


class Copies(RuleBasedStateMachine):
    @initialize(capacity=st.sampled_from(CAPACITIES), nodes=st.integers(2, 4))
    def start(self, capacity: int, nodes: int) -> None:
        self.capacity = capacity
        self.harness = Harness(
            {
                "copies_max": COPIES_MAX,
                "copies_a_node_max": COPIES_A_NODE_MAX,
                "copy_timeout_ms": TIMEOUT_MS,
                "repair_low_watermark_ratio": 1.0,
                "repair_queue_max": 3,
                "client_ttl_ms": 1 << 40,
            }
        )
        self.pool = Pool()
        self.client = self.harness.open()
        self.names = 0
        for _ in range(nodes):
            self.join()

    # -- what the machine did

    def follow(self, effects: list[Effect], may_end: set[bytes] = frozenset()) -> None:  # type: ignore[assignment]
        """may_end: keys whose value this request may have ended although it was being copied."""
        guarded = {copy.key for copy in self.pool.copies.values()} - may_end
        for kind, segment, replica, session in effects:
            if kind == "expel":
                self._left(segment)
            elif kind == "retire" and replica in self.pool.copies:
                self.pool.end_copy(replica)
            elif kind == "retire":
                key = self.pool.key_of(replica)
                if key is not None:
                    assert key not in guarded, f"{key!r} ended amid its copy"
                    del self.pool.values[key].replicas[replica]
            elif kind == "copy":
                self._ordered(replica, segment, session)
        self._forget_empty()

    def _left(self, segment: int) -> None:
        del self.pool.nodes[segment]
        self.pool.leaving.discard(segment)
        for target, copy in list(self.pool.copies.items()):
            source = self.pool.values[copy.key].replicas.get(copy.source)
            if segment in (copy.segment, source):
                self.pool.end_copy(target)
        for value in self.pool.values.values():
            value.replicas = {r: s for r, s in value.replicas.items() if s != segment}

    def _forget_empty(self) -> None:
        self.pool.values = {key: value for key, value in self.pool.values.items() if value.replicas}

    def _ordered(self, target: int, segment: int, node: int) -> None:
        order = self.harness.machine.copy_order(target)
        if order is None:
            return  # it ended with the same request
        key = self.pool.key_of(order["source"])
        assert key is not None, "the source is no live replica"
        value = self.pool.values[key]
        assert (order["segment"], order["put_id"]) == (segment, value.put_id)
        assert self.pool.nodes[segment] == node
        assert segment not in value.replicas.values()
        assert segment not in self.pool.leaving
        assert key not in {copy.key for copy in self.pool.copies.values()}
        leaves = set(value.replicas.values()) <= self.pool.leaving
        assert leaves or len(value.replicas) < value.wanted, "nobody needs this copy"
        self.pool.copies[target] = Copy(key, value.put_id, order["source"], segment, node)

    # -- nodes

    @precondition(lambda self: len(self.pool.nodes) < NODES_MAX)
    @rule()
    def join(self) -> None:
        self.names += 1
        node = self.harness.open()
        segment = self.harness.mount(node, f"n{self.names}", self.capacity)
        self.pool.nodes[segment] = node
        self.follow(self.harness.effects)

    @precondition(lambda self: len(self.pool.nodes) > 1)
    @rule(data=st.data(), closes=st.booleans())
    def lose(self, data: st.DataObject, closes: bool) -> None:
        segment = data.draw(st.sampled_from(sorted(self.pool.nodes)))
        node = self.pool.nodes[segment]
        if closes:
            assert self.harness.close(node) == OK
        else:
            assert self.harness.unmount(node, segment) == [OK]
        self.follow(self.harness.effects)

    @precondition(lambda self: self.pool.nodes)
    @rule(data=st.data())
    def drain(self, data: st.DataObject) -> None:
        segment = data.draw(st.sampled_from(sorted(self.pool.nodes)))
        self.harness.drain(self.pool.nodes[segment], segment)
        self.pool.leaving.add(segment)
        self.follow(self.harness.effects)

    # -- values

    @rule(key=some_key, wanted=st.integers(1, 3), failed=st.booleans(), replaces=st.booleans())
    def put(self, key: bytes, wanted: int, failed: bool, replaces: bool) -> None:
        flags = UPSERT if replaces else 0
        [grant] = self.harness.put_start(self.client, key, replica_count=wanted, flags=flags)
        self.follow(self.harness.effects)
        if grant.status != OK:
            return
        statuses = [GONE if failed and i == 1 else OK for i in range(len(grant.places))]
        results = [(replica, status) for (replica, _), status in zip(grant.places, statuses, strict=True)]
        assert self.harness.put_end(self.client, (grant.put_id, results)) == [OK]
        self.follow(self.harness.effects, {key})
        written = {r: s for (r, s), status in zip(grant.places, statuses, strict=True) if status == OK}
        self.pool.values[key] = Value(grant.put_id, wanted, written)

    @rule(key=some_key)
    def remove(self, key: bytes) -> None:
        [status] = self.harness.remove(self.client, key, flags=FORCE)
        assert status == (OK if key in self.pool.values else NOT_FOUND)
        self.follow(self.harness.effects, {key})
        assert key not in self.pool.values

    # -- answers

    @precondition(lambda self: self.pool.copies)
    @rule(data=st.data(), status=st.sampled_from([OK, OK, OK, SEALED, GONE]))
    def answer(self, data: st.DataObject, status: int) -> None:
        self._answer(data.draw(st.sampled_from(sorted(self.pool.copies))), status)

    def _answer(self, target: int, status: int) -> None:
        copy = self.pool.copies[target]
        effects = self.harness.copied(target, status, copy.node)
        if status in (OK, SEALED):
            self.pool.end_copy(target)
            self.pool.values[copy.key].replicas[target] = copy.segment
        self.follow(effects, {copy.key})
        assert target not in self.pool.copies

    @precondition(lambda self: self.pool.copies and self.pool.nodes)
    @rule(data=st.data(), status=st.sampled_from([OK, GONE]))
    def answer_for_another(self, data: st.DataObject, status: int) -> None:
        target = data.draw(st.sampled_from(sorted(self.pool.copies)))
        node = data.draw(st.sampled_from([*self.pool.nodes.values(), self.client]))
        if node != self.pool.copies[target].node:
            assert self.harness.copied(target, status, node) == []

    @precondition(lambda self: self.pool.ended)
    @rule(data=st.data(), status=st.sampled_from([OK, GONE]))
    def answer_late(self, data: st.DataObject, status: int) -> None:
        target, node = data.draw(st.sampled_from(self.pool.ended))
        assert self.harness.copied(target, status, node) == []

    # -- time

    @rule(step=st.sampled_from([0, 10, 999, 1_000, TIMEOUT_MS - 1, TIMEOUT_MS]))
    def advance(self, step: int) -> None:
        self.follow(self.harness.advance(step))

    @rule(data=st.data())
    def freed(self, data: st.DataObject) -> None:
        self.follow(self.harness.free(list(range(1 << 40, (1 << 40) + 400))))

    # -- always

    @invariant()
    def replicas_agree(self) -> None:
        if not hasattr(self, "pool"):
            return
        for key, answer in zip(KEYS, self.harness.lookup(self.client, *KEYS), strict=True):
            value = self.pool.values.get(key)
            found = (answer[1], dict(answer[4]))
            assert found == ((value.put_id, value.replicas) if value else (0, {})), key
        self.harness.release(self.client, *KEYS)
        assert self.harness.stat("copy_count") == len(self.pool.copies) <= COPIES_MAX
        for node in self.pool.nodes.values():
            assert sum(copy.node == node for copy in self.pool.copies.values()) <= COPIES_A_NODE_MAX

    def teardown(self) -> None:
        """Where nothing more goes wrong, every value gets its replicas, and leaving nodes are empty."""
        if not hasattr(self, "pool") or self.capacity < CAPACITIES[0]:
            return
        for _ in range(60):
            for target in sorted(self.pool.copies):
                if target in self.pool.copies:
                    self._answer(target, OK)
            self.follow(self.harness.free(list(range(1 << 40, (1 << 40) + 400))))
            self.follow(self.harness.advance(1_000))
            if not self._lacks() and not self.pool.copies:
                return
        raise AssertionError(f"never repaired: {self._lacks()}")

    def _lacks(self) -> list[bytes]:
        staying = set(self.pool.nodes) - self.pool.leaving
        lacking = []
        for key, value in self.pool.values.items():
            places = set(value.replicas.values())
            if len(places) < value.wanted and staying - places:
                lacking.append(key)
            if places <= self.pool.leaving and staying:
                lacking.append(key)
        return lacking


TestCopies: Callable[..., None] = Copies.TestCase
