"""`broker --cores N`: a cluster on one machine."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_broker.sockets import program_on
from barnabas_client import Admin
from tests.cluster.harness import PATIENCE, Etcd, eventually

pytestmark = pytest.mark.cluster


class Supervised:
    """The supervisor's process, and the addresses of its brokers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def port(self) -> int:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await self.process.stdout.readline()).decode()
        found = re.search(r"listening on 127\.0\.0\.1:(\d+)$", line.strip())
        assert found, line
        return int(found[1])


async def start(*flags: str) -> Supervised:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "barnabas_broker", "--cores", *flags)
    return Supervised(await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe))


@pytest.fixture
async def two(etcd: Etcd, tmp_path: Path) -> AsyncIterator[Supervised]:
    started = await start("2", "--port", "0", "--data-dir", str(tmp_path / "data"), "--log-level", "error")
    yield started
    if started.process.returncode is None:
        started.process.terminate()
    await asyncio.wait_for(started.process.communicate(), PATIENCE)


async def brokers(port: int) -> int:
    async with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
        return len((await admin.describe_cluster()).brokers)


async def test_the_brokers_form_a_cluster(two: Supervised) -> None:
    ports = [await two.port(), await two.port()]

    async def both() -> bool:
        return [await brokers(port) for port in ports] == [2, 2]

    await eventually("two brokers", both)


async def test_records_survive_a_stop(two: Supervised, tmp_path: Path) -> None:
    port = await two.port()
    await two.port()
    async with Admin(bootstrap_servers=f"127.0.0.1:{port}") as admin:
        cluster_id = (await admin.describe_cluster()).cluster_id
    two.process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(two.process.wait(), PATIENCE) == 0
    again = await start("2", "--port", "0", "--data-dir", str(tmp_path / "data"), "--log-level", "error")
    try:
        async with Admin(bootstrap_servers=f"127.0.0.1:{await again.port()}") as admin:
            assert (await admin.describe_cluster()).cluster_id == cluster_id
    finally:
        again.process.terminate()
        await asyncio.wait_for(again.process.communicate(), PATIENCE)


@pytest.mark.parametrize("name", ["log.dirs", "log.dir"])
async def test_each_broker_has_a_directory_inside_the_one_of_the_configuration(tmp_path: Path, name: str) -> None:
    data, file = tmp_path / "data", tmp_path / "server.properties"
    await asyncio.to_thread(file.write_text, f"{name}={tmp_path / 'overridden'}\n")
    started = await start("2", "--port", "0", "--config", str(file), "--set", f"log.dirs={data}")
    try:
        await started.port()
        await started.port()
    finally:
        started.process.terminate()
        await asyncio.wait_for(started.process.communicate(), PATIENCE)
    assert sorted(os.listdir(tmp_path)) == ["data", "server.properties"]
    assert {"broker-1", "broker-2", "etcd"} <= set(os.listdir(data))


async def test_the_supervisor_cannot_join_another_cluster(tmp_path: Path) -> None:
    refused = await start("2", "--node-id", "4")
    _, said = await asyncio.wait_for(refused.process.communicate(), PATIENCE)
    assert refused.process.returncode == 2
    assert said.decode().startswith("broker: --cores: ")


async def test_a_warning_about_the_configuration_is_printed_once(etcd: Etcd, tmp_path: Path) -> None:
    started = await start("2", "--port", "0", "--data-dir", str(tmp_path / "data"), "--set", "no.such.key=1")
    try:
        await started.port()
        await started.port()
    finally:
        started.process.terminate()
        _, said = await asyncio.wait_for(started.process.communicate(), PATIENCE)
    assert said.decode().count("no.such.key") == 1, said


async def test_a_port_in_use_ends_the_start_with_one_error(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        refused = await start("2", "--port", str(port), "--data-dir", str(tmp_path / "data"))
        out, said = await asyncio.wait_for(refused.process.communicate(), PATIENCE)
        program = program_on(port) or "the program that uses it"
    assert (refused.process.returncode, out) == (1, b"")
    assert said.decode() == (
        f"broker: cannot listen on 127.0.0.1:{port}: Address already in use; stop {program}, or choose "
        f"another port (--cores 2 uses the ports {port} to {port + 1})\n"
    )


async def test_a_broker_that_cannot_start_ends_the_start(tmp_path: Path) -> None:
    data = tmp_path / "data"
    await asyncio.to_thread((data / "broker-2").mkdir, parents=True)
    await asyncio.to_thread((data / "broker-2" / "notes.txt").write_text, "of another program")
    refused = await start("2", "--port", "0", "--data-dir", str(data))
    _, said = await asyncio.wait_for(refused.process.communicate(), PATIENCE)
    assert refused.process.returncode == 1
    errors = [line for line in said.decode().splitlines() if line.startswith("broker: ")]
    assert len(errors) == 2, errors
    assert "has files of another program, such as notes.txt" in errors[0]
    assert errors[1] == "broker: broker 2 does not start: it ended with status 2, its error is printed above"
