"""Images and partitions to decide on."""

import pytest

from barnabas_broker.cluster.image import BrokerRegistered, Event, Image, PartitionInfo, TopicCreated, TopicInfo
from barnabas_protocol.errors import ErrorCode, KafkaError

TOPIC_ID = bytes(range(16))


def brokers(*nodes: int, racks: dict[int, str] | None = None) -> Image:
    """A cluster of these brokers; the broker epoch of each is ten times its node id."""
    racks = racks or {}
    return Image("cluster", controller_id=nodes[0]).apply_all(
        BrokerRegistered(node, {"PLAINTEXT": ("host", 9092)}, racks.get(node), node * 10) for node in nodes
    )


def with_topic(image: Image, *partitions: PartitionInfo, **configs: str) -> Image:
    given = {key.replace("_", "."): value for key, value in configs.items()}
    return image.apply(TopicCreated("topic", TOPIC_ID, partitions, given))


def partition(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...] | None = None) -> PartitionInfo:
    return PartitionInfo(leader, 5, replicas, replicas if isr is None else isr, 7)


def only(image: Image, events: list[Event], index: int = 0) -> PartitionInfo:
    """Partition `index` after `events`."""
    return image.apply_all(events).topics["topic"].partitions[index]


def clean(topic: TopicInfo) -> bool:
    """No unclean elections."""
    return False


def unclean(topic: TopicInfo) -> bool:
    return True


def one(topic: TopicInfo) -> int:
    """``min.insync.replicas`` is 1."""
    return 1


def two(topic: TopicInfo) -> int:
    return 2


def refused(code: ErrorCode) -> "pytest.RaisesExc[KafkaError]":
    return pytest.RaisesExc(KafkaError, check=lambda error: error.code is code)
