"""A share partition: a partition of a topic as one share group reads it (Kafka's ``SharePartition``, KIP-932). Pure.

Records are in the window from the start offset to the end offset. Below it, delivery is complete; above it, nothing was
delivered yet. The window is a sorted list of ranges (:class:`_Range`) without holes: consecutive offsets with the same
state. Acquiring and acknowledging splits ranges at its borders, and equal neighbours are merged, so that the list is as
long as the states differ and not as long as there are records.

State that must survive a change of leaders is written: :meth:`SharePartition.begin_write` collects everything that is
not written yet, and :meth:`SharePartition.end_write` takes it over, or back if the write has failed. There is one write
at a time. What a member acknowledges or releases (:class:`StateChange`) counts only when it is written: until then its
records stay acquired, cannot be acknowledged again, and their locks do not expire. Being acquired is not written: after
a change of leaders such records are available with the delivery count that they had before.

Locks that expire make records available at once, as in Kafka: a coordinator that cannot be reached must not stop the
delivery. The delivery count that this adds is written with the next write. A write that fails ends the locks of members
whose sessions have ended meanwhile in the same way. In Kafka these locks last until they expire, though no member can
acknowledge the records any more.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import groupby, islice
from typing import Final, NamedTuple

from barnabas_broker.shares.ports import ShareState, StateBatch
from barnabas_protocol.errors import ErrorCode, KafkaError

_NEVER: Final = float("inf")
#: Delivery limit up to which no records are delivered one by one.
_SMALL_LIMIT: Final = 2


class State(IntEnum):
    """The delivery state of a record, with Kafka's numbers."""

    #: May be acquired.
    AVAILABLE = 0
    #: A member has it until its lock expires. Not written.
    ACQUIRED = 1
    #: Delivered and processed.
    ACKNOWLEDGED = 2
    #: Delivery has ended without success, or there is no such record.
    ARCHIVED = 4


_TERMINAL: Final = frozenset({State.ACKNOWLEDGED, State.ARCHIVED})


class Acknowledgement(IntEnum):
    """Types of acknowledgement, with the numbers of the requests."""

    #: There is no record at this offset: compaction has removed it, or it is a marker of a transaction.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Reason(IntEnum):
    """Why the delivery of a record has ended without success."""

    REJECTED = 1
    DELIVERY_LIMIT = 2


class OffsetRange(NamedTuple):
    """A range of offsets, both ends included: a record batch of the log, for instance."""

    first: int
    last: int


class Acknowledged(NamedTuple):
    """Offsets that a member acknowledges, with one type for all of them or one for each."""

    first: int
    last: int
    types: Sequence[int]


class Acquired(NamedTuple):
    """Records that a member has acquired, both ends included, and how often they were delivered, now included."""

    first: int
    last: int
    delivery_count: int


class Returned(NamedTuple):
    """Records that a member had: it has released them, or their lock has expired."""

    member: str
    first: int
    last: int
    delivery_count: int


class Part(NamedTuple):
    """Consecutive records of the window in the same state, both ends included.

    Attributes:
        first: offset.
        last: offset.
        state: their delivery state.
        delivery_count: how often they were delivered.
        member: the member that has them; "" if they are not acquired.
        deadline: when its lock expires; None if they are not acquired, and while what it said of them is written.
    """

    first: int
    last: int
    state: State
    delivery_count: int
    member: str
    deadline: float | None


class Undeliverable(NamedTuple):
    """Records whose delivery ends without success."""

    first: int
    last: int
    delivery_count: int
    reason: Reason
    member: str


@dataclass(slots=True)
class DeliveryLimits:
    """Bounds of a share partition; the configuration of the group may change them at any time.

    Attributes:
        delivery_count: deliveries after which a record is archived.
        lock_seconds: how long a record stays acquired.
        record_locks: offsets in the window above which no new records are acquired. The last batch may exceed it.
    """

    delivery_count: int = 5
    lock_seconds: float = 30.0
    record_locks: int = 2000


