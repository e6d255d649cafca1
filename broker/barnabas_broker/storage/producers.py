"""The state of a partition's idempotent producers (KIP-98, KIP-360; ``ProducerStateManager``, ``ProducerAppendInfo``).

Keeps the epoch and the last five batches of each producer id. A batch that is sent again is answered with its first
offset, a batch with a gap in the sequence is rejected, and so is a batch of a fenced producer. Pure: the log reads and
writes the bytes of snapshots.
"""

import struct
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from crc32c import crc32c

from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.batches import BatchHeader
from barnabas_protocol.wire import Buffer

#: Batches that are kept for a producer: the most that a client may have in flight.
REMEMBERED: Final = 5
NO_PRODUCER_ID: Final = -1
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
_MAX_SEQUENCE: Final = 2**31 - 1

_SNAPSHOT_VERSION: Final = 1
_HEAD: Final = struct.Struct(">hIi")
_ENTRY: Final = struct.Struct(">qhiqiqiq")
_CRC_START: Final = 6


class CorruptSnapshot(Exception):
    """A snapshot is corrupt; use an older one, or replay the log."""


class BatchInfo(NamedTuple):
    """A batch of a producer: last sequence, last offset, number of records minus 1, timestamp (ms)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of its first record; sequences wrap after 2^31 - 1."""
        return (self.last_sequence - self.offset_delta) & _MAX_SEQUENCE

    @property
    def first_offset(self) -> int:
        """The offset of its first record."""
        return self.last_offset - self.offset_delta


