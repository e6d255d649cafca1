"""Members of the classic protocol in a group of the consumer protocol: what they bring, and what they get. Pure.

Such a member has a session timeout of its own, and its subscription and its assignment are bytes of the embedded
consumer protocol (:mod:`barnabas_protocol.consumer_protocol`), whose versions only add fields.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas_broker.groups.classic.members import Protocols
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.subscriptions import read_names

_INT16: Final = Struct(">h")
#: The newest version that is known; a newer one is read and written as this one, as Kafka does.
_NEWEST: Final = 3
#: An empty array, which stands for topics that have been read.
_NO_TOPICS: Final = bytes(4)


class MigrationPolicy(Enum):
    """Whether groups change their protocol while they have members: ``group.consumer.migration.policy``."""

    DISABLED = "disabled"
    """They do not, and members of the classic protocol may not join groups of the consumer protocol."""

    UPGRADE = "upgrade"
    """A classic group becomes one of the consumer protocol when the first such member joins."""

    DOWNGRADE = "downgrade"
    """A group becomes classic when its last member of the consumer protocol is gone."""

    BIDIRECTIONAL = "bidirectional"
    """Both."""

    @property
    def upgrades(self) -> bool:
        """Whether classic groups are upgraded."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def downgrades(self) -> bool:
        """Whether groups of the consumer protocol are downgraded."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


class ClassicMetadata(NamedTuple):
    """The part of a member's state that only members of the classic protocol have.

    Attributes:
        session_timeout_ms: its session timeout.
        protocols: the assignors that it supports, each with its subscription, in order of preference.
    """

    session_timeout_ms: int
    protocols: Protocols

    @property
    def protocol(self) -> str:
        """The assignor that its responses name: the first one."""
        return self.protocols[0][0]

    @property
    def version(self) -> int:
        """The version of its subscription, in which it gets its assignments, too."""
        return version_of(self.protocols[0][1])


class Subscription(NamedTuple):
    """Subscription of a member of the classic protocol.

    Attributes:
        topics: names of the topics.
        owned: the partitions that it owns, by topic.
        rack_id: its rack; None if it does not say so.
        user_data: what its assignor adds.
    """

    topics: frozenset[str]
    owned: Mapping[str, frozenset[int]]
    rack_id: str | None
    user_data: bytes


def version_of(data: bytes) -> int:
    """The version of a subscription or an assignment.

    Raises:
        ValueError: `data` is too short.
    """
    try:
        version = int(_INT16.unpack_from(data)[0])
    except struct_error as error:
        raise ValueError(f"{len(data)} bytes are no subscription or assignment") from error
    if version < 0:
        raise ValueError(f"version {version}")
    return min(version, _NEWEST)


def read_subscription(data: bytes) -> Subscription:
    """Read the subscription of a member.

    Raises:
        ValueError: it is malformed.
    """
    version = version_of(data)
    topics, end = read_names(data, 2)
    try:
        read = decode(ConsumerProtocolSubscription, version, _NO_TOPICS + data[end:], trailing=True)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    owned: dict[str, frozenset[int]] = {}
    for each in read.owned_partitions:
        owned[each.topic] = owned.get(each.topic, frozenset()).union(each.partitions)
    return Subscription(frozenset(topics), owned, read.rack_id or None, bytes(read.user_data or b""))


def read_assignment(data: bytes) -> tuple[dict[str, set[int]], bytes]:
    """Read the assignment that a leader has made: the partitions by topic, and the assignor's own data.

    Raises:
        ValueError: it is malformed.
    """
    if not data:
        return {}, b""
    try:
        read = decode(ConsumerProtocolAssignment, version_of(data), data[2:], trailing=True)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    partitions: dict[str, set[int]] = {}
    for each in read.assigned_partitions:
        partitions.setdefault(each.topic, set()).update(each.partitions)
    return partitions, bytes(read.user_data or b"")


def assignment_of(partitions: Mapping[str, Iterable[int]], version: int) -> bytes:
    """An assignment for a member, in the version of its subscription."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=sorted(numbers))
            for topic, numbers in sorted(partitions.items())
        ]
    )
    return _INT16.pack(version) + encode(message, version)