@dataclass(slots=True)
class Totals:
    """Numbers of records since the start of the broker, of all share partitions that share this object."""

    acquired: int = 0
    redelivered: int = 0
    acknowledged: int = 0
    archived: int = 0
    expired: int = 0


@dataclass(eq=False, slots=True)
class StateChange:
    """A change of states that counts when it is written.

    Attributes:
        undeliverable: the records whose delivery it ends without success.
        released: the records that the member wants to be delivered again.
        settled: None until the write has ended; then whether the change counts.
    """

    undeliverable: list[Undeliverable] = field(default_factory=list)
    released: list[Returned] = field(default_factory=list)
    settled: bool | None = None


@dataclass(eq=False, slots=True)
class Write:
    """State to write; see :meth:`.Persister.write`.

    Attributes:
        start_offset: the start offset once this is written.
        delivery_complete_count: records from there on whose delivery is complete.
        batches: the new states, from the start offset on.
        changes: what counts once this is written.
    """

    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]
    changes: list[StateChange]


@dataclass(eq=False, slots=True)
class _Range:
    """Consecutive offsets with the same state.

    Attributes:
        member: who has acquired them; "" if they are not acquired.
        deadline: when the lock expires.
        change: the change that is being written; the states that it brings are in `after`.
        ended: whether the member's session has ended since, so that the lock ends if the change cannot be written.
        unwritten: whether the state is not the written one.
        writing: whether the present write includes them.
    """

    first: int
    last: int
    state: State
    count: int
    member: str = ""
    deadline: float = _NEVER
    change: StateChange | None = None
    after: State = State.AVAILABLE
    ended: bool = False
    unwritten: bool = False
    writing: bool = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    def resembles(self, other: "_Range") -> bool:
        """Whether the two may be one range."""
        return (
            self.state is other.state
            and self.count == other.count
            and self.deadline == other.deadline
            and self.member == other.member
            and self.change is other.change
            and self.after is other.after
            and self.ended is other.ended
            and self.unwritten is other.unwritten
            and self.writing is other.writing
        )

    @property
    def written(self) -> tuple[State, int]:
        """State and delivery count as they are written."""
        if self.change is not None:
            return self.after, self.count
        if self.state is State.ACQUIRED:
            return State.AVAILABLE, self.count - 1
        return self.state, self.count

    @property
    def part(self) -> Part:
        """The records as a part of the window."""
        deadline = self.deadline if self.state is State.ACQUIRED and self.change is None else None
        return Part(self.first, self.last, self.state, self.count, self.member, deadline)

    @property
    def acquirable(self) -> bool:
        """Whether a member may acquire them."""
        return self.state is State.AVAILABLE

    def settle(self, state: State, *, unwritten: bool = False) -> None:
        """Take over a state that is not `ACQUIRED`. If it is not written, the present write does not do that either."""
        self.state, self.member, self.deadline, self.ended = state, "", _NEVER, False
        self.unwritten, self.writing = unwritten, False

    def decide(self, after: State, change: StateChange) -> None:
        """Take a state over when it is written."""
        self.after, self.change, self.writing = after, change, False


