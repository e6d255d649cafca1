"""A member of a group of the consumer protocol: its epochs, what it owns, and what it has to revoke. Pure.

It may use the classic protocol itself: then it has :attr:`ConsumerGroupMember.classic`, and its generation is its
member epoch.

Source: Kafka's ``ConsumerGroupMember``, ``MemberState``.
"""

from collections.abc import Mapping
from math import inf
from typing import Final, NamedTuple

from barnabas_broker.groups.consumer.classic_members import ClassicMetadata
from barnabas_explain.members import Member
from barnabas_protocol.coordinator_records import MemberState
from barnabas_protocol.errors import ErrorCode, KafkaError

#: The member epochs with which members join and leave.
JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2

#: The partitions of a member, by topic id, with the epoch at which each was assigned. A value is never changed, only
#: replaced, and has no empty topics.
Owned = Mapping[bytes, Mapping[int, int]]


class Description(NamedTuple):
    """The content of a member's record of type 5; see :class:`ConsumerGroupMember`."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """The content of a member's record of type 8: the partitions that it owns, and how far it is.

    Attributes:
        state: its state.
        epoch: its member epoch.
        previous_epoch: the one before.
        assigned: the partitions that it owns and keeps.
        revoking: the partitions that it owns and has to revoke.
    """

    state: MemberState
    epoch: int
    previous_epoch: int
    assigned: Owned
    revoking: Owned


class ConsumerGroupMember:
    """One member.

    Attributes:
        description: the content of its record of type 5, which the fields repeat for those that are read often.
        member_id: its id, which it generated itself (KIP-1082), or got from the coordinator.
        instance_id: its ``group.instance.id``; None for a dynamic member.
        rack_id: its rack; None if unknown.
        client_id: of the client that sent the last heartbeat.
        client_host: its address, as Kafka prints it ("/127.0.0.1").
        rebalance_timeout_ms: the time that it may take to revoke partitions.
        topics: names of the topics that it subscribes to.
        regex: the regular expression that it subscribes with, too; "" for none, as in Kafka's records.
        assignor: the assignor that it prefers; None leaves the choice to the coordinator.
        epoch: its member epoch; LEAVE_STATIC_EPOCH while a static member is away.
        previous_epoch: the one before, with which it may come if a response was lost.
        state: see :class:`MemberState`.
        assigned: the partitions that it owns and keeps.
        revoking: the partitions that it owns and has to revoke.
        contested: whether another member has asked for its instance id since it has it.
        fenced: whether its last heartbeat was refused because of its epoch.
        last_seen: when its last heartbeat was, in seconds on the machine's clock.
        told_on: the connection on which it was sent its assignment last; None if that is not known.
        revoking_since: since when it has had to revoke partitions; inf if it does not.
        classic: what the group knows of a member that uses the classic protocol; None for one of the consumer protocol.
        join_by: when a member of the classic protocol that was asked to rejoin has to have done so; inf if it was not.
        sync_by: when a member of the classic protocol that has joined has to have sent SyncGroup; inf if it need not.
        warn_at: when others are warned that it has not revoked them; inf for never.
        check_at: when its group checks these times next; inf if it does not.
    """

    __slots__ = (
        "assigned",
        "assignor",
        "check_at",
        "classic",
        "client_host",
        "client_id",
        "contested",
        "description",
        "epoch",
        "fenced",
        "instance_id",
        "join_by",
        "last_seen",
        "member_id",
        "previous_epoch",
        "rack_id",
        "rebalance_timeout_ms",
        "regex",
        "revoking",
        "revoking_since",
        "state",
        "sync_by",
        "told_on",
        "topics",
        "warn_at",
    )

    def __init__(self, member_id: str, now: float) -> None:
        self.member_id = member_id
        self.describe(Description())
        self.epoch = self.previous_epoch = JOIN_EPOCH
        self.state = MemberState.STABLE
        self.assigned: Owned = {}
        self.revoking: Owned = {}
        self.contested = self.fenced = False
        self.last_seen = now
        self.told_on: object | None = None
        self.revoking_since = inf
        self.join_by = self.sync_by = inf
        self.warn_at = inf
        self.check_at = inf

    def was_told_elsewhere(self, connection: object | None) -> bool:
        """Whether it was sent its assignment on another connection than this one of its next heartbeat.

        A heartbeat may arrive late, on a connection that its client has given up: what that is answered never arrives,
        and the client, which was answered on a new connection before, does not know that it has missed something.
        Apache Kafka does not send the assignment again then.
        """
        return self.told_on is not None and self.told_on is not connection

    def describe(self, description: Description) -> None:
        """Take over what a record says of the member."""
        self.description = description
        self.instance_id: str | None = description.instance_id
        self.rack_id: str | None = description.rack_id
        self.client_id: str = description.client_id
        self.client_host: str = description.client_host
        self.topics: frozenset[str] = description.topics
        self.regex: str = description.regex
        self.rebalance_timeout_ms: int = description.rebalance_timeout_ms
        self.assignor: str | None = description.assignor
        self.classic: ClassicMetadata | None = description.classic

    def current(self) -> CurrentAssignment:
        """The content of its record of type 8."""
        return CurrentAssignment(self.state, self.epoch, self.previous_epoch, self.assigned, self.revoking)

    def must_revoke(self, now: float, first_warning: float) -> None:
        """Its rebalance timeout starts.

        Args:
            now: the time.
            first_warning: seconds after which to warn, or after half of the rebalance timeout if that is shorter.
        """
        self.revoking_since = now
        self.warn_at = min(now + first_warning, (now + self.revoke_by) / 2)

    def has_revoked(self) -> None:
        """It has nothing to revoke."""
        self.revoking_since = self.warn_at = inf

    def warned(self, now: float) -> None:
        """The next warning comes when it has been revoking for twice as long."""
        self.warn_at = now + (now - self.revoking_since)

    def identity(self) -> Member:
        """The member's ids and address, for group events."""
        return Member(self.member_id, self.client_id, self.client_host, self.instance_id)

    @property
    def revoke_by(self) -> float:
        """When its rebalance timeout is over; inf if it has nothing to revoke, or uses the classic protocol."""
        return inf if self.classic is not None else self.revoking_since + max(self.rebalance_timeout_ms, 0) / 1000

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether it owns its whole target of `epoch`."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def assignment_epoch(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch at which it got a partition that it owns, to be revoked or not; None if it does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch

    def owned(self) -> dict[bytes, set[int]]:
        """All partitions that it owns, to be revoked or not."""
        return together(self.assigned, self.revoking)

    def check_epoch(self, epoch: int, reported: Mapping[bytes, frozenset[int]] | None) -> None:
        """Check the epoch of a heartbeat.

        The previous one is accepted if the member owns no more than it should: it has not received the last response.

        Args:
            epoch: of the heartbeat.
            reported: the partitions that the heartbeat reports; None if it reports none.

        Raises:
            KafkaError: FENCED_MEMBER_EPOCH; the member gives up its partitions and joins again.
        """
        if epoch in (JOIN_EPOCH, self.epoch):
            return
        if epoch < self.epoch and epoch == self.previous_epoch and reported is not None:
            assigned = self.assigned
            if all(partitions <= assigned.get(topic_id, {}).keys() for topic_id, partitions in reported.items()):
                return
        relation = "greater" if epoch > self.epoch else "smaller"
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group"
            f" coordinator ({self.epoch}). The member must abandon all its partitions and rejoin.",
        )


def together(one: Owned, other: Owned) -> dict[bytes, set[int]]:
    """The partitions of both."""
    out: dict[bytes, set[int]] = {topic_id: set(partitions) for topic_id, partitions in one.items()}
    for topic_id, partitions in other.items():
        out.setdefault(topic_id, set()).update(partitions)
    return out
