"""Replicas that leave the ISR and the ELR at the wish of their own broker.

A broker whose replica has lost records, or whose disk refuses writes, knows that before all others. It must not wait
until a leader or the controller notices: while others count the replica as one that has all committed records, they may
elect it. Apache Kafka has no such request: there the leader removes a follower that lags, and a broker whose log
directory fails reports the directory (KIP-858).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas_broker.cluster.controller.leaders import ENOUGH, STEP, choose, find_partition, led_by, registered, without
from barnabas_broker.cluster.image import BrokerInfo, Event, Image, PartitionChanged, PartitionInfo


class Withdrawal(NamedTuple):
    """A replica that leaves the ISR and the ELR.

    Attributes:
        topic: the topic's name.
        topic_id: its id: the topic may have been deleted and created again.
        partition: the index.
        leader_epoch: the leader epoch that the broker knew when it decided this. Afterwards the partition has a later
            one: a Fetch that the replica has sent before, and a proposal of an ISR with it, do not count any more.
        min_isr: the topic's ``min.insync.replicas``.
        lost: it has lost records. Otherwise it has all that were committed until now, and stays eligible where the ISR
            becomes too small.
    """

    topic: str
    topic_id: bytes
    partition: int
    leader_epoch: int
    min_isr: int = 1
    lost: bool = True


def withdraw(image: Image, node_id: int, broker_epoch: int, withdrawals: Sequence[Withdrawal]) -> list[Event]:
    """Remove replicas of a broker from the ISRs and ELRs, and let others lead what it leads.

    A replica stays where it leads and no other live replica is in sync or eligible: it is the best that there is.

    Args:
        image: the present cluster image.
        node_id: the broker.
        broker_epoch: its broker epoch.
        withdrawals: at most one per partition.

    Returns:
        Events; at most `STEP`: call again until none is returned.

    Raises:
        KafkaError: STALE_BROKER_EPOCH if the broker is not registered with this epoch.
    """
    me = registered(image, node_id, broker_epoch)
    events: list[Event] = []
    for each in withdrawals:
        before = find_partition(image, each.topic, each.topic_id, each.partition)
        after = None if before is None else _withdrawn(before, me, image.brokers, each)
        if after is not None:
            events.append(PartitionChanged(each.topic, each.partition, after))
            if len(events) == STEP:
                break
    return events


def _withdrawn(
    partition: PartitionInfo, me: BrokerInfo, live: Mapping[int, BrokerInfo], wish: Withdrawal
) -> PartitionInfo | None:
    """The partition without a replica in ISR and ELR; None if it does not change."""
    node_id = me.node_id
    if node_id not in partition.replicas or partition.leader == -1:
        return None
    others = {node: broker for node, broker in live.items() if node != node_id}
    if partition.leader == node_id and not any(node in others for node in (*partition.isr, *partition.elr)):
        return None
    counted = node_id in partition.isr or (wish.lost and node_id in partition.elr)
    if not counted and (not wish.lost or partition.leader_epoch > wish.leader_epoch):
        return None
    rest = without(partition, node_id, me.directory) if wish.lost else partition
    changed = choose(rest, others, unclean=False, min_isr=wish.min_isr)
    if changed is None:
        changed = led_by(rest, rest.leader, rest.isr, max(wish.min_isr, ENOUGH))
    return changed._replace(
        leader_epoch=max(changed.leader_epoch, partition.leader_epoch + 1),
        partition_epoch=partition.partition_epoch + 1,
    )
