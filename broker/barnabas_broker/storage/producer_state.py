"""The state of a partition's idempotent and transactional producers (KIP-98, KIP-360, KIP-890, KIP-1228;
``ProducerStateManager``, ``ProducerAppendInfo``).

Keeps the epoch and the last five batches of each producer id. A batch that is sent again is answered with its first
offset, a batch with a gap in the sequence is rejected, and so is a batch of a fenced producer.

A transaction is open on the partition from its first batch to its marker. `read_committed` consumers read up to the
first unstable offset: the start of the oldest transaction that is open, or that has ended with a marker that is not
replicated yet. A transaction is begun only with a :class:`Verification`, which proves that the coordinator knew of it
after the last marker was written.

A producer id is bound to its owner, so that another client that may write to the partition can neither continue nor
block its sequence: to the transactional id that the coordinator has confirmed, or to the principal that was the first
to write with it. The owner is known in memory only: after a restart or a change of leader the coordinator is asked
again, and the first principal that writes is the owner. Kafka has no owners.

Pure: the log reads and writes the bytes of snapshots.
"""

import struct
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.batches import TRANSACTIONAL, BatchHeader
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.wire import Buffer

#: Batches that are kept for a producer: the most that a client may have in flight.
REMEMBERED: Final = 5
NO_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
#: A limit that no producer id reaches.
ANY_PRODUCER_ID: Final = 2**63
_MAX_SEQUENCE: Final = 2**31 - 1
_MAX_EPOCH: Final = 2**15 - 1
#: The first transaction version in which each transaction has an epoch of its own (KIP-890).
EPOCH_PER_TRANSACTION: Final = 2

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


