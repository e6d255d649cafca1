"""Flood a broker: ``python -m tests.fuzz.floods Metadata --connections 100 --requests 500 --partitions 3000``.

Each connection sends its requests at once and reads the responses; another one sends a heartbeat each 10 ms. The crowd
is a process of its own. It prints the longest hold of the event loop, in processor time of its thread, and how long the
heartbeats took; its status is 1 if the loop was held for longer than the promise.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import uvloop

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.gc_tuning import bounded
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from tests.broker.handlers.test_floods import REQUESTS, crowd
from tests.broker.handlers.test_large_requests import HELD
from tests.fuzz.attack import AUTHORIZER
from tests.turns import watched
from tests.wire import Wire

#: Seconds between two heartbeats.
BEAT = 0.01


def flood(port: int, frame: bytes, size: int, connections: int, requests: int) -> None:
    """Send requests over many connections, in a process of their own."""
    asyncio.run(crowd(port, frame, size, connections, requests))


async def _broker(folder: str, arguments: argparse.Namespace) -> BrokerServer:
    keys = {"log.dirs": folder, **(AUTHORIZER if arguments.authorizer else {})}
    broker = await BrokerServer.start(Config(BROKER_KEYS, keys), port=0)
    topic = CreatableTopic(
        name="t", num_partitions=arguments.partitions, replication_factor=1, assignments=[], configs=[]
    )
    async with await Wire.connect(broker.port) as wire:
        created = await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
        assert [each.error_code for each in created.topics] == [0]
    return broker


async def _run(arguments: argparse.Namespace) -> int:
    make, version = REQUESTS[arguments.api]
    frame = encode_request(make(), version, 1, "test")
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "beat")
    loop, waited = asyncio.get_running_loop(), list[float]()
    with tempfile.TemporaryDirectory() as folder, ProcessPoolExecutor(1, get_context("spawn")) as pool, bounded():
        broker = await _broker(folder, arguments)
        async with await Wire.connect(broker.port) as wire:
            wire.writer.write(frame)
            size = 4 + len(await wire.frame())
            began = time.thread_time()
            with watched() as held:
                flooding = loop.run_in_executor(
                    pool, flood, broker.port, frame, size, arguments.connections, arguments.requests
                )
                while not flooding.done():
                    asked = time.monotonic()
                    wire.writer.write(beat)
                    await wire.frame()
                    waited.append(time.monotonic() - asked)
                    await asyncio.sleep(BEAT)
                await flooding
                longest = held()
            used = time.thread_time() - began
        await broker.stop()
    waited.sort()
    count = arguments.connections * arguments.requests
    print(
        f"{arguments.api}: {count:,} requests, {size:,} bytes each response, {used:.1f} s of processor time; "
        f"longest hold {longest * 1000:.1f} ms; {len(waited):,} heartbeats: "
        f"median {waited[len(waited) // 2] * 1000:.1f}, "
        f"p99 {waited[len(waited) * 99 // 100] * 1000:.1f}, longest {waited[-1] * 1000:.1f} ms"
    )
    return 1 if longest > HELD else 0


def main() -> int:
    """Run the flood of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.floods", description=__doc__)
    parser.add_argument("api", choices=REQUESTS, help="what is asked")
    parser.add_argument("--connections", type=int, default=100, help="number of connections")
    parser.add_argument("--requests", type=int, default=500, help="requests of each connection")
    parser.add_argument("--partitions", type=int, default=3_000, help="partitions of the topic")
    parser.add_argument("--authorizer", action="store_true", help="decide for each request what its client may do")
    arguments = parser.parse_args()
    logging.getLogger("barnabas_broker").setLevel(logging.CRITICAL)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_run(arguments))


if __name__ == "__main__":
    sys.exit(main())
