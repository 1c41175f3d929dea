"""The node's directory beside a plain Python model: what is written, read, retired, freed and reported.

The model keeps real bytes: a receive writes its range, a reader compares what it sees with what was sealed
for as long as it holds its reference. A range given back too early shows as wrong bytes here.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from mix64 import mix64
from node.value_header import value_header

from mooncake_store._core import Directory, DirectoryReference, key_digest

OK = 0
INVALID_PARAMS = -600
STALE_GRANT = -2000
BUSY = -2001
NO_RANGE = -2002
SEALED = -2006

CAPACITY = 64 * 32
RETIRED_MAX = 4
COUNTERS = range(1, 9)
SIZES = (0, 1, 63, 64, 65, 200, 64 * 12, CAPACITY, CAPACITY + 1)


def id_of(epoch: int, counter: int) -> int:
    return (epoch << 40) | counter


def key_of(replica: int) -> bytes:
    return b"key-%d" % replica


def digest_of(replica: int) -> int:
    return key_digest("tenant", key_of(replica))


def header_of(replica: int, size: int) -> bytes:
    return value_header(
        key_of(replica), size, put_id=replica, tenant=b"tenant", checksum=replica & 0xFFFFFFFF
    )


def charged(size: int) -> int:
    return max(64, (size + 63) // 64 * 64)


@dataclass
class Held:
    """The model's entry. state: receiving, cancelled, sealed or draining."""

    replica: int
    segment: int
    offset: int
    size: int
    fill: int
    incarnation: int
    state: str = "receiving"
    readers: int = 0


@dataclass
class Segment:
    memory: bytearray = field(default_factory=lambda: bytearray(CAPACITY))
    segment_id: int = 0
    incarnation: int = 0
    settled: int = 0


class DirectoryBesideAModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = Directory(RETIRED_MAX)
        self.segments: list[Segment] = []
        self.held: dict[int, Held] = {}
        self.open_references: list[tuple[DirectoryReference, Held]] = []
        self.retired: list[int] = []
        self.floor = 0
        self.freed: list[int] = []
        self.epoch = 0
        self.fenced = False
        self.swept = True
        self.next_segment_id = 1
        self.writes = 0

    @initialize(ready=st.sampled_from([0, 100, CAPACITY]))
    def mount(self, ready: int) -> None:
        self.adopt(1)
        for index in range(2):
            assert self.directory.add_segment(CAPACITY) == index
            self.segments.append(Segment())
            self.attach(index)
        self.directory.set_ready(0, ready)

    # ---- the model's own arithmetic

    def current(self, entry: Held) -> bool:
        return entry.incarnation == self.segments[entry.segment].incarnation

    def has_ended(self, replica: int) -> bool:
        return replica <= self.floor or replica in self.retired

    def remember(self, replica: int) -> None:
        if self.has_ended(replica):
            return
        self.retired.append(replica)
        if len(self.retired) > RETIRED_MAX:
            self.floor = max(self.floor, self.retired.pop(0))

    def largest_gap(self, segment: int) -> int:
        spans = sorted(
            (e.offset, e.offset + charged(e.size)) for e in self.held.values() if e.segment == segment
        )
        edges = [(0, 0), *spans, (CAPACITY, CAPACITY)]
        return max(after[0] - before[1] for before, after in itertools.pairwise(edges))

    def release(self, entry: Held, *, report: bool) -> None:
        assert entry.readers == 0
        del self.held[entry.replica]
        if report and self.current(entry):
            self.freed.append(entry.replica)

    def end(self, entry: Held) -> bool:
        if entry.state == "receiving":
            entry.state = "cancelled"
        elif entry.state == "sealed":
            if entry.readers == 0:
                self.release(entry, report=False)
                return True
            entry.state = "draining"
        return False

    def ids(self, data: st.DataObject) -> int:
        """Any id, but one that is held more often than not, or most steps would meet nothing."""
        if self.held and data.draw(st.sampled_from([True, True, False])):
            return data.draw(st.sampled_from(sorted(self.held)))
        return self.any_id(data)

    def any_id(self, data: st.DataObject) -> int:
        epoch = data.draw(st.sampled_from([self.epoch, self.epoch, max(1, self.epoch - 1)]))
        return id_of(epoch, data.draw(st.sampled_from(COUNTERS)))

    # ---- segments and epochs

    def attach(self, index: int) -> None:
        segment = self.segments[index]
        segment.segment_id = id_of(self.epoch, 1000 + self.next_segment_id)
        self.next_segment_id += 1
        self.directory.attach(index, segment.segment_id)

    def adopt(self, epoch: int) -> None:
        self.directory.adopt(epoch)
        if epoch > self.epoch:
            self.epoch = epoch
            self.floor = max(self.floor, id_of(epoch, 0) - 1)
            while self.retired and self.retired[0] <= self.floor:
                self.retired.pop(0)

    @rule(step=st.sampled_from([0, 0, 0, 0, -1, 1]))
    def adopt_an_epoch(self, step: int) -> None:
        self.adopt(self.epoch + step)
        assert self.directory.epoch == self.epoch

    @rule(fenced=st.sampled_from([False, False, False, True]))
    def fence(self, fenced: bool) -> None:
        self.fenced = fenced
        self.directory.set_fenced(fenced)

    @rule(index=st.integers(0, 1), really=st.sampled_from([False, False, True]))
    def expel(self, index: int, really: bool) -> None:
        if not really:  # or little would ever be held
            return
        segment = self.segments[index]
        segment.incarnation += 1
        segment.segment_id = 0
        segment.settled = 0
        self.directory.expel(index)
        self.swept = False

    @precondition(lambda self: not self.swept)
    @rule()
    def sweep(self) -> None:
        while not self.directory.sweep():
            self.directory.check_invariants()
        for entry in list(self.held.values()):
            if not self.current(entry):
                self.end(entry)
        self.swept = True

    @rule(index=st.integers(0, 1))
    def mount_again(self, index: int) -> None:
        if self.segments[index].segment_id == 0:
            self.attach(index)

    @rule(ready=st.integers(0, CAPACITY))
    def fault_memory_in(self, ready: int) -> None:
        self.directory.set_ready(1, ready)

    # ---- writing

    @rule(data=st.data(), index=st.integers(0, 1), size=st.sampled_from(SIZES))
    def begin_write(self, data: st.DataObject, index: int, size: int) -> None:
        replica = self.any_id(data)
        epoch = data.draw(st.sampled_from([self.epoch, self.epoch, self.epoch, self.epoch - 1]))
        self.write(replica, index, size, epoch)

    def write(self, replica: int, index: int, size: int, epoch: int) -> None:
        segment = self.segments[index]
        segment_id = segment.segment_id or id_of(self.epoch, 999)
        status, offset = self.directory.begin_write(
            replica, segment_id, size, header_of(replica, size), epoch
        )
        assert status == self.expected_status(replica, index, size, epoch)
        if status != OK:
            return
        self.writes += 1
        entry = Held(replica, index, offset, size, self.writes % 255 + 1, segment.incarnation)
        self.held[replica] = entry
        self.fill(entry)

    @rule(data=st.data(), index=st.integers(0, 1), size=st.sampled_from((0, 1, 64, 200)))
    def write_and_open(self, data: st.DataObject, index: int, size: int) -> None:
        """Straight to where most rules have something to do."""
        free = [id_of(self.epoch, counter) for counter in COUNTERS]
        free = [replica for replica in free if replica not in self.held and not self.has_ended(replica)]
        segment = self.segments[index]
        if not free or self.fenced or segment.segment_id == 0 or charged(size) > self.largest_gap(index):
            return
        replica = data.draw(st.sampled_from(free))
        self.write(replica, index, size, self.epoch)
        assert self.directory.seal(replica) == OK
        self.held[replica].state = "sealed"
        self.open_one(replica)

    def expected_status(self, replica: int, index: int, size: int, epoch: int) -> int:
        entry = self.held.get(replica)
        if entry is not None:
            sealed = entry.state == "sealed" and self.current(entry) and entry.size == size
            return SEALED if sealed else STALE_GRANT
        if epoch < self.epoch or self.has_ended(replica):
            return STALE_GRANT
        if self.segments[index].segment_id == 0:
            return BUSY  # the answer to a mount may be on its way
        if self.fenced:
            return STALE_GRANT
        return OK if charged(size) <= self.largest_gap(index) else NO_RANGE

    def fill(self, entry: Held) -> None:
        """What the receive does to the memory."""
        memory = self.segments[entry.segment].memory
        memory[entry.offset : entry.offset + entry.size] = bytes([entry.fill]) * entry.size

    @rule(data=st.data(), claimed=st.integers(0, 100), size=st.integers(0, 100))
    def header_and_length_differ(self, data: st.DataObject, claimed: int, size: int) -> None:
        if claimed == size:
            return
        replica = self.ids(data)
        header = header_of(replica, size)
        segment_id = self.segments[0].segment_id
        answer = self.directory.begin_write(replica, segment_id, claimed, header, self.epoch)
        assert answer[0] == INVALID_PARAMS
        assert (
            self.directory.begin_write(replica, segment_id, size, header[:-1], self.epoch)[0]
            == INVALID_PARAMS
        )

    def receiving(self) -> list[Held]:
        return [e for e in self.held.values() if e.state in ("receiving", "cancelled")]

    @precondition(lambda self: bool(self.receiving()))
    @rule(data=st.data(), whole=st.sampled_from([True, True, True, False]))
    def end_a_receive(self, data: st.DataObject, whole: bool) -> None:
        entry = data.draw(st.sampled_from(self.receiving()))
        self.fill(entry)  # the last bytes arrive only now: nobody else may have got the range
        if not whole:
            self.directory.cancel(entry.replica)
            self.release(entry, report=entry.state == "cancelled")
        elif entry.state == "cancelled" or not self.current(entry):
            assert self.directory.seal(entry.replica) == STALE_GRANT
            self.release(entry, report=entry.state == "cancelled")
        else:
            assert self.directory.seal(entry.replica) == OK
            entry.state = "sealed"

    # ---- reading

    @rule(data=st.data(), right=st.sampled_from([True, True, True, False]))
    def open(self, data: st.DataObject, right: bool) -> None:
        known = [e.replica for e in self.held.values()]
        replica = data.draw(st.sampled_from(known)) if known else self.ids(data)
        before = self.directory.counts()
        reference = self.directory.open(replica, digest_of(replica) if right else 7)
        entry = self.held.get(replica)
        served = entry is not None and entry.state == "sealed" and self.current(entry) and not self.fenced
        if not served or not right:
            assert reference is None
            name = "fenced_refusals" if self.fenced else "digest_mismatches" if served else "gone"
            assert self.directory.counts()[name] == before[name] + 1
            return
        assert entry is not None
        self.hold(reference, entry)

    def open_one(self, replica: int) -> None:
        self.hold(self.directory.open(replica, digest_of(replica)), self.held[replica])

    def hold(self, reference: DirectoryReference | None, entry: Held) -> None:
        assert reference is not None
        assert (reference.segment, reference.offset, reference.size) == (
            entry.segment,
            entry.offset,
            entry.size,
        )
        assert reference.header == header_of(entry.replica, entry.size)
        assert reference.checksum == entry.replica & 0xFFFFFFFF
        entry.readers += 1
        self.open_references.append((reference, entry))

    @precondition(lambda self: bool(self.open_references))
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.open_references) - 1))
        reference, entry = self.open_references.pop(index)
        self.directory.close(reference)
        entry.readers -= 1
        if entry.state == "draining" and entry.readers == 0:
            self.release(entry, report=True)

    # ---- retiring

    @rule(data=st.data(), count=st.integers(1, 3))
    def retire(self, data: st.DataObject, count: int) -> None:
        replicas = [self.ids(data) for _ in range(count)]
        expected = []
        for replica in replicas:
            self.remember(replica)
            entry = self.held.get(replica)
            if entry is None or self.end(entry):
                expected.append(replica)
        assert self.directory.retire(replicas) == expected

    @rule(share=st.floats(0, 1))
    def master_acknowledges_freed(self, share: float) -> None:
        count = int(share * len(self.freed))
        assert self.directory.pending_freed(count) == self.freed[:count]
        self.directory.acknowledge_freed(count)
        del self.freed[:count]

    # ---- what holds always

    @rule(data=st.data(), index=st.integers(0, 1))
    def report(self, data: st.DataObject, index: int) -> None:
        segment = self.segments[index]
        segment.settled = max(segment.settled, self.ids(data))
        report = self.directory.report(index, segment.settled)
        mine = [e for e in self.held.values() if e.segment == index]
        settled = [
            e.replica
            for e in mine
            if e.state == "sealed" and self.current(e) and e.replica <= segment.settled
        ]
        checksum = 0
        for replica in settled:
            checksum ^= mix64(replica)
        assert report["segment"] == segment.segment_id
        assert (report["sealed_count"], report["sealed_checksum"]) == (len(settled), checksum)
        assert report["receiving_bytes"] == sum(charged(e.size) for e in mine if e.state == "receiving")
        draining = [e for e in mine if e.state in ("draining", "cancelled")]
        assert report["draining_bytes"] == sum(charged(e.size) for e in draining)
        assert report["largest_free_bytes"] <= self.largest_gap(index)

    @invariant()
    def readers_see_what_was_sealed(self) -> None:
        for reference, entry in self.open_references:
            seen = self.segments[entry.segment].memory[reference.offset : reference.offset + reference.size]
            assert seen == bytes([entry.fill]) * entry.size

    @invariant()
    def freed_is_told_until_acknowledged(self) -> None:
        assert self.directory.pending_freed() == self.freed

    @invariant()
    def the_directory_is_sound(self) -> None:
        self.directory.check_invariants()
        counts = self.directory.counts()
        assert counts["replicas"] == len(self.held)
        assert counts["used_bytes"] == sum(charged(e.size) for e in self.held.values())
        assert counts["references"] == len(self.open_references)
        assert self.directory.retired_count == len(self.retired)

    def teardown(self) -> None:
        for reference, _ in self.open_references:
            self.directory.close(reference)
        for entry in self.receiving():
            self.directory.cancel(entry.replica)
        for index in range(len(self.segments)):
            self.directory.expel(index)
        while not self.directory.sweep():
            pass
        self.directory.check_invariants()
        assert self.directory.counts()["used_bytes"] == 0