class SharePartition:
    """The window of a share partition.

    Args:
        state: as it was read.
        start_offset: the start offset, if `state` does not have one.
        limits: the bounds.
        totals: counts what happens.

    Attributes:
        start_offset: the first offset of the window.
        end_offset: the last one; the start offset less 1 if the window is empty.
        state_epoch: of the state that was read.
        limits: the bounds.
        deadline: a time before which no lock expires.
    """

    __slots__ = (
        "_available",
        "_changes",
        "_firsts",
        "_ranges",
        "_start_written",
        "_totals",
        "_write",
        "deadline",
        "end_offset",
        "limits",
        "start_offset",
        "state_epoch",
    )

    def __init__(self, state: ShareState, start_offset: int, limits: DeliveryLimits, totals: Totals) -> None:
        self.state_epoch = state.state_epoch
        self.start_offset = start_offset if state.start_offset < 0 else state.start_offset
        self.end_offset = self.start_offset - 1
        self.limits = limits
        self.deadline = _NEVER
        self._totals = totals
        self._ranges: list[_Range] = []
        #: The first offset of each range.
        self._firsts: list[int] = []
        #: No record below this offset is available.
        self._available = self.start_offset
        self._write: Write | None = None
        #: Changes that no write includes yet.
        self._changes: list[StateChange] = []
        self._start_written = state.start_offset
        for batch in sorted(state.batches, key=lambda each: each.first_offset):
            first = max(batch.first_offset, self.end_offset + 1)
            if first <= batch.last_offset:
                # Records in between were acquired when the last leader wrote, and never before.
                self._extend(first - 1, State.AVAILABLE, 0)
                known = State(batch.state) if batch.state in _TERMINAL else State.AVAILABLE
                self._extend(batch.last_offset, known, batch.delivery_count)
        self._merge(self.start_offset, self.end_offset)
        self._trim()

    def __len__(self) -> int:
        return len(self._ranges)

    # What to read

    @property
    def next_fetch_offset(self) -> int:
        """Where to read from: the first available record, or the end of the window."""
        for n in range(self._index(self._available), len(self._ranges)):
            if self._ranges[n].acquirable:
                self._available = self._ranges[n].first
                return self._available
        self._available = self.end_offset + 1
        return self._available

    @property
    def may_acquire(self) -> bool:
        """Whether there are available records in the window, or room for more."""
        return self.next_fetch_offset <= self.end_offset or self._room > 0

    @property
    def _room(self) -> int:
        return self.limits.record_locks - (self.end_offset + 1 - self.start_offset)

    def in_state(self, state: State) -> int:
        """The number of records of the window in a state."""
        return sum(len(each) for each in self._ranges if each.state is state)

    @property
    def is_full(self) -> bool:
        """Whether no record above the window is delivered until its start moves."""
        return self._room <= 0

    @property
    def blocked_by(self) -> Part | None:
        """The first record of the window, which its start waits for, with those in the same state; None if the window
        is empty."""
        return self._ranges[0].part if self._ranges else None

    def parts(self, most: int) -> list[Part]:
        """The first `most` parts of the window, in order."""
        return [each.part for each in islice(self._ranges, most)]

    # Acquire

    def acquire(
        self,
        member: str,
        offset: int,
        fetched: Sequence[OffsetRange],
        now: float,
        *,
        max_records: int,
        batch_size: int,
        strict: bool = False,
        aborted: Sequence[OffsetRange] = (),
    ) -> list[Acquired]:
        """Acquire records that were read from the log.

        Args:
            member: who gets them.
            offset: where the read began.
            fetched: the record batches that were read, in order. The first may begin before `offset`.
            now: the time.
            max_records: the number of records to acquire.
            batch_size: the records in one element of the result; it ends with a record batch.
            strict: whether `max_records` is exact (record limit); otherwise the last record batch is acquired whole.
            aborted: record batches of aborted transactions, in order. They are archived instead.

        Returns:
            What was acquired, in order. Empty if nothing of it is available any more.
        """
        if not fetched or max_records <= 0:
            return []
        first, last = max(fetched[0].first, self.start_offset), fetched[-1].last
        offset = max(offset, self.start_offset)
        if offset > self.end_offset + 1 or last < first:
            return []
        if first > offset:
            self._archive_gap(offset, first - 1)
        ends = [each.last for each in fetched]
        deadline = now + self.limits.lock_seconds
        left = max_records
        runs: list[Acquired] = []
        n = self._index(first)
        while left > 0 and n < len(self._ranges) and self._ranges[n].first <= last:
            each = self._ranges[n]
            if not each.acquirable or each.last < first:
                n += 1
                continue
            begin = max(each.first, first)
            alone = self._comes_alone(each)
            if alone and runs:
                left = 0
                break
            end = begin if alone else min(each.last, last, _cut(begin, left, ends, strict=strict))
            n = self._only(n, begin, end)
            each = self._ranges[n]
            each.state, each.member, each.deadline, each.count = State.ACQUIRED, member, deadline, each.count + 1
            _append(runs, Acquired(begin, end, each.count))
            left = 0 if alone else left - len(each)
            n += 1
        room = min(left, self._room)
        if room > 0 and last > self.end_offset:
            begin = max(self.end_offset + 1, first)
            self._extend(begin - 1, State.ARCHIVED, 0, unwritten=True)  # there are no records in between
            end = min(last, _cut(begin, room, ends, strict=strict))
            self._extend(end, State.ACQUIRED, 1, member, deadline)
            _append(runs, Acquired(begin, end, 1))
        if runs:
            self.deadline = min(self.deadline, deadline)
        runs, gone = _split_off(runs, aborted)
        for batch in gone:
            for n in self._between(batch.first, batch.last):
                self._ranges[n].settle(State.ARCHIVED, unwritten=True)
        self._merge(first, last)
        self._trim()
        for run in runs:
            size = run.last - run.first + 1
            self._totals.acquired += size
            if run.delivery_count > 1:
                self._totals.redelivered += size
        return [part for run in runs for part in _parts(run, ends, batch_size)]

    def _comes_alone(self, each: _Range) -> bool:
        """Whether records are delivered one by one, as in Kafka: those that may be delivered once more.

        So a record that makes consumers fail does not end the delivery of its neighbours.
        """
        limit = self.limits.delivery_count
        return limit > _SMALL_LIMIT and each.count >= limit - 1

    def _archive_gap(self, first: int, last: int) -> None:
        """Archive available records that the log does not have any more: compaction has removed them."""
        for n in self._between(first, min(last, self.end_offset)):
            if self._ranges[n].acquirable:
                self._ranges[n].settle(State.ARCHIVED, unwritten=True)
        self._merge(first, last)

    # Acknowledge

    def acknowledge(self, member: str, batches: Sequence[Acknowledged], now: float) -> StateChange | None:
        """Take what a member says of records that it has acquired: all of it, or nothing.

        Offsets below the window are left out: they are acknowledged already, or the log has lost them.

        Args:
            member: who has acquired them.
            batches: in ascending order.
            now: the time.

        Returns:
            The change, which counts when it is written. None if there is nothing to write.

        Raises:
            KafkaError: INVALID_RECORD_STATE, the member has not acquired some of the records; INVALID_REQUEST, none
                has, or there is no such acknowledgement. Nothing was changed.
        """
        said: list[tuple[int, int, Acknowledgement]] = []
        before = -1
        for first, last, types in batches:
            if first <= before:
                text = "The offset cannot be acknowledged. The offset is not acquired."
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
            before = last
            begin = max(first, self.start_offset)
            if last < begin:
                continue
            self._check_acquired(member, begin, last)
            try:
                if len(types) == 1:
                    said.append((begin, last, Acknowledgement(types[0])))
                    continue
                for kind, group in groupby(types[begin - first : last - first + 1]):
                    size = sum(1 for _ in group)
                    said.append((begin, begin + size - 1, Acknowledgement(kind)))
                    begin += size
            except ValueError:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The acknowledge type is unknown.") from None
        if not said:
            return None
        change = StateChange()
        for first, last, kind in said:
            for n in self._between(first, last):
                self._decide(self._ranges[n], kind, change, now)
        self._merge(said[0][0], said[-1][1])
        if all(kind is Acknowledgement.RENEW for _, _, kind in said):
            return None
        self._changes.append(change)
        return change

    def _check_acquired(self, member: str, first: int, last: int) -> None:
        if last > self.end_offset:
            which = "first" if first > self.end_offset else "last"
            text = f"Batch record not found. The {which} offset in request is past acquired records."
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        n = self._index(first)
        while n < len(self._ranges) and self._ranges[n].first <= last:
            each = self._ranges[n]
            if each.state is not State.ACQUIRED or each.change is not None:
                text = "The batch cannot be acknowledged. The batch is not in the acquired state."
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, text)
            if each.member != member:
                raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "Member is not the owner of batch record")
            n += 1

    def _decide(self, each: _Range, kind: Acknowledgement, change: StateChange, now: float) -> None:
        match kind:
            case Acknowledgement.RENEW:
                each.deadline = now + self.limits.lock_seconds
            case Acknowledgement.ACCEPT:
                each.decide(State.ACKNOWLEDGED, change)
            case Acknowledgement.GAP:
                each.decide(State.ARCHIVED, change)
            case Acknowledgement.REJECT:
                self._end_delivery(each, change, Reason.REJECTED)
            case Acknowledgement.RELEASE:
                self._give_back(each, change)
                if each.after is State.AVAILABLE:
                    change.released.append(Returned(each.member, each.first, each.last, each.count))

    def _give_back(self, each: _Range, change: StateChange) -> None:
        """Make acquired records available again, or archive them if they were delivered often enough."""
        if each.count < self.limits.delivery_count:
            each.decide(State.AVAILABLE, change)
        else:
            self._end_delivery(each, change, Reason.DELIVERY_LIMIT)

    def _end_delivery(self, each: _Range, change: StateChange, reason: Reason) -> None:
        """Archive acquired records."""
        each.decide(State.ARCHIVED, change)
        change.undeliverable.append(Undeliverable(each.first, each.last, each.count, reason, each.member))

    def release(self, member: str) -> StateChange | None:
        """Give back everything that a member has acquired, because its session has ended.

        What the member has said before, and is not written yet, counts as soon as it is. If the write fails, those
        records are given back too: see :meth:`end_write`.

        Returns:
            The change, which counts when it is written. None if the member has nothing else.
        """
        change = StateChange()
        found = False
        for each in self._ranges:
            if each.state is not State.ACQUIRED or each.member != member:
                continue
            each.ended = True
            if each.change is None:
                self._give_back(each, change)
                found = True
        if not found:
            return None
        self._merge(self.start_offset, self.end_offset)
        self._changes.append(change)
        return change

    # Locks

    def expire(self, now: float) -> tuple[list[Returned], StateChange | None]:
        """Give back the records whose locks have expired.

        Returns:
            Them, and the change that archives those which were delivered often enough. That one counts when it is
            written; if this fails, their locks expire again.
        """
        expired: list[Returned] = []
        self.deadline = _NEVER
        change = StateChange()
        for each in self._ranges:
            if each.state is not State.ACQUIRED or each.change is not None:
                continue
            if each.deadline > now:
                self.deadline = min(self.deadline, each.deadline)
                continue
            expired.append(Returned(each.member, each.first, each.last, each.count))
            self._end_lock(each, change)
        if not expired:
            return [], None
        self._totals.expired += sum(each.last - each.first + 1 for each in expired)
        self._merge(self.start_offset, self.end_offset)
        if not change.undeliverable:
            return expired, None
        self._changes.append(change)
        return expired, change

    def _end_lock(self, each: _Range, change: StateChange) -> None:
        """Make acquired records available at once. Those that were delivered often enough are archived by `change`."""
        if each.count >= self.limits.delivery_count:
            self._give_back(each, change)
        else:
            each.settle(State.AVAILABLE, unwritten=True)
            self._available = min(self._available, each.first)

    # The log

    def log_starts_at(self, offset: int) -> None:
        """Forget the records below `offset`: the log does not have them any more. Who has acquired them may acknowledge
        them, which changes nothing."""
        if offset <= self.start_offset:
            return
        if offset > self.end_offset:
            self._ranges.clear()
            self._firsts.clear()
        else:
            n = self._between(offset, self.end_offset).start
            del self._ranges[:n], self._firsts[:n]
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset - 1)
        self._available = max(self._available, offset)

    # Writes

    @property
    def has_unwritten(self) -> bool:
        """Whether something is to be written."""
        return (
            bool(self._changes)
            or self._start_written != self.start_offset
            or any(each.unwritten for each in self._ranges)
        )

    def begin_write(self) -> Write | None:
        """Collect everything that is not written yet. :meth:`end_write` must follow before the next write begins.

        Returns:
            What to write; None if there is nothing.
        """
        assert self._write is None
        if not self.has_unwritten:
            return None
        batches: list[StateBatch] = []
        start = complete = 0
        leading = True
        for each in self._ranges:
            state, count = each.written
            if leading and state not in _TERMINAL:
                start, leading = each.first, False
            if not leading and state in _TERMINAL:
                complete += len(each)
            if each.change is None and not each.unwritten:
                continue
            each.writing = True
            if leading:
                continue
            if batches and batches[-1].last_offset == each.first - 1 and batches[-1].state == state.value:
                previous = batches[-1]
                if previous.delivery_count == count:
                    batches[-1] = StateBatch(previous.first_offset, each.last, state.value, count)
                    continue
            batches.append(StateBatch(each.first, each.last, state.value, count))
        if leading:
            start = self.end_offset + 1
        self._write = Write(start, complete, batches, self._changes)
        self._changes = []
        return self._write

    def end_write(self, *, written: bool) -> None:
        """Take over what was written; or take back the changes, because the write has failed.

        Their records are acquired again then, with their locks and counts. Locks of members whose sessions have ended
        end, and the next write tells that.
        """
        write, self._write = self._write, None
        assert write is not None
        again = StateChange()
        for each in self._ranges:
            if not each.writing:
                continue
            each.writing = False
            change, each.change = each.change, None
            after, each.after = each.after, State.AVAILABLE
            if change is None:
                each.unwritten = not written
            elif written:
                each.settle(after)
                if after is State.AVAILABLE:
                    self._available = min(self._available, each.first)
                elif after is State.ACKNOWLEDGED:
                    self._totals.acknowledged += len(each)
                else:
                    self._totals.archived += len(each)
            elif each.ended:
                self._end_lock(each, again)
            else:
                self.deadline = min(self.deadline, each.deadline)
        for change in write.changes:
            change.settled = written
        if again.undeliverable:
            self._changes.append(again)
        if written:
            self._start_written = write.start_offset
        self._merge(self.start_offset, self.end_offset)
        self._trim()

    # Ranges

    def _trim(self) -> None:
        """Move the start of the window over records whose delivery is complete."""
        n = 0
        while n < len(self._ranges):
            each = self._ranges[n]
            if each.state not in _TERMINAL:
                break
            n += 1
        if n:
            self.start_offset = self._ranges[n - 1].last + 1
            self._available = max(self._available, self.start_offset)
            del self._ranges[:n], self._firsts[:n]

    def _index(self, offset: int) -> int:
        """The index of the range that holds `offset`; that of the first one if it is below the window."""
        return max(bisect_right(self._firsts, offset) - 1, 0)

    def _split(self, n: int, offset: int) -> None:
        """Split a range, so that one begins at `offset`."""
        each = self._ranges[n]
        after = _Range(
            offset,
            each.last,
            each.state,
            each.count,
            each.member,
            each.deadline,
            each.change,
            each.after,
            each.ended,
            each.unwritten,
            each.writing,
        )
        each.last = offset - 1
        self._ranges.insert(n + 1, after)
        self._firsts.insert(n + 1, offset)

    def _only(self, n: int, first: int, last: int) -> int:
        """Cut a range down to `first` to `last`; the rest becomes ranges of their own. Returns its index."""
        if self._ranges[n].first < first:
            self._split(n, first)
            n += 1
        if self._ranges[n].last > last:
            self._split(n, last + 1)
        return n

    def _between(self, first: int, last: int) -> range:
        """The indexes of the ranges from `first` to `last`, which are split at these borders."""
        if not self._ranges or last < first:
            return range(0)
        n = self._index(first)
        if self._ranges[n].first < first <= self._ranges[n].last:
            self._split(n, first)
            n += 1
        elif self._ranges[n].last < first:
            n += 1
        m = self._index(last)
        if self._ranges[m].last > last:
            self._split(m, last + 1)
        return range(n, m + 1)

    def _extend(
        self,
        last: int,
        state: State,
        count: int,
        member: str = "",
        deadline: float = _NEVER,
        *,
        unwritten: bool = False,
    ) -> None:
        """Extend the window to `last` with a new range."""
        first = self.end_offset + 1
        if last < first:
            return
        self._ranges.append(_Range(first, last, state, count, member, deadline, unwritten=unwritten))
        self._firsts.append(first)
        self.end_offset = last

    def _merge(self, first: int, last: int) -> None:
        """Merge equal neighbours from the range before `first` to the one after `last`."""
        ranges = self._ranges
        begin = max(self._index(first) - 1, 0)
        end = min(bisect_left(self._firsts, last + 1) + 1, len(ranges))
        if end - begin < 2:
            return
        merged = [ranges[begin]]
        for each in ranges[begin + 1 : end]:
            if merged[-1].resembles(each):
                merged[-1].last = each.last
            else:
                merged.append(each)
        if len(merged) < end - begin:
            ranges[begin:end] = merged
            self._firsts[begin:end] = [each.first for each in merged]