class CompletedTransaction(NamedTuple):
    """A transaction that ended on this partition: its producer, its first offset, and the offset of its marker.

    Attributes:
        aborted: it ended with an ABORT marker.
        last_stable_offset: of the log with the marker, if all of it were replicated.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int


class Verification:
    """The question whether a producer's transaction is open at its coordinator (Kafka's ``VerificationStateEntry``).

    The append that begins the transaction presents it. A marker that was written meanwhile makes it void, unless it can
    only be that of an earlier transaction: see :meth:`outlives`.

    Args:
        since: when it began, in ms.
        sequence: of the batch to append.
        epoch: of the producer.
        transactional_id: that the coordinator is asked about.
        bumps_epoch: each transaction of the producer has an epoch of its own (transaction version 2).

    Attributes:
        lowest_sequence: the smallest sequence that was to be appended: a batch with a larger one must not overtake it.
    """

    __slots__ = ("bumps_epoch", "epoch", "lowest_sequence", "since", "transactional_id")

    def __init__(self, since: int, sequence: int, epoch: int, transactional_id: str, *, bumps_epoch: bool) -> None:
        self.since = since
        self.lowest_sequence = sequence
        self.epoch = epoch
        self.transactional_id = transactional_id
        self.bumps_epoch = bumps_epoch

    def wanted(self, sequence: int, epoch: int) -> None:
        """Another batch is to be appended."""
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)

    def outlives(self, marker_epoch: int) -> bool:
        """Whether a marker with this epoch ended a transaction before the one that was asked about.

        If each transaction has an epoch of its own, its marker has a larger one. A client may begin the next
        transaction before all markers of the last one are written; its coordinator adds partitions only afterwards.
        """
        return self.bumps_epoch and self.epoch >= marker_epoch


class ProducerState:
    """The state of one producer id on one partition.

    Attributes:
        producer_id: of the producer.
        epoch: its latest epoch.
        coordinator_epoch: of the last transaction marker; -1 if there is none.
        last_timestamp: of the last batch or marker, in ms.
        transaction_start: the first offset of the open transaction; -1 if there is none.
        batches: the last batches, oldest first.
        owner: whose the id is: a transactional id, or else a principal; None if that is not known.
    """

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp", "owner", "producer_id", "transaction_start")

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
        # A list: a deque takes 600 bytes more, and there may be 100,000 producers.
        self.batches = list(batches)[-REMEMBERED:]
        self.owner: Hashable = None

    @property
    def is_transactional(self) -> bool:
        """Whether the id is that of a transactional producer: it has, or has had, a transaction on the partition."""
        return self.transaction_start >= 0 or self.coordinator_epoch >= 0

    @property
    def last_sequence(self) -> int:
        """The sequence of its last record; -1 if unknown."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def find_duplicate(self, header: BatchHeader) -> BatchInfo | None:
        """The kept batch with the epoch and sequences of `header`.

        A batch of a transaction that has ended does not count, though it does in Kafka. Clients send nothing again once
        they have ended a transaction: what has such sequences are other records. librdkafka takes the sequences of a
        batch whose answer it has not received for the next transaction, if it aborts before it sends the batch again.
        Answered as duplicates, those records would be lost, and their transaction committed without them.
        """
        if header.producer_epoch != self.epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                transactional = bool(header.attributes & TRANSACTIONAL)
                return None if transactional and self._has_ended(batch) else batch
        return None

    def _has_ended(self, batch: BatchInfo) -> bool:
        """Whether the transaction of a batch has ended."""
        return not 0 <= self.transaction_start <= batch.first_offset

    def _takes_sequences_again(self, header: BatchHeader) -> bool:
        """Whether a batch has sequences of a transaction that has ended; see :meth:`find_duplicate`."""
        return bool(header.attributes & TRANSACTIONAL) and any(
            (header.base_sequence - batch.first_sequence) & _MAX_SEQUENCE <= batch.offset_delta
            or (batch.first_sequence - header.base_sequence) & _MAX_SEQUENCE <= header.last_offset_delta
            for batch in self.batches
            if self._has_ended(batch)
        )

    def check(self, header: BatchHeader, *, sequence: bool) -> None:
        """Check that a batch may be appended next.

        Args:
            header: of the batch.
            sequence: whether to check its sequence. Batches of a coordinator have none.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID, INVALID_TXN_STATE.
        """
        epoch = header.producer_epoch
        if epoch < self.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.producer_id} is {epoch}, smaller than the last seen epoch {self.epoch}",
            )
        if self.transaction_start >= 0 and epoch > self.epoch and header.attributes & TRANSACTIONAL:
            # The coordinator has lost the open transaction: before an epoch grows, all markers are written. The new
            # transaction must not end it with its own outcome; its abort may.
            raise KafkaError(
                ErrorCode.UNKNOWN_PRODUCER_ID,
                f"Producer {self.producer_id} has a transaction of epoch {self.epoch} open, of which its coordinator "
                f"does not know. To do: abort the transaction of epoch {epoch}, which ends both, and begin another one",
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
                if self._takes_sequences_again(header):
                    # The error by which librdkafka aborts the transaction and goes on with a new epoch;
                    # OUT_OF_ORDER_SEQUENCE_NUMBER would be fatal for it.
                    raise KafkaError(
                        ErrorCode.UNKNOWN_PRODUCER_ID,
                        f"Producer {self.producer_id} takes sequence number {first} again, which records of a "
                        "transaction that has ended have. To do: abort this transaction, and begin another one",
                    )
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {self.producer_id}: {first} (incoming seq. number), "
                    f"{last} (current end sequence number)",
                )
        if self.is_transactional and not header.attributes & TRANSACTIONAL:
            # In Kafka only while a transaction is open. A transactional producer never writes anything else.
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"Expected transactional write from producer {self.producer_id}"
            )

    def wrote(self, header: BatchHeader, base_offset: int) -> None:
        """Add a batch that was appended at `base_offset`."""
        if header.producer_epoch != self.epoch:
            self.batches.clear()
            self.epoch = header.producer_epoch
        if len(self.batches) == REMEMBERED:
            del self.batches[0]
        self.batches.append(
            BatchInfo(
                header.last_sequence,
                base_offset + header.last_offset_delta,
                header.last_offset_delta,
                header.max_timestamp,
            )
        )
        self.last_timestamp = header.max_timestamp

    def check_marker(self, epoch: int, coordinator_epoch: int, transaction_version: int, *, commit: bool) -> None:
        """Check that a marker may be appended.

        From transaction version 2 on, a transaction ends with a larger epoch than it was written with, so that a late
        marker cannot end the next one (KIP-1228). A marker that is written again ends nothing, and is no error.

        A commit has the epoch of its transaction, in version 2 the one after it: with a newer one it is that of another
        transaction, and the one that is open here was lost by its coordinator. An abort may have any newer one: a fence
        skips epochs.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        larger = transaction_version >= EPOCH_PER_TRANSACTION
        if larger and epoch == self.epoch:
            # The largest epoch cannot be followed by another one.
            valid = self.transaction_start < 0 or epoch == _MAX_EPOCH
        else:
            valid = epoch >= self.epoch
        if not valid:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {self.producer_id} is {epoch}, which is {'<=' if larger else '<'} the last seen "
                f"epoch {self.epoch} (TV{transaction_version})",
            )
        if commit and self.transaction_start >= 0 and epoch > self.epoch + larger:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {self.producer_id} has a transaction of epoch {self.epoch} open, which a commit with epoch "
                f"{epoch} does not end (TV{transaction_version}): its coordinator has lost it. To do: abort it, "
                "see `barnabas transactions find-hanging`",
            )
        if coordinator_epoch < self.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producerId {self.producer_id}: {coordinator_epoch} (zombie), "
                f"{self.coordinator_epoch} (current)",
            )

    def ended(self, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """Apply a transaction marker that was appended."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = timestamp
        self.transaction_start = -1

    def wrote_before(self, header: BatchHeader) -> None:
        """Add a batch that was appended before those that are kept, if it comes right before the first of them."""
        if not self.batches or len(self.batches) == REMEMBERED or header.producer_epoch != self.epoch:
            return
        first = self.batches[0]
        following = (header.last_sequence + 1) & _MAX_SEQUENCE
        if header.last_offset < first.first_offset and following == first.first_sequence:
            delta = header.last_offset_delta
            self.batches.insert(0, BatchInfo(header.last_sequence, header.last_offset, delta, header.max_timestamp))

    def copy(self) -> "ProducerState":
        """An independent copy."""
        made = ProducerState(
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.transaction_start,
            self.batches,
        )
        made.owner = self.owner
        return made