TestDirectoryBesideAModel = DirectoryBesideAModel.TestCase


def mounted(capacity: int = CAPACITY, **options: int) -> Directory:
    directory = Directory(**options)
    directory.adopt(1)
    segment = directory.add_segment(capacity)
    directory.set_ready(segment, capacity)
    directory.attach(segment, id_of(1, 1000))
    return directory


def write(directory: Directory, counter: int, size: int = 64, epoch: int = 1) -> int:
    replica = id_of(1, counter)
    status, _ = directory.begin_write(replica, id_of(1, 1000), size, header_of(replica, size), epoch)
    return status if status != OK else directory.seal(replica)


def test_a_write_that_comes_before_the_answer_to_the_mount_is_told_to_wait() -> None:
    """The master grants as soon as it has answered; a writer was refused twice, and its put failed."""
    directory = Directory()
    segment = directory.add_segment(CAPACITY)
    directory.set_ready(segment, CAPACITY)
    directory.set_fenced(True)  # it has heard no master yet
    assert write(directory, 5) == BUSY
    directory.adopt(1)
    directory.attach(segment, id_of(1, 1000))
    directory.set_fenced(False)
    assert write(directory, 5) == OK
    directory.expel(segment)
    assert write(directory, 6) == BUSY
    assert write(directory, 6, epoch=0) == STALE_GRANT, "a grant of an earlier reign never fits"


