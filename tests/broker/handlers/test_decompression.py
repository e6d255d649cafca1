"""Batches that are small on the wire and large when they are decompressed: cheap or refused, and never on the loop."""

import asyncio
import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crc32c import crc32c

from barnabas_broker.broker import BrokerServer
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.batches import CRC_START, HEADER, HEADER_SIZE, LENGTH_END
from barnabas_protocol.records.compression import Codec, compress
from barnabas_protocol.wire import Buffer, uvarint
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_data import NOW, batch, list_offset, produce, topic_id
from tests.broker.handlers.test_large_requests import HELD
from tests.turns import watched
from tests.wire import Wire

__all__ = ["topic_id"]

MEBIBYTE = 1 << 20
#: A record of seven bytes: no key, no value, no deltas.
SMALLEST = bytes([12, 0, 0, 0, 1, 1, 0])
#: The same with an empty key.
SMALLEST_WITH_KEY = bytes([12, 0, 0, 0, 0, 1, 0])


def numbered(record: bytes, count: int) -> bytes:
    """The record again and again, with the offset deltas that a producer writes."""
    out = bytearray()
    for delta in range(count):
        body = record[1:3] + uvarint(delta << 1) + record[4:]
        out += uvarint(len(body) << 1) + body
    return bytes(out)


def bomb(
    record: bytes, count: int, *, latest: int = NOW, claimed: int | None = None, content: bytes | None = None
) -> bytes:
    """A batch of `count` equal records that were compressed with zstd, with a sound CRC.

    Args:
        record: its bytes.
        count: of records.
        latest: what the header says is the largest timestamp; the records have `NOW`.
        claimed: what the header says is the number of records, if that is not true.
        content: the records, if they are not all equal.
    """
    content = bytes(compress(Codec.ZSTD, record * count if content is None else content))
    count = count if claimed is None else claimed
    fields = (
        0,
        HEADER_SIZE - LENGTH_END + len(content),
        -1,
        2,
        0,
        Codec.ZSTD,
        count - 1,
        NOW,
        latest,
        -1,
        -1,
        -1,
        count,
    )
    out = bytearray(HEADER.pack(*fields)) + content
    struct.pack_into(">I", out, CRC_START - 4, crc32c(memoryview(out)[CRC_START:]))
    return bytes(out)


def huge() -> bytes:
    """One record of 100 MB in about ten kilobytes."""
    length = 100_000_000
    value = b"".join(_varint(length)) + bytes(length) + b"\0"
    body = b"\0\0\0\1" + value
    return bomb(b"".join(_varint(len(body))) + body, 1)


def _varint(value: int) -> list[bytes]:
    value, out = value << 1, []
    while value > 0x7F:
        out.append(bytes([value & 0x7F | 0x80]))
        value >>= 7
    return [*out, bytes([value])]


@contextmanager
def traced() -> Iterator[Callable[[], int]]:
    """Yield a function that returns the most bytes that were allocated at a time in this block."""
    tracemalloc.start()
    try:
        yield lambda: tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_a_batch_over_the_limit_is_not_decompressed_for_its_timestamp(wire: Wire, topic_id: bytes) -> None:
    attack = huge()
    assert len(attack) < 11_000
    await produce(wire, batch(b"before", at=NOW - 10))
    await produce(wire, attack)
    with traced() as peak:
        with watched() as held:
            found = await list_offset(wire, NOW - 5, 7)
        assert peak() < 2 * MEBIBYTE
    assert (found.error_code, found.offset, found.timestamp) == (ErrorCode.NONE, 1, NOW)
    assert held() < HELD


async def test_many_small_records_are_searched_in_little_memory(wire: Wire, topic_id: bytes) -> None:
    await produce(wire, bomb(SMALLEST, 60_000, latest=NOW + 10))
    with traced() as peak:
        with watched() as held:
            found = await list_offset(wire, NOW + 5, 7)
        assert peak() < 4 * MEBIBYTE  # the records have half of one, as objects fifteen
    assert (found.error_code, found.offset) == (ErrorCode.NONE, -1)
    assert held() < HELD


async def test_a_look_up_ends_with_its_connection(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    """The thread is free for others as soon as the connection is lost."""
    disk = broker.directory._disk
    begun, ended = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    decode = disk.decode

    async def endless(work: object) -> object:
        def until_stopped(stopped: Callable[[], bool]) -> None:
            loop.call_soon_threadsafe(begun.set)
            waiting = threading.Event()
            while not stopped():
                waiting.wait(0.001)
            loop.call_soon_threadsafe(ended.set)

        return await decode(until_stopped)

    await produce(wire, batch(b"a", at=NOW))
    disk.decode = endless  # type: ignore[method-assign, assignment]
    async with await Wire.connect(broker.port) as other:
        partitions = [ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=NOW)]
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=partitions)])
        other.send(request, 7)
        await asyncio.wait_for(begun.wait(), 20)
    await asyncio.wait_for(ended.wait(), 20)


def producing(records: Buffer) -> ProduceRequest:
    data = [PartitionProduceData(index=0, records=records)]
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name="c", partition_data=data)])


async def compacted(wire: Wire) -> None:
    configs = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [CreatableTopic(name="c", num_partitions=1, replication_factor=1, assignments=[], configs=configs)]
    made = await wire.ask(
        CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=False), 7, CreateTopicsResponse
    )
    assert made.topics[0].error_code == ErrorCode.NONE


async def test_a_compacted_topic_refuses_a_batch_over_the_limit(wire: Wire) -> None:
    await compacted(wire)
    attack = huge()
    with watched() as held:
        refused = await produce(wire, attack, topic="c")
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert refused.error_message is not None and "when decompressed" in refused.error_message
    assert held() < HELD


async def test_keys_of_compressed_batches_are_checked_in_a_thread_and_in_order(wire: Wire) -> None:
    await compacted(wire)
    sent = [bomb(record, 100_000, content=numbered(record, 100_000)) for record in (SMALLEST_WITH_KEY, SMALLEST)]
    with watched() as held:
        for each in sent:
            wire.send(producing(each), 9)
        wire.send(producing(batch(b"no key")), 9)
        answers = [decode_response(ProduceResponse, 9, await wire.frame()) for _ in range(3)]
    codes = [answer.responses[0].partition_responses[0].error_code for answer in answers]
    assert codes == [ErrorCode.NONE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_RECORD]
    assert held() < HELD


async def test_a_batch_cannot_claim_more_records_than_it_can_hold(
    broker: BrokerServer, wire: Wire, topic_id: bytes
) -> None:
    """Each such batch used up the offsets of a segment, and so opened three files."""
    attack = bomb(SMALLEST, 1, claimed=2**31 - 1)
    assert len(attack) < 80
    for _ in range(3):
        assert (await produce(wire, attack)).error_code == ErrorCode.INVALID_RECORD
    assert (await produce(wire, batch(b"a"))).base_offset == 0


async def test_the_limit_is_a_key(start_broker: StartBroker) -> None:
    broker = await start_broker(message_max_decompressed_bytes="2048")
    async with await Wire.connect(broker.port) as wire:
        await compacted(wire)
        for count, code in ((100, ErrorCode.NONE), (1000, ErrorCode.INVALID_RECORD)):
            sent = bomb(SMALLEST_WITH_KEY, count, content=numbered(SMALLEST_WITH_KEY, count))
            assert (await produce(wire, sent, topic="c")).error_code == code
