"""View of the broker for the endpoint: its parts, and values derived from them. Read-only."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.conditions import Condition, ConditionName, Conditions
from barnabas_broker.config import Config
from barnabas_broker.groups.coordinator.hosting import HostedGroup
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_broker.http.diagnoses import Diagnoses
from barnabas_broker.http.samples import Age, Samples
from barnabas_broker.http.text import PIECE
from barnabas_broker.metrics import RequestMetrics
from barnabas_broker.quotas.clients import ClientQuotas
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.server.server import SocketServer
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.storage import Log, LogDirectory, TopicPartition
from barnabas_broker.storage.corruption import Damage
from barnabas_broker.telemetry import TelemetryClients
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.storm_score import Score
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.group_records import Committed
from barnabas_protocol.internal_topics import OFFSETS_TOPIC


class History(Protocol):
    """The recent events of groups."""

    def recent(self, group_id: str) -> Sequence[GroupEvent]:
        """The last events of a group, oldest first, in the shape of the records of ``__group_events``."""

    def is_flapping(self, group_id: str) -> bool:
        """Whether the group is in a rebalance storm now."""

    def storm_score(self, group_id: str) -> Score:
        """The storm score of a group now."""


class Position(NamedTuple):
    """A group's position in a partition.

    Attributes:
        topic: of the partition.
        partition: its number.
        committed: the group's committed offset; None if there is none.
        end: the high watermark; None if another broker leads the partition.
        stable: the last stable offset; None likewise.
    """

    topic: str
    partition: int
    committed: Committed | None
    end: int | None
    stable: int | None

    @property
    def unstable_lag(self) -> int | None:
        """Records of the lag that ``read_committed`` consumers cannot read yet, because a transaction is open; None as
        for the lag."""
        if self.committed is None or self.end is None or self.stable is None:
            return None
        return max(self.end - max(self.stable, self.committed.offset), 0)

    @property
    def is_blocked(self) -> bool:
        """Whether the group has read all up to an open transaction."""
        if self.committed is None or self.end is None or self.stable is None:
            return False
        return self.stable <= self.committed.offset < self.end

    @property
    def lag(self) -> int | None:
        """Records that are not consumed; None if one of the two offsets is not known.

        A commit beyond the end, of a topic that was deleted and created again for instance, counts as no lag.
        """
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed.offset, 0)


@dataclass(slots=True)
class View:
    """The broker's parts.

    Attributes:
        node_id: of the broker.
        version: of Barnabas.
        cluster: the topics.
        replicas: the partitions of this broker.
        groups: the groups of this broker.
        transactions: the transactions of this broker.
        queues: the share partitions of this broker.
        shares: the state of share partitions that this broker keeps.
        directory: the log directory.
        server: the connections.
        requests: the counters of requests.
        telemetry: the clients that push metrics.
        history: the events of groups.
        now: the coordinator's clock: monotonic, in seconds.
        wall_ms: the time of day, in ms since 1970.
        config: of the broker.
        samples: of the offsets of groups.
        diagnoses: what is wrong with groups.
        shows_records: whether the records of topics are shown.
        conditions: what the broker cannot do now.
        lifecycle: the broker's registration in a cluster of several; None for a single broker.
    """

    node_id: int
    version: str
    cluster: ClusterMetadata
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    queues: SharePartitions
    shares: ShareCoordinator
    directory: LogDirectory
    server: SocketServer
    requests: RequestMetrics
    quotas: ClientQuotas
    telemetry: TelemetryClients
    history: History
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    config: Config
    samples: Samples
    diagnoses: Diagnoses
    conditions: Conditions
    shows_records: bool = False
    lifecycle: BrokerLifecycle | None = None

    def log(self, topic: str, partition: int) -> Log | None:
        """The log of a partition that this broker leads; None if it does not."""
        try:
            return self.replicas.find(topic, partition).log
        except KafkaError:
            return None

    def unloaded(self) -> list[int]:
        """The partitions of ``__consumer_offsets`` that this broker leads and has not loaded."""
        topic = self.cluster.image.topics.get(OFFSETS_TOPIC)
        if topic is None:
            return []
        loaded = self.groups.loaded
        mine = (index for index, each in enumerate(topic.partitions) if each.leader == self.node_id)
        return [index for index in mine if index not in loaded]

    def damaged(self) -> Iterator[tuple[TopicPartition, Damage] | None]:
        """The damaged parts of logs, by partition; None for a turn of the event loop."""
        logs = self.directory.logs
        for number, where in enumerate(list(logs), 1):  # a log may go between two turns
            log = logs.get(where)
            for bad in () if log is None else log.damage:
                yield where, bad
            if number % PIECE == 0:
                yield None

    def damage(self) -> Iterator[dict[str, Any] | None]:
        """The same for JSON."""
        for each in self.damaged():
            if each is None:
                yield None
                continue
            where, bad = each
            yield {
                "topic": where.topic,
                "partition": where.partition,
                "offset": bad.offset,
                "next_offset": bad.next_offset,
                "records": bad.records,
                "file": str(bad.file),
                "reason": bad.reason,
            }

    def waiting(self) -> Iterator[dict[str, Any] | None]:
        """The replicas of this broker whose partitions have no leader, and the brokers that these wait for; None for a
        turn of the event loop."""
        image, number = self.cluster.image, 0
        for topic in image.topics.values():
            for index, partition in enumerate(topic.partitions):
                number += 1
                if number % PIECE == 0:
                    yield None
                recovery = controller.recovery_of(image, partition)
                if recovery is None or self.node_id not in partition.replicas:
                    continue
                yield {
                    "topic": topic.name,
                    "partition": index,
                    "awaited": list(recovery.awaited),
                    "bounded": recovery.bounded,
                    "last_known": [each.node_id for each in partition.last_known],
                }

    def loading(self) -> Iterator[Condition]:
        """The condition that groups are being loaded, if some are."""
        unloaded = self.unloaded()
        if unloaded:
            yield Condition(
                ConditionName.OFFSETS_NOT_LOADED,
                f"partitions of {OFFSETS_TOPIC} are not loaded: {', '.join(map(str, unloaded))}. Their groups wait "
                "until they are read",
            )

    def obstacles(self) -> list[str]:
        """Why the broker is not ready; empty if it is."""
        return [each.text for each in self.conditions.now() if not each.ready]

    def member(self) -> dict[str, Any] | None:
        """This broker's membership in a cluster; None for a single broker."""
        lifecycle = self.lifecycle
        if lifecycle is None:
            return None
        age = lifecycle.lease_age
        return {
            "registered": lifecycle.lease != 0,
            "serving": self.cluster.may_serve(),
            "broker_epoch": lifecycle.epoch,
            "controller_id": self.cluster.image.controller_id,
            "lease_age_ms": None if age == float("inf") else round(age * 1000),
            "lease_remaining_ms": round(lifecycle.lease_remaining * 1000),
        }

    def known_groups(self) -> Iterator[HostedGroup | None]:
        """The groups of this broker that have a generation, offsets or members; None for a turn of the event loop."""
        groups = self.groups.groups
        for number, group_id in enumerate(list(groups), 1):  # a group may go between two turns
            if number % PIECE == 0:
                yield None
            hosted = groups.get(group_id)
            if hosted is not None and (hosted.group.generation or hosted.offsets or len(hosted.group.members)):
                yield hosted

    def share_group(self, group_id: str) -> ShareGroup | None:
        """A share group of this broker; None if it has none of this name."""
        try:
            return self.groups.share_groups.find(group_id)
        except KafkaError:
            return None

    def positions(self, image: Image, hosted: HostedGroup) -> Iterator[Position]:
        """A group's positions, in every partition of the topics for which it has committed offsets."""
        for topic, commits in list(hosted.offsets.topics.items()):
            info = image.topics.get(topic)
            for partition in range(len(info.partitions)) if info is not None else sorted(commits):
                log = self.log(topic, partition)
                end, stable = (None, None) if log is None else (log.high_watermark, log.last_stable_offset)
                yield Position(topic, partition, commits.get(partition), end, stable)


