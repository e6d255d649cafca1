"""An etcd that is out of space: the brokers say what is not possible and what to do, and go on when it has space."""

import asyncio
import json
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from aetcd import rpc

from barnabas_broker.local_etcd import free_port
from barnabas_protocol.errors import ErrorCode
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, Etcd, create, create_once, eventually, leaders

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(4 * PATIENCE)]

#: Bytes that etcd may store.
QUOTA = 1 << 24


@pytest.fixture
def small_etcd(tmp_path: Path) -> Iterator[Etcd]:
    server = Etcd(tmp_path, "--quota-backend-bytes", str(QUOTA))
    yield server
    server.kill()


@pytest.fixture
async def admin(small_etcd: Etcd) -> AsyncIterator[grpc.aio.Channel]:
    """What an operator does with etcdctl."""
    async with grpc.aio.insecure_channel(f"127.0.0.1:{small_etcd.port}") as channel:
        yield channel


@pytest.fixture
def brokers(small_etcd: Etcd, tmp_path: Path) -> Iterator[Brokers]:
    cluster = Brokers(f"etcd://127.0.0.1:{small_etcd.port}/full", tmp_path, [SHORT_LEASE])
    yield cluster
    cluster.close()
    print(cluster.logs())


async def fill(channel: grpc.aio.Channel) -> int:
    """Write until etcd refuses it; return the last revision."""
    revision, put = 0, rpc.PutRequest(key=b"filler", value=bytes(1 << 20))

    async def write() -> None:
        nonlocal revision
        # etcd counts what is on its disk, which lags behind.
        for _ in range(40 * QUOTA // len(put.value)):
            revision = (await rpc.KVStub(channel).Put(put)).header.revision

    with pytest.raises(grpc.aio.AioRpcError, match="database space exceeded"):
        await write()
    return revision


def readiness(port: int) -> dict[str, Any]:
    """What /readyz says."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=PATIENCE) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


async def make_room(channel: grpc.aio.Channel, revision: int) -> None:
    """Compact, defrag, disarm: what the brokers say."""
    await rpc.KVStub(channel).Compact(rpc.CompactionRequest(revision=revision, physical=True))
    await rpc.MaintenanceStub(channel).Defragment(rpc.DefragmentRequest())
    alarms = await rpc.MaintenanceStub(channel).Alarm(rpc.AlarmRequest(action=rpc.AlarmRequest.GET))
    for each in alarms.alarms:
        disarm = rpc.AlarmRequest(action=rpc.AlarmRequest.DEACTIVATE, memberID=each.memberID, alarm=each.alarm)
        await rpc.MaintenanceStub(channel).Alarm(disarm)


async def status(brokers: Brokers) -> dict[str, list[str]]:
    """The conditions that `barnabas cluster status` shows, by broker."""
    bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in brokers.running)
    command = [sys.executable, "-m", "barnabas_client.cli", "cluster", "status", "--json", "-b", bootstrap]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    return {one["broker"]: [each["condition"] for each in one["conditions"]] for one in json.loads(out)["brokers"]}


async def test_an_etcd_without_space_is_reported_and_a_failover_follows_when_it_has_some(
    brokers: Brokers, admin: grpc.aio.Channel
) -> None:
    http = free_port()
    for node_id in (1, 2, 3):
        brokers.add(node_id)
    brokers[1].flags = ("--http-port", str(http))
    for node in brokers.nodes.values():
        node.launch()
    await asyncio.gather(*(node.serving() for node in brokers.nodes.values()))
    await brokers.live(3)
    assert await create(brokers[1], "topic", 3, 3) == ErrorCode.NONE
    await brokers.agree("leaders", lambda found: sorted(leaders(found, "topic")) == [1, 2, 3], "topic")

    revision = await fill(admin)

    async def said_by_all() -> bool:
        return all("metadata_read_only" in node.output.read_text() for node in brokers.running)

    # Before anything is refused: they look at etcd's alarms.
    await eventually("each broker says that etcd is full", said_by_all)
    ready = await asyncio.to_thread(readiness, http)
    assert ready["status"] == "ready", "leaders go on"
    (condition,) = ready["conditions"]
    assert condition["condition"] == "metadata_read_only"
    assert "No leader can change" in condition["text"]
    assert "`etcdctl defrag --cluster`, `etcdctl alarm disarm`" in condition["text"]
    assert all("metadata_read_only" in conditions for conditions in (await status(brokers)).values())
    assert await create_once(brokers[2], "refused", 1, 1) == ErrorCode.KAFKA_STORAGE_ERROR

    brokers[3].kill()

    async def failover_failed() -> bool:
        return any("controller cannot react to changes" in node.output.read_text() for node in brokers.running)

    await eventually("the controller says that it cannot elect leaders", failover_failed)
    assert 3 in leaders(await brokers[1].metadata("topic"), "topic")
    for node in brokers.running:
        assert node.output.read_text().count("condition=metadata_read_only") == 1, "it is logged once"

    await make_room(admin, revision)
    await brokers.agree("other leaders", lambda found: 3 not in leaders(found, "topic"), "topic")

    async def over() -> bool:
        return "conditions" not in await asyncio.to_thread(readiness, http)

    await eventually("the condition is over", over)
    assert await create(brokers[1], "after", 1, 1) == ErrorCode.NONE
