"""What the client hands out and takes in: partitions, offsets, records. Names and fields are aiokafka's.

All are tuples: they hash, compare and unpack, and one costs little more than the tuple itself.
"""

from typing import Any, NamedTuple

__all__ = [
    "ConsumerRecord",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RecordMetadata",
    "TopicPartition",
]

#: A record's headers: names with values, in order; a name may come twice.
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
    """A committed offset: that of the next record to read, what was noted beside it, and the leader epoch of the last
    read record, -1 if unknown (KIP-320)."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


class OffsetAndTimestamp(NamedTuple):
    """The first offset at or after a time, and its own timestamp in milliseconds since 1970."""

    offset: int
    timestamp: int
    leader_epoch: int = -1


class ConsumerRecord(NamedTuple):
    """One record as consumed.

    `key` and `value` are bytes or None, or whatever the deserializers make of them. `timestamp` is in milliseconds
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
        """Where the record is from."""
        return TopicPartition(self.topic, self.partition)


class RecordMetadata(NamedTuple):
    """Where a sent record was written. `offset` is -1 with `acks=0`, or when the broker had it already and no longer
    knows."""

    topic: str
    partition: int
    topic_partition: TopicPartition
    offset: int
    timestamp: int
    timestamp_type: int
    log_start_offset: int
