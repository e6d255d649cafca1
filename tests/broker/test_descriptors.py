"""A broker with few descriptors: connections of one kind leave enough for those of others, and for files."""

import asyncio
import random
import re
import resource
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.broker import command
from tests.broker.all_apis import send_all
from tests.broker.http.support import make_topic, produce
from tests.needs import LINUX
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.programs

#: Descriptors of the broker.
MOST = 512
ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))


class Broker:
    """The program, and where it listens.

    Attributes:
        may_lack: whether it had too few descriptors for a while.
    """

    def __init__(self, process: asyncio.subprocess.Process, started: str, data: Path) -> None:
        self.process = process
        self.port = int(re.findall(r"PLAINTEXT://127\.0\.0\.1:(\d+)", started)[0])
        http = re.findall(r"http=127\.0\.0\.1:(\d+)", started)
        self.http = int(http[0]) if http else 0
        self.data = data
        self.may_lack = False

    @property
    def descriptors(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/fd").iterdir()))

    @property
    def lowest_free(self) -> int:
        """The number that the next descriptor gets."""
        taken = {int(path.name) for path in Path(f"/proc/{self.process.pid}/fd").iterdir()}
        return min(set(range(len(taken) + 1)) - taken)

    def segments(self, partition: str) -> int:
        return len(list((self.data / partition).glob("*.log")))


@pytest.fixture
async def broker(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Broker]:
    """A broker with the flags that are the parameter; with HTTP by default."""
    properties = tmp_path / "broker.properties"
    properties.write_text("log.segment.bytes=1048576\nnum.partitions=1\n")
    flags = getattr(request, "param", ("--http-port", "0"))
    process = await command.start(tmp_path / "data", "--config", str(properties), *flags, prepare=limited)
    broker = Broker(process, await command.logged(process, "broker started"), tmp_path / "data")
    try:
        yield broker
    finally:
        status, err = await command.stop(process)
        assert status == 0, err
        assert "Traceback" not in err
        if not broker.may_lack:
            assert "Too many open files" not in err
            assert "short of" not in err


async def is_served(broker: Broker, topic: str) -> None:
    """Create a topic and write two MB to it, which begins segments."""
    async with await Wire.connect(broker.port) as wire:
        await make_topic(wire, topic)
        # Its partition is created after those of topics that were created before.
        async with asyncio.timeout(PATIENCE):
            while await produce(wire, topic, 0, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                await wire.ask(ASK, 3, ApiVersionsResponse)
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


@LINUX
@pytest.mark.parametrize("broker", [()], indirect=True, ids=["without HTTP"])
async def test_requests_of_all_apis_are_carried_out_without_free_descriptors(broker: Broker) -> None:
    """What needs a file is refused; no handler fails, and nothing is left of it afterwards."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    async with AsyncExitStack() as opened:
        wires = [await opened.enter_async_context(await Wire.connect(broker.port)) for _ in range(200)]
        await wires[0].ask(ASK, 3, ApiVersionsResponse)
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (broker.lowest_free, MOST))
        heartbeat = HeartbeatRequest(group_id="group", generation_id=1, member_id="member")
        answer = await wires[0].ask(heartbeat, 3, HeartbeatResponse)
        assert answer.error_code == ErrorCode.NOT_COORDINATOR
        await send_all(wires[1:], random.Random(seed), 2)
        await wires[0].ask(ASK, 3, ApiVersionsResponse)
        resource.prlimit(broker.process.pid, resource.RLIMIT_NOFILE, (MOST, MOST))
    broker.may_lack = True
    await is_served(broker, "afterwards")


@LINUX
async def test_idle_http_connections_leave_descriptors_for_kafka_clients_and_files(broker: Broker) -> None:
    async with AsyncExitStack() as opened:
        for number in range(600):
            idle = await opened.enter_async_context(await Wire.connect(broker.http))
            idle.writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" * (number % 2))
        await is_served(broker, "under-http")
        assert (await health(broker)).startswith(b"HTTP/1.1 200 OK")
        assert broker.descriptors < MOST // 4


@LINUX
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
