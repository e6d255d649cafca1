"""The partitions of large topics are encoded once for all Metadata requests, until the cluster changes."""

from collections.abc import Sequence
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import BrokerInfo, Image, PartitionInfo, TopicInfo
from barnabas_broker.handlers.partition_lists import PartitionLists
from barnabas_protocol import codec
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.wire import Encoded
from tests.wire import Wire

TOPIC = TopicInfo("t", bytes(range(16)), (PartitionInfo(1, 0, (1,), (1,)),))
IMAGE = Image("cluster", brokers={1: BrokerInfo(1, {"L": ("h", 1)})}, topics={"t": TOPIC})


def encoded(size: int) -> Encoded[MetadataResponsePartition]:
    return Encoded(1, bytes(size))


def test_a_list_is_kept_for_a_listener_and_a_version() -> None:
    lists, partitions = PartitionLists(), encoded(1)
    lists.keep(IMAGE, TOPIC, "L", 12, partitions)
    assert lists.find(IMAGE, TOPIC, "L", 12) is partitions
    assert lists.find(IMAGE, TOPIC, "M", 12) is None
    assert lists.find(IMAGE, TOPIC, "L", 11) is None


def test_a_list_of_other_partitions_or_brokers_is_not_used() -> None:
    lists = PartitionLists()
    for image, topic in (
        (IMAGE, TOPIC._replace(partitions=(PartitionInfo(2, 1, (1,), (1,)),))),
        (Image("cluster", brokers={2: BrokerInfo(2, {"L": ("h", 1)})}), TOPIC),
    ):
        lists.keep(IMAGE, TOPIC, "L", 12, encoded(1))
        assert lists.find(image, topic, "L", 12) is None


def test_the_list_that_was_not_used_for_longest_is_forgotten() -> None:
    lists, kept = PartitionLists(most=10), {version: encoded(4) for version in (9, 10, 11)}
    lists.keep(IMAGE, TOPIC, "L", 9, kept[9])
    lists.keep(IMAGE, TOPIC, "L", 10, kept[10])
    assert lists.find(IMAGE, TOPIC, "L", 9) is kept[9]
    lists.keep(IMAGE, TOPIC, "L", 11, kept[11])
    assert [version for version in kept if lists.find(IMAGE, TOPIC, "L", version) is not None] == [9, 11]
    lists.keep(IMAGE, TOPIC, "L", 12, encoded(11))
    assert [version for version in range(9, 13) if lists.find(IMAGE, TOPIC, "L", version) is not None] == []


class Counted:
    """Counts the elements that are encoded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.longest = self.count = 0
        encode = codec.encode_elements

        def counted(elements: Sequence[Any], *arguments: Any) -> bytes:
            self.longest = max(self.longest, len(elements))
            self.count += len(elements)
            return encode(elements, *arguments)

        monkeypatch.setattr(codec, "encode_elements", counted)


@pytest.mark.parametrize("version", [0, 4, 9, 12, 13])
async def test_a_long_list_is_encoded_once_and_again_when_the_topic_changes(
    wire: Wire, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(monkeypatch)
    topic = CreatableTopic(name="t", num_partitions=250, replication_factor=1, assignments=[], configs=[])
    await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
    everything = MetadataRequest(topics=None if version else [])

    async def partitions() -> list[MetadataResponsePartition]:
        (shown,) = (await wire.ask(everything, version, MetadataResponse)).topics
        return shown.partitions

    first = await partitions()
    assert [(each.error_code, each.partition_index, each.leader_id, each.isr_nodes) for each in first] == [
        (0, index, 1, [1]) for index in range(250)
    ]
    assert [await partitions() for _ in range(3)] == [first] * 3
    assert (counted.count, counted.longest) == (250, 100)
    more = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="t", count=260, assignments=None)], timeout_ms=60_000, validate_only=False
    )
    await wire.ask(more, 3, CreatePartitionsResponse)
    assert [each.partition_index for each in await partitions()] == list(range(260))
    assert counted.count == 250 + 260


async def test_errors_of_a_long_list_are_counted(broker: BrokerServer, wire: Wire) -> None:
    topic = CreatableTopic(name="t", num_partitions=250, replication_factor=1, assignments=[], configs=[])
    await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
    image = broker.services.cluster.image
    shown = image.topics["t"]
    without = shown._replace(partitions=(*shown.partitions[:-1], shown.partitions[-1]._replace(leader=-1)))
    broker.services.cluster.image = image._replace(topics={"t": without})
    for _ in range(2):
        (found,) = (await wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)).topics
        assert [each.error_code for each in found.partitions] == [0] * 249 + [5]
    assert broker.dispatch.metrics.of(ApiKey.METADATA).errors == {5: 2}
