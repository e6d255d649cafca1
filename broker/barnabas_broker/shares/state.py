"""The durable state of one share partition: a machine that fences writers, and merges what they write. Pure.

How it works. The state is a :class:`Snapshot`. A write is an :class:`Update`, which has only what has changed; after a
number of updates a write is a whole snapshot, so that a replay needs no older record. Two epochs fence writers:

- The leader epoch of the topic's partition: a new leader reads the state first, which puts its epoch into the log. What
  an earlier leader writes from then on is refused (FENCED_LEADER_EPOCH).
- The state epoch, which the group coordinator raises when the group starts again at another offset: what a leader
  writes that has read the state before is refused (FENCED_STATE_EPOCH).

A state has no more than :data:`~barnabas_broker.shares.ports.MOST_BATCHES` batches: a write that brings more, or after
which the state had more, is refused (INVALID_REQUEST).

Source: Kafka's ``ShareCoordinatorShard`` and ``PersisterStateBatchCombiner``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final, NamedTuple

from barnabas_broker.coordinators.result import Result
from barnabas_broker.shares.ports import MOST_BATCHES, ShareState, StateBatch
from barnabas_protocol.errors import ErrorCode

#: The start offset that is not known yet, and an unknown number.
UNKNOWN: Final = -1
#: The states that are written: available, acknowledged and archived. Acquired records are not.
_WRITTEN: Final = frozenset((0, 2, 4))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The whole state.

    Attributes:
        snapshot_epoch: the number of the snapshot.
        state_epoch: see :class:`.ShareState`, for this, the start offset, the count and the batches.
        leader_epoch: the newest one of a reader or writer.
        start_offset: see there.
        delivery_complete_count: see there.
        batches: see there.
        created_ms: when the first snapshot was made.
        written_ms: when this one was made.
    """

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]
    created_ms: int
    written_ms: int


@dataclass(frozen=True, slots=True)
class Update:
    """A change since the snapshot.

    Attributes:
        snapshot_epoch: that of the snapshot.
        leader_epoch: of the writer; -1 if it is unchanged.
        start_offset: the new one; -1 if it is unchanged.
        delivery_complete_count: the new one; -1 if it is not known.
        batches: the new states.
    """

    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...]


#: A record; None deletes the state.
StateRecord = Snapshot | Update | None


class Answer(NamedTuple):
    """The answer to a request about a share partition.

    Attributes:
        error: NONE if it was carried out.
        message: of the error.
        state: what was read.
        leader_epoch: the newest one; for the summary.
    """

    error: ErrorCode
    message: str | None = None
    state: ShareState | None = None
    leader_epoch: int = 0


Decision = Result[StateRecord, Answer, None]

_DONE: Final = Answer(ErrorCode.NONE)
#: The summary of a share partition that has no state.
_NO_SUMMARY: Final = Answer(ErrorCode.NONE, None, ShareState(0, UNKNOWN, UNKNOWN, ()))
#: The answer to a write after which the state had more batches than :data:`MOST_BATCHES`.
TOO_MANY_BATCHES: Final = Answer(
    ErrorCode.INVALID_REQUEST, f"The state of a share partition has at most {MOST_BATCHES} batches."
)


def refused(error: ErrorCode, message: str | None = None) -> Decision:
    """The decision that refuses a request."""
    return Result(response=Answer(error, message))