class Producers:
    """All producers of a partition.

    Attributes:
        states: by producer id.
        end_offset: the offset up to which the log is applied, exclusive: the offset of the next snapshot.
        open: the open transactions: by first offset, in order, the producer id.
        unreplicated: the first offsets and marker offsets of ended transactions whose marker is not known to be below
            the high watermark, in order of the markers.
        verifications: by producer id and transactional id, what was asked of coordinators.
    """

    __slots__ = ("_first_unreplicated", "end_offset", "open", "states", "unreplicated", "verifications")

    def __init__(self) -> None:
        self.states: dict[int, ProducerState] = {}
        self.end_offset = 0
        self.open: OrderedDict[int, int] = OrderedDict()
        self.unreplicated: deque[tuple[int, int]] | None = None
        self.verifications: dict[int, dict[str, Verification]] = {}
        #: The smallest first offset in `unreplicated`.
        self._first_unreplicated = 0

    def duplicate_of(self, header: BatchHeader) -> BatchInfo | None:
        """The earlier batch that a client's batch duplicates, if it is among the producer's last five; see
        :meth:`ProducerState.find_duplicate`."""
        state = self.states.get(header.producer_id)
        return None if state is None else state.find_duplicate(header)

    def check(
        self,
        header: BatchHeader,
        *,
        sequence: bool,
        verification: Verification | None = None,
        limit: int = ANY_PRODUCER_ID,
    ) -> None:
        """Check that a batch may be appended next.

        Args:
            header: of the batch.
            sequence: whether to check its sequence. Batches of a coordinator have none.
            verification: of its transaction, if the batch begins one; a coordinator may have none.
            limit: a number above all producer ids that the cluster has allocated.

        Raises:
            KafkaError: see :meth:`ProducerState.check`; INVALID_TXN_STATE also if a transaction would begin that is
                not verified; UNKNOWN_PRODUCER_ID also if the id was never allocated.
        """
        state = self.states.get(header.producer_id)
        if state is None:
            _check_allocated(header.producer_id, limit)
        if header.attributes & TRANSACTIONAL:
            state = self._of_transactions(header.producer_id)
            self._check_verified(state, header, sequence, verification)
        if state is not None:
            state.check(header, sequence=sequence)

    def check_owner(self, header: BatchHeader, principal: Hashable) -> None:
        """Check that a client may write with the producer id of its batch. That of a transactional batch is checked by
        :meth:`verify`.

        Args:
            header: of the batch.
            principal: the client; None if it has not said who it is.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED, which clients report at once. librdkafka and kafka-python would
                send the batch with the same id again and again after UNKNOWN_PRODUCER_ID.
        """
        state = self.states.get(header.producer_id)
        if state is None or state.owner is None or header.attributes & TRANSACTIONAL or state.is_transactional:
            return
        if state.owner != principal:
            raise KafkaError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"Producer id {header.producer_id} is used by another principal. To do: request one with "
                "InitProducerId",
            )

    def _of_transactions(self, producer_id: int) -> ProducerState | None:
        """The state of a transactional producer. One that was never in a transaction does not count: a client that is
        not the producer has made it, to block the producer."""
        state = self.states.get(producer_id)
        return state if state is not None and state.is_transactional else None

    def _check_verified(
        self, state: ProducerState | None, header: BatchHeader, sequence: bool, verification: Verification | None
    ) -> None:
        known = None
        if verification is not None:
            known = self.verifications.get(header.producer_id, {}).get(verification.transactional_id)
        epoch, first = header.producer_epoch, header.base_sequence
        if state is not None and epoch < state.epoch:
            raise _old_epoch(state, epoch)
        # A coordinator has asked itself; but what it presents must still count.
        asked = sequence or verification is not None
        if asked and not _is_open(state, epoch) and (known is None or known is not verification):
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if known is not None and sequence:
            if known.bumps_epoch and first != 0 and (state is None or not state.batches):
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Invalid sequence number for producer {header.producer_id}: {first} (incoming seq. number). "
                    "Expected sequence 0 for transactions v2 idempotent producer with no existing state.",
                )
            if first > known.lowest_sequence:
                raise KafkaError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"Out of order sequence number for producer {header.producer_id}: {first} (incoming seq. number), "
                    f"{known.lowest_sequence} (earliest seen sequence)",
                )

    def verify(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Verification | None:
        """Verification before an append to a transaction: a question to its coordinator, unless it is open here and
        known to be that of the transactional id.

        Args:
            producer_id: of the producer.
            epoch: of the producer.
            sequence: of the batch to append.
            now_ms: the time of day.
            transactional_id: of the request, which its client may write.
            bumps_epoch: see :class:`Verification`.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH; INVALID_PRODUCER_ID_MAPPING, the open transaction has another
                transactional id.
        """
        state = self._of_transactions(producer_id)
        if state is not None and epoch < state.epoch:
            raise _old_epoch(state, epoch)
        if state is not None and _is_open(state, epoch) and state.owner is not None:
            if state.owner != transactional_id:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    f"Producer id {producer_id} does not belong to the transactional id of the request",
                )
            return None
        asked = self.verifications.setdefault(producer_id, {})
        known = asked.get(transactional_id)
        if known is None:
            known = Verification(now_ms, sequence, epoch, transactional_id, bumps_epoch=bumps_epoch)
            asked[transactional_id] = known
        else:
            known.wanted(sequence, epoch)
        return known

    def not_verified(self, producer_id: int, verification: Verification) -> None:
        """The coordinator knows of no such transaction: forget the question."""
        if self.verifications.get(producer_id, {}).get(verification.transactional_id) is verification:
            self._forget(producer_id, verification)

    def _forget(self, producer_id: int, verification: Verification) -> None:
        asked = self.verifications[producer_id]
        del asked[verification.transactional_id]
        if not asked:
            del self.verifications[producer_id]

    def wrote(self, header: BatchHeader, base_offset: int) -> None:
        """Add a data batch with a producer id that was appended."""
        state = self.states.get(header.producer_id)
        if header.attributes & TRANSACTIONAL:
            state = self._of_transactions(header.producer_id)
        if state is None:
            state = self.states[header.producer_id] = ProducerState(header.producer_id)
        state.wrote(header, base_offset)
        if header.attributes & TRANSACTIONAL:
            self.verifications.pop(header.producer_id, None)
            if state.transaction_start < 0:
                state.transaction_start = base_offset
                self.open[base_offset] = header.producer_id

    def own(self, header: BatchHeader, verification: Verification | None, principal: Hashable) -> None:
        """Bind the producer id of a client's batch that was appended to its owner, unless it is known.

        Args:
            header: of the batch.
            verification: that was confirmed for it.
            principal: the client; None if it has not said who it is.
        """
        state = self.states[header.producer_id]
        if verification is not None:
            state.owner = verification.transactional_id
        elif state.owner is None and not header.attributes & TRANSACTIONAL:
            state.owner = principal

    # Transactions

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        transaction_version: int,
        limit: int = ANY_PRODUCER_ID,
        *,
        commit: bool,
    ) -> None:
        """Check that a transaction marker may be appended; see :meth:`ProducerState.check_marker`.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED; UNKNOWN_PRODUCER_ID if the id was never
                allocated, see :meth:`check`.
        """
        state = self.states.get(producer_id)
        if state is not None:
            state.check_marker(epoch, coordinator_epoch, transaction_version, commit=commit)
        else:
            _check_allocated(producer_id, limit)

    def ended(
        self, header: BatchHeader, offset: int, coordinator_epoch: int, timestamp: int, *, aborted: bool
    ) -> CompletedTransaction | None:
        """Apply a transaction marker that was appended.

        Args:
            header: of its batch.
            offset: of the marker.
            coordinator_epoch: in the marker.
            timestamp: of the marker, in ms.
            aborted: it is an ABORT marker.

        Returns:
            The transaction that it ended, if the producer had one open here.
        """
        producer_id = header.producer_id
        for asked in list(self.verifications.get(producer_id, {}).values()):
            if not asked.outlives(header.producer_epoch):
                self._forget(producer_id, asked)
        state = self.states.get(producer_id)
        if state is None:
            state = self.states[producer_id] = ProducerState(producer_id)
        first = state.transaction_start
        state.ended(header.producer_epoch, coordinator_epoch, timestamp)
        if first < 0:
            return None
        self.open.pop(first, None)
        self._first_unreplicated = min(first, self._first_unreplicated) if self.unreplicated else first
        if self.unreplicated is None:
            self.unreplicated = deque()
        self.unreplicated.append((first, offset))
        return CompletedTransaction(producer_id, first, offset, aborted, next(iter(self.open), offset + 1))

    def replicated(self, high_watermark: int) -> None:
        """Everything before `high_watermark` is replicated: transactions that ended there are stable."""
        waiting = self.unreplicated
        if not waiting:
            return
        before = len(waiting)
        while waiting and waiting[0][1] < high_watermark:
            waiting.popleft()
        if waiting and len(waiting) < before:
            self._first_unreplicated = min(first for first, _ in waiting)

    def first_unstable_offset(self) -> int | None:
        """The start of the oldest transaction that is open or whose marker is not replicated; None if there is none."""
        first = next(iter(self.open)) if self.open else None
        if self.unreplicated and (first is None or self._first_unreplicated < first):
            return self._first_unreplicated
        return first

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove producers that have written nothing for `expiration_ms` and have no open transaction, and questions
        to coordinators that are as old.

        A time that is further ahead than that counts as `now_ms`: a client may choose it, and the time of day may have
        been set back.
        """
        for state in self.states.values():
            if state.last_timestamp - now_ms > expiration_ms:
                state.last_timestamp = now_ms
        gone = [
            producer_id
            for producer_id, state in self.states.items()
            if state.transaction_start < 0 and now_ms - state.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self.states[producer_id]
        old = [
            (producer_id, each)
            for producer_id, asked in self.verifications.items()
            for each in asked.values()
            if abs(now_ms - each.since) >= expiration_ms
        ]
        for producer_id, each in old:
            self._forget(producer_id, each)

    def clear(self, end_offset: int) -> None:
        """Remove all producers; the log continues at `end_offset`."""
        self._replace([], end_offset)

    def recall(self, headers: Sequence[BatchHeader]) -> None:
        """Add the batches before the last one of each producer, which a snapshot does not have.

        Args:
            headers: of batches in the log before the snapshot, in order.
        """
        for header in reversed(headers):
            if header.producer_id in self.states and header.base_sequence >= 0:
                self.states[header.producer_id].wrote_before(header)

    def _replace(self, states: Iterable[ProducerState], end_offset: int) -> None:
        self.states, self.end_offset = {state.producer_id: state for state in states}, end_offset
        starts = ((state.transaction_start, state.producer_id) for state in self.states.values())
        self.open = OrderedDict(sorted(each for each in starts if each[0] >= 0))
        # The snapshot does not say which markers are replicated.
        kept = [each for each in self.unreplicated or () if each[1] < end_offset]
        self.unreplicated = deque(kept) if kept else None
        self._first_unreplicated = min((first for first, _ in kept), default=0)
        self.verifications.clear()

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
        self._replace(read_snapshot(content), end_offset)


def _is_open(state: ProducerState | None, epoch: int) -> bool:
    """Whether a transaction of this epoch is open."""
    return state is not None and state.transaction_start >= 0 and state.epoch == epoch


def _check_allocated(producer_id: int, limit: int) -> None:
    """Check a producer id that has written nothing here yet.

    Raises:
        KafkaError: UNKNOWN_PRODUCER_ID.
    """
    if producer_id >= limit:
        raise KafkaError(
            ErrorCode.UNKNOWN_PRODUCER_ID,
            f"Producer id {producer_id} was never allocated. To do: request one with InitProducerId",
        )


def _old_epoch(state: ProducerState, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch of producer {state.producer_id} is {epoch}, which is smaller than the last seen epoch {state.epoch}",
    )


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