def test_write_of_a_replica_retired_early_is_refused() -> None:
    """The revoke of a put may overtake its bytes; they must not stay as a replica that nobody can end."""
    directory = mounted()
    assert directory.retire([id_of(1, 5)]) == [id_of(1, 5)]
    assert write(directory, 5) == STALE_GRANT
    assert directory.counts()["used_bytes"] == 0


def test_write_of_a_replica_that_was_sealed_and_retired_is_refused() -> None:
    directory = mounted()
    assert write(directory, 5) == OK
    assert directory.retire([id_of(1, 5)]) == [id_of(1, 5)]
    assert write(directory, 5) == STALE_GRANT


def test_ids_up_to_a_forgotten_one_are_refused_and_higher_ones_are_not() -> None:
    directory = mounted(retired_ids_max=2)
    assert write(directory, 1) == OK
    directory.retire([id_of(1, counter) for counter in (4, 7, 9)])
    assert directory.retired_count == 2
    assert write(directory, 3) == STALE_GRANT
    assert write(directory, 5) == OK
    assert write(directory, 7) == STALE_GRANT
    assert directory.open(id_of(1, 1), digest_of(id_of(1, 1))) is not None


def test_sealed_id_with_another_value_is_not_called_sealed() -> None:
    directory = mounted()
    assert write(directory, 5) == OK
    assert write(directory, 5) == SEALED
    assert write(directory, 5, size=65) == STALE_GRANT
    other = value_header(b"another key", 64, put_id=9)
    assert directory.begin_write(id_of(1, 5), id_of(1, 1000), 64, other, 1)[0] == STALE_GRANT


def test_grant_of_an_older_reign_is_refused_after_adopt() -> None:
    directory = mounted()
    assert write(directory, 5) == OK
    directory.adopt(2)
    assert write(directory, 6, epoch=1) == STALE_GRANT
    assert write(directory, 6, epoch=2) == STALE_GRANT
    reference = directory.open(id_of(1, 5), digest_of(id_of(1, 5)))
    assert reference is not None, "what was sealed stays readable"