class SharePartitionState:
    """The state machine of a share partition.

    Args:
        updates_per_snapshot: updates after which a write is a whole snapshot.

    Attributes:
        snapshot: the state; None if there is none.
        updates: number of updates since the last snapshot.
    """

    __slots__ = ("_updates_per_snapshot", "snapshot", "updates")

    def __init__(self, updates_per_snapshot: int) -> None:
        self._updates_per_snapshot = updates_per_snapshot
        self.snapshot: Snapshot | None = None
        self.updates = 0

    @property
    def gone(self) -> bool:
        """Whether there is no state."""
        return self.snapshot is None

    def apply(self, record: StateRecord) -> None:
        """Take over a record. An update without its snapshot belongs to a state that was deleted later."""
        state = self.snapshot
        if record is None or isinstance(record, Snapshot):
            if record is not None and state is not None:
                # Never backwards, whatever the log says: a fence that is gone lets two leaders write.
                record = replace(record, leader_epoch=max(record.leader_epoch, state.leader_epoch))
            self.snapshot, self.updates = record, 0
        elif state is not None:
            self.snapshot, self.updates = _merged(state, record), self.updates + 1

    def initialize(self, state_epoch: int, start_offset: int, now_ms: int) -> Decision:
        """InitializeShareGroupState: begin at an offset, or where ``share.auto.offset.reset`` says if it is -1."""
        state = self.snapshot
        if state_epoch < 0 or start_offset < UNKNOWN:
            return refused(ErrorCode.INVALID_REQUEST, "State epoch and start offset must not be negative.")
        if state is not None and state.state_epoch > state_epoch:
            return refused(ErrorCode.FENCED_STATE_EPOCH)
        fresh = Snapshot(
            0 if state is None else _next(state.snapshot_epoch),
            state_epoch,
            0 if state is None else state.leader_epoch,
            start_offset,
            UNKNOWN if start_offset == UNKNOWN else 0,
            (),
            now_ms,
            now_ms,
        )
        return Result((fresh,), _DONE)

    def read(self, leader_epoch: int, now_ms: int) -> Decision:
        """ReadShareGroupState: the state; a newer leader epoch goes into the log first."""
        state = self.snapshot
        if state is None:
            return refused(ErrorCode.INVALID_REQUEST, "The share partition is not initialized.")
        if leader_epoch < state.leader_epoch:
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        answer = Answer(ErrorCode.NONE, None, _shown(state), leader_epoch)
        if leader_epoch == state.leader_epoch:
            return Result(response=answer)
        update = Update(state.snapshot_epoch, leader_epoch, UNKNOWN, state.delivery_complete_count, ())
        return Result((self._written(state, update, state.state_epoch, now_ms),), answer)

    def write(
        self,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        now_ms: int,
    ) -> Decision:
        """WriteShareGroupState: merge new states. -1 leaves an epoch or the start offset as it is.

        The start offset does not move back. A leader whose last write has failed by its knowledge, and is in the log
        all the same, writes an earlier one: what was acknowledged from there on is not in the state any more.
        """
        state = self.snapshot
        if state is None:
            return refused(ErrorCode.INVALID_REQUEST, "The share partition is not initialized.")
        if leader_epoch != UNKNOWN and leader_epoch < state.leader_epoch:
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        if state_epoch != UNKNOWN and state_epoch < state.state_epoch:
            return refused(ErrorCode.FENCED_STATE_EPOCH)
        if len(batches) > MOST_BATCHES:
            return Result(response=TOO_MANY_BATCHES)
        if start_offset < UNKNOWN or any(not _valid(batch) for batch in batches):
            return refused(ErrorCode.INVALID_REQUEST, "An offset, a delivery state or a delivery count is not valid.")
        if start_offset != UNKNOWN and start_offset < state.start_offset and state_epoch <= state.state_epoch:
            start_offset, delivery_complete_count = state.start_offset, UNKNOWN
        new = combined((), batches, start_offset)
        update = Update(state.snapshot_epoch, leader_epoch, start_offset, delivery_complete_count, new)
        # Merged only if there may be too many: `apply` merges all writes.
        if len(state.batches) + len(new) > MOST_BATCHES and len(_merged(state, update).batches) > MOST_BATCHES:
            return Result(response=TOO_MANY_BATCHES)
        return Result((self._written(state, update, max(state_epoch, state.state_epoch), now_ms),), _DONE)

    def delete(self) -> Decision:
        """DeleteShareGroupState. A state that does not exist is deleted already."""
        return Result((), _DONE) if self.snapshot is None else Result((None,), _DONE)

    def summary(self) -> Answer:
        """ReadShareGroupStateSummary: the state without the batches."""
        state = self.snapshot
        if state is None:
            return _NO_SUMMARY
        return Answer(ErrorCode.NONE, None, replace(_shown(state), batches=()), state.leader_epoch)

    def renew(self, older_than_ms: int, now_ms: int) -> Decision:
        """Write a snapshot of a state whose last one is old: records before it can be deleted then."""
        state = self.snapshot
        if state is None or now_ms - state.written_ms < older_than_ms:
            return Result()
        return Result((replace(state, snapshot_epoch=_next(state.snapshot_epoch), written_ms=now_ms),))

    def _written(self, state: Snapshot, update: Update, state_epoch: int, now_ms: int) -> StateRecord:
        """The record of an update: the update, or a snapshot. An update has no state epoch: a newer one needs a
        snapshot."""
        if self.updates < self._updates_per_snapshot and state_epoch == state.state_epoch:
            return update
        epoch = _next(state.snapshot_epoch)
        return replace(_merged(state, update), state_epoch=state_epoch, snapshot_epoch=epoch, written_ms=now_ms)


