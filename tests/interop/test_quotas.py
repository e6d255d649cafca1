"""Quotas with Kafka's own tools, and how clients that are over them are answered by Apache Kafka and by Barnabas."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from barnabas_client import Admin, ClientQuotaAlteration, NewTopic
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records import build_batch
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server
from tests.wire import PATIENCE, Wire

pytestmark = [pytest.mark.interop, pytest.mark.together]

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
NO_ID = bytes(16)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(BarnabasBroker, id="barnabas"),
        pytest.param(ApacheKafka, id="kafka", marks=pytest.mark.kafka),
    ],
)
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    make: Callable[[], AbstractContextManager[Server]] = request.param
    with make() as running:
        yield running


async def described(admin: Admin, client_id: str, key: str, value: float) -> None:
    """Set a quota, and wait until it is described."""
    entity = {"client-id": client_id}
    await admin.alter_client_quotas([ClientQuotaAlteration(entity, {key: value})])
    while True:
        found = await admin.describe_client_quotas(entity)
        if any(one.values.get(key) == value for one in found):
            return
        await asyncio.sleep(0.05)


async def set_quota(server: Server, client_id: str, key: str, value: float) -> None:
    """Set a quota, and wait until it counts: Apache Kafka describes a quota some time before it measures by it.

    Changes are applied in their order: when a later one makes a client wait, the quota counts.
    """
    async with asyncio.timeout(PATIENCE), Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await described(admin, client_id, key, value)
        later = f"after-{client_id}"
        await described(admin, later, "request_percentage", 1e-6)
        while True:
            async with await Wire.connect(server.port) as wire:
                if (await wire.ask(ASK, 3, ApiVersionsResponse, later)).throttle_time_ms:
                    return
            await asyncio.sleep(0.05)


def producing(topic: str, size: int, acks: int = 1) -> ProduceRequest:
    records = build_batch([(None, bytes(size), (), 1_700_000_000_000)])
    data = TopicProduceData(name=topic, topic_id=NO_ID, partition_data=[PartitionProduceData(index=0, records=records)])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[data])


def fetching(topic: str, offset: int, most: int = 1 << 20) -> FetchRequest:
    wanted = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    topics = [FetchTopic(topic=topic, topic_id=NO_ID, partitions=wanted)]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=most, topics=topics)


def size_of(answer: FetchResponse) -> int:
    return sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)


async def new_topic(server: Server, name: str) -> None:
    async with Admin(bootstrap_servers=server.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(name, 1, 1)])
    # The broker learns that it leads the partition after the topic was created.
    async with await Wire.connect(server.port) as wire, asyncio.timeout(PATIENCE):
        while True:
            answer = await wire.ask(producing(name, 1), 9, ProduceResponse, "setup")
            if not answer.responses[0].partition_responses[0].error_code:
                return
            await asyncio.sleep(0.05)


async def muted_for(wire: Wire, client_id: str) -> float:
    """Seconds until the next request is answered."""
    began = time.monotonic()
    await wire.ask(ASK, 3, ApiVersionsResponse, client_id)
    return time.monotonic() - began


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_producer_is_answered_at_once_and_then_waits(server: Server, acks: int) -> None:
    topic = client = f"produce-{acks}"
    await new_topic(server, topic)
    await set_quota(server, client, "producer_byte_rate", 1000)
    async with await Wire.connect(server.port) as wire:
        assert (await wire.ask(producing(topic, 100, acks), 9, ProduceResponse, client)).throttle_time_ms == 0
        began = time.monotonic()
        answer = await wire.ask(producing(topic, 11_500, acks), 9, ProduceResponse, client)
        answered = time.monotonic() - began
        assert answer.responses[0].partition_responses[0].error_code == 0
        # 11,700 bytes in ten seconds of 1,000.
        assert 1000 < answer.throttle_time_ms < 3000
        waited = await muted_for(wire, client)
        assert answer.throttle_time_ms / 1000 - answered - 0.2 < waited


async def test_a_producer_without_answers_waits_as_well(server: Server) -> None:
    await new_topic(server, "produce-0")
    await set_quota(server, "produce-0", "producer_byte_rate", 1000)
    async with await Wire.connect(server.port) as wire:
        wire.send(producing("produce-0", 12_000, 0), 9, "produce-0")
        assert await muted_for(wire, "produce-0") > 0.8


async def test_a_consumer_gets_nothing_and_waits(server: Server) -> None:
    await new_topic(server, "fetch")
    async with await Wire.connect(server.port) as wire:
        for _ in range(12):
            await wire.ask(producing("fetch", 1000), 9, ProduceResponse, "setup")
        await set_quota(server, "fetch", "consumer_byte_rate", 1000)
        # Of a response as large as the quota of the window, Apache Kafka counts what is around the records, too.
        first = await wire.ask(fetching("fetch", 0, 9000), 12, FetchResponse, "fetch")
        assert first.throttle_time_ms == 0
        assert 7500 < size_of(first) <= 9000
        second = await wire.ask(fetching("fetch", 8), 12, FetchResponse, "fetch")
        assert (second.error_code, second.session_id, second.responses) == (0, 0, [])
        assert 500 < second.throttle_time_ms < 6000
        assert await muted_for(wire, "fetch") > second.throttle_time_ms / 1000 - 0.3


async def test_a_client_that_takes_too_much_time_waits_for_a_second_at_most(server: Server) -> None:
    await set_quota(server, "busy", "request_percentage", 1e-6)
    async with await Wire.connect(server.port) as wire:
        answers = [await wire.ask(ASK, 3, ApiVersionsResponse, "busy") for _ in range(2)]
    assert [answer.throttle_time_ms for answer in answers] == [1000, 1000]


async def test_topics_that_are_created_too_fast_are_refused(server: Server) -> None:
    await set_quota(server, "creator", "controller_mutation_rate", 1)

    def create(name: str, version: int) -> CreateTopicsRequest:
        topic = CreatableTopic(name=name, num_partitions=14, replication_factor=1, assignments=[], configs=[])
        return CreateTopicsRequest(topics=[topic], timeout_ms=5000, validate_only=version > 100)

    async with await Wire.connect(server.port) as wire:
        first = await wire.ask(create("one", 7), 7, CreateTopicsResponse, "creator")
        assert (first.topics[0].error_code, first.throttle_time_ms) == (0, 0)
        second = await wire.ask(create("two", 7), 7, CreateTopicsResponse, "creator")
        assert second.topics[0].error_code == 89
        assert 1000 < second.throttle_time_ms <= 3000
        # An older client is not refused, but waits for longer.
        third = await wire.ask(create("three", 5), 5, CreateTopicsResponse, "creator")
        assert third.topics[0].error_code == 0
        assert 10_000 < third.throttle_time_ms <= 14_000
