"""ISRs that leaders propose: Kafka's AlterPartition (KIP-497, KIP-841, KIP-903)."""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas_broker.cluster.controller.leaders import ENOUGH, find_partition, led_by, registered
from barnabas_broker.cluster.controller.reassignment import completed
from barnabas_broker.cluster.image import Event, Image, PartitionChanged, PartitionInfo
from barnabas_protocol.errors import ErrorCode


class IsrChange(NamedTuple):
    """A leader's proposal for the ISR of one of its partitions.

    Attributes:
        topic: the topic's name.
        topic_id: its id: the topic may have been deleted and created again.
        partition: the index.
        leader_epoch: of the leader that proposes.
        partition_epoch: of the partition's state that the proposal was made on.
        isr: the node ids, each with the broker epoch in which it was in sync; -1, which only a member of the present
            ISR or an eligible leader replica may have, is not compared. Without the leader's own: it is cut off from
            its followers, and resigns; the first one is to lead. All of them are in sync or eligible then, as those
            that an election chooses from.
        min_isr: the topic's ``min.insync.replicas``: with as many, no other replica is eligible any more.
    """

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    min_isr: int = 1


def alter_isr(
    image: Image, node_id: int, broker_epoch: int, changes: Sequence[IsrChange]
) -> tuple[list[Event], list[PartitionInfo | ErrorCode]]:
    """Decide on the proposals of a leader.

    Args:
        image: the present cluster image.
        node_id: the leader.
        broker_epoch: its broker epoch.
        changes: its proposals, at most one per partition.

    Returns:
        Events, and for each proposal the new state of the partition, or an error: UNKNOWN_TOPIC_OR_PARTITION;
        NOT_LEADER_OR_FOLLOWER or FENCED_LEADER_EPOCH if the broker does not lead the partition any more;
        INVALID_UPDATE_VERSION if the partition has changed since; INELIGIBLE_REPLICA if a broker in the ISR is not
        registered with that epoch; INVALID_REQUEST.

    Raises:
        KafkaError: STALE_BROKER_EPOCH if the leader is not registered with this epoch.
    """
    registered(image, node_id, broker_epoch)
    events: list[Event] = []
    outcomes: list[PartitionInfo | ErrorCode] = []
    for change in changes:
        outcome = _alter(image, node_id, change)
        if isinstance(outcome, PartitionInfo):
            before = image.topics[change.topic].partitions[change.partition]
            if outcome != before:
                events.append(PartitionChanged(change.topic, change.partition, outcome))
        outcomes.append(outcome)
    return events, outcomes


def _alter(image: Image, node_id: int, change: IsrChange) -> PartitionInfo | ErrorCode:
    partition = find_partition(image, change.topic, change.topic_id, change.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.leader != node_id or change.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if change.partition_epoch != partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    nodes = tuple(node for node, _ in change.isr)
    resigns = node_id not in nodes
    whole = (*partition.isr, *partition.elr)
    if not nodes or len(set(nodes)) != len(nodes) or not set(nodes) <= set(whole if resigns else partition.replicas):
        return ErrorCode.INVALID_REQUEST
    for node, epoch in change.isr:
        broker = image.brokers.get(node)
        known = epoch == -1 and node in (whole if resigns else partition.isr)
        if broker is None or not (known or epoch == broker.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    if set(nodes) == set(partition.isr) and not (partition.elr and len(nodes) >= change.min_isr):
        return partition
    ordered = [node for node in partition.replicas if node in nodes]
    if resigns:
        return completed(led_by(partition, nodes[0], ordered, max(change.min_isr, ENOUGH)), image.brokers)
    return completed(led_by(partition, node_id, ordered, change.min_isr), image.brokers)
