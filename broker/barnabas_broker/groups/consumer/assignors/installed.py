"""The assignors of ``group.consumer.assignors``: Kafka's, and those that are installed as entry points. Pure.

    [project.entry-points."barnabas.assignors"]
    nearest = "our_package:NearestAssignor"

The object is an :class:`~barnabas_broker.groups.consumer.assignment.Assignor`, or a class or function that makes one
without arguments; its `name` is the entry point's.
"""

from collections.abc import Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Final

from barnabas_broker.errors import BrokerError
from barnabas_broker.groups.consumer.assignment import Assignor, GroupSpec
from barnabas_broker.groups.consumer.assignors.ranges import RangeAssignor
from barnabas_broker.groups.consumer.assignors.uniform import UniformAssignor

#: The group of entry points that assignors are installed as.
ENTRY_POINTS: Final = "barnabas.assignors"

#: Kafka's names of its classes are as good as the short names, so that a server.properties of Kafka's works.
_CLASS_NAMES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}


class CheckedAssignor:
    """An assignor whose targets are checked before the coordinator persists them: one that the broker does not bring.

    Args:
        assignor: whose targets to check.
    """

    def __init__(self, assignor: Assignor) -> None:
        self._assignor = assignor
        self.name = assignor.name

    def assign(self, spec: GroupSpec) -> Mapping[str, Mapping[bytes, frozenset[int]]]:
        """As the assignor.

        Raises:
            ValueError: a target names an unknown member, or a partition that does not exist, that its member does not
                subscribe to, or that has two owners.
        """
        owners: dict[tuple[bytes, int], str] = {}
        target: dict[str, dict[bytes, frozenset[int]]] = {}
        for member, topics in self._assignor.assign(spec).items():
            if member not in spec.members:
                raise ValueError(f"assignor {self.name!r} assigns partitions to {member!r}, which is not a member")
            target[member] = {
                topic: self._checked(spec, owners, member, topic, partitions)
                for topic, partitions in topics.items()
                if partitions
            }
        return target

    def _checked(
        self,
        spec: GroupSpec,
        owners: dict[tuple[bytes, int], str],
        member: str,
        topic: bytes,
        partitions: Iterable[int],
    ) -> frozenset[int]:
        if topic not in spec.members[member].topic_ids or topic not in spec.topics:
            raise ValueError(f"assignor {self.name!r} assigns a topic to {member!r} that it does not subscribe to")
        for partition in partitions:
            name = f"partition {partition!r} of topic {spec.topics[topic].name!r}"
            if type(partition) is not int or not 0 <= partition < spec.topics[topic].partitions:
                raise ValueError(f"assignor {self.name!r} assigns {name} to {member!r}, which does not exist")
            owner = owners.setdefault((topic, partition), member)
            if owner != member:
                raise ValueError(f"assignor {self.name!r} assigns {name} to both {owner!r} and {member!r}")
        return frozenset(partitions)


def load_assignors(names: Iterable[str]) -> dict[str, Assignor]:
    """The assignors of ``group.consumer.assignors`` by name, in this order: the first is the default.

    Args:
        names: `uniform`, `range`, Kafka's names of these two classes, or names of installed entry points.

    Raises:
        BrokerError: there is no such assignor, it cannot be loaded, or a name comes twice.
    """
    own: dict[str, Assignor] = {one.name: one for one in (UniformAssignor(), RangeAssignor())}
    assignors: dict[str, Assignor] = {}
    for given in names:
        name = _CLASS_NAMES.get(given, given)
        if name in assignors:
            raise BrokerError(f"group.consumer.assignors names {name!r} twice")
        assignors[name] = own[name] if name in own else CheckedAssignor(_load(name, own))
    if not assignors:
        raise BrokerError("group.consumer.assignors is empty: name at least one assignor, such as uniform")
    return assignors


def _load(name: str, own: Mapping[str, Assignor]) -> Assignor:
    installed = entry_points(group=ENTRY_POINTS)
    for point in installed:
        if point.name == name:
            return _made(point)
    known = ", ".join(sorted({*own, *(point.name for point in installed)}))
    raise BrokerError(f"group.consumer.assignors names {name!r}, but the installed assignors are {known}")


def _made(point: EntryPoint) -> Assignor:
    try:
        loaded = point.load()
        assignor: Assignor = loaded() if isinstance(loaded, type) or not hasattr(loaded, "assign") else loaded
        name = assignor.name
    except Exception as error:  # whatever the code of others raises
        raise BrokerError(f"assignor {point.name!r} ({point.value}) cannot be loaded: {error!r}") from error
    if name != point.name or not callable(getattr(assignor, "assign", None)):
        raise BrokerError(f"assignor {point.name!r} ({point.value}) must have that name and a method `assign`")
    return assignor
