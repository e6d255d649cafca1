"""Creates, grows, configures and deletes topics, and places their replicas."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from barnabas_broker.cluster.image import (
    Event,
    Image,
    PartitionInfo,
    PartitionsAdded,
    ProducerIdsAllocated,
    TopicConfigured,
    TopicCreated,
    TopicDeleted,
)
from barnabas_broker.cluster.producer_ids import first_free
from barnabas_protocol.errors import ErrorCode, KafkaError

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")
#: The most partitions of one topic; each costs open files and memory.
MAX_PARTITIONS: Final = 10_000
#: The size of a block of producer ids; each block is one event (KIP-730).
PRODUCER_ID_BLOCK: Final = 1000


def check_topic_name(name: str) -> None:
    """Reject names that Kafka's ``Topic.validate`` rejects.

    Raises:
        KafkaError: INVALID_TOPIC_EXCEPTION.
    """
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = "'.' or '..' is not allowed"
    elif len(name) > 249:
        reason = f"the length of '{name[:20]}...' is longer than the max allowed length 249"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name[:249]}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def _place(image: Image, count: int, replication_factor: int, first: int, topic_id: bytes) -> tuple[PartitionInfo, ...]:
    """Spread replicas over the registered brokers. Leaders go round robin from a broker that the topic id selects, so
    that topics with one partition are spread, too; a rack gets a second replica only when every rack has one."""
    brokers = _rack_by_rack(image)
    if replication_factor > len(brokers):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered.",
        )
    start = int.from_bytes(topic_id[:4])
    #: A topic may have thousands of partitions, but there are few ways to place one.
    known: dict[tuple[int, int], PartitionInfo] = {}
    placed = []
    for index in range(first, first + count):
        leader = (start + index) % len(brokers)
        # Shift the followers after each round of leaders, so that several brokers take over from a failed one.
        shift = (index // len(brokers)) % max(len(brokers) - 1, 1)
        info = known.get((leader, shift))
        if info is None:
            replicas = _replicas(image, brokers, leader, shift, replication_factor)
            info = known[leader, shift] = PartitionInfo(replicas[0], 0, replicas, replicas)
        placed.append(info)
    return tuple(placed)


def _replicas(
    image: Image, brokers: Sequence[int], leader: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    """The replicas of a partition, the leader first: `leader` is its place among `brokers`, and `shift` how far after
    it the followers begin."""
    others = [brokers[(leader + 1 + (shift + n) % (len(brokers) - 1)) % len(brokers)] for n in range(len(brokers) - 1)]
    replicas = [brokers[leader]]
    while len(replicas) < replication_factor:
        used = {image.brokers[node].rack for node in replicas}
        node = next((node for node in others if image.brokers[node].rack not in used), others[0])
        others.remove(node)
        replicas.append(node)
    return tuple(replicas)


def _rack_by_rack(image: Image) -> list[int]:
    """All brokers, in an order that alternates between racks."""
    racks: dict[str | None, list[int]] = {}
    for node in sorted(image.brokers):
        racks.setdefault(image.brokers[node].rack, []).append(node)
    turns = sorted((turn, rack or "", node) for rack, nodes in racks.items() for turn, node in enumerate(nodes))
    return [node for _, _, node in turns]


class TopicNames:
    """The names of all topics, for the checks of new ones; the new topics of a batch share it.

    Args:
        image: the present cluster image.
    """

    def __init__(self, image: Image) -> None:
        self._topics = image.topics
        self._new: set[str] = set()
        #: Every name by how metrics show it; None until a new name needs that.
        self._flat: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Check that a new topic can have a name.

        Raises:
            KafkaError: INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS.
        """
        check_topic_name(name)
        if name in self._topics or name in self._new:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        flat = _flat(name)
        if "_" in flat:
            if self._flat is None:
                self._flat = {_flat(each): each for each in (*self._topics, *self._new)}
            if (other := self._flat.get(flat)) is not None:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def add(self, name: str) -> None:
        """A new topic has this name."""
        self._new.add(name)
        if self._flat is not None:
            self._flat[_flat(name)] = name


