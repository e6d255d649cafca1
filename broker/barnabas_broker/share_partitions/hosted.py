"""One share partition on the leader of its log: the machine with its log, its locks and its writes. A shell.

- :meth:`LedSharePartition.acquire` reads record batches from where the machine says, and lets it acquire them. Only
  headers of batches are looked at.
- Fetches that find nothing wait in the order in which they came (:meth:`LedSharePartition.wait`). An append, an expired
  lock or a write that makes records available wakes the first one; when that has fetched, the next one, while there is
  more. So the members of a group take turns.
- What members acknowledge is written by one task, one write at a time (:meth:`LedSharePartition.settled`): what comes
  while a write is under way is in the next one.
- A share partition is closed when its log has another leader epoch, is deleted, or when its state is fenced: then
  another leader, or another start offset of the group, has taken over. It is opened again with the state as written.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from barnabas_broker.backoff import jittered
from barnabas_broker.clock import Clock, Handle
from barnabas_broker.groups.share.partition import (
    Acknowledged,
    Acquired,
    DeliveryLimits,
    OffsetRange,
    Part,
    SharePartition,
    StateChange,
    Undeliverable,
)
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.share_partitions.incidents import Incidents, Letters, Place
from barnabas_broker.shares.ports import Persister
from barnabas_broker.slicer import Slicer, SlicerClient
from barnabas_broker.storage.slices import joined
from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records.batches import BatchHeader, iter_batches

log = logger("shares")

#: Bytes that are read at once: the smallest and the largest number, unless one batch is larger.
_READ_BYTES: Final = (65_536, 1_048_576)
#: Record batches that are looked at in one read.
_MOST_BATCHES: Final = 2_000
#: Reads of one fetch that find only records which are not delivered, those of aborted transactions for instance.
_READS: Final = 8
#: Aborted transactions that are looked at in one turn of the event loop.
_ABORTED_STEP: Final = 4_096
#: Seconds until a write that has failed is tried again.
_RETRY_SECONDS: Final = (0.1, 5.0)
#: Seconds after which a window that does not move is reported, and the longest time until it is reported again.
_BLOCKED_SECONDS: Final = (5.0, 60.0)
#: Errors of the persister after which another leader decides, or another start offset.
_FENCED: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_STATE_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def as_answered(error: KafkaError) -> KafkaError:
    """The error that a client gets for an error of the persister, as in Kafka."""
    if error.code in _COORDINATOR:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH):
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    return error


@dataclass(frozen=True, slots=True)
class Wanted:
    """A member's fetch.

    Attributes:
        member: its id.
        max_bytes: of the response.
        max_records: of the response.
        batch_size: see :meth:`.SharePartition.acquire`.
        strict: likewise.
        committed: whether records of aborted transactions are left out, and of open ones not delivered yet.
        gone: whether the session of the member has ended.
        client: whose time the reads take.
    """

    member: str
    max_bytes: int
    max_records: int
    batch_size: int
    strict: bool
    committed: bool
    gone: Callable[[], bool]
    client: SlicerClient


class Delivery(NamedTuple):
    """Record batches, and which of their records were acquired."""

    records: memoryview
    acquired: list[Acquired]


class _Blocked(NamedTuple):
    """A window that is full: the records that it starts with, since when, and when that is reported next."""

    by: Part
    since: float
    report: float


class DeadLetters(Protocol):
    """Where undeliverable records go."""

    async def write(
        self,
        place: Place,
        replica: Replica,
        undeliverable: Sequence[Undeliverable],
        report: Callable[[Place, Sequence[Undeliverable], Letters], None],
    ) -> None:
        """Write them, if the group wants that; `report` gets the result, which may come later."""


class LedSharePartition:
    """A share partition of which this broker leads the log.

    Args:
        place: what it is.
        replica: the log and its leadership.
        machine: its state.
        persister: keeps what has to survive a change of leaders.
        dead_letters: where undeliverable records go.
        slicer: gives turns to what takes long.
        clock: the time of locks.
        lines: log lines that members cause.
        incidents: collects what happens to records.

    Attributes:
        place: what it is.
        replica: the log and its leadership.
        machine: its state.
        leader_epoch: in which it was opened.
        closed: why it is closed; None if it is open.
    """

    def __init__(
        self,
        place: Place,
        replica: Replica,
        machine: SharePartition,
        persister: Persister,
        dead_letters: DeadLetters,
        slicer: Slicer,
        clock: Clock,
        lines: FoldedLines,
        incidents: Incidents,
    ) -> None:
        self.place = place
        self.replica = replica
        self.machine = machine
        self.leader_epoch = replica.leader_epoch
        self.closed: KafkaError | None = None
        self._committed = False
        self._persister = persister
        self._dead_letters = dead_letters
        self._slicer = slicer
        self._clock = clock
        self._lines = lines
        self._incidents = incidents
        self._blocked: _Blocked | None = None
        #: Fetches that wait, in their order.
        self._waiting: dict[DelayedFetch, None] = {}
        self._appends: DelayedFetch | None = None
        self._settling: dict[int, tuple[StateChange, asyncio.Future[None]]] = {}
        self._writer: asyncio.Task[None] | None = None
        self._timer: Handle | None = None
        self._timer_at = float("inf")
        #: Bytes of a record, by the last reads.
        self._record_bytes = 1_024.0

    def configure(self, limits: DeliveryLimits, committed: bool) -> None:
        """Take over the configuration of the group."""
        self.machine.limits, self._committed = limits, committed

    @property
    def leads(self) -> bool:
        """Whether this broker still leads the log, in the same epoch."""
        return self.replica.leading is not None and self.replica.leader_epoch == self.leader_epoch

    @property
    def _end(self) -> int:
        """The end of what is delivered."""
        return self.replica.log.last_stable_offset if self._committed else self.replica.log.high_watermark

    @property
    def ready(self) -> bool:
        """Whether a fetch need not wait."""
        if self.closed is not None or not self.leads:
            return True
        return self.machine.may_acquire and self.machine.next_fetch_offset < self._end

    def check(self) -> None:
        """Check that it is open, and that this broker leads the log.

        Raises:
            KafkaError: why not.
        """
        if self.closed is not None:
            raise self.closed
        if not self.leads:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Fetch

    async def acquire(self, wanted: Wanted) -> Delivery | None:
        """Read records and acquire them.

        Returns:
            None if there are none now.

        Raises:
            KafkaError: the log cannot be read, or this broker does not lead it any more.
        """
        partition_log = self.replica.log
        for _ in range(_READS):
            self.check()
            self.machine.log_starts_at(partition_log.log_start_offset)
            self._notice_block()
            if not self.ready:
                return None
            offset = self.machine.next_fetch_offset
            least, most = _READ_BYTES
            size = min(wanted.max_bytes, max(least, min(most, int(wanted.max_records * self._record_bytes * 2))))
            loading = partition_log.warm(offset, size)
            if loading is not None:
                await asyncio.wait([loading])
                continue
            batches, data, aborted = await self._read(offset, size, wanted)
            if wanted.gone() or not batches:
                return None
            self.check()
            acquired = self.machine.acquire(
                wanted.member,
                offset,
                [OffsetRange(header.base_offset, header.last_offset) for header, _ in batches],
                self._clock.now(),
                max_records=wanted.max_records,
                batch_size=wanted.batch_size,
                strict=wanted.strict,
                aborted=aborted,
            )
            self._set_timer()
            self.write()
            if acquired:
                return Delivery(self._slice(batches, data, acquired), acquired)
        return None

    def _notice_block(self) -> None:
        """Report a window that is full and does not move, while there is more to deliver, and when it moves again."""
        machine, by, now, blocked = self.machine, self.machine.blocked_by, self._clock.now(), self._blocked
        if blocked is not None and machine.start_offset > blocked.by.first:
            self._blocked = None
            if blocked.report - blocked.since > _BLOCKED_SECONDS[0]:
                self._incidents.moved(self.place, blocked.by, now - blocked.since)
        if by is None or not machine.is_full or machine.end_offset + 1 >= self._end:
            self._blocked = None
        elif self._blocked is None:
            self._blocked = _Blocked(by, now, now + _BLOCKED_SECONDS[0])
        elif now >= self._blocked.report:
            waited = now - self._blocked.since
            self._incidents.blocked(self.place, by, machine.end_offset + 1 - machine.start_offset, waited)
            self._blocked = self._blocked._replace(report=now + min(waited, _BLOCKED_SECONDS[1]))

    async def _read(
        self, offset: int, size: int, wanted: Wanted
    ) -> tuple[list[tuple[BatchHeader, int]], memoryview, list[OffsetRange]]:
        """Record batches with their positions, their bytes, and the batches that no member needs."""
        transactions: Iterable[AbortedTransaction] = ()
        partition_log = self.replica.log
        if self._committed:
            steps = partition_log.read_committed(offset, size, min_one=True)
            parts, transactions = await self._slicer.enqueue(steps, wanted.client)
        else:
            parts = partition_log.read(offset, size, partition_log.high_watermark, min_one=True)
        try:
            data = memoryview(joined(parts))
        except OSError as error:
            text = f"{partition_log.topic_partition} cannot be read: {error}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, text) from error
        batches: list[tuple[BatchHeader, int]] = []
        at = records = 0
        try:
            for header, batch in iter_batches(data, partial_ok=True):
                batches.append((header, at))
                at += len(batch)
                records += header.last_offset_delta + 1
                if len(batches) >= _MOST_BATCHES:
                    break
        except DecodeError as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if records:
            self._record_bytes += (at / records - self._record_bytes) / 4
        return batches, data[:at], await _unneeded(batches, transactions)

    def _slice(
        self, batches: Sequence[tuple[BatchHeader, int]], data: memoryview, acquired: Sequence[Acquired]
    ) -> memoryview:
        """The record batches that have acquired records, and those in between."""
        first, last = acquired[0].first, acquired[-1].last
        begin, end = 0, len(data)
        for header, at in batches:
            if header.last_offset < first:
                begin = at + header.size
            if header.base_offset > last:
                end = at
                break
        return data[begin:end]

    # Waiting

    def wait(self, fetch: DelayedFetch) -> None:
        """Wake a fetch when it is its turn to acquire records."""
        self._waiting[fetch] = None
        self._listen()

    def forget(self, fetch: DelayedFetch) -> None:
        """Do not wake it any more."""
        self._waiting.pop(fetch, None)
        if not self._waiting and self._appends is not None:
            self._appends.wake()

    def poke(self) -> None:
        """Wake the fetch whose turn it is, if there is something for it; all, if this is closed."""
        while self._waiting and self.ready:
            fetch = next(iter(self._waiting))
            del self._waiting[fetch]
            if not fetch.woken.done():
                fetch.wake()
                if self.closed is None:
                    return

    def _listen(self) -> None:
        """Hear of the next append."""
        if self._appends is not None or not self._waiting or not self.leads:
            return
        appends = self._appends = DelayedFetch(1)
        if self._committed:
            self.replica.wait_committed(appends)
        else:
            self.replica.waiting[appends] = None
        appends.woken.add_done_callback(self._appended)

    def _appended(self, _: "asyncio.Future[None]") -> None:
        appends, self._appends = self._appends, None
        if appends is not None:
            self.replica.waiting.pop(appends, None)
            self.replica.waiting_committed.pop(appends, None)
        if not self.leads:
            self.close(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        self.poke()
        self._listen()

    # Acknowledge

    async def acknowledge(self, member: str, batches: Sequence[Acknowledged]) -> None:
        """Take what a member says of its records, and return when it is durable.

        Raises:
            KafkaError: nothing of it counts.
        """
        self.check()
        self.machine.log_starts_at(self.replica.log.log_start_offset)
        change = self.machine.acknowledge(member, batches, self._clock.now())
        if change is not None:
            await self.settled(change)

    async def release(self, member: str) -> None:
        """Give back everything that a member has, because its session has ended.

        Raises:
            KafkaError: it could not be written. The records are available all the same, and it is written later.
        """
        if self.closed is None and (change := self.machine.release(member)) is not None:
            await self.settled(change)

    async def settled(self, change: StateChange) -> None:
        """Return when a change is written.

        Raises:
            KafkaError: it does not count.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling[id(change)] = change, future
        self.write()
        await future

    # Writes

    def write(self) -> None:
        """Write what is not written yet, from the next turn of the event loop on."""
        if self._writer is None and self.closed is None and self.machine.has_unwritten:
            self._writer = asyncio.get_running_loop().create_task(self._write_all())

    async def _write_all(self) -> None:
        backoff = jittered(*_RETRY_SECONDS, seed=str(self.place))
        try:
            while self.closed is None and (write := self.machine.begin_write()) is not None:
                undeliverable = [each for change in write.changes for each in change.undeliverable]
                error: KafkaError | None = None
                try:
                    if undeliverable:
                        report = self._incidents.dead_letters
                        await self._dead_letters.write(self.place, self.replica, undeliverable, report)
                    await self._persister.write(
                        self.place.group,
                        UUID(bytes=self.place.topic_id),
                        self.place.partition,
                        state_epoch=self.machine.state_epoch,
                        leader_epoch=self.leader_epoch,
                        start_offset=write.start_offset,
                        delivery_complete_count=write.delivery_complete_count,
                        batches=write.batches,
                    )
                except KafkaError as failed:
                    error = failed
                except Exception:
                    log.exception(
                        "the state of a share partition could not be written", share_partition=str(self.place)
                    )
                    self.close(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
                    return
                self.machine.end_write(written=error is None)
                self._settle(write.changes, error)
                self.poke()
                if error is None:
                    backoff.succeeded()
                    self._incidents.undeliverable(self.place, undeliverable, self.machine.limits.delivery_count)
                    released = (each for change in write.changes for each in change.released)
                    self._incidents.released(self.place, released)
                    continue
                self._lines.add(
                    log.warning,
                    "the state of a share partition could not be written",
                    self.place.group,
                    share_partition=str(self.place),
                    error=error.code.name,
                )
                if error.code in _FENCED:
                    self.close(as_answered(error))
                    return
                self._set_timer()
                await asyncio.sleep(backoff.failed())
        finally:
            self._writer = None

    def _settle(self, changes: Iterable[StateChange], error: KafkaError | None) -> None:
        for change in changes:
            _, future = self._settling.pop(id(change), (change, None))
            if future is None or future.done():
                continue
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(as_answered(error))

    # Locks

    def _set_timer(self) -> None:
        """Look at the locks when the first one may expire."""
        at = self.machine.deadline
        if at >= self._timer_at or self.closed is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(max(at - self._clock.now(), 0.0), self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        if self.closed is not None:
            return
        # If those that were delivered often enough cannot be archived, their locks expire again.
        expired, _ = self.machine.expire(self._clock.now())
        self._incidents.expired(self.place, expired, self.machine.limits.lock_seconds)
        for each in expired:
            self._lines.add(
                log.info,
                "the lock of records has expired",
                self.place.group,
                share_partition=str(self.place),
                member=each.member,
                delivery_count=each.delivery_count,
            )
        self.write()
        self.poke()
        self._set_timer()

    # End

    def close(self, error: KafkaError) -> None:
        """Close it: what waits is answered with `error`. What is being written may still be written."""
        if self.closed is not None:
            return
        self.closed = error
        if self._timer is not None:
            self._timer.cancel()
        self.poke()
        if self._appends is not None:
            self._appends.wake()
        if self._writer is not None and self._writer is not asyncio.current_task():
            self._writer.cancel()
        self._settle([change for change, _ in self._settling.values()], error)


async def _unneeded(
    batches: Sequence[tuple[BatchHeader, int]], transactions: Iterable[AbortedTransaction]
) -> list[OffsetRange]:
    """The record batches that no member needs: those of aborted transactions, and markers.

    Args:
        batches: as they were read.
        transactions: the aborted ones that they overlap, in the order of their first offsets.
    """
    found: list[OffsetRange] = []
    open_ones: set[int] = set()
    left = iter(transactions)
    following = next(left, None)
    for header, _ in batches:
        taken = 0
        while following is not None and following.first_offset <= header.last_offset:
            open_ones.add(following.producer_id)
            following = next(left, None)
            taken += 1
            if not taken % _ABORTED_STEP:
                await asyncio.sleep(0)
        if header.is_control:
            open_ones.discard(header.producer_id)
            found.append(OffsetRange(header.base_offset, header.last_offset))
        elif header.is_transactional and header.producer_id in open_ones:
            found.append(OffsetRange(header.base_offset, header.last_offset))
    return found
