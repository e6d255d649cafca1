"""`broker --cores N`: a cluster on one machine."""

import asyncio
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

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


async def test_the_supervisor_cannot_join_another_cluster(tmp_path: Path) -> None:
    refused = await start("2", "--node-id", "4")
    _, said = await asyncio.wait_for(refused.process.communicate(), PATIENCE)
    assert refused.process.returncode == 2
    assert said.decode().startswith("broker: --cores: ")
