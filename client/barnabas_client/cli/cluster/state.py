"""Looks at a cluster: its brokers, its partitions with what is wrong with them, and its disks."""

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import (
    BrokerCondition,
    BrokerLogDirs,
    ClusterDescription,
    ConfigResource,
    EligibleLeaders,
    PartitionReassignment,
)
from barnabas_client.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError
from barnabas_client.network.metadata import Node, PartitionInfo, TopicInfo
from barnabas_client.structs import TopicPartition

_MIN_ISR: Final = "min.insync.replicas"
#: How long brokers may take to describe their disks, in ms: a view must not wait for a broker that hangs.
_DISKS_MS: Final = 3_000
#: Topics with partitions without a leader that are looked at more closely.
_OFFLINE_TOPICS: Final = 100


class Problem(Enum):
    """Problems of a partition, worst first."""

    #: It has no leader: it can neither be read nor written.
    OFFLINE = "offline"
    #: Fewer replicas are in sync than ``min.insync.replicas``: it refuses writes with acks=all.
    BELOW_MIN_ISR = "below-min-isr"
    #: A replica is not in sync; replicas that a reassignment adds do not count.
    UNDER_REPLICATED = "under-replicated"


@dataclass(frozen=True, slots=True)
class SeenPartition:
    """A partition.

    Attributes:
        tp: its topic and number.
        info: its leader and replicas.
        min_isr: the topic's ``min.insync.replicas``; None if it is not known.
        moving: its reassignment, None if there is none.
        live: whether its leader is a live broker.
        awaited: without a leader, the brokers with replicas that may lead it: those that are down, if some are.
    """

    tp: TopicPartition
    info: PartitionInfo
    min_isr: int | None
    moving: PartitionReassignment | None
    live: bool
    awaited: tuple[int, ...] = ()

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems of the partition, worst first."""
        adding = () if self.moving is None else self.moving.adding
        wrong = {
            Problem.OFFLINE: not self.live,
            Problem.BELOW_MIN_ISR: self.min_isr is not None and len(self.info.isr) < self.min_isr,
            Problem.UNDER_REPLICATED: len(self.info.isr) < len(self.info.replicas) - len(adding),
        }
        return tuple(problem for problem in Problem if wrong[problem])

    @property
    def prefers_another_leader(self) -> bool:
        """Whether a live leader is not the first replica."""
        return self.live and self.info.leader != self.info.replicas[0]


#: The directory of a partition that a Barnabas broker has set aside, which it shows as the name of a topic.
_SET_ASIDE: Final = re.compile(r"(?P<topic>.+)-[0-9]+\.[0-9a-f]{32}-stray")


@dataclass(frozen=True, slots=True)
class Stray:
    """A replica on a broker's disk that the metadata do not know.

    Attributes:
        directory: its name in `log_dir`, if the broker has set it aside (`barnabas log strays`).
    """

    broker: int
    tp: TopicPartition
    size: int
    log_dir: str
    directory: str | None = None

    @classmethod
    def found(cls, broker: int, shown: TopicPartition, size: int, log_dir: str) -> "Stray":
        """Make a stray of what a broker shows."""
        aside = _SET_ASIDE.fullmatch(shown.topic)
        if aside is None:
            return cls(broker, shown, size, log_dir)
        return cls(broker, TopicPartition(aside["topic"], shown.partition), size, log_dir, shown.topic)


@dataclass(frozen=True)
class ClusterState:
    """A cluster at one time.

    Attributes:
        description: its id, controller and live brokers.
        topics: all topics.
        min_isr: ``min.insync.replicas`` by topic, where it is known.
        disks: the log directories of the live brokers; a broker that did not answer has an error.
        moving: the reassignments.
        eligible: the replicas outside of the ISR that may lead partitions without a leader.
        conditions: what each live broker cannot do now.
    """

    description: ClusterDescription
    topics: Sequence[TopicInfo]
    min_isr: Mapping[str, int]
    disks: Sequence[BrokerLogDirs]
    moving: Mapping[TopicPartition, PartitionReassignment]
    eligible: Mapping[TopicPartition, EligibleLeaders] = field(default_factory=dict)
    conditions: Mapping[int, Sequence[BrokerCondition]] = field(default_factory=dict)

    @cached_property
    def live(self) -> dict[int, Node]:
        """The live brokers, by node id ascending."""
        return {node.node_id: node for node in self.description.brokers}

    @cached_property
    def partitions(self) -> dict[TopicPartition, SeenPartition]:
        """All partitions, ascending."""
        found = {}
        for topic in sorted(self.topics, key=lambda topic: topic.name):
            for number, info in sorted(topic.partitions.items()):
                tp = TopicPartition(topic.name, number)
                leads = info.leader in self.live
                awaited = () if leads else self._awaited(tp, info)
                found[tp] = SeenPartition(tp, info, self.min_isr.get(topic.name), self.moving.get(tp), leads, awaited)
        return found

    def _awaited(self, tp: TopicPartition, info: PartitionInfo) -> tuple[int, ...]:
        outside = self.eligible.get(tp, EligibleLeaders((), ()))
        candidates = sorted({*info.isr, *outside.eligible, *outside.last_known})
        return tuple(node for node in candidates if node not in self.live) or tuple(candidates)

    @cached_property
    def placement(self) -> dict[TopicPartition, tuple[int, ...]]:
        """The replicas of all partitions when all reassignments are completed, the preferred leader first."""
        found = {}
        for tp, one in self.partitions.items():
            removing = () if one.moving is None else one.moving.removing
            found[tp] = tuple(node for node in one.info.replicas if node not in removing)
        return {tp: replicas for tp, replicas in found.items() if replicas}

    @cached_property
    def down(self) -> tuple[int, ...]:
        """The brokers that have replicas and are not live, ascending."""
        nodes = {node for one in self.partitions.values() for node in one.info.replicas}
        return tuple(sorted(nodes - self.live.keys()))

    @cached_property
    def strays(self) -> tuple[Stray, ...]:
        """Replicas that are on a disk, and not in the metadata."""
        return tuple(
            Stray.found(broker.node_id, tp, size, one.path)
            for broker in self.disks
            for one in broker.log_dirs
            for tp, size in sorted(one.sizes.items())
            if tp not in self.partitions or broker.node_id not in self.partitions[tp].info.replicas
        )

    @cached_property
    def sizes(self) -> dict[tuple[int, TopicPartition], int]:
        """The bytes of each replica, by broker and partition, where they are known."""
        return {
            (broker.node_id, tp): size
            for broker in self.disks
            for one in broker.log_dirs
            for tp, size in one.sizes.items()
        }

    def size(self, tp: TopicPartition) -> int | None:
        """The bytes of a partition: those of its leader, else of its largest replica; None if not known."""
        info = self.partitions[tp].info
        if (info.leader, tp) in self.sizes:
            return self.sizes[info.leader, tp]
        return max((self.sizes[node, tp] for node in info.replicas if (node, tp) in self.sizes), default=None)

    def troubled(self) -> Iterator[SeenPartition]:
        """The partitions that have problems, worst first."""
        order = list(Problem)
        found = [one for one in self.partitions.values() if one.problems]
        yield from sorted(found, key=lambda one: (order.index(one.problems[0]), one.tp))

    @cached_property
    def silent(self) -> tuple[int, ...]:
        """The live brokers that did not answer."""
        return tuple(
            one.node_id for one in self.disks if isinstance(one.error, KafkaConnectionError | KafkaTimeoutError)
        )

    @cached_property
    def healthy(self) -> bool:
        """Whether all brokers, disks and partitions are as they should be, and everything is possible."""
        failed = any(one.error is not None for broker in self.disks for one in broker.log_dirs)
        limited = any(self.conditions.values())
        return not (self.down or self.silent or failed or limited or any(True for _ in self.troubled()))


async def look(admin: Admin) -> ClusterState:
    """Look at a cluster.

    Raises:
        KafkaError: the cluster cannot be described.
    """
    # Disks first: a partition that is created meanwhile must not look like a stray.
    disks, limits = await asyncio.gather(
        admin.describe_log_dirs(timeout_ms=_DISKS_MS, raise_errors=False),
        admin.describe_conditions(timeout_ms=_DISKS_MS, raise_errors=False),
    )
    description, topics, moving = await asyncio.gather(
        admin.describe_cluster(), admin.describe_topics(), admin.list_partition_reassignments()
    )
    resources = [ConfigResource.topic(topic.name) for topic in topics]
    configs = await admin.describe_configs(resources, [_MIN_ISR], raise_errors=False) if resources else []
    values = {one.resource.name: one.entries[_MIN_ISR].value for one in configs if _MIN_ISR in one.entries}
    min_isr = {name: int(value) for name, value in values.items() if value is not None}
    offline = [topic.name for topic in topics if any(one.leader < 0 for one in topic.partitions.values())]
    eligible: dict[TopicPartition, EligibleLeaders] = {}
    if offline:
        # Brokers before Kafka 3.8 do not know them.
        with suppress(KafkaError):
            eligible = await admin.describe_eligible_leaders(offline[:_OFFLINE_TOPICS])
    conditions = {one.node_id: one.conditions for one in limits}
    return ClusterState(description, topics, min_isr, disks, moving, eligible, conditions)
