"""The logs of coordinators on this broker's replicas.

The classes implement ports of :mod:`barnabas_broker.coordinators.ports`, :mod:`barnabas_broker.groups.ports` and
:mod:`barnabas_broker.transactions.ports`.
"""

import asyncio
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from math import inf
from typing import Final

from barnabas_broker.coordinators.leader import DistantLog, Leader
from barnabas_broker.coordinators.leader_requests import append_at
from barnabas_broker.coordinators.ports import Peers
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.replication.durability import Completion
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.steps import finish
from barnabas_broker.storage import Log, TopicPartition
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_broker.storage.producer_state import NO_SEQUENCE, Verification
from barnabas_broker.storage.retention import Removal
from barnabas_broker.storage.slices import joined
from barnabas_explain.members import Partition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.internal_topics import EVENTS_TOPIC, TRANSACTION_EVENTS_TOPIC
from barnabas_protocol.records.batches import BatchHeader, iter_batches
from barnabas_protocol.records.compression import Codec
from barnabas_protocol.wire import Buffer

log = logger("coordinator")

#: Bytes that a replay reads at a time.
_CHUNK: Final = 1024 * 1024
#: Bytes of a log among which records are looked for.
_LOOK_BYTES: Final = 64 * 1024
#: Transactional ids of aborted transactions that are named.
_MOST_IDS: Final = 5
#: Batches before an offset whose codecs are looked at.
_CODEC_BATCHES: Final = 8
#: Batches and records after it among which the first one with another codec is looked for.
_CODEC_BATCHES_AFTER: Final = 100
_CODEC_RECORDS_AFTER: Final = 500
#: Batches of events that are on their way to other brokers, and seconds that one of them may take.
_MOST_SENDING: Final = 16
_SEND_SECONDS: Final = 5.0
#: What a producer causes, not the log.
_REFUSALS: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE)