def _flat(name: str) -> str:
    """A topic's name as metrics show it."""
    return name.replace(".", "_")


def create_topic(
    image: Image,
    name: str,
    *,
    topic_id: bytes,
    partitions: int,
    replication_factor: int,
    configs: Mapping[str, str],
    assignments: Mapping[int, Sequence[int]] | None = None,
    names: TopicNames | None = None,
) -> TopicCreated:
    """Create a topic.

    Args:
        image: the present cluster image.
        name: the topic's name.
        topic_id: 16 random bytes.
        partitions: how many, at least 1.
        replication_factor: replicas of each, at least 1.
        configs: overrides, validated.
        assignments: node ids by partition, instead of the two numbers.
        names: of all topics, if the topic is one of a batch.

    Raises:
        KafkaError: the code and message for CreateTopics.
    """
    names = names or TopicNames(image)
    names.check(name)
    if assignments:
        placed = _assigned(image, assignments, 0)
    else:
        _check_numbers(partitions, replication_factor)
        placed = _place(image, partitions, replication_factor, 0, topic_id)
    names.add(name)
    return TopicCreated(name, topic_id, placed, configs)


def _check_numbers(partitions: int, replication_factor: int) -> None:
    if not 0 < partitions <= MAX_PARTITIONS:
        reason = (
            "Number of partitions was set to an invalid non-positive value."
            if partitions <= 0
            else f"Number of partitions is over {MAX_PARTITIONS}."
        )
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, reason)
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )


def _assigned(image: Image, assignments: Mapping[int, Sequence[int]], first: int) -> tuple[PartitionInfo, ...]:
    if sorted(assignments) != list(range(first, first + len(assignments))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    placed = []
    for index in sorted(assignments):
        replicas = tuple(assignments[index])
        if not replicas or len(set(replicas)) != len(replicas) or any(r not in image.brokers for r in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual assignment of partition {index} is empty, repeats a broker or names an unknown one.",
            )
        placed.append(PartitionInfo(replicas[0], 0, replicas, replicas))
    if len({len(p.replicas) for p in placed}) > 1:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions must have the same number of replicas.")
    return tuple(placed)


def add_partitions(
    image: Image, name: str, total: int, assignments: Sequence[Sequence[int]] | None = None
) -> PartitionsAdded:
    """Raise the number of a topic's partitions to `total`.

    Raises:
        KafkaError: the code and message for CreatePartitions.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    have = len(topic.partitions)
    if total == have:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {have} partition(s).")
    if total < have:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {have} partition(s); {total} would not be an increase.",
        )
    if total > MAX_PARTITIONS:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Number of partitions is over {MAX_PARTITIONS}.")
    if assignments is None:
        return PartitionsAdded(
            name, _place(image, total - have, len(topic.partitions[0].replicas), have, topic.topic_id)
        )
    if len(assignments) != total - have:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {total - have} additional partition(s), but only {len(assignments)} assignment(s) were "
            "specified.",
        )
    return PartitionsAdded(name, _assigned(image, dict(enumerate(assignments, have)), have))


def delete_topic(image: Image, name: str) -> TopicDeleted:
    """Delete a topic.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
    """
    if name not in image.topics:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return TopicDeleted(name)


def configure_topic(
    image: Image, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
) -> TopicConfigured:
    """Change a topic's overrides: `change` returns the new ones for the old ones.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or what `change` raises.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    return TopicConfigured(name, change(topic.configs))


def allocate_producer_ids(image: Image, above: int = 0) -> tuple[range, Event]:
    """Allocate the next block of producer ids.

    Args:
        image: the present cluster image.
        above: the number of microseconds since 1970: ids below it are not allocated.
    """
    first = first_free(image.next_producer_id, above)
    return range(first, first + PRODUCER_ID_BLOCK), ProducerIdsAllocated(first + PRODUCER_ID_BLOCK)
