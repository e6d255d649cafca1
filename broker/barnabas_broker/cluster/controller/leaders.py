"""Elects the leaders of partitions when brokers register or are fenced (KIP-966).

A leader is in the ISR, and a fenced broker is in no ISR, with one exception: when all ISR members are fenced, the
partition has no leader and keeps its ISR. Replicas that leave an ISR which becomes too small are eligible leader
replicas: the high watermark does not move while there are some, so they have all committed records.

A broker that returns after an unclean stop, or with another directory, may have lost records. So has a replica that the
registration of its broker names, because files are missing or damaged. It leaves the ISRs and ELRs, and is a last known
replica there. A partition that has only such replicas waits until each of their brokers is registered with its
directory, and has reported the leader epoch of its last record and its log end offset (:func:`report_log_ends`). The
replica with the highest of both leads: it has lost the least.

With ``unclean.leader.election.enable`` any live replica becomes the leader at once, and records that it lacks are lost.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas_broker.cluster.image import (
    BrokerFenced,
    BrokerInfo,
    BrokerRegistered,
    ControllerElected,
    Event,
    Image,
    LastKnown,
    PartitionChanged,
    PartitionInfo,
    TopicInfo,
)
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Whether a topic allows unclean leader election.
UncleanRule = Callable[[TopicInfo], bool]
#: A topic's ``min.insync.replicas``.
MinIsrRule = Callable[[TopicInfo], int]
#: Replicas that have lost records, by node id: topic id and partition of each.
Damaged = Mapping[int, Collection[tuple[bytes, int]]]
#: While an ISR that the controller makes smaller has fewer members, those that leave it stay eligible, whatever
#: ``min.insync.replicas`` is: the broker that remains may have stopped as well, and its lease has not expired yet. A
#: leader that lives ends that by :func:`.alter_isr`.
ENOUGH: Final = 2
#: The most partitions that one call changes, so that its events fit into one batch of the store.
STEP: Final = 20_000


class ElectionType(IntEnum):
    """The election type of ElectLeaders (KIP-183, KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


def led_by(
    partition: PartitionInfo,
    leader: int,
    isr: Sequence[int],
    enough: int,
    replicas: Sequence[int] | None = None,
) -> PartitionInfo:
    """The partition with this leader and ISR; the leader epoch grows if the leader changes.

    Args:
        partition: as it is.
        leader: its new leader.
        isr: its new ISR.
        enough: while the ISR is smaller than this, or than the replicas are many, replicas that leave it are eligible.
        replicas: its new replicas, if they change.
    """
    assigned = partition.replicas if replicas is None else tuple(replicas)
    elr: tuple[int, ...] = ()
    last_known: tuple[LastKnown, ...] = ()
    if len(isr) < min(enough, len(assigned)):
        eligible = dict.fromkeys((*partition.isr, *partition.elr))
        elr = tuple(node for node in eligible if node not in isr and node in assigned)
        last_known = tuple(
            each for each in partition.last_known if each.node_id not in isr and each.node_id in assigned
        )
    return partition._replace(
        leader=leader,
        leader_epoch=partition.leader_epoch + (leader != partition.leader),
        replicas=assigned,
        isr=tuple(isr),
        partition_epoch=partition.partition_epoch + 1,
        elr=elr,
        last_known=last_known,
    )


def choose(
    partition: PartitionInfo, live: Mapping[int, BrokerInfo], *, unclean: bool, min_isr: int
) -> PartitionInfo | None:
    """The partition when only `live` brokers are registered; None if it does not change."""
    enough = max(min_isr, ENOUGH)
    isr = [node for node in partition.isr if node in live]
    if partition.leader in isr:
        return led_by(partition, partition.leader, isr, enough) if len(isr) < len(partition.isr) else None
    in_sync = [node for node in partition.replicas if node in isr]
    eligible = in_sync or [node for node in partition.replicas if node in partition.elr and node in live]
    if eligible:
        return led_by(partition, eligible[0], isr or eligible[:1], enough)
    best = None if partition.isr or partition.elr else _best(partition, live, late=False)
    if best is None and unclean:
        best = _best(partition, live, late=True)
        if best is None:
            best = next((node for node in partition.replicas if node in live), None)
    if best is not None:
        return led_by(partition, best, [best], 0)
    if partition.leader == -1:
        return None
    return partition._replace(
        leader=-1, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
    )


def _present(partition: PartitionInfo, live: Mapping[int, BrokerInfo]) -> list[LastKnown]:
    """The last known replicas that are live, with the directory that had their records."""
    return [
        each
        for each in partition.last_known
        if each.node_id in live and each.directory in ("", live[each.node_id].directory)
    ]


def _best(partition: PartitionInfo, live: Mapping[int, BrokerInfo], *, late: bool) -> int | None:
    """The last known replica that has lost the least; None if that is not known yet.

    Args:
        partition: without replicas that are in sync or eligible.
        live: the registered brokers.
        late: do not wait for brokers that are not registered with their directory, or have not reported.
    """
    present = _present(partition, live)
    if len(present) < len(partition.last_known) and not late:
        return None
    if len(present) == 1:
        return present[0].node_id
    reported = [each for each in present if each.end >= 0]
    if not reported or (len(reported) < len(present) and not late):
        return None
    order = partition.replicas.index
    return min(reported, key=lambda each: (-each.epoch, -each.end, each.damaged, order(each.node_id))).node_id


class LeaderRecovery(NamedTuple):
    """Event that a partition without a leader waits for.

    Attributes:
        awaited: the brokers that must return, or report the end of their log.
        bounded: whether a replica that may have lost records is elected without them after
            ``unclean.recovery.timeout.ms``.
        replaced: each awaited broker is there, with another directory. Usually the one with the records is gone for
            good; but an earlier process of the broker may have returned for a moment.
    """

    awaited: tuple[int, ...]
    bounded: bool
    replaced: bool


def recovery_of(image: Image, partition: PartitionInfo) -> LeaderRecovery | None:
    """The event that a partition waits for; None if it has a leader.

    It waits without end for a replica in `isr` or `elr` that was stopped: it has all committed records. It waits
    without end as well if no replica is live that has some.
    """
    if partition.leader != -1:
        return None
    eligible = (*partition.isr, *partition.elr)
    present = _present(partition, image.brokers)
    absent = [each.node_id for each in partition.last_known if each not in present]
    silent = [each.node_id for each in present if each.end < 0] if len(partition.last_known) > 1 else []
    stopped = any(node in image.fenced and image.fenced[node].stopped for node in eligible)
    replaced = not eligible and not silent and all(node in image.brokers for node in absent)
    return LeaderRecovery(tuple(sorted({*eligible, *absent, *silent})), bool(present) and not stopped, replaced)


def recovering(image: Image) -> Iterable[tuple[TopicInfo, int, PartitionInfo, LeaderRecovery]]:
    """Every partition without a leader, and what it waits for."""
    for topic, index, partition in _partitions(image):
        recovery = recovery_of(image, partition)
        if recovery is not None:
            yield topic, index, partition, recovery


def recover(image: Image, late: Collection[tuple[str, int]]) -> list[Event]:
    """Elect the best of the last known replicas that are live, in partitions that have waited for too long.

    Args:
        image: the present cluster image.
        late: topic and index of these partitions.

    Returns:
        Events that fit into one batch.
    """
    events: list[Event] = []
    for topic, index, partition, recovery in recovering(image):
        if (topic.name, index) in late and recovery.bounded:
            best = _best(partition, image.brokers, late=True)
            if best is not None:
                events.append(PartitionChanged(topic.name, index, led_by(partition, best, [best], 0)))
                if len(events) == STEP:
                    break
    return events


class LogEnd(NamedTuple):
    """The end of a replica's log, for an election.

    Attributes:
        topic: the topic's name.
        topic_id: its id: the topic may have been deleted and created again.
        partition: the index.
        epoch: the leader epoch of the last record before `end`, -1 if there is none.
        end: the log end offset, or the first offset that cannot be read because the log is damaged.
        damaged: it is damaged.
    """

    topic: str
    topic_id: bytes
    partition: int
    epoch: int
    end: int
    damaged: bool = False


def registered(image: Image, node_id: int, broker_epoch: int) -> BrokerInfo:
    """The broker that asks for a change.

    Raises:
        KafkaError: STALE_BROKER_EPOCH if it is not registered with this epoch.
    """
    broker = image.brokers.get(node_id)
    if broker is None or broker.epoch != broker_epoch:
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH, f"broker {node_id} is not registered with epoch {broker_epoch}")
    return broker


