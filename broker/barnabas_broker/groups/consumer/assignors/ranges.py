"""`range`: each topic's partitions in ranges, to its subscribers in order. Pure.

The first subscribers get one partition more where the division leaves a rest. Static members come first, ordered by
their instance ids, because these outlive a restart; the others follow by member id.

Source: Kafka's ``RangeAssignor`` of the group coordinator.
"""

from collections.abc import Mapping

from barnabas_broker.groups.consumer.assignment import GroupSpec, MemberSpec
from barnabas_broker.groups.consumer.assignors.subscribers import subscribers_by_topic


class RangeAssignor:
    """Kafka's `range`."""

    name = "range"

    def assign(self, spec: GroupSpec) -> Mapping[str, Mapping[bytes, frozenset[int]]]:
        """The target of each member; see :class:`~barnabas_broker.groups.consumer.assignment.Assignor`."""
        members = [member for member, _ in sorted(spec.members.items(), key=_static_first)]
        target: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in members}
        for topic, subscribers in subscribers_by_topic(spec, members).items():
            partitions = spec.topics[topic].partitions
            size, larger = divmod(partitions, len(subscribers))
            start = 0
            for place, position in enumerate(subscribers):
                end = start + size + (place < larger)
                if start == end:
                    break  # all partitions are assigned
                target[members[position]][topic] = frozenset(range(start, end))
                start = end
        return target


def _static_first(member: tuple[str, MemberSpec]) -> tuple[bool, bytes]:
    id, spec = member
    static = spec.instance_id is not None
    # Java compares strings by UTF-16 units.
    return not static, (spec.instance_id or "" if static else id).encode("utf-16-be", "surrogatepass")
