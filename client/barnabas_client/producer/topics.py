"""The topics that a producer sends to: records are serialized and checked, get a partition, and are put into batches.

What a program passes is Any here, because wheels have this compiled, which would check types with other errors.
"""

import time
from collections.abc import Callable
from typing import Any, Final

from barnabas_client.checks import check_partition
from barnabas_client.errors import UnknownTopicOrPartitionError
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.retries import RANDOM
from barnabas_client.producer.accumulator import Accumulator, Content, PartitionQueue, ProducerBatch
from barnabas_client.producer.measure import OVERHEAD, check_timestamp, record_size
from barnabas_client.producer.partitioner import StickyPartitioner, positive_hash
from barnabas_client.structs import TopicPartition
from barnabas_protocol.records import RecordColumns

_NS_PER_MS: Final = 1_000_000


class NoRoomError(Exception):
    """`buffer_memory` has no room for a record now: to be appended to its queue later.

    Attributes:
        queue: of its partition.
        content: of the record.
        size: of the record in bytes, at its longest.
    """

    def __init__(self, queue: PartitionQueue, content: Content, size: int) -> None:
        super().__init__(f"no room for {size} bytes")
        self.queue = queue
        self.content = content
        self.size = size


class KnownTopic:
    """A topic with known partitions.

    Attributes:
        name: of the topic.
        partitions: their numbers.
        available: the partitions that have a leader.
        sticky: chooses the partitions of records without a key.
        queues: by partition.
    """

    def __init__(
        self,
        name: str,
        partitions: tuple[int, ...],
        available: tuple[int, ...],
        sticky: StickyPartitioner,
        accumulator: Accumulator,
    ) -> None:
        self.name = name
        self.partitions = partitions
        self.available = available
        self.sticky = sticky
        self.queues = {number: accumulator.queue(TopicPartition(name, number)) for number in partitions}
        config = accumulator.config
        self._accumulator = accumulator
        self._key_serializer: Any = config.key_serializer
        self._value_serializer: Any = config.value_serializer
        self._partitioner: Any = config.partitioner
        self._largest = config.max_request_size
        self._room = config.buffer_memory

    def append(self, call: str, value: Any, key: Any, partition: Any, timestamp_ms: Any, headers: Any) -> ProducerBatch:
        """Put a record into a batch, and return that: it is the last record of it.

        Args:
            call: the name of the producer's method, for errors.
            value: see :meth:`Producer.send <barnabas.Producer.send>`, as for all others.
            key: None is null.
            partition: its number; None chooses one.
            timestamp_ms: milliseconds since 1970; now if None.
            headers: names with values, in order.

        Raises:
            NoRoomError: the record is valid, and has to wait.
            KafkaError, TypeError, ValueError, Exception: as :meth:`Producer.send <barnabas.Producer.send>`.
        """
        what = f"{call} to {self.name}"
        if key is not None and self._key_serializer is not None:
            key = self._key_serializer(key)
        if value is not None and self._value_serializer is not None:
            value = self._value_serializer(value)
        size = record_size(what, key, value, headers, self._largest)
        chosen = self.choose(key, size) if partition is None else partition
        queue = self.queues.get(chosen)
        if queue is None:
            raise self.no_partition(what, chosen)
        if timestamp_ms is None:
            timestamp = time.time_ns() // _NS_PER_MS
        else:
            timestamp = check_timestamp(what, timestamp_ms)
        memory = self._accumulator.memory
        if memory and memory + size > self._room:
            raise NoRoomError(queue, (key, value, headers or (), timestamp), size)
        return queue.append((key, value, headers or (), timestamp), size)

    def choose(self, key: Any, size: int) -> Any:
        """Choose the partition of a record.

        Args:
            key: its bytes.
            size: of the record in bytes.
        """
        if self._partitioner is not None:
            return self._partitioner(key, self.partitions, self.available)
        if key is not None:
            return self.partitions[positive_hash(bytes(key)) % len(self.partitions)]
        return self.sticky.next(self.available or self.partitions, size)

    def next_run(self, columns: RecordColumns, begin: int, end: int) -> tuple[int, int]:
        """Choose the partition of records without a key; returns it, and the end of those that go there."""
        sticky = self.sticky
        room = sticky.room(self.available or self.partitions)
        end = min(end, begin + columns.within(begin, end, room - 1, OVERHEAD) + 1)
        sticky.spend(columns.size(begin, end, OVERHEAD))
        return sticky.partition, end

    def no_partition(self, what: str, number: object) -> UnknownTopicOrPartitionError:
        """The error of a call for a partition that does not exist.

        Raises:
            TypeError, ValueError: it is not the number of a partition.
        """
        check_partition(what, number)
        return UnknownTopicOrPartitionError(
            f"{what}: it has no partition {number!r}, only {len(self.partitions)}. To do: leave partition out, or "
            "choose one of them"
        )


class KnownTopics:
    """The topics with known partitions, updated with each new cluster.

    It has no reference to the producer: the network refers to it, and a producer that a program drops without `stop`
    must become unreachable, so that its `ResourceWarning` is shown.

    Args:
        accumulator: has the queues.
        updated: called after each update, since batches may be due.

    Attributes:
        known: the topics by name.
    """

    def __init__(self, accumulator: Accumulator, updated: Callable[[], None]) -> None:
        self.known: dict[str, KnownTopic] = {}
        self._accumulator = accumulator
        self._updated = updated
        self._stickies: dict[str, StickyPartitioner] = {}

    def update(self, cluster: Cluster) -> None:
        """Apply a new cluster."""
        for topic in cluster.topics:
            partitions = cluster.partitions(topic)
            if partitions is None:
                self.known.pop(topic, None)
                continue
            available = cluster.available(topic)
            known = self.known.get(topic)
            if known is None or known.partitions != partitions or known.available != available:
                size = self._accumulator.config.batch_size
                sticky = self._stickies.setdefault(topic, StickyPartitioner(size, RANDOM.randrange))
                self.known[topic] = KnownTopic(topic, partitions, available, sticky, self._accumulator)
        for tp, queue in self._accumulator.waiting.items():
            leader = cluster.leader(tp)
            if leader is not None:
                queue.led_by(leader)
        self._updated()