def find_partition(image: Image, topic: str, topic_id: bytes, index: int) -> PartitionInfo | None:
    """A partition of a topic with this name and id; None if there is none."""
    found = image.topics.get(topic)
    if found is None or found.topic_id != topic_id or not 0 <= index < len(found.partitions):
        return None
    return found.partitions[index]


def report_log_ends(image: Image, node_id: int, broker_epoch: int, ends: Sequence[LogEnd]) -> list[Event]:
    """Note the ends of the logs of last known replicas, and elect leaders if all are known.

    Args:
        image: the present cluster image.
        node_id: the broker that has the logs.
        broker_epoch: its broker epoch.
        ends: at most one per partition; those of partitions without an election are ignored.

    Raises:
        KafkaError: STALE_BROKER_EPOCH if the broker is not registered with this epoch.
    """
    me = registered(image, node_id, broker_epoch)
    events: list[Event] = []
    for each in ends:
        partition = find_partition(image, each.topic, each.topic_id, each.partition)
        if partition is None:
            continue
        reported = tuple(
            known._replace(epoch=each.epoch, end=each.end, damaged=each.damaged)
            if known.node_id == node_id and known.directory in ("", me.directory)
            else known
            for known in partition.last_known
        )
        if partition.leader == -1 and reported != partition.last_known:
            noted = partition._replace(last_known=reported)
            changed = choose(noted, image.brokers, unclean=False, min_isr=ENOUGH)
            changed = changed or noted._replace(partition_epoch=partition.partition_epoch + 1)
            events.append(PartitionChanged(each.topic, each.partition, changed))
    return events


