"""Requests of all APIs and versions, with random values."""

import asyncio
import random
from collections.abc import Iterator, Sequence

from barnabas_protocol.apis import APIS
from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import EncodeError
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas_protocol.records import build_batch
from barnabas_protocol.records.compression import Codec
from barnabas_protocol.registry import ApiKey, api
from tests.protocol.support import some
from tests.wire import Wire

#: Seconds until a connection with a request that waits is given up.
_WAIT = 0.05


def frames(chance: random.Random, times: int) -> Iterator[bytes]:
    """Frames of requests: `times` for each version of each API, and batches with each codec."""
    for codec in Codec:
        records = build_batch([(b"key", b"value" * 100, (), 1)], compression=codec.name.lower())
        data = [PartitionProduceData(index=0, records=records)]
        topics = [TopicProduceData(name="produced", partition_data=data)]
        yield encode_request(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 9, 1, "test")
    for key in APIS:
        declared = api(ApiKey(key)).request
        for version in declared.VERSIONS:
            for _ in range(times):
                try:
                    yield encode_request(some(chance, declared, version), version, 1, "tést")
                except EncodeError:
                    continue


async def send_all(wires: Sequence[Wire], chance: random.Random, times: int) -> None:
    """Send them over connections that are open; one that the broker has closed, or on which a request waits, is used
    no more."""
    left = list(wires)
    for frame in frames(chance, times):
        wire = left[-1]
        wire.writer.write(frame)
        try:
            async with asyncio.timeout(_WAIT):
                size = int.from_bytes(await wire.reader.readexactly(4), "big")
                await wire.reader.readexactly(size)
        except (TimeoutError, OSError, asyncio.IncompleteReadError):
            left.insert(0, left.pop())
            if wire.reader.at_eof():
                left.remove(wire)
