"""Dead letters of share groups: undeliverable records go to a topic (KIP-1191).

A group names the topic in ``errors.deadletterqueue.topic.name``. It must exist, allow it
(``errors.deadletterqueue.group.enable``), and begin with ``errors.deadletterqueue.topic.name.prefix``. A record of
partition p goes to partition p modulo the number of partitions; it has Kafka's headers, and with
``errors.deadletterqueue.copy.record.enable`` also key, value and headers of the original.

Dead letters are written before the end of the delivery is: a failure in between writes them again. If they cannot be
written, the delivery ends all the same, and they are tried again in the background, as often as in Kafka. Those that
wait then are lost if this broker stops.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import TOPIC_KEYS, Config, GroupConfig, TopicConfig
from barnabas_broker.config.keys import (
    DEAD_LETTER_COPY_RECORD,
    DEAD_LETTER_GROUP_ENABLE,
    DEAD_LETTER_TOPIC,
    DEAD_LETTER_TOPIC_NAME_PREFIX,
    MAX_MESSAGE_BYTES,
    MESSAGE_MAX_DECOMPRESSED_BYTES,
)
from barnabas_broker.coordinators.leader_requests import append_at
from barnabas_broker.coordinators.ports import Peers
from barnabas_broker.groups.share.partition import Reason, Undeliverable
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.replica import Replica
from barnabas_broker.share_partitions.incidents import Letters, Place
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.records import Record, build_batch, iter_batches, iter_records

log = logger("shares")

#: Seconds that the dead letters of one write may take.
_TIMEOUT: Final = 5.0
#: Attempts after the first one, and seconds between two of them: the least and the most, as in Kafka.
_RETRIES: Final = 4
_RETRY_SECONDS: Final = (1.0, 30.0)
#: Records that wait for another attempt. What comes when there are more is tried once.
_MOST_WAITING: Final = 10_000
#: Records in one batch.
_MOST_RECORDS: Final = 500
#: Bytes of originals that are read at once, unless one batch is larger.
_READ_BYTES: Final = 1_048_576
_MESSAGES: Final = {
    Reason.REJECTED: b"Offset rejected by client.",
    Reason.DELIVERY_LIMIT: b"Offset delivery count exceeded the threshold.",
}

#: Gets the result for some undeliverable records of a share partition.
Report = Callable[[Place, Sequence[Undeliverable], Letters], None]

_Headers = tuple[tuple[str, bytes | None], ...]
_Letter = tuple[bytes | None, bytes | None, _Headers, int]


def headers(place: Place, offset: int, delivery_count: int, reason: Reason) -> _Headers:
    """The headers of a dead letter, with Kafka's names."""
    return (
        ("__dlq.errors.topic", place.topic.encode()),
        ("__dlq.errors.partition", str(place.partition).encode()),
        ("__dlq.errors.offset", str(offset).encode()),
        ("__dlq.errors.group", place.group.encode()),
        ("__dlq.errors.delivery.count", str(delivery_count).encode()),
        ("__dlq.errors.message", _MESSAGES[reason]),
    )