class ProducerState:
    """The state of one producer id on one partition.

    Attributes:
        producer_id: of the producer.
        epoch: its latest epoch.
        coordinator_epoch: of the last transaction marker; -1 if there is none.
        last_timestamp: of the last batch or marker, in ms.
        transaction_start: the first offset of the open transaction; -1 if there is none.
        batches: the last batches, oldest first.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "producer_id", "transaction_start")

    def __init__(
        self,
        producer_id: int,
        epoch: int = NO_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = -1,
        transaction_start: int = -1,
        batches: Iterable[BatchInfo] = (),
    ) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        self.transaction_start = transaction_start
        self.batches = deque(batches, REMEMBERED)

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 if unknown."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchInfo | None:
        """The kept batch with the epoch and sequences of `header`."""
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def check(self, header: BatchHeader, *, sequence: bool) -> None:
        """Check that a batch may be appended next.

        Args:
            header: of the batch.
            sequence: whether to check its sequence. Batches of a coordinator have none.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE.
        """
        epoch = header.producer_epoch
        if epoch < self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.producer_id} is {epoch}, smaller than the last seen epoch {self.epoch}",
            )
        if sequence and self.epoch != NO_EPOCH:
            # An unknown producer may begin with any sequence: its records may have been deleted (KIP-360).
            first = header.base_sequence
            if epoch != self.epoch:
                if first != 0:
                    raise KafkaError(
                        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                        f"Invalid sequence number for new epoch of producer {self.producer_id}: "
                        f"{epoch} (request epoch), {first} (seq. number), {self.epoch} (current producer epoch)",
                    )
            elif first != (last := self.last_sequence) + 1 and not (first == 0 and last == _MAX_SEQUENCE):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {self.producer_id}: {first} (incoming seq. number), "
                    f"{last} (current end sequence number)",
                )
        if self.transaction_start >= 0 and not header.attributes & 0x10:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {self.producer_id}"
            )

    def wrote(self, header: BatchHeader, base_offset: int) -> None:
        """Add a batch that was appended at `base_offset`."""
        if header.producer_epoch != self.epoch:
            self.batches.clear()
            self.epoch = header.producer_epoch
        self.batches.append(
            BatchInfo(
                header.last_sequence,
                base_offset + header.last_offset_delta,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        self.last_timestamp = header.max_timestamp
        if header.attributes & 0x10 and self.transaction_start < 0:
            self.transaction_start = base_offset

    def ended(self, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Apply a transaction marker that was appended."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.transaction_start = -1

    def copy(self) -> "ProducerState":
        """An independent copy."""
        return ProducerState(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_start,
            self.batches,
        )


class Producers:
    """All producers of a partition.

    Attributes:
        states: by producer id.
        end_offset: the offset up to which the log is applied, exclusive: the offset of the next snapshot.
    """

    __slots__ = ("end_offset", "states")

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self.end_offset = 0

    def duplicate_of(self, header: BatchHeader) -> BatchInfo | None:
        """The earlier batch that a client's batch duplicates, if it is among the producer's last five."""
        state = self.states.get(header.producer_id)
        return None if state is None else state.find_duplicate(header)

    def check(self, header: BatchHeader, *, sequence: bool) -> None:
        """Check that a batch may be appended next.

        Raises:
            KafkaError: see :meth:`ProducerState.check`.
        """
        state = self.states.get(header.producer_id)
        if state is not None:
            state.check(header, sequence=sequence)

    def wrote(self, header: BatchHeader, base_offset: int) -> None:
        """Add a data batch with a producer id that was appended."""
        state = self.states.get(header.producer_id)
        if state is None:
            state = self.states[header.producer_id] = ProducerState(header.producer_id)
        state.wrote(header, base_offset)

    def ended(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Apply a transaction marker that was appended."""
        state = self.states.get(producer_id)
        if state is None:
            state = self.states[producer_id] = ProducerState(producer_id)
        state.ended(epoch, coordinator_epoch, timestamp)

    def first_unstable_offset(self) -> int | None:
        """The start of the oldest open transaction; None if none is open."""
        return min((s.transaction_start for s in self.states.values() if s.transaction_start >= 0), default=None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that have written nothing for `expiration_ms` and have no open transaction."""
        gone = [
            producer_id
            for producer_id, state in self.states.items()
            if state.transaction_start < 0 and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.states[producer_id]

    def clear(self, end_offset: int) -> None:
        """Remove all producers; the log continues at `end_offset`."""
        self.states.clear()
        self.end_offset = end_offset

    def snapshot(self) -> bytes:
        """Format a ``.snapshot`` file: version, CRC-32C of the rest, entries with the last batch of each producer."""
        entries = bytearray(_HEAD.pack(_SNAPSHOT_VERSION, 0, len(self.states)))
        for state in self.states.values():
            last = state.batches[-1] if state.batches else BatchInfo(NO_SEQUENCE, -1, 0, -1)
            entries += _ENTRY.pack(
                state.producer_id,
                state.epoch,
                last.last_sequence,
                last.last_offset,
                last.offset_delta,
                state.last_timestamp,
                state.coordinator_epoch,
                state.transaction_start,
            )
        _HEAD.pack_into(entries, 0, _SNAPSHOT_VERSION, crc32c(memoryview(entries)[_CRC_START:]), len(self.states))
        return bytes(entries)

    def load(self, content: Buffer, end_offset: int) -> None:
        """Replace all producers by those of a snapshot that was taken at `end_offset`.

        Raises:
            CorruptSnapshot: nothing was replaced.
        """
        states = {state.producer_id: state for state in read_snapshot(content)}
        self.states, self.end_offset = states, end_offset


def read_snapshot(content: Buffer) -> list[ProducerState]:
    """Parse a ``.snapshot`` file.

    Raises:
        CorruptSnapshot: unknown version, wrong CRC or wrong size.
    """
    if len(content) < _HEAD.size:
        raise CorruptSnapshot(f"snapshot of {len(content)} bytes")
    version, crc, count = _HEAD.unpack_from(content)
    if version != _SNAPSHOT_VERSION:
        raise CorruptSnapshot(f"snapshot version {version}")
    if crc != crc32c(memoryview(content)[_CRC_START:]):
        raise CorruptSnapshot("snapshot with a wrong CRC")
    if len(content) != _HEAD.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{count} entries in a snapshot of {len(content)} bytes")
    states = []
    for entry in _ENTRY.iter_unpack(memoryview(content)[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, transaction = entry
        batches = [BatchInfo(last_sequence, last_offset, delta, timestamp)] if last_offset >= 0 else []
        states.append(ProducerState(producer_id, epoch, coordinator_epoch, timestamp, transaction, batches))
    return states
