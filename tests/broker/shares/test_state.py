"""The machine of a share partition's state: fences, merges, snapshots; and memory equals replay."""

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.shares.ports import MOST_BATCHES, ShareState, StateBatch
from barnabas_broker.shares.state import Decision, SharePartitionState, Snapshot, Update, combined
from barnabas_protocol.errors import ErrorCode

E = ErrorCode
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def batch(first: int, last: int, state: int = ACKNOWLEDGED, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


batches = st.lists(
    st.builds(
        lambda first, size, state, count: batch(first, first + size, state, count),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([AVAILABLE, ACKNOWLEDGED, ARCHIVED]),
        st.integers(0, 3),
    ),
    max_size=8,
)


def by_offset(some: Sequence[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """Count and state of each offset, by the rule of Kafka: the higher count applies, then the higher state."""
    found: dict[int, tuple[int, int]] = {}
    for each in some:
        for offset in range(max(each.first_offset, start), each.last_offset + 1):
            found[offset] = max(found.get(offset, (-1, -1)), (each.delivery_count, each.state))
    return found


@given(batches, batches, st.integers(-1, 35))
def test_batches_are_merged_as_offset_by_offset(old: list[StateBatch], new: list[StateBatch], start: int) -> None:
    merged = combined(combined((), old), new, start)
    assert by_offset(merged, -1) == by_offset([*old, *new], start)
    for one, other in pairwise(merged):
        assert one.last_offset < other.first_offset
        assert (one.last_offset + 1, one.state, one.delivery_count) != (
            other.first_offset,
            other.state,
            other.delivery_count,
        )


@pytest.mark.parametrize(
    ("old", "new", "start", "merged"),
    [
        ([batch(100, 110, AVAILABLE)], [batch(100, 110, ARCHIVED)], -1, [batch(100, 110, ARCHIVED)]),
        ([batch(100, 110)], [batch(111, 120)], -1, [batch(100, 120)]),
        (
            [batch(100, 120, AVAILABLE)],
            [batch(105, 110, AVAILABLE, 2)],
            -1,
            [batch(100, 104, AVAILABLE), batch(105, 110, AVAILABLE, 2), batch(111, 120, AVAILABLE)],
        ),
        ([batch(100, 120)], [], 110, [batch(110, 120)]),
        ([batch(100, 120)], [batch(130, 140)], 125, [batch(130, 140)]),
    ],
    ids=["higher state", "neighbours", "inside", "cut", "left out"],
)
def test_merges(old: list[StateBatch], new: list[StateBatch], start: int, merged: list[StateBatch]) -> None:
    assert list(combined(old, new, start)) == merged


class Driver:
    """A machine that carries out its decisions, as the runtime does, and a second one that replays the log."""

    def __init__(self, updates: int = 500) -> None:
        self.updates = updates
        self.machine = SharePartitionState(updates)
        self.log: list[Snapshot | Update | None] = []
        self.now = 1000

    def do(self, decision: Decision) -> ErrorCode:
        self.log += decision.records
        for record in decision.records:
            self.machine.apply(record)
        assert decision.response is not None
        return decision.response.error

    def initialize(self, state_epoch: int = 0, start: int = 0) -> ErrorCode:
        return self.do(self.machine.initialize(state_epoch, start, self.now))

    def read(self, leader_epoch: int = 0) -> ErrorCode:
        return self.do(self.machine.read(leader_epoch, self.now))

    def write(
        self,
        *some: StateBatch,
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start: int = -1,
        count: int = -1,
    ) -> ErrorCode:
        return self.do(self.machine.write(state_epoch, leader_epoch, start, count, some, self.now))

    def replayed(self) -> SharePartitionState:
        machine = SharePartitionState(self.updates)
        for record in self.log:
            machine.apply(record)
        return machine


@pytest.fixture
def driver() -> Driver:
    driver = Driver()
    assert driver.initialize(start=10) is E.NONE
    return driver


def test_a_state_must_be_initialized() -> None:
    driver = Driver()
    assert driver.read() is E.INVALID_REQUEST
    assert driver.write(batch(0, 1)) is E.INVALID_REQUEST
    assert driver.do(driver.machine.delete()) is E.NONE
    assert driver.machine.summary().state == ShareState(0, -1, -1, ())
    assert driver.log == [] and driver.machine.gone


def test_a_state_has_a_bounded_number_of_batches(driver: Driver) -> None:
    many = [batch(10 + offset, 10 + offset, (ACKNOWLEDGED, ARCHIVED)[offset % 2]) for offset in range(MOST_BATCHES)]
    assert driver.write(*many, many[0]) is E.INVALID_REQUEST
    assert driver.write(*many) is E.NONE
    assert driver.write(*many) is E.NONE  # of the same records
    before = driver.machine.snapshot
    assert driver.write(batch(MOST_BATCHES + 50, MOST_BATCHES + 60)) is E.INVALID_REQUEST
    assert driver.machine.snapshot == before
    assert driver.write(batch(MOST_BATCHES + 50, MOST_BATCHES + 60), start=12) is E.NONE


def test_what_is_written_is_read(driver: Driver) -> None:
    assert driver.write(batch(10, 12), batch(15, 15, AVAILABLE), start=10, count=3) is E.NONE
    answer = driver.machine.read(0, 0).response
    assert answer is not None
    assert answer.state == ShareState(0, 10, 3, (batch(10, 12), batch(15, 15, AVAILABLE)))
    assert driver.write(batch(15, 15), start=13, count=1) is E.NONE
    summary = driver.machine.summary()
    assert summary.state == ShareState(0, 13, 1, ())
    assert driver.machine.snapshot is not None and driver.machine.snapshot.batches == (batch(15, 15),)


def test_the_start_does_not_move_back(driver: Driver) -> None:
    """The leader has not heard that its last write is in the log: what it had acknowledged is not forgotten."""
    assert driver.write(start=20, count=0) is E.NONE
    assert driver.write(batch(12, 13, AVAILABLE), batch(20, 22), start=10, count=5) is E.NONE
    answer = driver.machine.read(0, 0).response
    assert answer is not None
    assert answer.state == ShareState(0, 20, -1, (batch(20, 22),))
    assert driver.initialize(state_epoch=1, start=5) is E.NONE
    summary = driver.machine.summary()
    assert summary.state == ShareState(1, 5, 0, ()), "only a new state epoch begins at an earlier one"


def test_a_reader_with_a_newer_leader_epoch_fences_the_writers_before_it(driver: Driver) -> None:
    assert driver.read(3) is E.NONE
    assert isinstance(driver.log[-1], Update) and driver.log[-1].leader_epoch == 3
    assert driver.write(batch(10, 10), leader_epoch=2) is E.FENCED_LEADER_EPOCH
    assert driver.read(2) is E.FENCED_LEADER_EPOCH
    assert driver.write(batch(10, 10), leader_epoch=3) is E.NONE
    written = len(driver.log)
    assert driver.read(3) is E.NONE
    assert len(driver.log) == written, "the epoch is in the log already"


def test_a_new_state_epoch_fences_writers_and_keeps_the_leader_epoch(driver: Driver) -> None:
    driver.read(3)
    assert driver.write(batch(10, 20), leader_epoch=3) is E.NONE
    assert driver.initialize(state_epoch=1, start=5) is E.NONE
    assert driver.write(batch(10, 10), leader_epoch=3) is E.FENCED_STATE_EPOCH
    assert driver.write(batch(10, 10), leader_epoch=2, state_epoch=1) is E.FENCED_LEADER_EPOCH
    assert driver.initialize(state_epoch=0) is E.FENCED_STATE_EPOCH
    summary = driver.machine.summary()
    assert summary.state == ShareState(1, 5, 0, ())


@pytest.mark.parametrize(
    "bad", [batch(5, 4), batch(-1, 4), batch(0, 1, 1), batch(0, 1, 3), batch(0, 1, 2, -1)], ids=str
)
def test_what_cannot_be_a_batch_is_refused(driver: Driver, bad: StateBatch) -> None:
    assert driver.write(bad) is E.INVALID_REQUEST
    assert driver.write(start=-2) is E.INVALID_REQUEST


@pytest.mark.parametrize(("epoch", "start"), [(-1, 0), (0, -2)])
def test_what_cannot_be_a_beginning_is_refused(driver: Driver, epoch: int, start: int) -> None:
    assert driver.initialize(epoch, start) is E.INVALID_REQUEST


def test_a_start_that_is_not_known_yet() -> None:
    driver = Driver()
    assert driver.initialize(start=-1) is E.NONE
    assert driver.machine.summary().state == ShareState(0, -1, -1, ())


def test_after_some_updates_a_write_is_a_snapshot() -> None:
    driver = Driver(updates=2)
    driver.initialize()
    for offset in range(5):
        assert driver.write(batch(offset, offset, ACKNOWLEDGED, offset), start=0) is E.NONE
    kinds = [type(record) for record in driver.log]
    assert kinds == [Snapshot, Update, Update, Snapshot, Update, Update]
    snapshot = driver.log[3]
    assert isinstance(snapshot, Snapshot) and snapshot.snapshot_epoch == 1
    assert [each.first_offset for each in snapshot.batches] == [0, 1, 2]


def test_an_old_snapshot_is_renewed(driver: Driver) -> None:
    driver.write(batch(10, 11))
    assert driver.machine.renew(500, 1499).records == ()
    (record,) = driver.machine.renew(500, 1500).records
    assert isinstance(record, Snapshot) and record.batches == (batch(10, 11),) and record.written_ms == 1500
    assert record.created_ms == 1000


def test_what_belongs_to_a_deleted_state_is_skipped() -> None:
    """The log may begin between a snapshot and the tombstone."""
    driver = Driver()
    driver.initialize()
    driver.write(batch(0, 3))
    driver.do(driver.machine.delete())
    assert driver.machine.gone
    late = SharePartitionState(500)
    for record in driver.log[1:]:
        late.apply(record)
        assert late.gone


steps = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), st.integers(0, 3), st.integers(-1, 30)),
        st.tuples(st.just("read"), st.integers(0, 3), st.just(0)),
        st.tuples(st.just("write"), st.integers(-1, 3), st.integers(-1, 30), st.integers(-1, 3), batches),
        st.tuples(st.just("delete"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(deadline=None)
@given(steps, st.integers(0, 3))
def test_memory_equals_replay(steps: list[tuple[object, ...]], updates: int) -> None:
    """And a replay that begins at the last snapshot: what pruning leaves."""
    driver = Driver(updates)
    epochs: list[tuple[int, int]] = []
    for step in steps:
        match step:
            case ("initialize", int(epoch), int(start)):
                driver.initialize(epoch, start)
            case ("read", int(epoch), _):
                driver.read(epoch)
            case ("write", int(state), int(start), int(leader), list(some)):
                driver.write(*some, state_epoch=state, leader_epoch=leader, start=start)
            case _:
                driver.do(driver.machine.delete())
                epochs.clear()
        snapshot = driver.machine.snapshot
        if snapshot is not None:
            epochs.append((snapshot.state_epoch, snapshot.leader_epoch))
    assert epochs == sorted(epochs, key=lambda pair: pair[0]) == sorted(epochs, key=lambda pair: pair[1])
    assert driver.replayed().snapshot == driver.machine.snapshot
    assert driver.replayed().updates == driver.machine.updates
    last = max((at for at, record in enumerate(driver.log) if isinstance(record, Snapshot)), default=0)
    late = SharePartitionState(updates)
    for record in driver.log[last:]:
        late.apply(record)
    assert late.snapshot == driver.machine.snapshot