def _partitions(image: Image) -> Iterable[tuple[TopicInfo, int, PartitionInfo]]:
    for topic in image.topics.values():
        for index, partition in enumerate(topic.partitions):
            yield topic, index, partition


def _has_lost(image: Image, broker: BrokerInfo) -> str | None:
    """The directory in which a broker that registers had its records, if some of them may be lost since its last
    registration; None if none are."""
    fenced = image.fenced.get(broker.node_id)
    known = image.brokers.get(broker.node_id) or (fenced and fenced.info)
    if known is None:
        return broker.directory
    if known.directory in ("", broker.directory):
        first, last = broker.intact
        return None if first <= known.epoch <= last or known.epoch == broker.epoch else broker.directory
    return known.directory


def without(partition: PartitionInfo, node_id: int, directory: str) -> PartitionInfo:
    """The partition when a replica that was in sync or eligible, with this directory, may have lost records."""
    last_known = [each for each in partition.last_known if each.node_id != node_id]
    if node_id in partition.isr or node_id in partition.elr:
        last_known.append(LastKnown(node_id, directory))
    else:
        # What it had reported before it stopped again may be gone.
        last_known = [
            each._replace(epoch=-1, end=-1, damaged=False) if each.node_id == node_id else each
            for each in partition.last_known
        ]
    return partition._replace(
        isr=tuple(node for node in partition.isr if node != node_id),
        elr=tuple(node for node in partition.elr if node != node_id),
        last_known=tuple(last_known),
    )


def _without_damaged(image: Image, partition: PartitionInfo, node_id: int, directory: str) -> PartitionInfo:
    """The partition when a replica, with this directory, has lost records.

    If it was the last one that was in sync or eligible, the others may have more records than it has now. All of them
    are last known replicas then, so that the best one is found.
    """
    found = without(partition, node_id, directory)
    if found.isr or found.elr:
        return found
    known = {each.node_id for each in found.last_known}
    others = [
        LastKnown(node, _directory(image, node)) for node in found.replicas if node not in known and node != node_id
    ]
    return found._replace(last_known=(*found.last_known, *others))


def _directory(image: Image, node_id: int) -> str:
    """The directory in the latest registration of a broker; empty if it has none."""
    broker = image.brokers.get(node_id) or (image.fenced[node_id].info if node_id in image.fenced else None)
    return "" if broker is None else broker.directory


def _changes(
    image: Image,
    live: Mapping[int, BrokerInfo],
    affected: Collection[int],
    unclean: UncleanRule,
    min_isr: MinIsrRule,
    lost: Mapping[int, str] = MappingProxyType({}),
    damaged: Damaged = MappingProxyType({}),
) -> list[Event]:
    """The changes of partitions with `affected` replicas when only `live` brokers are registered; at most `STEP`.

    Args:
        image: the present cluster image.
        live: the registered brokers.
        affected: those of them, or of the others, that were registered or fenced.
        unclean: whether a topic allows unclean leader election.
        min_isr: a topic's ``min.insync.replicas``.
        lost: the brokers that may have lost records since their last registration, with the directory of that one.
        damaged: the replicas that certainly have.
    """
    changes: list[Event] = []
    for topic, index, before in _partitions(image):
        if any(node in affected for node in before.replicas):
            partition = before
            for node in before.replicas:
                # A fenced broker leads nothing. So if it leads, it was elected for its present registration, in a
                # batch before.
                if partition.leader == node:
                    continue
                if (topic.topic_id, index) in damaged.get(node, ()):
                    partition = _without_damaged(image, partition, node, lost.get(node, live[node].directory))
                elif node in lost:
                    partition = without(partition, node, lost[node])
            changed = choose(partition, live, unclean=unclean(topic), min_isr=min_isr(topic))
            if changed is None and partition != before:
                changed = partition._replace(partition_epoch=before.partition_epoch + 1)
            if changed is not None:
                changes.append(PartitionChanged(topic.name, index, changed))
                if len(changes) == STEP:
                    break
    return changes