def by_name(view: View, partitions: Mapping[bytes, Iterable[int]]) -> dict[str, list[int]]:
    """Partitions by the names of their topics, or by the ids of topics that do not exist, in hex."""
    names = view.cluster.image.names
    return {names.get(topic_id, topic_id.hex()): sorted(numbers) for topic_id, numbers in partitions.items()}


def judged(
    view: View, group_id: str, lag: int | None, unstable: int | None, health: str, reason: str, storm: int
) -> dict[str, Any]:
    """The lag and the rates of a group of any type, and what is wrong with it, for JSON.

    Args:
        view: the broker's parts.
        group_id: the group.
        lag: records that are not consumed; None if they are not known.
        unstable: those of them that ``read_committed`` consumers cannot read yet; None likewise.
        health: its state of health.
        reason: for that; "" for none.
        storm: the value of its storm score.
    """
    # Of the newest sample; without lag it is 0, also if the sample is older than the commit.
    age = view.samples.age(group_id) if lag else None if lag is None else Age(0, True)
    return {
        "lag": lag,
        "unstable_lag": unstable,
        "lag_ms": None if age is None else age.ms,
        "lag_ms_exact": age is None or age.exact,
        **view.samples.rates(group_id).as_data(),
        "health": health,
        "health_reason": reason,
        "storm_score": storm,
        "findings": [each.as_data() for each in view.diagnoses.of(group_id)],
    }
