"""A fetch that overlaps very many aborted transactions: it does not hold the event loop, and its list is compact."""

import random
import tracemalloc

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.storage import AbortedTransaction
from barnabas_protocol.codec import encode_request
from barnabas_protocol.hot.fetch import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.records import build_batch
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD, held_by
from tests.sampling import slow_except
from tests.wire import Wire

pytestmark = [pytest.mark.broad, pytest.mark.usefixtures("collector")]

MANY = 100_000
#: What a fetch of ``fetch.max.bytes`` overlaps, if each transaction has one small record.
MOST = 400_000
ZERO = bytes(16)
#: Bytes of memory for each transaction while the list is made: what is found, its encoding, and the response with the
#: records, once in the broker and once in the client of the test.
EACH = 100


@pytest.fixture(
    params=[pytest.param(("in order", MANY), marks=pytest.mark.slow), ("in any order", MANY)],
    ids=lambda param: param[0],
)
async def expected(request: pytest.FixtureRequest, broker: BrokerServer, wire: Wire) -> list[tuple[int, int]]:
    """The first offsets and producer ids of a partition's aborted transactions, which were all open at a time."""
    order, many = request.param
    await wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t", topic_id=ZERO)]), 12, MetadataResponse)
    replica = broker.services.replicas.find("t", 0)
    for _ in range(many // 10_000):
        records = build_batch([(None, b"", (), 0)] * 10_000)
        replica.append(records, 0)
    began = list(range(many))
    if order == "in any order":
        random.Random(1).shuffle(began)
    (segment,) = replica.log.segments.items
    for number, first in enumerate(began):
        segment.aborted(AbortedTransaction(number, first, many + number, 0))
    replica.log._has_aborted = True
    return sorted((first, number) for number, first in enumerate(began))


def fetching(version: int) -> bytes:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 30)
    topic = FetchTopic(topic="t", topic_id=ZERO, partitions=[wanted])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 30, isolation_level=1, topics=[topic])
    return encode_request(request, version, 1, "test")


@pytest.mark.parametrize("version", slow_except([4, 11, 12], 12))
async def test_the_list_is_whole_and_in_offset_order(wire: Wire, expected: list[tuple[int, int]], version: int) -> None:
    wire.writer.write(fetching(version))
    (topic,) = decode_fetch_response(version, await wire.frame()).responses
    listed = topic.partitions[0].aborted_transactions or []
    assert [(each.first_offset, each.producer_id) for each in listed] == expected


@pytest.mark.parametrize("expected", [("in any order", MOST)], indirect=True, ids=str)
async def test_a_long_list_does_not_hold_the_loop(broker: BrokerServer, expected: list[tuple[int, int]]) -> None:
    times: list[float] = []
    async with await Wire.connect(broker.port, limit=2**30) as wire:
        while len(times) < ATTEMPTS and min(times, default=HELD) >= HELD:
            times.append(await held_by(broker, wire, fetching(12)))
    assert min(times) < HELD, f"{[round(one * 1000) for one in times]} ms"


@pytest.mark.slow
async def test_a_long_list_takes_little_memory(wire: Wire, expected: list[tuple[int, int]]) -> None:
    tracemalloc.start()
    try:
        wire.writer.write(fetching(12))
        size = len(await wire.frame())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert size > MANY * 17
    assert peak < MANY * EACH
