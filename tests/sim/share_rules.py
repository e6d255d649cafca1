"""What must be true of the records of a share group, whatever happens.

- A record is delivered until a member has accepted or rejected it, or its deliveries have reached the limit; then it is
  not delivered any more, and the window does not pass it before.
- While a lock holds, its record is not delivered again.
- The delivery count of a record grows by one with each delivery on a leader, and on no other occasion. The next leader
  begins with what is durable.
- What is rejected, or has reached the limit, is a dead letter.

A leader that does not know yet that it was replaced may deliver what the next one delivers, as in Kafka: what it holds
is not durable. What it confirms counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from unittest.mock import patch

from barnabas_broker.groups.share.partition import Acknowledged, Acknowledgement, Acquired, Reason, Undeliverable
from barnabas_broker.share_partitions.hosted import Delivery, LedSharePartition, Wanted
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.sim.share_data import DataLog
from tests.sim.world import World

#: Seconds in which the records of a member without a session have to be given back.
GIVEN_BACK: float = 8.0
#: Acknowledgements after which a record need not be delivered any more.
_FINAL = (Acknowledgement.ACCEPT, Acknowledgement.REJECT, Acknowledgement.GAP)
#: Errors after which an acknowledgement has certainly no effect.
_REFUSALS = (ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST)


@dataclass
class Lock:
    """A record that a member has.

    Attributes:
        member: which one.
        deadline: when it ends, by the clock of the leader.
        loose: whether it may end before: it is being released.
        ended: whether it may end before: the session of the member has ended.
    """

    member: str
    deadline: float
    loose: bool = False
    ended: bool = False


@dataclass
class _Saying:
    """An acknowledgement without a result.

    Attributes:
        at: when it has arrived, by the clock of the leader.
        mine: what is said of each record, its lock, and its delivery count.
        strange: records that the member does not have.
        final: records that need not be delivered any more if it counts.
        loosened: locks that may end.
    """

    at: float
    mine: dict[int, tuple[int, Lock, int]] = field(default_factory=dict)
    strange: list[int] = field(default_factory=list)
    final: set[int] = field(default_factory=set)
    loosened: list[Lock] = field(default_factory=list)


@dataclass
class Leader:
    """What one share partition on one leader has done.

    Attributes:
        locks: by offset.
        counts: the delivery count of each record at its last delivery.
        seen: the start of the window, up to which all was checked.
        in_doubt: whether a write has failed that may be in the log all the same.
    """

    locks: dict[int, Lock] = field(default_factory=dict)
    counts: dict[int, int] = field(default_factory=dict)
    seen: int = 0
    in_doubt: bool = False


@dataclass
class Records:
    """What has become of the records of a partition.

    Attributes:
        final: those that need not be delivered any more, confirmed to a member.
        said: those that a member has accepted or rejected, whether or not this counts.
        rejected: confirmed as rejected.
        most: the largest delivery count of each.
        least: the delivery count that is durable.
        letters: dead letters.
    """

    final: set[int] = field(default_factory=set)
    said: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    most: dict[int, int] = field(default_factory=dict)
    least: dict[int, int] = field(default_factory=dict)
    letters: set[int] = field(default_factory=set)


class ShareRules:
    """Observes the share partitions of all brokers.

    Args:
        world: reports violations.
        logs: of the partitions.
        leads: whether a share partition is on the broker that really leads.
        limit: deliveries of a record.
        lock_seconds: how long a lock holds.
        committed: whether members read what is committed only.

    Attributes:
        leaders: the share partitions that were ever open.
        records: by partition.
        deliveries: number of records delivered, repeated ones included.
    """

    def __init__(
        self,
        world: World,
        logs: Sequence[DataLog],
        leads: Callable[[LedSharePartition], bool],
        limit: int,
        lock_seconds: float,
        *,
        committed: bool,
    ) -> None:
        self._world = world
        self._logs = logs
        self._leads = leads
        self._limit = limit
        self._lock_seconds = lock_seconds
        self._committed = committed
        self.leaders: defaultdict[LedSharePartition, Leader] = defaultdict(Leader)
        self.records = [Records() for _ in logs]
        self.deliveries = 0

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Hear of deliveries, acknowledgements and the ends of sessions."""
        acquire, acknowledge, release = (
            LedSharePartition.acquire,
            LedSharePartition.acknowledge,
            LedSharePartition.release,
        )

        @wraps(acquire)
        async def acquired(hosted: LedSharePartition, wanted: Wanted) -> Delivery | None:
            delivery = await acquire(hosted, wanted)
            if delivery is not None:
                self._delivered(hosted, wanted.member, delivery.acquired)
            return delivery

        @wraps(acknowledge)
        async def acknowledged(hosted: LedSharePartition, member: str, batches: Sequence[Acknowledged]) -> None:
            saying = self._begins(hosted, member, batches)
            try:
                await acknowledge(hosted, member, batches)
            except KafkaError as error:
                for lock in saying.loosened:
                    lock.loose = False
                if error.code in _REFUSALS:
                    self.records[hosted.place.partition].said -= saying.final
                raise
            self._confirmed(hosted, member, saying)

        @wraps(release)
        async def released(hosted: LedSharePartition, member: str) -> None:
            for lock in self.leaders[hosted].locks.values():
                if lock.member == member:
                    lock.ended = True
            self._world.note("records of %s in %s are given back", member, hosted.place)
            await release(hosted, member)

        with ExitStack() as stack:
            for name, observed in (("acquire", acquired), ("acknowledge", acknowledged), ("release", released)):
                stack.enter_context(patch.object(LedSharePartition, name, observed))
            yield

    # What happens

    def _delivered(self, hosted: LedSharePartition, member: str, runs: Sequence[Acquired]) -> None:
        world, leader = self._world, self.leaders[hosted]
        now, true = hosted._clock.now(), self._leads(hosted)
        index = hosted.place.partition
        records, log = self.records[index], self._logs[index]
        world.note("%s gets %s of %s, epoch %d", member, runs, hosted.place, hosted.leader_epoch)
        for run in runs:
            for offset in range(run.first, run.last + 1):
                count = run.delivery_count
                what = f"record {offset} of {hosted.place}"
                lock = leader.locks.get(offset)
                if lock is not None and not (lock.loose or lock.ended) and now < lock.deadline:
                    world.fail(f"{what} is delivered to {member} while {lock.member} has it until {lock.deadline:.3f}")
                if true and offset in records.final:
                    world.fail(f"{what} is delivered to {member}, but was confirmed to be done")
                if self._committed and offset in log.aborted_data:
                    world.fail(f"{what} is delivered to {member}, but its transaction was aborted")
                if count > self._limit:
                    world.fail(f"{what} is delivered {count} times, the limit is {self._limit}")
                before = leader.counts.get(offset)
                if before is not None and count != before + 1:
                    world.fail(f"{what} has the delivery count {count} after {before} on the same leader")
                if count > records.most.get(offset, 0) + 1:
                    world.fail(f"{what} has the delivery count {count} after {records.most.get(offset, 0)} deliveries")
                if true and count <= records.least.get(offset, 0):
                    world.fail(f"{what} has the delivery count {count}, and {records.least[offset]} were durable")
                leader.counts[offset] = count
                leader.locks[offset] = Lock(member, now + self._lock_seconds)
                records.most[offset] = max(count, records.most.get(offset, 0))
                self.deliveries += 1

    def _begins(self, hosted: LedSharePartition, member: str, batches: Sequence[Acknowledged]) -> _Saying:
        """An acknowledgement arrives."""
        leader, index = self.leaders[hosted], hosted.place.partition
        records = self.records[index]
        start = max(hosted.machine.start_offset, self._logs[index].log_start_offset)
        saying = _Saying(hosted._clock.now())
        for offset, kind in _said(batches):
            lock = leader.locks.get(offset)
            if offset < start:
                continue
            if lock is None or lock.member != member:
                saying.strange.append(offset)
                continue
            saying.mine[offset] = kind, lock, leader.counts[offset]
            if kind == Acknowledgement.RELEASE and not lock.loose:
                lock.loose = True
                saying.loosened.append(lock)
            elif kind in _FINAL and offset not in records.said:
                saying.final.add(offset)
        records.said |= saying.final
        return saying

    def _confirmed(self, hosted: LedSharePartition, member: str, saying: _Saying) -> None:
        """An acknowledgement counts."""
        if saying.strange:
            self._world.fail(f"{member} acknowledges {saying.strange} of {hosted.place}, and does not have them")
        leader, index = self.leaders[hosted], hosted.place.partition
        records, start = self.records[index], self._logs[index].log_start_offset
        for offset, (kind, lock, count) in saying.mine.items():
            if offset < start:
                continue
            if kind == Acknowledgement.RENEW:
                lock.deadline = saying.at + self._lock_seconds
                continue
            if leader.locks.get(offset) is lock:
                del leader.locks[offset]  # what is released may have another owner by now
            records.least[offset] = max(count, records.least.get(offset, 0))
            if kind in _FINAL:
                records.final.add(offset)
            if kind == Acknowledgement.REJECT:
                records.rejected.add(offset)

    def dead_letters(self, partition: int, undeliverable: Sequence[Undeliverable]) -> None:
        """Dead letters are written."""
        records = self.records[partition]
        for first, last, count, reason, _ in undeliverable:
            for offset in range(first, last + 1):
                if reason is Reason.REJECTED and offset not in records.said:
                    self._world.fail(f"record {offset} is a dead letter, and no member has rejected it")
                if reason is Reason.DELIVERY_LIMIT and (
                    count < self._limit or records.most.get(offset, 0) < self._limit
                ):
                    self._world.fail(f"record {offset} is a dead letter after {count} deliveries")
                records.letters.add(offset)

    # What must be true at any time

    def is_over(self, partition: int, offset: int) -> bool:
        """Whether a record may be left behind."""
        records = self.records[partition]
        if not self._logs[partition].needed(offset, committed=self._committed):
            return True
        return offset in records.final or offset in records.said or records.most.get(offset, 0) >= self._limit

    def check_windows(self) -> None:
        """No window has passed a record that has to be delivered."""
        for hosted, leader in self.leaders.items():
            start = hosted.machine.start_offset
            while leader.seen < start:
                if not self.is_over(hosted.place.partition, leader.seen):
                    self._world.fail(f"the window of {hosted.place} is at {start}, and {leader.seen} is not processed")
                leader.seen += 1

    def check_sessions(
        self, hosted: LedSharePartition, session: Callable[[str], object | None], since: dict[str, float]
    ) -> None:
        """A member without a session has no records.

        Args:
            hosted: a share partition.
            session: that of a member; None if it has none.
            since: when the last session of each member has ended on this broker.
        """
        for part in hosted.machine.parts(10_000):
            member = part.member
            if part.deadline is None or session(member) is not None:
                continue
            if self._world.now - since.get(member, 0.0) < GIVEN_BACK:
                continue
            self._world.fail(f"{member} has no session since {since.get(member)}, and has {part}")

    def check_letters(self) -> None:
        """At the end: what was not accepted and is not delivered any more is a dead letter."""
        for index, records in enumerate(self.records):
            for offset in records.rejected - records.letters:
                self._world.fail(f"record {offset} of partition {index} was rejected, and is no dead letter")
            for offset in self._logs[index].data:
                needed = self._logs[index].needed(offset, committed=self._committed)
                if needed and offset not in records.said | records.letters:
                    self._world.fail(f"record {offset} of partition {index} has neither an end nor a dead letter")


def _said(batches: Sequence[Acknowledged]) -> Iterator[tuple[int, int]]:
    """Each offset with what is said of it."""
    for first, last, types in batches:
        for offset in range(first, last + 1):
            yield offset, types[0] if len(types) == 1 else types[offset - first]
