"""Sends one kind of small request over one connection, DEPTH of them in flight; prints requests per second.

    python -m tests.bench.loads.requests ADDRESS KIND SECONDS DEPTH [DEPTH ...]

The same frame is sent repeatedly, so every response must have the bytes of the first one, or its length if the contents
change; the first and the last response are decoded and checked. This program only counts the others, so that the
measurement shows the server's speed.
"""

import asyncio
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

import uvloop

from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.builder import build_batch
from tests.bench.wire import CLIENT, Link, join_alone, named, wait_for_topic

WARM_UP: Final = 0.2
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Shot:
    """A frame to send, and a check of its response. `repeats`: all responses have the same bytes."""

    frame: bytes
    fine: Callable[[bytes], bool]
    repeats: bool = True


def heartbeat(address: str, version: int) -> Shot:
    with Link(address) as link:
        group = named()
        member_id, generation = join_alone(link, group)
    request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id)

    def fine(answer: bytes) -> bool:
        return decode_response(HeartbeatResponse, version, answer).error_code == 0

    return Shot(encode_request(request, version, 1, CLIENT), fine)


def offset_commit(address: str, version: int, *, of_member: bool = True) -> Shot:
    topic = named()
    with Link(address) as link:
        wait_for_topic(link, topic)
    with Link(address) as link:
        group = named()
        member_id, generation = join_alone(link, group)
    if not of_member:
        group, member_id, generation = named(), "", -1
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=0, committed_metadata="")
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )

    def fine(answer: bytes) -> bool:
        decoded = decode_response(OffsetCommitResponse, version, answer)
        return [one.error_code for each in decoded.topics for one in each.partitions] == [0]

    return Shot(encode_request(request, version, 1, CLIENT), fine)


def empty_fetch(address: str, version: int) -> Shot:
    topic = named()
    with Link(address) as link:
        wait_for_topic(link, topic)
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )

    def fine(answer: bytes) -> bool:
        decoded = decode_response(FetchResponse, version, answer)
        return [one.error_code for each in decoded.responses for one in each.partitions] == [0]

    return Shot(encode_request(request, version, 1, CLIENT), fine)


def produce(address: str, version: int) -> Shot:
    topic = named()
    with Link(address) as link:
        wait_for_topic(link, topic)
    batch = build_batch([(None, os.urandom(100), (), int(time.time() * 1000))])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])

    def fine(answer: bytes) -> bool:
        decoded = decode_response(ProduceResponse, version, answer)
        return [one.error_code for each in decoded.responses for one in each.partition_responses] == [0]

    return Shot(encode_request(request, version, 1, CLIENT), fine, repeats=False)


def metadata(address: str, version: int) -> Shot:
    topic = named()
    with Link(address) as link:
        wait_for_topic(link, topic)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])

    def fine(answer: bytes) -> bool:
        return [topic.error_code for topic in decode_response(MetadataResponse, version, answer).topics] == [0]

    return Shot(encode_request(request, version, 1, CLIENT), fine)


#: By name: the function that builds the request, and the version. Heartbeat v0 is for published figures.
KINDS: Final[dict[str, tuple[Callable[[str, int], Shot], int]]] = {
    "Heartbeat v0": (heartbeat, 0),
    "Heartbeat v4": (heartbeat, 4),
    "OffsetCommit v8": (offset_commit, 8),
    "Fetch v11, empty": (empty_fetch, 11),
    "Produce v9": (produce, 9),
    "Metadata v8": (metadata, 8),
}


class Gun(asyncio.Protocol):
    """Sends a request for each response that arrives."""

    def __init__(self, shot: Shot, depth: int) -> None:
        self.count = 0
        self.first: bytes | None = None
        self.last: bytes | None = None
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._frame = shot.frame
        self._repeats = shot.repeats
        self._depth = depth
        self._rest = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._transport.write(self._frame * self._depth)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data if self._rest else data
        if self.first is None:
            end = 4 + _SIZE.unpack_from(data)[0] if len(data) >= 4 else 5
            if len(data) < end:
                self._rest = data
                return
            self.first = data[:end]
        first = self.first
        whole, rest = divmod(len(data), len(first))
        if self._repeats:
            if data[: whole * len(first)] != first * whole:
                self._break("an answer is not like the first one")
                return
        elif whole:
            self.last = data[(whole - 1) * len(first) : whole * len(first)]
        self._rest = data[len(data) - rest :]
        self.count += whole
        if whole and self._transport is not None:
            self._transport.write(self._frame * whole)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break("the server has closed the connection")

    def _break(self, why: str) -> None:
        if not self.broken.done():
            self.broken.set_exception(RuntimeError(why))


async def shoot(connection: socket.socket, shot: Shot, depth: int, seconds: float) -> float:
    """Send requests over an open connection, and close it; the rate."""
    transport, gun = await asyncio.get_running_loop().create_connection(lambda: Gun(shot, depth), sock=connection)
    try:
        await asyncio.wait([gun.broken], timeout=WARM_UP)
        before, started = gun.count, time.perf_counter()
        await asyncio.wait([gun.broken], timeout=seconds)
        count, elapsed = gun.count - before, time.perf_counter() - started
        if gun.broken.done():
            gun.broken.result()
        if gun.first is None or not all(shot.fine(one[4:]) for one in (gun.first, gun.last or gun.first)):
            raise RuntimeError("the server has answered with an error")
        return count / elapsed
    finally:
        gun.broken.cancel()
        transport.close()


def main(address: str, kind: str, seconds: float, depths: list[int]) -> None:
    make, version = KINDS[kind]
    shot = make(address, version)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rates = {depth: runner.run(shoot(Link(address).detach(), shot, depth, seconds)) for depth in depths}
    print(json.dumps(rates))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), [int(depth) for depth in sys.argv[4:]])
