"""Partitions, offsets and records: arguments and results of the client. Names and fields are aiokafka's.

All are tuples: they can be hashed, compared and unpacked, and need little memory.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

if TYPE_CHECKING:
    # Defaults of type parameters (PEP 696) exist from Python 3.13 on. Type checkers bring this module; programs run
    # without it.
    from typing_extensions import TypeVar

    #: What a key is deserialized to, and a value.
    K = TypeVar("K", covariant=True, default=bytes)
    V = TypeVar("V", covariant=True, default=bytes | None)
    #: A value that is not null.
    W = TypeVar("W")
else:
    from typing import TypeVar

    K = TypeVar("K", covariant=True)
    V = TypeVar("V", covariant=True)
    W = TypeVar("W")

__all__ = [
    "AnyRecord",
    "BatchMetadata",
    "ConsumerGroupMetadata",
    "PreparedTransaction",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

#: A consumed record's headers: names with values, in order; a name may occur several times.
Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A partition of a topic.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition, from 0 on.
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A committed offset.

    Attributes:
        offset: of the next record to read.
        metadata: a text that is stored with it.
        leader_epoch: of the last record that was read, -1 if it is not known (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class ConsumerGroupMetadata(NamedTuple):
    """A member of a group, so that offsets can be committed for it in a transaction (KIP-447).

    Attributes:
        group_id: the group.
        generation_id: of the group, when the member got its partitions; -1 for a consumer that is not a member.
        member_id: given by the coordinator; empty for a consumer that is not a member.
        group_instance_id: of a static member.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class PreparedTransaction(NamedTuple):
    """A transaction that is complete but open: :meth:`Admin.end_transactions() <barnabas.Admin.end_transactions>` ends
    it, in any process.

    Attributes:
        transactional_id: the name of the producer's transactions.
        producer_id: of the producer.
        producer_epoch: of the producer id. A later epoch means that another producer has taken over.
        version: the ``transaction.version`` by which it was written: 1, or 2 (KIP-890).
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    version: int


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time.

    Attributes:
        offset: of the first record at or after the time.
        timestamp: of that record, in milliseconds since 1970.
        leader_epoch: of that record, -1 if it is not known (KIP-320).
    """

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A consumed record.

    ``ConsumerRecord[K, V]`` has a key of K and a value of V: what the consumer's deserializers return, bytes without
    them. The key may be None whatever the deserializer, because a record need not have one. The value is None if it is
    null in the topic (a tombstone, which deletes the key in a compacted topic): without a deserializer V is
    ``bytes | None``, and for a topic with tombstones, declare that the deserializer returns ``Order | None``.

    Attributes:
        topic: the name of its topic.
        partition: the number of its partition.
        offset: its offset in the partition.
        timestamp: milliseconds since 1970.
        timestamp_type: 0 if the producer set the timestamp, 1 if the broker did.
        key: what `key_deserializer` returned, or the key's bytes; None if the record has no key.
        value: what `value_deserializer` returned, or the value's bytes; None if the value is null, which no
            deserializer gets.
        headers: names with values, in order; a name may occur several times.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: K | None
    value: V
    headers: Headers

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)


#: A record inside the client, which handles all keys and values alike.
AnyRecord = ConsumerRecord[Any, Any]


class RecordMetadata(NamedTuple):
    """The position at which a sent record was written.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        topic_partition: both.
        offset: -1 with ``acks=0``, or if the broker had the record already and no longer knows its offset.
        timestamp: of the record, in milliseconds since 1970.
        timestamp_type: 0 if the producer set the timestamp, 1 if the broker did.
        log_start_offset: the first offset of the partition; -1 if it is not known.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: int


class BatchMetadata(NamedTuple):
    """The position at which the records of a batch were written.

    Attributes:
        topic: the name of the topic.
        partition: the number of the partition.
        topic_partition: both.
        offset: of the first record; -1 with ``acks=0``, or if the broker had the batch already and no longer knows its
            offset.
        last_offset: of the last record; -1 as `offset`. Records of other producers are between the two only if the
            broker has refused the batch as too large, so that it was split.
        record_count: the number of records.
        log_start_offset: the first offset of the partition; -1 if it is not known.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    last_offset: int
    record_count: int
    log_start_offset: int


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions grouped by topic, both ascending."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return list(grouped.items())
