"""A share partition that keeps every record by itself, and a driver that compares the real one with it step by step."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from barnabas_broker.groups.share.partition import (
    Acknowledged,
    Acquired,
    DeliveryLimits,
    OffsetRange,
    SharePartition,
    State,
    Totals,
    Write,
)
from barnabas_broker.shares.ports import ShareState, StateBatch
from barnabas_protocol.errors import KafkaError

MEMBERS: Final = ("ann", "bob", "cid")
TERMINAL: Final = (State.ACKNOWLEDGED, State.ARCHIVED)


@dataclass
class Record:
    """One record of the window."""

    state: State = State.AVAILABLE
    count: int = 0
    member: str = ""
    deadline: float = 0.0
    after: State | None = None
    ended: bool = False

    @property
    def durable(self) -> tuple[State, int]:
        """What a write of now would make durable."""
        if self.after is not None:
            return self.after, self.count
        if self.state is State.ACQUIRED:
            return State.AVAILABLE, self.count - 1
        return self.state, self.count


@dataclass
class LogBatch:
    """A record batch of the log."""

    first: int
    last: int
    aborted: bool = False


@dataclass
class Naive:
    """The window as a dictionary of records."""

    limits: DeliveryLimits
    start: int
    records: dict[int, Record] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """The last offset of the window."""
        return self.start + len(self.records) - 1

    @property
    def next(self) -> int:
        """The offset to fetch from."""
        found = [at for at, record in sorted(self.records.items()) if record.state is State.AVAILABLE]
        return found[0] if found else self.end + 1

    def trim(self) -> None:
        """Move the start over complete records."""
        while self.start in self.records and self.records[self.start].state in TERMINAL:
            del self.records[self.start]
            self.start += 1

    def acquire(
        self, member: str, offset: int, fetched: list[LogBatch], now: float, most: int, strict: bool, committed: bool
    ) -> dict[int, int]:
        """The delivery counts of the records that the member gets, by offset."""
        if not fetched:
            return {}
        offset = max(offset, self.start)
        for at in range(offset, fetched[0].first):
            if at in self.records and self.records[at].state is State.AVAILABLE:
                self.records[at] = Record(State.ARCHIVED, self.records[at].count)
        batch_end = {at: each.last for each in fetched for at in range(each.first, each.last + 1)}
        aborted = {at for each in fetched if each.aborted for at in range(each.first, each.last + 1)}
        last = fetched[-1].last
        begin = max(fetched[0].first, self.start)
        got: dict[int, int] = {}
        left, until, stop = most, -1, False

        def wanted(at: int) -> bool:
            """Whether there is room, or the batch was begun."""
            nonlocal left, until
            if left > 0:
                left -= 1
                if left == 0 and not strict:
                    until = batch_end.get(at, at)
                    if at not in batch_end:
                        until = next(each.last for each in fetched if each.last >= at)
                return True
            return at <= until

        previous: tuple[int, int] | None = None
        for at in range(begin, min(last, self.end) + 1):
            record = self.records[at]
            if record.state is not State.AVAILABLE:
                previous = None
                if left <= 0:
                    break
                continue
            if left <= 0 and previous != (at - 1, record.count):
                break
            alone = self.limits.delivery_count > 2 and record.count >= self.limits.delivery_count - 1
            if alone and got:
                stop = True
                break
            if not wanted(at):
                break
            previous = (at, record.count)
            self.records[at] = Record(State.ACQUIRED, record.count + 1, member, now + self.limits.lock_seconds)
            got[at] = record.count + 1
            if alone:
                stop = True
                break
        room = min(left, self.limits.record_locks - len(self.records))
        if not stop and room > 0 and last > self.end:
            left, until = room, -1
            for at in range(self.end + 1, begin):
                self.records[at] = Record(State.ARCHIVED)
            for at in range(max(self.end + 1, begin), last + 1):
                if not wanted(at):
                    break
                self.records[at] = Record(State.ACQUIRED, 1, member, now + self.limits.lock_seconds)
                got[at] = 1
        if committed:
            for at in aborted & set(got):
                self.records[at] = Record(State.ARCHIVED, self.records[at].count)
                del got[at]
        self.trim()
        return got

    def said(self, member: str, first: int, types: list[int]) -> bool:
        """Whether the member may acknowledge these."""
        return all(
            at in self.records
            and self.records[at].state is State.ACQUIRED
            and self.records[at].after is None
            and self.records[at].member == member
            for at in range(max(first, self.start), first + len(types))
        )

    def give_back(self, at: int) -> None:
        """Release a record."""
        spent = self.records[at].count >= self.limits.delivery_count
        self.records[at].after = State.ARCHIVED if spent else State.AVAILABLE

    def acknowledge(self, first: int, types: list[int], now: float) -> None:
        """Take over what a member says."""
        for at, kind in zip(range(first, first + len(types)), types, strict=True):
            if at < self.start:
                continue
            if kind == 4:
                self.records[at].deadline = now + self.limits.lock_seconds
            elif kind == 2:
                self.give_back(at)
            else:
                self.records[at].after = State.ACKNOWLEDGED if kind == 1 else State.ARCHIVED

    def release(self, member: str) -> None:
        """Release everything of a member."""
        for at, record in self.records.items():
            if record.state is State.ACQUIRED and record.member == member:
                record.ended = True
                if record.after is None:
                    self.give_back(at)

    def end_lock(self, at: int) -> None:
        """Make a record available, or archive it with the next write."""
        record = self.records[at]
        if record.count >= self.limits.delivery_count:
            record.after = State.ARCHIVED
        else:
            self.records[at] = Record(State.AVAILABLE, record.count)

    def expire(self, now: float) -> None:
        """Give back what is due."""
        for at, record in self.records.items():
            if record.state is State.ACQUIRED and record.after is None and record.deadline <= now:
                self.end_lock(at)

    def log_starts_at(self, offset: int) -> None:
        """Forget what is below."""
        for at in [at for at in self.records if at < offset]:
            del self.records[at]
        self.start = max(self.start, offset)


class Driver:
    """Runs the actions of a script on both, and on a log and a persister that are as simple."""

    def __init__(self, partition: type[SharePartition]) -> None:
        self.kind = partition
        self.limits = DeliveryLimits(delivery_count=3, lock_seconds=10.0, record_locks=12)
        self.now = 0.0
        self.log: list[LogBatch] = []
        self.log_end = 0
        self.log_start = 0
        #: What the persister has: the start offset, and the state of each record.
        self.durable_start = 0
        self.durable: dict[int, tuple[State, int]] = {}
        self.write: Write | None = None
        #: The states that the present write makes durable, and the records with changes that it includes.
        self.writing: dict[int, tuple[State, int]] = {}
        self.included: dict[int, State] = {}
        #: The largest delivery count of each record that a member saw.
        self.seen: dict[int, int] = {}
        self.open(ShareState(0, 0, 0, ()))

    def open(self, state: ShareState) -> None:
        """Become the leader."""
        self.real = self.kind(state, 0, self.limits, Totals())
        self.write = None
        start = max(state.start_offset, 0)
        self.naive = Naive(self.limits, start)
        if self.durable:
            for at in range(start, max(self.durable) + 1):
                known, count = self.durable.get(at, (State.AVAILABLE, 0))
                self.naive.records[at] = Record(known, count)
        self.naive.trim()

    def run(self, script: bytes) -> None:
        """Run a script: three bytes for each action."""
        for action, a, b in zip(script[::3], script[1::3], script[2::3], strict=False):
            ACTIONS[action % len(ACTIONS)](self, a, b)
            self.compare()

    def compare(self) -> None:
        """The two must be the same."""
        real, naive = self.real, self.naive
        assert (real.start_offset, real.end_offset) == (naive.start, naive.end)
        assert real.next_fetch_offset == naive.next
        room = len(naive.records) < self.limits.record_locks
        assert real.may_acquire == (room or naive.next <= naive.end)
        flat = dict(self.flat())
        assert sorted(flat) == sorted(naive.records)
        for at, record in naive.records.items():
            state, count, member, after = flat[at]
            assert (state, count, member) == (record.state, record.count, record.member), at
            assert after == record.after, at
        locks = [r.deadline for r in naive.records.values() if r.state is State.ACQUIRED and r.after is None]
        assert not locks or real.deadline <= min(locks)
        # Neighbours differ: there are as many ranges as states.
        for one, other in zip(real._ranges, real._ranges[1:], strict=False):
            assert not one.resembles(other)

    def flat(self) -> Iterator[tuple[int, tuple[State, int, str, State | None]]]:
        """Every record of the real window."""
        for each in self.real._ranges:
            for at in range(each.first, each.last + 1):
                yield at, (each.state, each.count, each.member, each.after if each.change is not None else None)

    def produce(self, a: int, b: int) -> None:
        """Append batches."""
        size = a % 5 + 1
        self.log.append(LogBatch(self.log_end, self.log_end + size - 1, aborted=b % 5 == 0))
        self.log_end += size

    def compact(self, a: int, b: int) -> None:
        """Remove a batch from the middle of the log."""
        if len(self.log) > 1:
            del self.log[a % (len(self.log) - 1)]

    def delete(self, a: int, b: int) -> None:
        """Move the start of the log."""
        self.log_start = min(self.log_end, self.log_start + a % 4)
        self.log = [each for each in self.log if each.last >= self.log_start]
        self.real.log_starts_at(self.log_start)
        self.naive.log_starts_at(self.log_start)

    def fetch(self, a: int, b: int) -> None:
        """A member fetches."""
        member, most, strict, committed = MEMBERS[a % 3], a // 3 % 6 + 1, b % 3 == 0, b % 2 == 0
        offset = self.real.next_fetch_offset
        fetched = [replace(each) for each in self.log if each.last >= offset][: b // 6 % 4 + 1]
        if not self.real.may_acquire:
            return
        size = b // 24 % 4
        got = self.real.acquire(
            member,
            offset,
            [OffsetRange(each.first, each.last) for each in fetched],
            self.now,
            max_records=most,
            batch_size=size,
            strict=strict,
            aborted=[OffsetRange(each.first, each.last) for each in fetched if each.aborted] if committed else [],
        )
        expected = self.naive.acquire(member, offset, fetched, self.now, most, strict, committed)
        assert flatten(got) == expected
        ends = {each.last for each in fetched}
        for one, other in itertools.pairwise(got):
            if one.last + 1 == other.first and one.delivery_count == other.delivery_count and not committed:
                assert one.last in ends
                assert one.last - one.first + 1 >= size
        for at, count in expected.items():
            # A change of leaders may lose deliveries that nobody acknowledged; no count grows without a delivery.
            assert count <= self.seen.get(at, 0) + 1
            self.seen[at] = max(count, self.seen.get(at, 0))

    def acknowledge(self, a: int, b: int) -> None:
        """A member acknowledges, mostly what it has."""
        member = MEMBERS[a % 3]
        mine = [at for at, r in self.naive.records.items() if r.member == member and r.after is None]
        first = mine[b % len(mine)] if mine and b % 7 else self.naive.start - 2 + b % 16
        size = a // 3 % 5 + 1
        if b % 2:
            types = [(a + b + n) % 5 for n in range(size)]
        else:
            types = [1] * size
        first, sent = max(first, 0), types if b % 2 else [1]
        allowed = self.naive.said(member, first, types)
        try:
            change = self.real.acknowledge(member, [Acknowledged(first, first + size - 1, sent)], self.now)
        except KafkaError:
            assert not allowed
            return
        assert allowed
        self.naive.acknowledge(first, types, self.now)
        left = [kind for at, kind in zip(range(first, first + size), types, strict=True) if at >= self.naive.start]
        assert (change is None) == all(kind == 4 for kind in left)

    def close_session(self, a: int, b: int) -> None:
        """The session of a member ends."""
        member = MEMBERS[a % 3]
        self.real.release(member)
        self.naive.release(member)

    def pass_time(self, a: int, b: int) -> None:
        """Locks expire."""
        self.now += a % 8
        self.real.expire(self.now)
        self.naive.expire(self.now)

    def begin_write(self, a: int, b: int) -> None:
        """A write begins."""
        if self.write is not None:
            return
        expected = {at: record.durable for at, record in self.naive.records.items()}
        start = self.naive.start
        while start in expected and expected[start][0] in TERMINAL:
            start += 1
        self.write = self.real.begin_write()
        states = {at: value for at, value in expected.items() if at >= start}
        if self.write is None:
            assert self.durable_start == start
            assert all(self.durable.get(at, (State.AVAILABLE, 0)) == value for at, value in states.items())
            return
        assert self.write.start_offset == start
        assert self.write.delivery_complete_count == sum(state in TERMINAL for state, _ in states.values())
        after = {at: value for at, value in self.durable.items() if at >= start}
        for batch in self.write.batches:
            for at in range(batch.first_offset, batch.last_offset + 1):
                after[at] = State(batch.state), batch.delivery_count
        for at, value in states.items():
            assert after.get(at, (State.AVAILABLE, 0)) == value, at
        self.writing = after
        self.included = {at: r.after for at, r in self.naive.records.items() if r.after is not None}

    def end_write(self, a: int, b: int) -> None:
        """The write ends; it may fail, and be durable in spite of that."""
        if self.write is None:
            return
        write, self.write = self.write, None
        written = a % 3 != 0
        if written:
            self.durable_start, self.durable = write.start_offset, self.writing
        self.real.end_write(written=written)
        assert all(change.settled is written for change in write.changes)
        for at, after in self.included.items():
            if at in self.naive.records:
                record = self.naive.records[at]
                self.naive.records[at] = Record(after, record.count) if written else replace(record, after=None)
                if record.ended and not written:
                    self.naive.end_lock(at)
        self.naive.trim()

    def fail_over(self, a: int, b: int) -> None:
        """Another leader reads the state."""
        if self.write is not None and a % 2:
            self.durable_start, self.durable = self.write.start_offset, self.writing
        batches = tuple(
            # One batch for each record: how they are cut is the persister's affair.
            StateBatch(at, at, state.value, count)
            for at, (state, count) in sorted(self.durable.items())
        )
        self.open(ShareState(0, self.durable_start, 0, batches))
        self.real.log_starts_at(self.log_start)
        self.naive.log_starts_at(self.log_start)


def flatten(got: list[Acquired]) -> dict[int, int]:
    """Delivery counts by offset."""
    return {at: run.delivery_count for run in got for at in range(run.first, run.last + 1)}


ACTIONS: Final = (
    *(Driver.produce, Driver.produce, Driver.fetch, Driver.fetch, Driver.fetch, Driver.acknowledge),
    *(Driver.acknowledge, Driver.acknowledge, Driver.begin_write, Driver.end_write, Driver.begin_write),
    *(Driver.end_write, Driver.pass_time, Driver.close_session, Driver.delete, Driver.compact, Driver.fail_over),
)
