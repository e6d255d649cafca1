"""The `broker` command as a person starts it: one line when it is up, one line when it cannot, and an exit status."""

import asyncio
import json
import os
import re
import resource
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.programs


class Command:
    """A broker process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    @classmethod
    async def start(cls, *arguments: str) -> "Command":
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "barnabas_broker",
            *arguments,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={key: value for key, value in os.environ.items() if not key.startswith("KAFKA_")},
        )
        return cls(process)

    async def port(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode()
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)$", line.strip())
        assert found, line
        return int(found[1])

    async def end(self) -> tuple[int, str]:
        """Exit status and what was said on stderr."""
        async with asyncio.timeout(PATIENCE):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()


@pytest.fixture
async def command(tmp_path: Path) -> AsyncIterator[Command]:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    yield command
    if command.process.returncode is None:
        command.process.kill()
        await command.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_serves_until_a_signal(command: Command, number: signal.Signals) -> None:
    async with await Wire.connect(await command.port()) as wire:
        assert (await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)).brokers
        command.process.send_signal(number)
        status, err = await command.end()
    assert status == 0, err


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the limits of another process")
async def test_it_may_have_as_many_connections_as_the_system_allows(tmp_path: Path) -> None:
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        command = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    try:
        await command.port()
        assert resource.prlimit(command.process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        command.process.kill()
        await command.end()


async def test_a_second_broker_on_the_same_data_is_refused(command: Command, tmp_path: Path) -> None:
    await command.port()
    second = await Command.start("--port", "0", "--data-dir", str(tmp_path / "data"))
    status, err = await second.end()
    assert status == 2
    assert "data" in err
    assert len(err.splitlines()) == 1


async def test_a_busy_port_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        status, err = await (await Command.start("--port", str(port), "--data-dir", str(tmp_path))).end()
    assert status == 2
    assert err == f"broker: cannot listen on 127.0.0.1:{port}: Address already in use\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--port", "70000"], "--port 70000"),
        (["--port", "x"], "--port"),
        (["--frobnicate"], "--frobnicate"),
        (["--set", "num.partitions=many"], "num.partitions='many'"),
        (["--set", "nothing"], "key=value"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--node-id", "-3"], "node.id='-3'"),
        (["--advertise", "nowhere"], "advertised.listeners='nowhere'"),
        (["--host", "no.such.host.invalid"], "no.such.host.invalid"),
        (["--set", "listeners=localhost:9092"], "listeners='localhost:9092': must be NAME://HOST:PORT"),
        (["--set", "inter.broker.listener.name=IN"], "inter.broker.listener.name='IN': must be one of"),
        (["--cores", "2", "--set", "listeners=PLAINTEXT://127.0.0.1:0"], "leave out listeners"),
    ],
)
async def test_a_bad_flag_is_one_line_and_status_2(arguments: list[str], said: str, tmp_path: Path) -> None:
    given = ["--data-dir", str(tmp_path / "data"), *([] if "--port" in arguments else ["--port", "0"]), *arguments]
    status, err = await (await Command.start(*given)).end()
    assert status == 2, err
    assert said in err
    assert len(err.splitlines()) == 1, err


async def test_there_is_a_line_for_each_listener_and_each_serves(tmp_path: Path) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
    command = await Command.start("--port", "1", "--data-dir", str(tmp_path), "--set", listeners)
    ports = [await command.port(), await command.port()]
    for port in ports:
        async with await Wire.connect(port) as wire:
            answer = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
            assert [(b.host, b.port) for b in answer.brokers] == [("127.0.0.1", port)]
    command.process.terminate()
    status, err = await command.end()
    assert status == 0, err


async def test_an_unknown_key_is_a_warning(tmp_path: Path) -> None:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path), "--set", "no.such.key=1")
    await command.port()
    command.process.terminate()
    status, err = await command.end()
    assert status == 0
    assert "no.such.key: no such configuration key, ignored" in err


async def test_json_logs_are_one_object_a_line(tmp_path: Path) -> None:
    command = await Command.start("--port", "0", "--data-dir", str(tmp_path), "--log-format", "json")
    await command.port()
    command.process.terminate()
    status, err = await command.end()
    assert status == 0
    assert {json.loads(line)["level"] for line in err.splitlines()} == {"info"}
