"""The `roundrobin` assignor. Pure. Source: ``RoundRobinAssignor.java``."""

from collections.abc import Mapping
from itertools import cycle, islice

from barnabas_client.assignors.base import Assignments, Assignor, MemberSubscription, in_order
from barnabas_client.structs import TopicPartition


class RoundRobinAssignor(Assignor):
    """All partitions of all topics in order, assigned to the members in turn; members without a subscription to the
    topic are skipped."""

    name = "roundrobin"

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, MemberSubscription]) -> Assignments:
        """See :meth:`Assignor.assign`."""
        result: Assignments = {member: [] for member in members}
        ordered = in_order(members)
        subscribed: dict[str, set[str]] = {}
        for member in ordered:
            for topic in members[member].topics:
                subscribed.setdefault(topic, set()).add(member)
        turn = cycle(ordered)
        for topic in sorted(partitions.keys() & subscribed.keys()):
            for number in range(partitions[topic]):
                # At most one whole turn: at least one member subscribes.
                member = next(one for one in islice(turn, len(ordered)) if one in subscribed[topic])
                result[member].append(TopicPartition(topic, number))
        return result