class ConsumedLogs:
    """Implements :class:`.ReadLogs`.

    Args:
        replicas: the replicas on this broker.
    """

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._distant: Mapping[Partition, DistantLog] = {}

    def leader(self, topic: str, partition: int) -> Leader | None:
        info, replica = self._replicas.info(topic, partition), self._replicas.replica_in_sync(topic, partition)
        is_here = replica is not None and replica.leading is not None
        return None if info is None else Leader(info.leader, info.leader_epoch, is_here)

    def is_distant(self, topic: str, partition: int) -> bool:
        return self._replicas.replica_in_sync(topic, partition) is None

    def learn(self, reported: Mapping[Partition, DistantLog]) -> None:
        self._distant = reported

    def readable(self, topic: str, partition: int) -> tuple[int, int] | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is not None:
            return replica.log.log_start_offset, replica.log.last_stable_offset
        distant = self._distant.get((topic, partition))
        return None if distant is None else (distant.start, distant.stable)

    def end(self, topic: str, partition: int) -> int | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        return None if replica is None else replica.log.log_end_offset

    def removal(self, topic: str, partition: int) -> Removal | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        last = None if replica is None else replica.log.removal
        return last if last is not None and replica and last.log_start == replica.log.log_start_offset else None

    def has_records(self, topic: str, partition: int, offset: int) -> bool | None:
        distant = self._distant.get((topic, partition))
        if distant is not None and self.is_distant(topic, partition):
            return distant.has_records if distant.offset == offset else None
        looked = self._look(topic, partition, offset, _LOOK_BYTES)
        return None if looked is None else any(not is_aborted for _, is_aborted in looked)

    def since(self, topic: str, partition: int, time_ms: int) -> int | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is None:
            return None
        found = replica.log
        try:
            batch = found.segments.batch_for_timestamp(time_ms, found.log_start_offset)
        except KafkaError:
            return None
        return None if batch is None else max(batch.header.base_offset, found.log_start_offset)

    def aborted_between(self, topic: str, partition: int, start: int, end: int) -> tuple[int, str | None] | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is None or not replica.log.has_aborted:
            return None
        try:
            number, producer_id = replica.log.aborted_between(max(start, replica.log.log_start_offset), end)
        except OSError:
            return None
        state = replica.log.producers.states.get(producer_id)
        return number, state.owner if state is not None and isinstance(state.owner, str) else None

    def aborted(self, topic: str, partition: int, offset: int) -> tuple[int, int, tuple[str, ...]] | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is None or not replica.log.has_aborted:
            return None
        batches: list[BatchHeader] = []
        for size in (1, _LOOK_BYTES):  # Mostly the first batch says it.
            looked = self._look(topic, partition, offset, size)
            if looked is None or not all(is_aborted for _, is_aborted in looked):
                return None
            batches = [header for header, _ in looked]
        if not batches:
            return None
        states = replica.log.producers.states
        owners = [state.owner for batch in batches if (state := states.get(batch.producer_id)) is not None]
        ids = dict.fromkeys(owner for owner in owners if isinstance(owner, str))
        return sum(batch.count for batch in batches), batches[-1].next_offset, tuple(ids)[:_MOST_IDS]

    def _look(self, topic: str, partition: int, offset: int, size: int) -> list[tuple[BatchHeader, bool]] | None:
        """The batches of records from `offset` on, without markers, and whether each belongs to an aborted
        transaction; None if they have to be loaded, or cannot be read."""
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is None:
            return None
        found = replica.log
        try:
            if found.warm(offset, size) is not None:
                return None
            parts, aborted = finish(found.read_committed(offset, size, min_one=True))
            spans: dict[int, list[tuple[int, int]]] = {}
            for each in aborted:
                spans.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
            headers = [header for header, _ in iter_batches(joined(parts), partial_ok=True)]
        except (KafkaError, OSError):
            return None
        return [
            (header, header.is_transactional and _holds(spans.get(header.producer_id, ()), header.base_offset))
            for header in headers
            if header.last_offset >= offset and not header.is_control
        ]

    def codecs(self, topic: str, partition: int, offset: int) -> tuple[str, tuple[str, ...], int] | None:
        replica = self._replicas.replica_in_sync(topic, partition)
        if replica is None:
            return None
        found = replica.log
        try:
            batch = _batch_at(found, offset)
            if batch is None:
                return None
            before: list[str] = []
            at = batch.base_offset - 1
            for _ in range(_CODEC_BATCHES):
                earlier = _batch_at(found, at) if at >= found.log_start_offset else None
                if earlier is None:
                    break
                at = earlier.base_offset - 1
                # Markers of transactions are never compressed.
                if not earlier.is_control:
                    before.append(Codec(earlier.codec).name.lower())
            first = batch
            for _ in range(_CODEC_BATCHES_AFTER):
                name = Codec(batch.codec).name.lower()
                if not batch.is_control and (name not in before or not before):
                    break
                later = _batch_at(found, batch.next_offset) if batch.next_offset < found.last_stable_offset else None
                if later is None or later.base_offset - offset > _CODEC_RECORDS_AFTER:
                    batch = first
                    break
                batch = later
            else:
                batch = first
        except (KafkaError, DecodeError, OSError):
            return None
        return Codec(batch.codec).name.lower(), tuple(dict.fromkeys(before)), max(batch.base_offset, offset)


def _holds(spans: Sequence[tuple[int, int]], offset: int) -> bool:
    """Whether one of the spans, in order, which do not overlap, holds an offset."""
    at = bisect_right(spans, (offset, inf)) - 1
    return at >= 0 and offset <= spans[at][1]


def _batch_at(partition_log: Log, offset: int) -> BatchHeader | None:
    """The header of the batch that holds an offset, or of the next one; None if it has to be loaded, or is not there.

    Raises:
        KafkaError, DecodeError, OSError: it cannot be read.
    """
    if partition_log.warm(offset, 1) is not None:
        return None
    parts = partition_log.read(offset, 1, partition_log.last_stable_offset, min_one=True)
    return next((header for header, _ in iter_batches(joined(parts), partial_ok=True)), None)


