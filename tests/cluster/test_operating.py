"""`barnabas cluster` against several brokers: a broker is added, emptied and stopped while the commands watch."""

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from barnabas_client import Producer
from tests.cluster.harness import PATIENCE, SHORT_LEASE, Brokers, create

pytestmark = pytest.mark.cluster


@dataclass(frozen=True)
class Printed:
    """What a command left behind."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


async def barnabas(cluster: Brokers, *argv: str, status: int = 0) -> Printed:
    """Run a command against the running brokers."""
    servers = ",".join(f"127.0.0.1:{node.port}" for node in cluster.running)
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "barnabas_client.cli", *argv, "-b", servers]
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(process.communicate(), PATIENCE)
    finally:
        if process.returncode is None:
            process.kill()
    printed = Printed(process.returncode or 0, out.decode(), err.decode())
    assert printed.status == status, printed
    return printed


@pytest.mark.parametrize("cluster", [[SHORT_LEASE, "min.insync.replicas=2"]], indirect=True)
async def test_a_broker_is_added_and_another_one_is_taken_away(cluster: Brokers) -> None:
    await cluster.start(3)
    assert await create(cluster[1], "orders", 6, 2) == 0
    await cluster.agree("it is everywhere", lambda metadata: len(metadata.topics) == 1, "orders")
    async with Producer(bootstrap_servers=f"127.0.0.1:{cluster[1].port}") as producer:
        await asyncio.gather(*[await producer.send("orders", b"x" * 100, partition=at % 6) for at in range(600)])
    await barnabas(cluster, "cluster", "status", "--wait", "30s")

    cluster.add(4).launch()
    await cluster[4].serving()
    await cluster.live(4)
    dry = await barnabas(cluster, "cluster", "rebalance")
    assert "dry run" in dry.err
    assert (await barnabas(cluster, "cluster", "rebalance", "--json")).json["partitions"] != []
    throttled = await barnabas(cluster, "cluster", "rebalance", "--throttle", "1MB", "--execute", status=1)
    assert "these brokers cannot limit the rate of replication" in throttled.err
    done = await barnabas(cluster, "cluster", "rebalance", "--execute", "--batch", "2", "-i", "50ms", "--json")
    assert done.json["errors"] == []
    found = (await barnabas(cluster, "cluster", "status", "--json")).json
    assert [one["replicas"] for one in found["brokers"]] == [3, 3, 3, 3]
    assert sorted(one["leaders"] for one in found["brokers"]) == [1, 1, 2, 2]
    assert "nothing to change" in (await barnabas(cluster, "cluster", "rebalance")).out

    emptied = await barnabas(cluster, "cluster", "decommission", "2", "--execute", "-i", "50ms")
    assert "broker 2 has no replicas" in emptied.err
    found = (await barnabas(cluster, "cluster", "status", "--json", "--wait", "30s")).json
    assert [one["replicas"] for one in found["brokers"]] == [4, 0, 4, 4]
    await cluster[2].stop()
    await cluster.live(3)
    assert (await barnabas(cluster, "cluster", "status", "--json")).json["healthy"]

    # A broker that has replicas goes: with min.insync.replicas=2, each of its partitions refuses writes.
    await cluster[3].stop()
    await cluster.live(2)
    sick = (await barnabas(cluster, "cluster", "status", "--json", status=1)).json
    assert sick["counts"]["under_replicated"] == sick["counts"]["below_min_isr"] == 4
    assert [one["state"] for one in sick["brokers"] if one["broker"] == 3] == ["down"]
    assert "brokers that have replicas are down: 3" in (await barnabas(cluster, "cluster", "rebalance", status=1)).err
    # What is lost with the disk of a dead broker is copied from the others.
    await barnabas(cluster, "cluster", "decommission", "3", "--execute", "-i", "50ms")
    found = (await barnabas(cluster, "cluster", "status", "--json", "--wait", "30s")).json
    assert found["healthy"]
    assert {one["broker"]: one["replicas"] for one in found["brokers"]} == {1: 6, 4: 6}
