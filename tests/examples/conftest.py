"""Fixtures: topics with records on a broker in this process, and examples run as programs."""

import asyncio
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Producer
from tests.interop import process

ROOT = Path(__file__).parents[2]

Run = Callable[..., str]
Fill = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False) as one:
        yield one


@pytest.fixture
def fill(broker: Broker) -> Fill:
    """Function that creates a topic with records "0", "1", ... in each partition and returns its name."""

    def make(partitions: int = 2, each: int = 100, topic: str | None = None) -> str:
        name = topic or f"t-{uuid.uuid4().hex}"
        if topic is None:
            broker.create_topic(name, partitions=partitions)
        asyncio.run(_produce(broker.bootstrap_servers, name, partitions, each))
        return name

    return make


async def _produce(servers: str, topic: str, partitions: int, each: int) -> None:
    async with Producer(bootstrap_servers=servers) as producer:
        for number in range(each):
            for partition in range(partitions):
                await producer.send(topic, b"%d" % number, key=b"key", partition=partition)


@pytest.fixture
def example(broker: Broker) -> Run:
    """Function that runs an example to its end and returns its output."""

    def run(name: str, *arguments: str | int | Path) -> str:
        command = [sys.executable, "-m", f"examples.{name}", "--bootstrap-servers", broker.bootstrap_servers]
        done = process.run([*command, *map(str, arguments)], 60)
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout

    return run
