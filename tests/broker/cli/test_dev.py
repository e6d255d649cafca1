"""`barnabas dev`: what it prints, where its records are, and what is left of it."""

import asyncio
import fcntl
import json
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import ClientSession

from barnabas_broker.cli import dev
from barnabas_broker.cli.dev import Arrivals, configured, data_folder
from barnabas_broker.config import ConfigError
from barnabas_broker.storage.names import LOCK
from barnabas_client import Producer
from tests.wire import PATIENCE


class Terminal:
    """`barnabas dev` in a process, and what it has printed."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.printed: list[str] = []

    async def until(self, wanted: Callable[[str], bool]) -> str:
        """The next line that is wanted."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            async for line in self.process.stdout:
                self.printed.append(line.decode().rstrip("\n"))
                if wanted(self.printed[-1]):
                    return self.printed[-1]
        raise AssertionError(self.printed)

    async def end(self) -> int | None:
        """Press Ctrl-C; the exit status."""
        self.process.send_signal(signal.SIGINT)
        return await self.rest()

    async def rest(self) -> int | None:
        """Read until it has ended; the exit status."""
        async with asyncio.timeout(PATIENCE):
            out, _ = await self.process.communicate()
        self.printed += out.decode().splitlines()
        return self.process.returncode


@asynccontextmanager
async def running(*flags: str) -> AsyncIterator[Terminal]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "barnabas_client.cli", "dev", "--port", "0", "--http-port", "0", *flags),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        yield Terminal(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def send(address: str, count: int) -> None:
    async with Producer(bootstrap_servers=address, client_id="sender") as producer:
        for number in range(count):
            await producer.send_and_wait("orders", b"%d" % number)


async def test_it_says_who_connects_and_what_is_gone_at_the_end() -> None:
    async with running() as terminal:
        address = (await terminal.until(lambda line: "Clients connect to" in line)).rpartition(" ")[2]
        await terminal.until(lambda line: line == "Ctrl-C ends it.")
        await send(address, 3)
        await terminal.until(lambda line: "topic created topic=orders" in line)
        assert await terminal.end() == 0
    connected = [line for line in terminal.printed if "client connected client_id='sender'" in line]
    assert len(connected) == 1, terminal.printed
    assert terminal.printed[-1] == (
        "1 topic, 3 records and 0 groups are gone. To keep them next time: barnabas dev --data-dir DIR"
    )


async def test_a_data_folder_keeps_its_records(tmp_path: Path) -> None:
    for records in (2, 4):
        async with running("--data-dir", str(tmp_path / "kept"), "--json") as terminal:
            first = json.loads(await terminal.until(lambda line: "bootstrap_servers" in line))
            assert first["kept"]
            await send(first["bootstrap_servers"], 2)
            assert await terminal.end() == 0
        assert all(json.loads(line) for line in terminal.printed)
        size = sum(len(log.read_bytes()) for log in (tmp_path / "kept").glob("orders-0/*.log"))
        assert size > 60 * records


async def test_it_has_what_a_file_declares(tmp_path: Path) -> None:
    file = tmp_path / "init.yaml"
    file.write_text("topics:\n  orders: {records: [{value: one}]}\n")
    async with running("--init", str(file)) as terminal:
        await terminal.until(lambda line: line == "Ctrl-C ends it.")
        assert terminal.printed[-3:-1] == [
            f"{file}: topic orders created with 1 partition",
            f"{file}: 1 record written to topic orders",
        ]
        assert await terminal.end() == 0
    file.write_text("topics:\n  orders: {partition: 1}\n")
    async with running("--init", str(file)) as terminal:
        assert await terminal.rest() == 2
        assert terminal.printed == [f"barnabas: {file}:2: topic orders has no partition, did you mean partitions?"]


async def test_a_schema_registry_beside_it(tmp_path: Path) -> None:
    for versions in ([1], [1]):
        async with running("--registry", "0", "--json", "--data-dir", str(tmp_path)) as terminal:
            url = json.loads(await terminal.until(lambda line: "schema_registry" in line))["schema_registry"]
            schema = {"schema": '"string"'}
            async with ClientSession(url) as http, asyncio.timeout(PATIENCE):
                async with http.post("/subjects/s/versions", json=schema) as registered:
                    assert registered.status == 200, await registered.text()
                async with http.get("/subjects/s/versions") as listed:
                    assert await listed.json(content_type=None) == versions
            assert await terminal.end() == 0


async def test_the_topic_of_the_registry_is_not_counted() -> None:
    async with running("--registry", "0") as terminal:
        await terminal.until(lambda line: line == "Ctrl-C ends it.")
        assert await terminal.end() == 0
    assert not [line for line in terminal.printed if "_schemas" in line]
    assert terminal.printed[-1].startswith("0 topics, 0 records and 0 groups are gone.")


async def test_a_port_of_the_registry_in_use_ends_it_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        async with running("--registry", str(port)) as terminal:
            assert await terminal.rest() == 1
    assert terminal.printed[-1].startswith(
        f"barnabas: cannot listen on 127.0.0.1:{port}: Address already in use; stop "
    )


async def test_a_port_in_use_ends_it_with_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        async with running("--port", str(port)) as terminal:
            assert await terminal.rest() == 1
    assert len(terminal.printed) == 1
    assert terminal.printed[0].startswith(f"barnabas: cannot listen on 127.0.0.1:{port}: Address already in use; stop ")


@pytest.mark.parametrize("pair", ["nothing", "num.partitions=many", "log.dirs=/tmp"])
def test_a_wrong_key_is_an_error_that_names_it(tmp_path: Path, pair: str) -> None:
    with pytest.raises(ConfigError, match=pair.partition("=")[0] if pair != "log.dirs=/tmp" else "--data-dir"):
        configured(tmp_path, [pair])


def test_connections_of_one_client_are_one_line_until_it_was_away() -> None:
    said: list[str] = []
    now = 0.0
    arrivals = Arrivals(said.append, lambda: now)
    for _ in range(3):
        arrivals.arrived("127.0.0.1", "worker", "librdkafka 2.16.0")
    assert said == ["client connected client_id='worker' software='librdkafka 2.16.0' host=127.0.0.1"]
    arrivals.arrived("127.0.0.1", "", "")
    assert said[1] == "client connected without a client id software='unknown' host=127.0.0.1"
    now = 11.0
    arrivals.arrived("127.0.0.1", "worker", "librdkafka 2.16.0")
    assert len(said) == 3


def test_clients_that_were_seen_are_bounded() -> None:
    arrivals = Arrivals(lambda line: None, lambda: 0.0)
    for number in range(3_000):
        arrivals.arrived("127.0.0.1", str(number), "")
    assert len(arrivals._seen) <= 1_000


def test_folders_of_brokers_that_were_killed_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev, "_MEMORY", tmp_path / "none")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for name in ("killed", "running"):
        (tmp_path / f"barnabas-dev-{name}").mkdir()
        (tmp_path / f"barnabas-dev-{name}" / LOCK).touch()
    with open(tmp_path / "barnabas-dev-running" / LOCK, "rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with data_folder(None) as (folder, where):
            assert where == "in a temporary folder"
            assert folder.parent == tmp_path
            assert sorted(each.name for each in tmp_path.iterdir()) == sorted([folder.name, "barnabas-dev-running"])
    assert [each.name for each in tmp_path.iterdir()] == ["barnabas-dev-running"]
