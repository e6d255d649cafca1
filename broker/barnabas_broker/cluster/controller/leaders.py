"""Elects the leaders of partitions when brokers register or are fenced.

A leader is always in the ISR, and a fenced broker is in no ISR, with one exception: when all ISR members are fenced,
the partition has no leader and keeps its ISR, because only its members have all acknowledged records. With
``unclean.leader.election.enable`` any live replica becomes the leader then, and records that it lacks are lost.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Final

from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerInfo,
    BrokerRegistered,
    ControllerElected,
    Event,
    Image,
    PartitionChanged,
    PartitionInfo,
    TopicInfo,
)
from barnabas_protocol.errors import ErrorCode

#: Whether a topic allows unclean leader election.
UncleanRule = Callable[[TopicInfo], bool]
#: The most partitions that one call changes, so that its events fit into one batch of the store.
STEP: Final = 20_000


class ElectionType(IntEnum):
    """The election type of ElectLeaders (KIP-183, KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def led_by(partition: PartitionInfo, leader: int, isr: Sequence[int]) -> PartitionInfo:
    """The partition with this leader and ISR; the leader epoch grows if the leader changes."""
    return partition._replace(
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        isr=tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
    )


def choose(partition: PartitionInfo, live: Collection[int], *, unclean: bool) -> PartitionInfo | None:
    """The partition when only `live` brokers are registered; None if it does not change."""
    isr = [node for node in partition.isr if node in live]
    if partition.leader in isr:
        return led_by(partition, partition.leader, isr) if len(isr) < len(partition.isr) else None
    candidates = [node for node in partition.replicas if node in isr]
    if candidates:
        return led_by(partition, candidates[0], isr)
    if unclean:
        alive = [node for node in partition.replicas if node in live]
        if alive:
            return led_by(partition, alive[0], alive[:1])
    return None if partition.leader == -1 else led_by(partition, -1, partition.isr)


def _partitions(image: Image) -> Iterable[tuple[TopicInfo, int, PartitionInfo]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition


def _changes(image: Image, live: Collection[int], affected: Collection[int], unclean: UncleanRule) -> list[Event]:
    """The changes of partitions with `affected` replicas when only `live` brokers are registered; at most `STEP`."""
    changes: list[Event] = []
    for topic, index, partition in _partitions(image):
        if not affected or any(node in affected for node in partition.replicas):
            changed = choose(partition, live, unclean=unclean(topic))
            if changed is not None:
                changes.append(PartitionChanged(topic.name, index, changed))
                if len(changes) == STEP:
                    break
    return changes


def broker_fenced(image: Image, node_id: int, epoch: int, unclean: UncleanRule) -> list[Event]:
    """Move the leaderships of a broker that is fenced or shuts down.

    Returns:
        Events; none if the broker is not registered with this epoch. BrokerFenced is the last of them, after all
        partitions: call again until no event is returned.
    """
    known = image.brokers.get(node_id)
    if known is None or known.epoch != epoch:
        return []
    live = set(image.brokers) - {node_id}
    changes = _changes(image, live, {node_id}, unclean)
    return changes if len(changes) == STEP else [*changes, BrokerFenced(node_id, epoch)]


def reconcile(
    image: Image, controller_id: int, registered: Mapping[int, BrokerInfo], unclean: UncleanRule
) -> list[Event]:
    """Bring the image in line with the registrations: fence and add brokers, and elect leaders.

    Args:
        image: the present cluster image.
        controller_id: the broker that decides.
        registered: every registered broker, by node id.
        unclean: whether a topic allows unclean leader election.

    Returns:
        Events that fit into one batch: call again until none is returned.
    """
    events: list[Event] = []
    if image.controller_id != controller_id:
        events.append(ControllerElected(controller_id))
    gone = {
        node: broker
        for node, broker in image.brokers.items()
        if node not in registered or registered[node].epoch != broker.epoch
    }
    if gone:
        changes = _changes(image, set(image.brokers) - set(gone), set(gone), unclean)
        events += changes
        if len(changes) == STEP:
            return events
        events += [BrokerFenced(node, broker.epoch) for node, broker in gone.items()]
    new = [broker for node, broker in registered.items() if node in gone or image.brokers.get(node) != broker]
    if new:
        fenced = image.apply_all(events)
        live = set(fenced.brokers) | {broker.node_id for broker in new}
        changes = _changes(fenced, live, {broker.node_id for broker in new}, unclean)
        events += changes
        if len(changes) == STEP:
            return events
        events += [BrokerRegistered(b.node_id, b.endpoints, b.rack, b.epoch) for b in new]
    return events


def prefer_leaders(image: Image) -> list[Event]:
    """Elect preferred leaders that are in sync (``auto.leader.rebalance.enable``)."""
    changes: list[Event] = []
    for topic, index, partition in _partitions(image):
        changed = _preferred(image, partition)
        if isinstance(changed, PartitionInfo):
            changes.append(PartitionChanged(topic.name, index, changed))
            if len(changes) == STEP:
                break
    return changes


def _preferred(image: Image, partition: PartitionInfo) -> PartitionInfo | ErrorCode:
    first = partition.replicas[0]
    if partition.leader == first:
        return ErrorCode.ELECTION_NOT_NEEDED
    if first not in partition.isr or first not in image.brokers:
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    return led_by(partition, first, [node for node in partition.isr if node in image.brokers])


def _unclean(image: Image, partition: PartitionInfo) -> PartitionInfo | ErrorCode:
    if partition.leader != -1:
        return ErrorCode.ELECTION_NOT_NEEDED
    return choose(partition, image.brokers, unclean=True) or ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def elect_leaders(
    image: Image, kind: ElectionType, partitions: Sequence[tuple[str, int]] | None
) -> tuple[list[Event], dict[tuple[str, int], ErrorCode]]:
    """Decide on an ElectLeaders request.

    Args:
        image: the present cluster image.
        kind: preferred or unclean.
        partitions: topic and index of each; None for all.

    Returns:
        Events, and the answer for each partition; for all partitions, only those that needed an election.
    """
    everything = partitions is None
    if partitions is None:
        partitions = [(topic.name, index) for topic, index, _ in _partitions(image)]
    events: list[Event] = []
    answers: dict[tuple[str, int], ErrorCode] = {}
    for name, index in dict.fromkeys(partitions):
        topic = image.topics.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            answers[name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            continue
        decide = _preferred if kind is ElectionType.PREFERRED else _unclean
        changed = decide(image, topic.partitions[index])
        if isinstance(changed, PartitionInfo):
            events.append(PartitionChanged(name, index, changed))
            answers[name, index] = ErrorCode.NONE
        elif not everything or changed is not ErrorCode.ELECTION_NOT_NEEDED:
            answers[name, index] = changed
    return events, answers
