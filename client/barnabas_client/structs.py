"""Partitions, offsets and records: arguments and results of the client. Names and fields are aiokafka's.

All are tuples: they can be hashed, compared and unpacked, and need little memory.
"""

from typing import Any, NamedTuple

__all__ = [
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

#: A record's headers: names with values, in order; a name may occur several times.
Headers = tuple[tuple[str, bytes | None], ...]

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class TopicPartition(NamedTuple):
    """A partition of a topic."""

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


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, with the record's timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple):
    """A consumed record.

    `key` and `value` are bytes or None, or the results of the deserializers. `timestamp` is in milliseconds
    since 1970; `timestamp_type` is 0 where the producer set it and 1 where the broker did.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: Headers

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the record."""
        return TopicPartition(self.topic, self.partition)


class RecordMetadata(NamedTuple):
    """The position at which a sent record was written.

    `offset` is -1 with `acks=0`, or if the broker had the record already and no longer knows its offset.
    """

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: int
