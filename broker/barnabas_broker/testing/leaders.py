"""Leaders and replicas in a cluster image, as tests ask for them."""

from collections.abc import Sequence

from barnabas_broker.cluster.controller.leaders import led_by
from barnabas_broker.cluster.image import Event, Image, PartitionChanged, PartitionInfo


def _find(image: Image, topic: str, partition: int) -> PartitionInfo | None:
    known = image.topics.get(topic)
    return known.partitions[partition] if known is not None and 0 <= partition < len(known.partitions) else None


def leader_of(image: Image, topic: str, partition: int) -> int | None:
    """The leader of a partition; None if it has none, or does not exist."""
    info = _find(image, topic, partition)
    return None if info is None or info.leader == -1 else info.leader


def not_in_sync(image: Image, topic: str | None) -> str | None:
    """The first replicas of a topic, or of all topics, that are not in sync, as text; None if all are."""
    if topic is not None and topic not in image.topics:
        return f"there is no topic {topic!r}"
    for known in image.topics.values() if topic is None else [image.topics[topic]]:
        for index, info in enumerate(known.partitions):
            if info.leader == -1 or set(info.isr) != set(info.replicas):
                return f"{known.name}-{index} has the replicas {list(info.replicas)}, in sync are {list(info.isr)}"
    return None


def moved_leader(image: Image, topic: str, partition: int, to: int | None) -> tuple[Sequence[Event], int]:
    """The event that gives a partition another leader, and the leader's node id. It becomes the preferred one, too.

    Args:
        image: the present cluster image.
        topic: the topic.
        partition: the partition.
        to: the new leader; None for any other replica.

    Raises:
        ValueError: there is no such partition, or no such replica that is in sync.
    """
    info = _find(image, topic, partition)
    if info is None:
        raise ValueError(f"there is no partition {topic}-{partition}")
    if to is not None and to == info.leader:
        return [], to
    others = [node for node in info.replicas if node in info.isr and node in image.brokers and node != info.leader]
    if to is None and others:
        to = others[0]
    if to is None or to not in others:
        wanted = "another replica" if to is None else f"broker {to}"
        raise ValueError(
            f"{topic}-{partition} has the replicas {list(info.replicas)}, in sync are {list(info.isr)}: {wanted} "
            "cannot lead it"
        )
    replicas = (to, *(node for node in info.replicas if node != to))
    changed = led_by(info, to, info.isr, len(replicas), replicas)
    return [PartitionChanged(topic, partition, changed)], to
