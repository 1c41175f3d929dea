"""A soak under way: the cast, one round of faults after another, and what is asked after each."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from soak import ledger
from soak.cast import SETTLE_S, Master, Node, Role, Worker
from soak.history import History
from soak.ledger import Event, Ledger, LedgerReader
from soak.plan import KILL, STOP, Fault, draw_round
from soak.worker import Recorder, keys_of, read_event

from mooncake_client import Store
from mooncake_store.errors import StoreError

OWN_SLOT = 15  # the stage's own puts
STATIC_BYTES = 2_000
POLL_S = 0.05
CALL_HANG_S = 30.0  # a call has a deadline of 10 s; longer means that it was stuck


@dataclass(frozen=True)
class Scale:
    """How large a soak is. static_keys: hard-pinned values that only a lost node may take."""

    rounds: int
    client_ttl_s: int
    stop_max_s: float
    static_keys: int
    node_size: str = "96mb"
    writers: int = 3
    readers: int = 3
    nodes: int = 3


@dataclass
class Stroke:
    """A fault as it was carried out; healed_ns: when the process was back, in ns of CLOCK_MONOTONIC."""

    fault: Fault
    role_kind: str
    struck_ns: int
    healed_ns: int = 0


@dataclass
class Findings:
    """What the report tells. wrong and stuck must stay empty."""

    rounds: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    amid_calls: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    put_after_dead_writer_s: list[float] = field(default_factory=list)
    readable_after_listening_s: list[float] = field(default_factory=list)
    readable_after_kill_s: list[float] = field(default_factory=list)
    sessions_expired: int = 0
    live_sessions_expired: int = 0


class Stage:
    """Context manager: what it started it ends. folder: for ledgers and logs, one soak's alone."""

    def __init__(self, scale: Scale, seed: str, folder: Path, tell: Callable[[str], None]) -> None:
        self.scale = scale
        self.history = History()
        self.findings = Findings()
        self._seed = seed
        self._tell = tell
        self._master = Master(folder, scale.client_ttl_s)
        address = self._master.address
        self._nodes = [Node(number, address, scale.node_size, folder) for number in range(scale.nodes)]
        self._workers = [
            Worker(kind, slot, scale.writers, address, folder, seed)
            for kind, count in (("writer", scale.writers), ("reader", scale.readers))
            for slot in range(count)
        ]
        self._roles: dict[str, Role] = {
            role.name: role for role in (self._master, *self._nodes, *self._workers)
        }
        self._static = [f"static/{number}" for number in range(scale.static_keys)]
        self._own = LedgerReader(folder / "stage.ledger")
        self._book = Ledger(folder / "stage.ledger")
        self._sources: list[tuple[str, LedgerReader]] = [("stage", self._own)]
        self._died: list[tuple[str, int]] = []
        self._strokes: list[Stroke] = []
        self._expired_seen = 0
        self._alive_seen = 0
        self._life_begin_ns = 0

    # ---- beginning and end

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self._master.start()
            for node in self._nodes:
                node.start()
            with Store(self._master.address) as store:
                self._store = store
                self._recorder = Recorder(store, self._book, OWN_SLOT)
                self._restore_static(is_clean=False)
                for worker in self._workers:
                    self._start(worker)
                yield
        finally:
            for role in self._roles.values():
                role.abandon()

    def _start(self, role: Role) -> None:
        role.start(wait=False)
        if isinstance(role, Worker):
            self._sources.append(role.source())
        role.wait_ready()

    # ---- a round

    def round(self, number: int) -> None:
        by_kind: dict[str, list[str]] = {}
        for role in self._roles.values():
            by_kind.setdefault(role.kind, []).append(role.name)
        plan = draw_round(self._seed, number, by_kind, self.scale.stop_max_s)
        told = ", ".join(f"{fault.kind} {fault.role}" for fault in plan)
        kinds = [self._roles[fault.role].kind for fault in plan]
        self._carry_out(plan, kinds)
        self._settle(f"round {number} ({told})")
        self._restore_static(is_clean="node" not in kinds)
        self._judge(f"round {number} ({told})")
        self._poll_sessions()
        self.findings.rounds += 1

    def _carry_out(self, plan: Sequence[Fault], kinds: Sequence[str]) -> None:
        begin = time.monotonic()
        listening = threading.Event()
        failures: list[BaseException] = []
        locks = {fault.role: threading.Lock() for fault in plan}
        is_alone = kinds.count("master") == 1 and "node" not in kinds
        # A stopped writer keeps its unfinished puts of shared keys, as it should.
        is_calm = not {"master", "node"} & set(kinds) and all(fault.kind == KILL for fault in plan)

        def strike(fault: Fault) -> None:
            try:
                if fault.amid_rebuild:
                    assert listening.wait(SETTLE_S)
                    time.sleep(fault.after_s)
                else:
                    time.sleep(max(0.0, begin + fault.after_s - time.monotonic()))
                with locks[fault.role]:
                    self._strike(fault, listening, is_alone, is_calm)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=strike, args=(fault,)) for fault in plan]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]

    def _strike(self, fault: Fault, listening: threading.Event, is_alone: bool, is_calm: bool) -> None:
        role = self._roles[fault.role]
        self.findings.faults[f"{fault.kind} {role.kind}"] += 1
        stroke = Stroke(fault, role.kind, time.monotonic_ns())
        self._strokes.append(stroke)
        if fault.kind == STOP:
            assert role.process is not None
            role.process.stop()
            time.sleep(fault.rest_s)
            role.process.send(signal.SIGCONT)
        elif isinstance(role, Master):
            self._restart_master(role, fault, listening, is_alone)
        else:
            self._restart(role, fault, is_calm)
        stroke.healed_ns = time.monotonic_ns()

    def _restart_master(
        self, master: Master, fault: Fault, listening: threading.Event, is_alone: bool
    ) -> None:
        self._poll_sessions()
        gone_ns = master.kill()
        self._expired_seen = self._alive_seen = 0
        self._life_begin_ns = gone_ns
        time.sleep(fault.rest_s)
        master.start()
        ready_ns = time.monotonic_ns()
        listening.set()
        if is_alone:
            readable_ns = self._wait_for_static()
            if readable_ns is not None:
                self.findings.readable_after_kill_s.append((readable_ns - gone_ns) / 1e9)
                self.findings.readable_after_listening_s.append((readable_ns - ready_ns) / 1e9)

    def _wait_for_static(self) -> int | None:
        """When all static values were readable, in ns; None if that takes too long, which is judged later."""
        deadline = time.monotonic() + SETTLE_S
        while self._missing_static():
            if time.monotonic() > deadline:
                return None
            time.sleep(POLL_S / 10)
        return time.monotonic_ns()

    def _missing_static(self) -> list[str]:
        """They never change, so all bytes can be judged at once."""
        try:
            answers = self._store.get_many(self._static)
        except StoreError:
            return self._static
        now = time.monotonic_ns()
        events = [
            read_event(key, answer, now, now) for key, answer in zip(self._static, answers, strict=True)
        ]
        self.findings.wrong += [
            f"{event.key}: {event.text}" for event in events if event.kind == ledger.WRONG
        ]
        return [event.key for event in events if event.kind != ledger.READ or not event.value]

    def _restart(self, role: Role, fault: Fault, is_calm: bool) -> None:
        gone_ns = role.kill()
        if isinstance(role, Worker):
            source, _ = role.source()
            self._died.append((source, gone_ns))
            self._try_keys_left_open(role, gone_ns, is_calm)
        time.sleep(fault.rest_s)
        self._start(role)

    def _try_keys_left_open(self, worker: Worker, gone_ns: int, is_calm: bool) -> None:
        """Somebody else puts at once what a dead writer left unfinished. is_calm: nothing else is amiss."""
        events = worker.source()[1].new_events()
        begun = {(event.key, event.value) for event in events if event.kind == ledger.PUT_BEGINS}
        ended = {(event.key, event.value) for event in events if event.kind == ledger.PUT_ENDS}
        keys = sorted({key for key, _ in begun - ended})
        if worker.kind == "writer":
            self.findings.amid_calls["writers killed amid a put" if keys else "writers killed between"] += 1
        if not keys:
            return
        if self._put_until_stored(keys) and is_calm:
            self.findings.put_after_dead_writer_s.append((time.monotonic_ns() - gone_ns) / 1e9)

    def _put_until_stored(self, keys: Sequence[str]) -> bool:
        deadline = time.monotonic() + SETTLE_S
        left = list(keys)
        while left and time.monotonic() < deadline:
            answers = self._recorder.put(left, [100] * len(left), replace=True)
            left = [key for key, answer in zip(left, answers, strict=True) if answer != "stored"]
        if left:
            self.findings.stuck.append(f"{left} cannot be put for {SETTLE_S:.0f} s")
        return not left

    # ---- after a round

    def _settle(self, what: str) -> None:
        """Until all segments are lent and have told all. A process that ended by itself is wrong."""
        for role in self._roles.values():
            if role.process is not None and (status := role.process.poll()) is not None:
                self.findings.wrong.append(f"{what}: {role.name} ended with {status}:\n{role.process.log}")
                self._start(role)
        deadline = time.monotonic() + SETTLE_S
        told = ""
        while time.monotonic() < deadline:
            try:
                count, stats = len(self._store.segments()), self._store.stats()
                if count == self.scale.nodes and stats["unreported_segment_count"] == 0:
                    return
                told = f"{count} segments, {stats['unreported_segment_count']} of them have not told all"
            except StoreError as error:
                told = str(error)
            time.sleep(POLL_S)
        self.findings.stuck.append(f"{what}: after {SETTLE_S:.0f} s: {told}")

    def _restore_static(self, is_clean: bool) -> None:
        """Put again what a lost node took. is_clean: none was touched, so nothing may be missing."""
        if is_clean and self._wait_for_static() is not None:
            return
        missing = self._missing_static()
        if is_clean:
            self.findings.wrong.append(
                f"{len(missing)} values lost though no node was touched: {missing[:5]}"
            )
        deadline = time.monotonic() + SETTLE_S
        while missing and time.monotonic() < deadline:
            self._recorder.put(missing, [STATIC_BYTES] * len(missing), hard_pin=True)
            missing = self._missing_static()
        if missing:
            self.findings.stuck.append(f"{len(missing)} values are put and not found: {missing[:5]}")

    def _judge(self, what: str) -> None:
        """Reads first from the files, changes first into the history: so no change is unknown to a read."""
        batches = [
            (source, reader.new_events()) for source, reader in sorted(self._sources, key=_readers_first)
        ]
        for source, events in batches:
            self.history.add_changes(source, events)
        for source, at_ns in self._died:
            self.history.died(source, at_ns)
        gone = {source for source, _ in self._died}
        self._sources = [(source, reader) for source, reader in self._sources if source not in gone]
        self._died = []
        self._count_views(event for _, events in batches for event in events if event.kind == ledger.HELD)
        for found in self.history.check(event for _, events in batches for event in events):
            story = f"{what}: {found.key}: {found.kind}: {found.story}\n{self.history.story(found.key)}"
            self.findings.wrong.append(story)
            self._tell(story)
        if self.history.slowest_ns[0] > CALL_HANG_S * 1e9 + self.scale.stop_max_s * 1e9:
            self.findings.stuck.append(f"{what}: a {self.history.slowest_ns[1]} took too long")

    def _count_views(self, held: Iterable[Event]) -> None:
        kills = [
            stroke.struck_ns
            for stroke in self._strokes
            if stroke.role_kind == "node" and stroke.fault.kind == KILL
        ]
        self.findings.amid_calls["mapped views held while a node was killed"] += sum(
            event.text == ledger.MAPPED and any(event.begin_ns < at < event.end_ns for at in kills)
            for event in held
        )

    def _poll_sessions(self) -> None:
        """Sessions that ended unheard since this master began, against those that were killed or stopped."""
        try:
            expired = self._store.stats(timeout_ms=1_000)["sessions_expired_total"]
        except StoreError:
            return
        self.findings.sessions_expired += max(0, expired - self._expired_seen)
        self._expired_seen = expired
        alive = max(0, expired - sum(map(self._may_expire, self._strokes)))
        self.findings.live_sessions_expired += max(0, alive - self._alive_seen)
        self._alive_seen = max(alive, self._alive_seen)

    def _may_expire(self, stroke: Stroke) -> bool:
        """It took a session's process away in this master's life, or kept it silent for long."""
        is_long = stroke.fault.kind == KILL or stroke.fault.rest_s >= self.scale.client_ttl_s - 1
        is_over = 0 < stroke.healed_ns < self._life_begin_ns
        return stroke.role_kind != "master" and is_long and not is_over

    # ---- the end

    def finish(self) -> None:
        """Everything lives again: no key is stuck, what is charged is what is listed, and all of it goes."""
        self._settle("the end")
        for worker in self._workers:
            if (status := worker.end()) != 0:
                self.findings.wrong.append(f"{worker.name} ended with {status}: its log tells why")
        keys = keys_of(self.scale.writers)
        self._recorder.read(keys, lambda: self._store.get_many(keys))
        self._put_until_stored(keys)
        self._recorder.read(keys, lambda: self._store.get_many(keys))
        self._judge("the end")
        self._wait("charged bytes are those of the values listed", lambda: self._charged() == self._listed())
        self._recorder.remove([*keys, *self._static])
        self._wait("nothing is charged once all is removed", lambda: self._charged() == 0)
        stats = self._store.stats()
        for name in ("unfinished_put_count", "retiring_replica_count", "key_count"):
            if stats[name]:
                self.findings.stuck.append(f"{name} is {stats[name]} at the end")

    def _charged(self) -> int:
        return int(self._store.stats()["allocated_bytes"])

    def _listed(self) -> int:
        return sum(
            max(64, -(-found.size_bytes // 64) * 64) * (found.replica_count or 0)
            for found in self._store.objects()
        )

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLE_S
        while not holds():
            if time.monotonic() > deadline:
                self.findings.stuck.append(f"not within {SETTLE_S:.0f} s: {what}: {self._store.stats()}")
                return
            time.sleep(POLL_S)


def _readers_first(source: tuple[str, LedgerReader]) -> bool:
    return not source[0].startswith("reader")
