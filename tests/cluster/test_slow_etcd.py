"""An etcd that answers slowly: leases are kept, leaders stay, and topics can be created."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from barnabas_client import Admin, Producer
from barnabas_protocol.errors import ErrorCode
from tests.cluster.harness import PATIENCE, Brokers, Etcd, create, eventually, leaders, new_prefix
from tests.link import Link

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(4 * PATIENCE)]

#: Latencies of answers, and ``broker.session.timeout.ms``, in seconds. A lease is lost if an answer and a pause of the
#: machine take 0.8 of a session together: half a second is left for the pause, and more.
#: `tests/broker/cluster/test_member.py` has slower answers, in virtual time.
CASES = [(0.5, 2.0), (1.0, 2.0), (1.5, 2.5)]


@pytest.fixture
async def link(etcd: Etcd) -> AsyncIterator[Link]:
    slow = Link(etcd.port)
    await slow.start()
    yield slow
    await slow.close()


@pytest.fixture
async def slow_cluster(link: Link, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Brokers]:
    session = f"broker.session.timeout.ms={request.param * 1000:.0f}"
    brokers = Brokers(f"etcd://127.0.0.1:{link.port}/{new_prefix()}", tmp_path, [session, "min.insync.replicas=2"])
    yield brokers
    brokers.close()
    print(brokers.logs())


def lost(cluster: Brokers) -> int:
    """How many leases were lost."""
    return cluster.logs().count("lease has expired")


async def is_named(bootstrap: str, *, slow: bool) -> bool:
    """Whether `barnabas cluster status` and /readyz show, for each broker, that etcd is slow, or that it is not."""
    async with Admin(bootstrap_servers=bootstrap) as admin:
        found = await admin.describe_conditions()
    return len(found) == 3 and all(("metadata_slow" in [each.name for each in one.conditions]) == slow for one in found)


@pytest.mark.parametrize(
    ("latency", "session", "slow_cluster"), [(*case, case[1]) for case in CASES], indirect=["slow_cluster"]
)
async def test_leases_are_kept_and_topics_are_created(
    slow_cluster: Brokers, link: Link, latency: float, session: float
) -> None:
    cluster = slow_cluster
    await cluster.start(3)
    assert await create(cluster[1], "before", 6, 3) == ErrorCode.NONE
    await cluster.agree("leaders", lambda metadata: len(leaders(metadata, "before")) == 6, "before")
    placed = leaders(await cluster[1].metadata("before"), "before")
    bootstrap = ",".join(f"127.0.0.1:{node.port}" for node in cluster.running)
    async with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait("before", b"fast", partition=0)
        link.seconds = latency
        loop = asyncio.get_running_loop()
        end, sent = loop.time() + 6 * session, 0
        while loop.time() < end:
            await asyncio.wait_for(producer.send_and_wait("before", b"slow", partition=sent % 6), PATIENCE)
            sent += 1
            await asyncio.sleep(0.02)
        print(f"{sent} records were acknowledged in {6 * session:.0f} s")
        await eventually("each broker says that etcd is slow", lambda: is_named(bootstrap, slow=True))
        # As many as with a fast etcd, apart from the moment when answers become slow.
        assert await create(cluster[2], "while-slow", 1, 3) == ErrorCode.NONE
    assert lost(cluster) == 0, cluster.logs()
    assert leaders(await cluster[1].metadata("before"), "before") == placed
    link.seconds = 0.0

    async def answers_fast() -> bool:
        return await create(cluster[3], "after", 1, 3) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)

    await eventually("a topic is created", answers_fast)
    await eventually("no broker says that etcd is slow", lambda: is_named(bootstrap, slow=False))
    for line in ("metadata cannot be changed as usual", "metadata can be changed as usual again"):
        assert cluster.logs().count(line) >= 3, cluster.logs()
