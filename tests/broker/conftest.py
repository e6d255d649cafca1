"""A broker in the test's own event loop, with a data directory of its own."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.clock import Clock
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.gc_tuning import bounded
from tests.broker.command import StartCommand, start
from tests.wire import Wire

StartBroker = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture
async def collector() -> AsyncIterator[None]:
    """Bound the garbage collector as the program does, and leave out what the tests have made: for tests that measure
    how long the loop is held."""
    gc.collect()
    with bounded():
        yield


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """Start a broker with keys like ``num_partitions="2"``; again on the same data after it was stopped."""
    started: list[BrokerServer] = []

    async def start(*, clock: Clock | None = None, http_port: int | None = None, **settings: str) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / "data"),
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        broker = await BrokerServer.start(Config(BROKER_KEYS, given), port=0, http_port=http_port, clock=clock)
        started.append(broker)
        return broker

    yield start
    for broker in started:
        await broker.stop()


@pytest.fixture
async def start_command() -> AsyncIterator[StartCommand]:
    """Start the `broker` command, as :func:`tests.broker.command.start`; what still runs after the test is killed."""
    started: list[asyncio.subprocess.Process] = []

    async def start_and_remember(*arguments: Any, **options: Any) -> asyncio.subprocess.Process:
        started.append(await start(*arguments, **options))
        return started[-1]

    yield start_and_remember
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


@pytest.fixture
async def broker(start_broker: StartBroker) -> BrokerServer:
    return await start_broker()


@pytest.fixture
async def wire(broker: BrokerServer) -> AsyncIterator[Wire]:
    async with await Wire.connect(broker.port) as wire:
        yield wire
