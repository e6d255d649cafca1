"""An assignor as users write them, for the tests of entry points."""

from collections.abc import Mapping

from barnabas_broker.groups.consumer.assignment import GroupSpec, Partitions

#: Not an assignor.
PLAIN = 1


class First:
    """Everything to the first member, but for what `wrong` says."""

    name = "first"

    def __init__(self, **wrong: Partitions) -> None:
        self.wrong = wrong

    def assign(self, spec: GroupSpec) -> Mapping[str, Partitions]:
        first = min(spec.members)
        everything: dict[str, Partitions] = {
            first: {id: range(spec.topics[id].partitions) for id in spec.members[first].topic_ids}
        }
        return {**everything, **self.wrong}
