"""Partitions of the topic whose records a share group processes: a model of their logs.

All replicas have the same records at once, so that only the share partitions and their state are at risk. A log has
what consumers have to skip: offsets that compaction has removed, open, aborted and committed transactions with their
markers, and records that are deleted.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from barnabas_broker.replication.replica import DelayedFetch
from barnabas_broker.steps import Steps
from barnabas_broker.storage.transaction_index import AbortedTransaction
from barnabas_protocol.records import BatchHeader, build_batch, read_header
from tests.sim.world import World

TOPIC: Final = "work"
TOPIC_ID: Final = b"w" * 16


class DataLog:
    """The log of a partition, as all its replicas have it.

    Attributes:
        index: of the partition.
        log_start_offset: the first record that is not deleted.
        log_end_offset: the offset of the next record.
        data: the offsets of records, without markers.
        aborted_data: those of aborted transactions.
        replicas: of this log, on brokers that live or have lived.
    """

    def __init__(self, world: World, index: int) -> None:
        self.index = index
        self.topic_partition = f"{TOPIC}-{index}"
        self.log_start_offset = self.log_end_offset = 0
        self.data: set[int] = set()
        self.aborted_data: set[int] = set()
        self.replicas: list[DataReplica] = []
        self._world = world
        self._batches: list[tuple[BatchHeader, bytes]] = []
        self._aborted: list[AbortedTransaction] = []
        #: The offsets of open transactions by producer id.
        self._open: dict[int, list[int]] = {}

    @property
    def high_watermark(self) -> int:
        return self.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        return min((offsets[0] for offsets in self._open.values()), default=self.log_end_offset)

    def needed(self, offset: int, *, committed: bool) -> bool:
        """Whether there is a record that a member has to get; `committed`: of members with `read_committed`."""
        if offset < self.log_start_offset or offset not in self.data:
            return False
        return not committed or offset not in self.aborted_data

    # Produce

    def produce(self, count: int, *, gap: int = 0, producer_id: int = -1) -> None:
        """Append records.

        Args:
            count: their number.
            gap: offsets before them that are missing, as after compaction.
            producer_id: of the transaction that they belong to; -1 for none.
        """
        first = self.log_end_offset + gap
        records = [(None, b"%d" % offset, (), 0) for offset in range(first, first + count)]
        batch = build_batch(
            records, base_offset=first, producer_id=producer_id, producer_epoch=0, transactional=producer_id >= 0
        )
        offsets = range(first, first + count)
        self.data.update(offsets)
        if producer_id >= 0:
            self._open.setdefault(producer_id, []).extend(offsets)
        self._append(batch)

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Append the marker of a transaction, if it is open."""
        offsets = self._open.pop(producer_id, None)
        if offsets is None:
            return
        end = self.log_end_offset
        if not commit:
            self.aborted_data.update(offsets)
            self._aborted.append(AbortedTransaction(producer_id, offsets[0], end, 0))
            self._aborted.sort(key=lambda each: each.first_offset)
        marker = (b"\x00\x00\x00" + bytes([commit]), b"\x00\x00\x00\x00\x00\x00", (), 0)
        self._append(
            build_batch(
                [marker], base_offset=end, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
            )
        )

    def end_transactions(self) -> None:
        """Commit all open transactions."""
        for producer_id in list(self._open):
            self.end_transaction(producer_id, commit=True)

    def _append(self, batch: bytearray) -> None:
        header = read_header(batch)
        before = self.last_stable_offset
        self._batches.append((header, bytes(batch)))
        self.log_end_offset = header.next_offset
        for replica in self.replicas:
            for fetch in list(replica.waiting):
                fetch.appended(header.size)
            if self.last_stable_offset > before:
                for fetch in list(replica.waiting_committed):
                    fetch.appended(header.size)

    def delete_before(self, offset: int) -> None:
        """Delete the first records."""
        self.log_start_offset = max(self.log_start_offset, min(offset, self.high_watermark))

    # Read

    def warm(self, offset: int, max_bytes: int) -> "asyncio.Future[None] | None":
        """Sometimes the disk is slow."""
        if not self._world.happens(0.1):
            return None
        loading: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._world.after(self._world.between(0.001, 1.0), loading.set_result, None)
        return loading

    def read(self, offset: int, max_bytes: int, up_to: int, *, min_one: bool) -> list[memoryview]:
        parts: list[memoryview] = []
        size = 0
        for header, batch in self._batches:
            if header.next_offset <= offset:
                continue
            if header.base_offset >= up_to or (parts and size + len(batch) > max_bytes):
                break
            parts.append(memoryview(batch))
            size += len(batch)
        return parts

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one: bool
    ) -> Steps[tuple[list[memoryview], Iterable[AbortedTransaction]]]:
        parts = self.read(offset, max_bytes, self.last_stable_offset, min_one=min_one)
        yield
        return parts, [each for each in self._aborted if each.last_offset >= offset]


class DataReplica:
    """The log on one broker in one of its lives.

    Attributes:
        log: see there.
        leading: whether the broker believes to lead the partition; None if not.
        leader_epoch: in which it does.
        waiting: fetches that wait for an append.
        waiting_committed: fetches that wait for the end of a transaction.
    """

    def __init__(self, log: DataLog) -> None:
        self.log = log
        self.leading: bool | None = None
        self.leader_epoch = -1
        self.waiting: dict[DelayedFetch, None] = {}
        self.waiting_committed: dict[DelayedFetch, None] = {}
        log.replicas.append(self)

    def wait_committed(self, fetch: DelayedFetch) -> None:
        self.waiting_committed[fetch] = None

    def lead(self, epoch: int) -> None:
        """Become the leader."""
        self.leading, self.leader_epoch = True, epoch
        self._wake()

    def resign(self) -> None:
        """Become a follower."""
        self.leading = None
        self._wake()

    def _wake(self) -> None:
        for fetch in [*self.waiting, *self.waiting_committed]:
            fetch.wake()
