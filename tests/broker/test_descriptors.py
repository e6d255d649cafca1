"""A broker with few descriptors: connections of one kind leave enough for those of others, and for files."""

import asyncio
import re
import resource
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tests.broker import command
from tests.broker.http.support import make_topic, produce
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.programs

#: Descriptors of the broker.
MOST = 512
ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))


class Broker:
    """The program, and where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, started: str, data: Path) -> None:
        self.process = process
        self.port = int(re.findall(r"PLAINTEXT://127\.0\.0\.1:(\d+)", started)[0])
        self.http = int(re.findall(r"http=127\.0\.0\.1:(\d+)", started)[0])
        self.data = data

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    def segments(self, partition: str) -> int:
        return len(list((self.data / partition).glob("*.log")))


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    properties = tmp_path / "broker.properties"
    properties.write_text("log.segment.bytes=1048576\nnum.partitions=1\n")
    flags = ("--http-port", "0", "--config", str(properties))
    process = await command.start(tmp_path / "data", *flags, prepare=limited)
    try:
        yield Broker(process, await command.logged(process, "broker started"), tmp_path / "data")
    finally:
        status, err = await command.stop(process)
        assert status == 0, err
        assert "Too many open files" not in err
        assert "short of" not in err


async def is_served(broker: Broker, topic: str) -> None:
    """Create a topic and write two MB to it, which begins segments."""
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, topic)
        for _ in range(40):
            assert await produce(wire, topic, 0, 5_000) == 0
    assert broker.segments(f"{topic}-0") > 1


async def health(broker: Broker) -> bytes:
    async with asyncio.timeout(PATIENCE):
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.http)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        return answer


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the descriptors of another process")
async def test_idle_http_connections_leave_descriptors_for_kafka_clients_and_files(broker: Broker) -> None:
    async with AsyncExitStack() as opened:
        for number in range(600):
            idle = await opened.enter_async_context(await Wire.connect(broker.http))
            idle.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" * (number % 2))
        await is_served(broker, "under-http")
        assert (await health(broker)).startswith(b"HTTP/1.1 200 OK")
        assert broker.descriptors < MOST // 4


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the descriptors of another process")
async def test_idle_connections_of_all_kinds_leave_descriptors_for_files(broker: Broker) -> None:
    async with AsyncExitStack() as opened:
        client = await opened.enter_async_context(await Wire.connect(broker.port))
        await make_topic(client, "under-all")
        for _ in range(600):
            await opened.enter_async_context(await Wire.connect(broker.http))
            await opened.enter_async_context(await Wire.connect(broker.port))
        for _ in range(40):
            assert await produce(client, "under-all", 0, 5_000) == 0
        assert broker.segments("under-all-0") > 1
        await client.ask(ASK, 3, ApiVersionsResponse)
        assert (await health(broker)).startswith(b"HTTP/1.1 200 OK")
        assert broker.descriptors < MOST * 3 // 4