def broker_fenced(
    image: Image, node_id: int, epoch: int, unclean: UncleanRule, min_isr: MinIsrRule, *, stopped: bool
) -> list[Event]:
    """Move the leaderships of a broker that is fenced or shuts down.

    Args:
        image: the present cluster image.
        node_id: the broker.
        epoch: its broker epoch.
        unclean: whether a topic allows unclean leader election.
        min_isr: a topic's ``min.insync.replicas``.
        stopped: it shuts down, and keeps its records.

    Returns:
        Events; none if the broker is not registered with this epoch. BrokerFenced is the last of them, after all
        partitions: call again until no event is returned.
    """
    known = image.brokers.get(node_id)
    if known is None or known.epoch != epoch:
        return []
    live = {node: broker for node, broker in image.brokers.items() if node != node_id}
    changes = _changes(image, live, {node_id}, unclean, min_isr)
    return changes if len(changes) == STEP else [*changes, BrokerFenced(node_id, epoch, stopped)]


def reconcile(
    image: Image,
    controller_id: int,
    registered: Mapping[int, BrokerInfo],
    unclean: UncleanRule,
    min_isr: MinIsrRule,
    leaving: Collection[int] = (),
    damaged: Damaged = MappingProxyType({}),
) -> list[Event]:
    """Bring the image in line with the registrations: fence and add brokers, and elect leaders.

    Args:
        image: the present cluster image.
        controller_id: the broker that decides.
        registered: every registered broker that does not shut down, by node id.
        unclean: whether a topic allows unclean leader election.
        min_isr: a topic's ``min.insync.replicas``.
        leaving: the brokers that shut down.
        damaged: the replicas that have lost records, as the brokers have registered them.

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
        remaining = {node: broker for node, broker in image.brokers.items() if node not in gone}
        changes = _changes(image, remaining, set(gone), unclean, min_isr)
        events += changes
        if len(changes) == STEP:
            return events
        events += [BrokerFenced(node, broker.epoch, node in leaving) for node, broker in gone.items()]
    new = {node: broker for node, broker in registered.items() if node in gone or image.brokers.get(node) != broker}
    if new:
        fenced = image.apply_all(events)
        lost = {node: directory for node, broker in new.items() if (directory := _has_lost(image, broker)) is not None}
        # A registration names what was lost when it was written: later, the broker says itself what it has lost.
        since = {node: replicas for node, replicas in damaged.items() if node in new}
        changes = _changes(fenced, {**fenced.brokers, **new}, new, unclean, min_isr, lost, since)
        events += changes
        if len(changes) == STEP:
            return events
        events += [BrokerRegistered.of(broker) for broker in new.values()]
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
    # The others stay as they are.
    isr = [node for node in partition.isr if node in image.brokers]
    return led_by(partition, first, isr, len(partition.replicas))


def _unclean(image: Image, partition: PartitionInfo) -> PartitionInfo | ErrorCode:
    if partition.leader != -1:
        return ErrorCode.ELECTION_NOT_NEEDED
    changed = choose(partition, image.brokers, unclean=True, min_isr=ENOUGH)
    return changed or ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def elect_leaders(
    image: Image, kind: ElectionType, partitions: Sequence[tuple[str, int]]
) -> tuple[list[Event], dict[tuple[str, int], ErrorCode]]:
    """Decide on an ElectLeaders request.

    Args:
        image: the present cluster image.
        kind: preferred or unclean.
        partitions: topic and index of each.

    Returns:
        Events, and the answer for each partition.
    """
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
        else:
            answers[name, index] = changed
    return events, answers


def hand_over(image: Image, node_id: int) -> list[Event]:
    """Let other replicas in sync lead what a broker leads that will shut down. It stays in the ISRs, and registered:
    clients learn of the new leaders while they still find this broker in the metadata.

    Returns:
        Events; at most `STEP`.
    """
    changes: list[Event] = []
    for topic, index, partition in _partitions(image):
        if partition.leader == node_id and len(changes) < STEP:
            others = (node for node in partition.replicas if node != node_id)
            chosen = next((node for node in others if node in partition.isr and node in image.brokers), None)
            if chosen is not None:
                led = partition._replace(
                    leader=chosen,
                    leader_epoch=partition.leader_epoch + 1,
                    partition_epoch=partition.partition_epoch + 1,
                )
                changes.append(PartitionChanged(topic.name, index, led))
    return changes
