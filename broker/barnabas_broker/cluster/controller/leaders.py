"""Who leads a partition, as brokers come and go.

A leader is always in the ISR, and a broker that is gone is in no ISR, unless all that were in it are gone: then the
partition has no leader, and its ISR stays as it was, because only they are known to have everything that was
acknowledged. With ``unclean.leader.election.enable`` any replica that lives leads then, and what it lacks is lost.
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

#: Whether a topic rather has a leader that lacks records than none.
UncleanRule = Callable[[TopicInfo], bool]
#: Partitions that one step changes at most, so that it fits into one batch of the store.
STEP: Final = 20_000


class ElectionType(IntEnum):
    """What ElectLeaders asks for (KIP-183, KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def led_by(partition: PartitionInfo, leader: int, isr: Sequence[int]) -> PartitionInfo:
    """The partition with this leader and ISR; a leader that changed, or is gone, is a new leader epoch."""
    return partition._replace(
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        isr=tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
    )


def choose(partition: PartitionInfo, live: Collection[int], *, unclean: bool) -> PartitionInfo | None:
    """Who leads when only `live` brokers are there; None if all stays as it is."""
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


def _changes(image: Image, live: Collection[int], concerned: Collection[int], unclean: UncleanRule) -> list[Event]:
    """What becomes of the partitions of the brokers that are `concerned` when only `live` ones are there; a part of it
    if it is much."""
    changes: list[Event] = []
    for topic, index, partition in _partitions(image):
        if not concerned or any(node in concerned for node in partition.replicas):
            changed = choose(partition, live, unclean=unclean(topic))
            if changed is not None:
                changes.append(PartitionChanged(topic.name, index, changed))
                if len(changes) == STEP:
                    break
    return changes


def broker_fenced(image: Image, node_id: int, epoch: int, unclean: UncleanRule) -> list[Event]:
    """Decide what becomes of the partitions of a broker that is gone, or goes.

    Returns:
        Events; none if the broker is not there in this life of it. BrokerFenced is the last of them, and comes only
        when nothing is left to change: ask again until nothing comes.
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
    """Decide what has to change when these are the brokers that live.

    Args:
        image: the cluster as it is.
        controller_id: who decides.
        registered: every broker that lives, by node id.
        unclean: whether a topic rather has a leader that lacks records than none.

    Returns:
        Events, not more than fit into one batch; ask again until none comes.
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
        there = image.apply_all(events)
        live = set(there.brokers) | {broker.node_id for broker in new}
        changes = _changes(there, live, {broker.node_id for broker in new}, unclean)
        events += changes
        if len(changes) == STEP:
            return events
        events += [BrokerRegistered(b.node_id, b.endpoints, b.rack, b.epoch) for b in new]
    return events


def prefer_leaders(image: Image) -> list[Event]:
    """Give partitions back to their preferred leaders, where these are in sync (``auto.leader.rebalance.enable``)."""
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
        image: the cluster as it is.
        kind: which leader is asked for.
        partitions: topic and partition of each; None for all.

    Returns:
        Events, and what is answered for each partition; of all partitions, only those where there was something to do.
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