def combined(
    batches: Sequence[StateBatch], new: Iterable[StateBatch], start_offset: int = UNKNOWN
) -> tuple[StateBatch, ...]:
    """Merge batches: of those with the same offset the one with the higher delivery count applies, then the one with
    the higher state, as in Kafka. Neighbours in the same state become one.

    Args:
        batches: so far.
        new: others; both may overlap, and may be in any order.
        start_offset: what is before it is left out; -1 leaves out nothing.
    """
    waiting = sorted(batch for batch in (*batches, *new) if batch.last_offset >= start_offset)
    merged: list[StateBatch] = []
    #: The batches that contain `at`, best first.
    open_: list[tuple[int, int, int]] = []
    at, index, count = start_offset, 0, len(waiting)
    while index < count or open_:
        if not open_:
            batch = waiting[index]
            index += 1
            while index < count and waiting[index][:2] == batch[:2]:
                batch = max(batch, waiting[index], key=_rank)
                index += 1
            at = max(at, batch.first_offset)
            if index == count or waiting[index].first_offset > batch.last_offset:
                # Most batches overlap no other one: they need no heap.
                _extend(merged, batch if at == batch.first_offset else batch._replace(first_offset=at))
                at = batch.last_offset + 1
                continue
            heappush(open_, (-batch.delivery_count, -batch.state, batch.last_offset))
        while index < count and waiting[index].first_offset <= at:
            batch = waiting[index]
            heappush(open_, (-batch.delivery_count, -batch.state, batch.last_offset))
            index += 1
        deliveries, state, last = open_[0]
        if last < at:
            heappop(open_)
            continue
        until = last if index == count else min(last, waiting[index].first_offset - 1)
        _extend(merged, StateBatch(at, until, -state, -deliveries))
        at = until + 1
    return tuple(merged)


def _rank(batch: StateBatch) -> tuple[int, int]:
    """Rank of a batch: of two with the same offsets the one with the higher rank applies."""
    return batch.delivery_count, batch.state


def _extend(merged: list[StateBatch], batch: StateBatch) -> None:
    """Append a batch, or let the one before it end later, if both are one."""
    if merged:
        first, last, state, count = merged[-1]
        if last == batch.first_offset - 1 and state == batch.state and count == batch.delivery_count:
            merged[-1] = StateBatch(first, batch.last_offset, state, count)
            return
    merged.append(batch)


def _merged(state: Snapshot, update: Update) -> Snapshot:
    """The state after an update."""
    start = state.start_offset if update.start_offset == UNKNOWN else update.start_offset
    return replace(
        state,
        leader_epoch=max(update.leader_epoch, state.leader_epoch),
        start_offset=start,
        delivery_complete_count=update.delivery_complete_count,
        batches=combined(state.batches, update.batches, start),
    )


def _shown(state: Snapshot) -> ShareState:
    return ShareState(state.state_epoch, state.start_offset, state.delivery_complete_count, state.batches)


def _valid(batch: StateBatch) -> bool:
    return 0 <= batch.first_offset <= batch.last_offset and batch.state in _WRITTEN and batch.delivery_count >= 0


def _next(epoch: int) -> int:
    """The epoch after this one: an int32, which starts again at 0."""
    return (epoch + 1) & 0x7FFFFFFF
