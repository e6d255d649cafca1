"""What a group's leader knows beyond its own membership: who the others are, and for what its assignment was made.
Pure."""

from collections.abc import Mapping
from typing import Final

from barnabas_client.assignors import Assignor, MemberSubscription, PartitionCounts
from barnabas_client.membership.messages import assignments, subscriptions
from barnabas_client.membership.types import Note
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequestAssignment


class Leadership:
    """The leader's part of one generation.

    Args:
        response: the JoinGroup answer that made this member the leader.
    """

    def __init__(self, response: JoinGroupResponse) -> None:
        self._members: dict[str, MemberSubscription]
        #: What there is to say about subscriptions that cannot be read.
        self.notes: list[Note]
        self._members, self.notes = subscriptions(response)
        #: The topics of all members.
        self.topics: Final = frozenset(topic for member in self._members.values() for topic in member.topics)
        self._with_racks = any(member.rack for member in self._members.values())
        self._skip = response.skip_assignment
        self._counts = PartitionCounts({})

    def counted(self, counts: Mapping[str, int], assignor: Assignor) -> list[SyncGroupRequestAssignment]:
        """Decide, now that the partitions are known. After KIP-814's skip only topics are watched.

        Raises:
            KafkaError: the assignor raised, or returned what is no assignment.
        """
        self._counts = self._relevant(counts)
        return [] if self._skip else assignments(assignor, self._counts, self._members)

    def changed(self, counts: Mapping[str, int]) -> list[str]:
        """The topics for which the decision was made with other partitions than these (C7)."""
        return sorted(self._relevant(counts).changed(self._counts))

    def _relevant(self, counts: Mapping[str, int]) -> PartitionCounts:
        """What decides the assignment; racks do only if a member told its own (KIP-881)."""
        return PartitionCounts.of(counts, self.topics, with_racks=self._with_racks)