def _cut(first: int, most: int, ends: Sequence[int], *, strict: bool) -> int:
    """The last offset of `most` records from `first` on; if not `strict`, the end of the record batch that holds it."""
    last = first + most - 1
    if strict:
        return last
    n = bisect_left(ends, last)
    return ends[n] if n < len(ends) else last


def _append(runs: list[Acquired], run: Acquired) -> None:
    """Append acquired records to others; what belongs together becomes one."""
    if runs and runs[-1].last + 1 == run.first and runs[-1].delivery_count == run.delivery_count:
        runs[-1] = runs[-1]._replace(last=run.last)
    else:
        runs.append(run)


def _parts(run: Acquired, ends: Sequence[int], batch_size: int) -> Iterable[Acquired]:
    """Cut acquired records into parts of at least `batch_size`, each of which ends with a record batch."""
    first = run.first
    while batch_size > 0 and run.last - first + 1 > batch_size:
        n = bisect_left(ends, first + batch_size - 1)
        if n >= len(ends) or ends[n] >= run.last:
            break
        yield Acquired(first, ends[n], run.delivery_count)
        first = ends[n] + 1
    yield Acquired(first, run.last, run.delivery_count)


def _split_off(runs: list[Acquired], aborted: Sequence[OffsetRange]) -> tuple[list[Acquired], list[OffsetRange]]:
    """Split acquired records into those to deliver and those of aborted transactions."""
    if not aborted:
        return runs, []
    left: list[Acquired] = []
    gone: list[OffsetRange] = []
    for first, last, count in runs:
        at = first
        for n in range(bisect_left(aborted, first, key=lambda each: each.last), len(aborted)):
            if aborted[n].first > last:
                break
            begin, end = max(aborted[n].first, first), min(aborted[n].last, last)
            gone.append(OffsetRange(begin, end))
            if begin > at:
                left.append(Acquired(at, begin - 1, count))
            at = end + 1
        if at <= last:
            left.append(Acquired(at, last, count))
    return left, gone
