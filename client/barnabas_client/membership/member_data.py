"""The bytes that members of a group exchange through the coordinator: subscriptions and assignments. Pure.

Both are an int16 version and the fields of that version (``ConsumerProtocol.java``). They are written in the newest
version: an older reader finds the fields that it needs at the start.
"""

import struct
from collections.abc import Iterable
from typing import Final, TypeVar

from barnabas_client.assignors import MemberSubscription
from barnabas_client.structs import TopicPartition, by_topic
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas_protocol.consumer_protocol import TopicPartition as OwnedTopic
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import Data
from barnabas_protocol.wire import Buffer

PROTOCOL_TYPE: Final = "consumer"
_INT16: Final = struct.Struct(">h")

D = TypeVar("D", bound=Data)


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """A member's subscription for its JoinGroup."""
    message = ConsumerProtocolSubscription(
        topics=list(subscription.topics),
        user_data=subscription.user_data,
        owned_partitions=[
            OwnedTopic(topic=topic, partitions=partitions) for topic, partitions in by_topic(subscription.owned)
        ],
        generation_id=subscription.generation,
        rack_id=subscription.rack,
    )
    return _encode(message)


def decode_subscription(blob: Buffer, instance_id: str | None = None) -> MemberSubscription:
    """A subscription as the leader receives it.

    Raises:
        DecodeError: it is not a subscription.
    """
    message = _decode(ConsumerProtocolSubscription, blob)
    return MemberSubscription(
        topics=tuple(message.topics),
        owned=tuple(TopicPartition(t.topic, number) for t in message.owned_partitions for number in t.partitions),
        generation=message.generation_id,
        user_data=None if message.user_data is None else bytes(message.user_data),
        instance_id=instance_id,
        rack=message.rack_id,
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """A member's assignment for the leader's SyncGroup."""
    topics = [
        ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=numbers)
        for topic, numbers in by_topic(partitions)
    ]
    return _encode(ConsumerProtocolAssignment(assigned_partitions=topics))


def decode_assignment(blob: Buffer) -> tuple[TopicPartition, ...]:
    """A member's assignment. Empty bytes, which a member receives that the leader did not mention, mean no partitions.

    Raises:
        DecodeError: it is not an assignment.
    """
    if not blob:
        return ()
    message = _decode(ConsumerProtocolAssignment, blob)
    return tuple(TopicPartition(t.topic, number) for t in message.assigned_partitions for number in t.partitions)


def _encode(message: Data) -> bytes:
    version = message.VERSIONS.high
    return _INT16.pack(version) + encode(message, version)


def _decode(cls: type[D], blob: Buffer) -> D:
    if len(blob) < 2:
        raise DecodeError(f"{cls.__name__} of {len(blob)} bytes")
    (version,) = _INT16.unpack_from(blob)
    if version < 0:
        raise DecodeError(f"{cls.__name__} version {version}")
    return decode(cls, min(version, cls.VERSIONS.high), memoryview(blob)[2:], trailing=version > cls.VERSIONS.high)