class CoordinatorTopicLog:
    """Appends to the partitions of a coordinator's topic, and reads them for a replay.

    Args:
        topic: ``__consumer_offsets`` or ``__transaction_state``.
        replicas: the replicas on this broker.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, topic: str, replicas: ReplicaManager, wall_ms: Callable[[], int]) -> None:
        self._topic = topic
        self._replicas = replicas
        self._wall_ms = wall_ms
        #: Requests of clients cause these without end while replicas are missing, or are too large to be written.
        self._lines = FoldedLines(time.monotonic)
        #: Why the last append to a partition failed.
        self._failing: dict[int, ErrorCode] = {}
        #: Number of appends without a result.
        self._waiting: Counter[int] = Counter()

    def append(
        self,
        partition: int,
        batch: bytearray,
        done: Callable[[ErrorCode], None],
        verification: Verification | None = None,
    ) -> None:
        """Append a batch; call `done` when it is synced as configured and in the logs of the ISR, or has failed.

        Args:
            partition: of the topic.
            batch: its bytes.
            done: called once.
            verification: of the transaction that the batch begins, from :meth:`verify`.
        """
        try:
            replica = self._replicas.find(self._topic, partition)
            replica.check_isr()
            info = replica.append(batch, self._wall_ms(), internal=True, verification=verification)
            conditions = replica.unacknowledged(info.last_offset, acks_all=True)
        except KafkaError as error:
            pairs: dict[str, Hashable] = {"partition": partition, "error": error.code.name, "reason": str(error)}
            if error.code in _REFUSALS:
                self._lines.add(log.info, f"{self._topic} is not written", "", **pairs)
            elif self._failing.get(partition) is error.code:
                # Clients try again, for as long as replicas are missing for instance: the first failure is logged.
                log.debug(f"{self._topic} cannot be written", **pairs)
            else:
                self._failing[partition] = error.code
                self._lines.add(log.error, f"{self._topic} cannot be written", "", **pairs)
            done(error.code)
            return
        if self._failing.pop(partition, None) is not None:
            self._lines.add(log.info, f"{self._topic} can be written again", "", partition=partition)
        if not conditions and not self._waiting[partition]:
            done(ErrorCode.NONE)
            return

        def completed(error: KafkaError | None) -> None:
            self._waiting[partition] -= 1
            done(ErrorCode.NONE if error is None else error.code)

        self._waiting[partition] += 1
        if conditions:
            Completion(conditions, completed)
        else:
            # Results come in the order of the log: those of earlier appends are on their way.
            asyncio.get_running_loop().call_soon(completed, None)

    def verify(
        self, partition: int, producer_id: int, producer_epoch: int, transactional_id: str, *, bumps_epoch: bool
    ) -> Verification | None:
        """Verification before an append to a transaction; see :meth:`.Producers.verify`.

        Raises:
            KafkaError: INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, or this broker does not lead the partition.
        """
        producers = self._replicas.find(self._topic, partition).log.producers
        return producers.verify(
            producer_id, producer_epoch, NO_SEQUENCE, self._wall_ms(), transactional_id, bumps_epoch=bumps_epoch
        )

    def not_verified(self, partition: int, producer_id: int, verification: Verification) -> None:
        """Forget the verification of a transaction that its coordinator does not know."""
        try:
            producers = self._replicas.find(self._topic, partition).log.producers
        except KafkaError:
            return  # Another broker leads the partition.
        producers.not_verified(producer_id, verification)

    def end_offset(self, partition: int) -> int:
        """Where a replay ends: the log end offset. Records beyond the high watermark may have been acknowledged."""
        return self._replicas.find(self._topic, partition).log.log_end_offset

    def start_offset(self, partition: int) -> int:
        """Where a replay begins."""
        return self._replicas.find(self._topic, partition).log.log_start_offset

    async def read(self, partition: int, offset: int) -> Buffer:
        """Whole batches from `offset` on, about a megabyte; b"" at the end. Damage is reported and skipped,
        unless another replica in sync has the records and takes over.

        On a new leader this waits until the high watermark covers the records of earlier leaders: the coordinator must
        not answer with records that another election could remove. It does not wait while fewer replicas are in sync
        than ``min.insync.replicas``: then nothing can be committed, and the groups would have no coordinator.
        """
        replica = self._replicas.find(self._topic, partition)
        settled = replica.when_settled()
        if settled is not None:
            await settled
            replica = self._replicas.find(self._topic, partition)
        end = replica.log.log_end_offset
        while offset < end:
            try:
                return joined(replica.log.read(offset, _CHUNK, end, min_one=True))
            except DamagedLog as error:
                if len(replica.info.isr) > 1:
                    # Another replica in sync has the records and leads soon: no client may be answered without them.
                    raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error)) from error
                damage = error.damage
                log.error(
                    f"records of {self._topic} are damaged and skipped: what they say is lost",
                    partition=partition,
                    offset=damage.offset,
                    next_offset=damage.next_offset,
                    reason=damage.reason,
                )
                offset = max(damage.next_offset, offset + 1)
        return b""


class GroupEventsLog:
    """Appends group events to ``__group_events``, here or on the leader of the partition. An event that cannot be
    written is dropped.

    The coordinator of a group mostly leads the partition of its events. A broker that delivers records of a share group
    has events of it, too, and coordinates it only by chance.

    Args:
        replicas: the replicas on this broker.
        wall_ms: the time of day, in ms.
        leader: the node id of a partition's leader, by the cluster image.
        peers: the other brokers.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        wall_ms: Callable[[], int],
        leader: Callable[[TopicPartition], int | None],
        peers: Peers,
    ) -> None:
        self._replicas = replicas
        self._wall_ms = wall_ms
        self._leader = leader
        self._peers = peers
        #: The batches that are on their way.
        self._sending: set[asyncio.Task[None]] = set()

    def append(self, partition: int, batch: bytearray) -> None:
        """Append a batch of events."""
        try:
            self._replicas.find(EVENTS_TOPIC, partition).append(batch, self._wall_ms(), internal=True)
        except KafkaError as error:
            leader = self._leader(TopicPartition(EVENTS_TOPIC, partition))
            if leader in (None, -1, self._replicas.node_id) or len(self._sending) >= _MOST_SENDING:
                _dropped(partition, error)
                return
            sending = asyncio.get_running_loop().create_task(self._send(leader or 0, partition, batch))
            self._sending.add(sending)
            sending.add_done_callback(self._sending.discard)

    async def _send(self, leader: int, partition: int, batch: bytearray) -> None:
        try:
            await append_at(self._peers, leader, EVENTS_TOPIC, partition, batch, acks=1, timeout=_SEND_SECONDS)
        except (KafkaError, DecodeError, OSError) as error:
            _dropped(partition, error)


def _dropped(partition: int, error: Exception) -> None:
    reason = error.code.name if isinstance(error, KafkaError) else str(error) or type(error).__name__
    log.debug("group events dropped", partition=partition, reason=reason)


class TransactionEventsLog:
    """Appends transaction events to the first partition of ``__transaction_events`` that this broker leads.

    An event that cannot be written is dropped.

    Args:
        replicas: the replicas on this broker.
        wall_ms: the time of day, in ms.
    """

    def __init__(self, replicas: ReplicaManager, wall_ms: Callable[[], int]) -> None:
        self._replicas = replicas
        self._wall_ms = wall_ms

    def append(self, batch: bytearray) -> None:
        """Append a batch of events."""
        try:
            partition = min(self._replicas.led(TRANSACTION_EVENTS_TOPIC), default=0)
            self._replicas.find(TRANSACTION_EVENTS_TOPIC, partition).append(batch, self._wall_ms(), internal=True)
        except KafkaError as error:
            log.debug("transaction events dropped", error=error.code.name)