def test_reader_outlives_the_retire_and_its_range_is_reported_freed_afterwards() -> None:
    directory = mounted(capacity=64)
    assert write(directory, 5) == OK
    reference = directory.open(id_of(1, 5), digest_of(id_of(1, 5)))
    assert reference is not None
    assert directory.retire([id_of(1, 5)]) == []
    assert directory.open(id_of(1, 5), digest_of(id_of(1, 5))) is None
    assert write(directory, 6) == NO_RANGE
    assert directory.pending_freed() == []
    directory.close(reference)
    assert directory.pending_freed() == [id_of(1, 5)]
    assert write(directory, 6) == OK


@pytest.mark.parametrize("whole", [True, False])
def test_range_of_a_receive_that_a_retire_overtook_is_reported_freed_at_its_end(whole: bool) -> None:
    directory = mounted(capacity=64)
    replica = id_of(1, 5)
    assert directory.begin_write(replica, id_of(1, 1000), 64, header_of(replica, 64), 1)[0] == OK
    assert directory.retire([replica]) == []
    assert write(directory, 6) == NO_RANGE
    assert directory.pending_freed() == []
    if whole:
        assert directory.seal(replica) == STALE_GRANT
    else:
        directory.cancel(replica)
    assert directory.pending_freed() == [replica]
    assert write(directory, 6) == OK


def test_memory_that_is_not_ready_is_granted_when_nothing_else_fits() -> None:
    directory = Directory()
    directory.adopt(1)
    directory.add_segment(CAPACITY)
    directory.attach(0, id_of(1, 1000))
    assert write(directory, 1, size=CAPACITY) == OK


def test_misuse_raises_here_and_stops_a_native_caller() -> None:
    directory = mounted()
    with pytest.raises(ValueError, match="replica 77 is not being received"):
        directory.seal(77)
    assert write(directory, 5) == OK
    reference = directory.open(id_of(1, 5), digest_of(id_of(1, 5)))
    assert reference is not None
    directory.close(reference)
    with pytest.raises(ValueError, match="closed before"):
        directory.close(reference)


def test_entries_stay_small() -> None:
    """A node with 64 GiB of 64 KiB blocks holds a million entries."""
    directory = mounted(capacity=64 * 4000)
    for counter in range(1, 4001):
        assert write(directory, counter) == OK
    directory.check_invariants()
    assert directory.counts()["header_bytes"] // 4000 <= 90


def test_an_inventory_lists_what_is_sealed_and_ends_what_is_received() -> None:
    directory = Directory()
    directory.add_segment(CAPACITY)
    directory.attach(0, id_of(1, 1))
    directory.adopt(1)
    directory.set_now(1_000)
    times = value_header(b"timed", 64, put_id=9, ttl_ms=500, soft_pin_ms=90, pins=2)
    written = {id_of(1, 11): header_of(id_of(1, 11), 64), id_of(1, 12): times}
    for replica, header in written.items():
        assert directory.begin_write(replica, id_of(1, 1), 64, header, 1)[0] == OK
        assert directory.seal(replica) == OK
    for replica in (id_of(1, 13), id_of(1, 14)):
        assert directory.begin_write(replica, id_of(1, 1), 64, header_of(replica, 64), 1)[0] == OK
    assert directory.seal(id_of(1, 14)) == OK
    assert directory.retire([id_of(1, 14)]) == [id_of(1, 14)]

    directory.adopt(2)
    directory.attach(0, id_of(2, 1))
    directory.set_now(1_100)
    listed = {replica: (segment, header) for replica, segment, header in directory.inventory()}
    left = value_header(b"timed", 64, put_id=9, ttl_ms=400, soft_pin_ms=1, pins=2)
    assert listed == {
        id_of(1, 11): (id_of(2, 1), written[id_of(1, 11)]),
        id_of(1, 12): (
            id_of(2, 1),
            left,
        ),  # a pin that is over has its last millisecond: 0 would mean the default
    }
    assert directory.seal(id_of(1, 13)) == STALE_GRANT  # its grant is not known to the new master
    assert (
        directory.begin_write(id_of(1, 15), id_of(1, 1), 64, header_of(id_of(1, 15), 64), 1)[0] == STALE_GRANT
    )
    directory.check_invariants()


def test_a_value_without_a_put_id_is_refused() -> None:
    """A restarted master would take the inventory that names it for malformed."""
    directory = Directory()
    directory.add_segment(CAPACITY)
    directory.attach(0, id_of(1, 1))
    header = value_header(b"k", 64, put_id=0)
    assert directory.begin_write(id_of(1, 11), id_of(1, 1), 64, header, 1)[0] == INVALID_PARAMS