class DeadLetterTopics:
    """Writes undeliverable records to the topics that groups name.

    Args:
        config: the broker's configuration.
        cluster: the cluster image: topics, and the configuration of groups.
        replicas: the logs that this broker leads.
        peers: the other brokers.
        wall_ms: the time of day, in ms.
        now: a monotonic clock, in seconds.

    Attributes:
        written: dead letters since the start.
        failed: records that became none, though their group names a topic.
    """

    def __init__(
        self,
        config: Config,
        cluster: ClusterMetadata,
        replicas: ReplicaManager,
        peers: Peers,
        wall_ms: Callable[[], int],
        now: Callable[[], float],
    ) -> None:
        self.written = self.failed = 0
        self._config = config
        self._cluster = cluster
        self._replicas = replicas
        self._peers = peers
        self._wall_ms = wall_ms
        self._lines = FoldedLines(now, "group")
        #: Records that wait for another attempt, by the topic that they go to.
        self._waiting: Counter[str] = Counter()
        self._retries: set[asyncio.Task[None]] = set()

    async def write(
        self, place: Place, replica: Replica, undeliverable: Sequence[Undeliverable], report: Report
    ) -> None:
        """Write dead letters, if the group wants them.

        What cannot be written now, because its leader is down for instance, is tried again in the background, with
        growing pauses. What comes for the same topic meanwhile waits, too.

        Args:
            place: where the records are.
            replica: their log.
            undeliverable: the records.
            report: gets what was written, and what is given up.
        """
        topic = self._group(place)[DEAD_LETTER_TOPIC]
        if not topic:
            return
        left: Sequence[Undeliverable] = undeliverable
        full = self._waiting.total() >= _MOST_WAITING
        if full or not self._waiting[topic]:
            left = await self._attempt(place, replica, undeliverable, report, last=full)
        if left:
            retrying = asyncio.get_running_loop().create_task(self._retry(topic, place, replica, left, report))
            self._retries.add(retrying)
            retrying.add_done_callback(self._retries.discard)

    async def _retry(
        self, topic: str, place: Place, replica: Replica, left: Sequence[Undeliverable], report: Report
    ) -> None:
        backoff, records = jittered(*_RETRY_SECONDS, seed=str(place)), _count(left)
        self._waiting[topic] += records
        try:
            for attempt in range(1, _RETRIES + 1):
                await asyncio.sleep(backoff.failed())
                left = await self._attempt(place, replica, left, report, last=attempt == _RETRIES)
                if not left:
                    return
        finally:
            self._waiting[topic] -= records

    async def _attempt(
        self, place: Place, replica: Replica, undeliverable: Sequence[Undeliverable], report: Report, *, last: bool
    ) -> Sequence[Undeliverable]:
        """Write dead letters. Returns those that are to be tried again: none in the last attempt."""
        group = self._group(place)
        topic = group[DEAD_LETTER_TOPIC]
        done = 0
        try:
            most = self._check(topic)
        except KafkaError as error:
            return self._give_up(place, topic, undeliverable, done, error, report)
        try:
            async with asyncio.timeout(_TIMEOUT):
                for each in undeliverable:
                    originals: dict[int, Record] = {}
                    if group[DEAD_LETTER_COPY_RECORD]:
                        originals = await self._originals(replica, each)
                    async for batch, count in self._batches(place, each, originals, most):
                        await self._append(topic, place.partition, batch)
                        done += count
        except (KafkaError, OSError, DecodeError) as error:
            passing = isinstance(error, OSError) or (isinstance(error, KafkaError) and error.code.retriable)
            if last or not passing or topic not in self._cluster.image.topics:
                return self._give_up(place, topic, undeliverable, done, error, report)
            self._log(log.info, "dead letters are tried again", place, topic, error)
        self.written += done
        if done:
            report(place, undeliverable, Letters(topic, done, 0, None))
        return _rest(undeliverable, done)

    def _give_up(
        self,
        place: Place,
        topic: str,
        undeliverable: Sequence[Undeliverable],
        done: int,
        error: Exception,
        report: Report,
    ) -> Sequence[Undeliverable]:
        self._log(log.warning, "dead letters could not be written", place, topic, error)
        failed = _count(undeliverable) - done
        self.written += done
        self.failed += failed
        report(place, undeliverable, Letters(topic, done, failed, _reason_of(error)))
        return ()

    def _log(self, write: Callable[..., None], event: str, place: Place, topic: str, error: Exception) -> None:
        self._lines.add(write, event, place.group, share_partition=str(place), topic=topic, reason=_reason_of(error))

    def _group(self, place: Place) -> GroupConfig:
        return GroupConfig(self._config, self._cluster.image.group_configs.get(place.group, {}))

    def tick(self) -> None:
        """Write how often log lines were repeated. To be called every second."""
        self._lines.tick()

    def close(self) -> None:
        """Give up what waits for another attempt."""
        if waiting := self._waiting.total():
            log.warning("dead letters are lost: the broker stops before their leaders answer", records=waiting)
        for retry in self._retries:
            retry.cancel()

    def _check(self, topic: str) -> int:
        """Check that a topic may have dead letters; the most bytes of a batch.

        Raises:
            KafkaError: it may not.
        """
        prefix = self._config[DEAD_LETTER_TOPIC_NAME_PREFIX]
        if not topic.startswith(prefix):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"its name does not begin with {prefix}")
        info = self._cluster.image.topics.get(topic)
        if info is None:
            raise _no_topic()
        configs = TopicConfig(self._config, info.configs, TOPIC_KEYS)
        if not configs[DEAD_LETTER_GROUP_ENABLE]:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{DEAD_LETTER_GROUP_ENABLE.name} is not set for the topic")
        return configs[MAX_MESSAGE_BYTES]

    async def _originals(self, replica: Replica, each: Undeliverable) -> dict[int, Record]:
        """The records that are undeliverable, by offset, as far as they can be read."""
        found: dict[int, Record] = {}
        offset, partition_log = each.first, replica.log
        most = self._config[MESSAGE_MAX_DECOMPRESSED_BYTES]
        while offset <= each.last:
            loading = partition_log.warm(offset, _READ_BYTES)
            if loading is not None:
                await asyncio.wait([loading])
            data = joined(partition_log.read(offset, _READ_BYTES, partition_log.high_watermark, min_one=True))
            for header, batch in iter_batches(data, partial_ok=True):
                if header.base_offset > each.last:
                    return found
                records = await asyncio.to_thread(lambda of: list(iter_records(of, max_bytes=most)), batch)
                for some in records:
                    found.update((one.offset, one) for one in some if each.first <= one.offset <= each.last)
                offset = header.next_offset
            if not data:
                break
        return found

    async def _batches(
        self, place: Place, each: Undeliverable, originals: dict[int, Record], most: int
    ) -> AsyncIterator[tuple[bytearray, int]]:
        """Batches of dead letters, as large as the topic takes, and their numbers of records."""
        letters: list[_Letter] = []
        size = 0
        for offset in range(each.first, each.last + 1):
            original = originals.get(offset)
            context = headers(place, offset, each.delivery_count, each.reason)
            key: bytes | None = None
            value: bytes | None = None
            if original is not None:
                key, value = original.key, original.value
                context = (*original.headers, *context)
            length = 64 + len(key or b"") + len(value or b"")
            length += sum(len(name) + len(content or b"") + 10 for name, content in context)
            if letters and (size + length > most - 100 or len(letters) >= _MOST_RECORDS):
                yield build_batch(letters), len(letters)
                letters, size = [], 0
                await asyncio.sleep(0)
            letters.append((key, value, context, self._wall_ms()))
            size += length
        if letters:
            yield build_batch(letters), len(letters)

    async def _append(self, topic: str, partition: int, batch: bytearray) -> None:
        """Append a batch on the leader of its partition, and wait until it is replicated.

        Raises:
            KafkaError: the leader has refused it.
            OSError: the leader cannot be reached.
        """
        info = self._cluster.image.topics.get(topic)
        if info is None:
            raise _no_topic()
        index = partition % len(info.partitions)
        leader = info.partitions[index].leader
        if leader == self._replicas.node_id:
            replica = self._replicas.find(topic, index)
            replica.check_isr()
            appended = replica.append(batch, self._wall_ms())
            waiting = replica.unacknowledged(appended.last_offset, acks_all=True)
            if waiting:
                await asyncio.gather(*waiting)
            return
        await append_at(self._peers, leader, topic, index, batch, acks=-1, timeout=_TIMEOUT)


def _count(undeliverable: Sequence[Undeliverable]) -> int:
    """The number of records."""
    return sum(each.last - each.first + 1 for each in undeliverable)


def _rest(undeliverable: Sequence[Undeliverable], done: int) -> list[Undeliverable]:
    """The records after the first so many."""
    left = []
    for each in undeliverable:
        first, done = each.first + done, max(done - (each.last - each.first + 1), 0)
        if first <= each.last:
            left.append(each._replace(first=first))
    return left


def _no_topic() -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the topic does not exist")


def _reason_of(error: Exception) -> str:
    """Why dead letters could not be written, for log lines and group events."""
    if isinstance(error, KafkaError):
        return f"{error.code.name}: {error.message}" if error.message else error.code.name
    return str(error) or type(error).__name__
