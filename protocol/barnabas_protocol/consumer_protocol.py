"""Subscriptions and assignments that members of a classic consumer group exchange (KIP-429, KIP-792).

The coordinator does not read them. Each is an int16 version and the fields of that version; a reader treats a version
newer than its own as its newest.
"""

from barnabas_protocol.schema import BYTES, INT32, STRING, Data, Struct, array, field
from barnabas_protocol.wire import Buffer


class TopicPartition(Struct):
    topic: str = field(STRING, "1+", default="")
    partitions: list[int] = field(array(INT32), "1+", default=[])


class ConsumerProtocolSubscription(Data, versions="0-3"):
    """The metadata of a member: the topics it subscribes to, and the partitions it owns."""

    SMALL = True
    topics: list[str] = field(array(STRING))
    user_data: Buffer | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+", default=[], ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


class ConsumerProtocolAssignmentTopicPartition(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class ConsumerProtocolAssignment(Data, versions="0-3"):
    """The partitions that the leader assigns to a member."""

    SMALL = True
    assigned_partitions: list[ConsumerProtocolAssignmentTopicPartition] = field(
        array(ConsumerProtocolAssignmentTopicPartition)
    )
    user_data: Buffer | None = field(BYTES, nullable="0+", default=None)
