"""Reassignment: moves replicas between brokers (KIP-455).

During a reassignment a partition has its old and its new replicas: `adding` names the new ones, `removing` those to
remove. It completes when all added replicas are in the ISR.
"""

from collections.abc import Collection, Sequence

from barnabas_broker.cluster.controller.leaders import led_by
from barnabas_broker.cluster.image import Image, PartitionChanged, PartitionInfo
from barnabas_protocol.errors import ErrorCode, KafkaError


def is_reassigning(partition: PartitionInfo) -> bool:
    """Whether replicas of the partition are being moved."""
    return bool(partition.adding or partition.removing)


def completed(partition: PartitionInfo, live: Collection[int]) -> PartitionInfo:
    """The partition with its reassignment completed, if that is possible; otherwise unchanged.

    Args:
        partition: with its new ISR.
        live: the registered brokers.
    """
    if not is_reassigning(partition) or not set(partition.adding) <= set(partition.isr):
        return partition
    isr = [node for node in partition.isr if node not in partition.removing]
    replicas = tuple(node for node in partition.replicas if node not in partition.removing)
    leaders = [node for node in replicas if node in isr and node in live]
    leader = partition.leader if partition.leader in leaders else next(iter(leaders), None)
    if leader is None:
        return partition
    done = led_by(partition, leader, isr, len(replicas), replicas)._replace(adding=(), removing=())
    if partition.removing and leader == partition.leader:
        # A new leader epoch stops the fetches of removed replicas.
        done = done._replace(leader_epoch=partition.leader_epoch + 1)
    return done


def reassign(
    image: Image, name: str, index: int, target: Sequence[int] | None, *, allow_factor_change: bool = True
) -> PartitionChanged:
    """Begin or cancel the reassignment of a partition.

    Args:
        image: the present cluster image.
        name: of the topic.
        index: of the partition.
        target: the new replicas, the preferred leader first; None to cancel a reassignment.
        allow_factor_change: whether the number of replicas may change.

    Raises:
        KafkaError: the code and message for AlterPartitionReassignments.
    """
    topic = image.topics.get(name)
    if topic is None or not 0 <= index < len(topic.partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    partition = topic.partitions[index]
    before = tuple(node for node in partition.replicas if node not in partition.adding)
    if target is None:
        if not is_reassigning(partition):
            raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        return PartitionChanged(name, index, _moved(image, partition, before, (), ()))
    wanted = tuple(target)
    _check(image, partition, before, wanted, allow_factor_change)
    adding = tuple(node for node in wanted if node not in before)
    removing = tuple(node for node in before if node not in wanted)
    moved = _moved(image, partition, wanted + removing, adding, removing)
    return PartitionChanged(name, index, completed(moved, image.brokers))


def _moved(
    image: Image,
    partition: PartitionInfo,
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> PartitionInfo:
    isr = [node for node in partition.isr if node in replicas]
    if not isr:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "No replica that would stay is in sync: wait until one is, or reassign to other brokers.",
        )
    leader = partition.leader
    if leader != -1 and leader not in isr:
        leader = next((node for node in replicas if node in isr and node in image.brokers), -1)
    # Those that were eligible stay eligible.
    return led_by(partition, leader, isr, len(replicas), replicas)._replace(adding=adding, removing=removing)


def _check(
    image: Image,
    partition: PartitionInfo,
    before: Sequence[int],
    target: Sequence[int],
    allow_factor_change: bool,
) -> None:
    if not target:
        reason = "the replica list is empty"
    elif len(set(target)) != len(target):
        reason = "it names a broker twice"
    elif any(node not in image.brokers and node not in partition.replicas for node in target):
        strange = next(node for node in target if node not in image.brokers and node not in partition.replicas)
        reason = f"it includes broker {strange}, but no such broker is registered"
    elif not allow_factor_change and len(target) != len(before):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(before)} to {len(target)}.",
        )
    else:
        return
    raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The manual partition assignment is not valid: {reason}.")
