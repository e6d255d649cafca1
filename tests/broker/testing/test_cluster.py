"""Several brokers that a test starts, kills and inspects."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing import Cluster
from tests.cluster.harness import need_etcd

pytestmark = [pytest.mark.programs, pytest.mark.together]

pytest_plugins = ["pytester"]

#: Seconds after which waiting fails.
PATIENCE = 60.0
OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def shared() -> Iterator[Cluster]:
    need_etcd()
    with Cluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: Cluster) -> Cluster:
    """All brokers run, and there are no topics."""
    shared.start()
    shared.delete_topics()
    return shared


def test_leaders_move_on_demand(cluster: Cluster) -> None:
    cluster.create_topic("orders", partitions=2)
    first = cluster.leader("orders", 1)
    second = cluster.move_leader("orders", 1)
    assert second is not first
    third = next(broker for broker in cluster.brokers if broker not in (first, second))
    assert cluster.move_leader("orders", 1, third) is third
    assert cluster.leader("orders", 1) is third
    assert cluster.move_leader("orders", 1, third) is third  # it leads already
    with pytest.raises(ValueError, match="there is no partition orders-2"):
        cluster.move_leader("orders", 2)
    coordinator = cluster.leader(OFFSETS)
    assert cluster.move_leader(OFFSETS) is not coordinator


def test_a_broker_is_killed_and_restarted(cluster: Cluster) -> None:
    cluster.create_topic("orders")
    killed = cluster.leader("orders")
    port = killed.port
    cluster.kill(killed)
    assert cluster.running == [broker for broker in cluster.brokers if broker is not killed]
    leader = cluster.leader("orders")
    assert leader is not killed
    leader.append("orders", ["while it is away"])
    with pytest.raises(ValueError, match=rf"orders-0 has the replicas .*: broker {killed.node_id} cannot lead it"):
        cluster.move_leader("orders", to=killed)
    with pytest.raises(TimeoutError, match=r"after 0 s orders-0 has the replicas \[.*\], in sync are \[\d, \d\]"):
        cluster.wait_in_sync("orders", timeout=0)

    killed.start()
    assert killed.port == port
    cluster.wait_in_sync("orders")
    cluster.move_leader("orders", to=killed)
    assert [record.value for record in killed.records("orders", count=1)] == [b"while it is away"]


def test_topics_have_three_replicas_and_need_two(cluster: Cluster) -> None:
    cluster.create_topic("one", replication_factor=1)
    with pytest.raises(ValueError, match=r"one-0 has the replicas .*: another replica cannot lead it"):
        cluster.move_leader("one")
    with pytest.raises(ValueError, match="cannot be created"):
        cluster.create_topic("four", replication_factor=4)
    with pytest.raises(TimeoutError, match="nothing-0 has no leader"):
        cluster.leader("nothing", timeout=0)


@pytest.mark.parametrize("key", ["node.id", "cluster.url", "listeners"])
def test_keys_that_the_cluster_sets(key: str) -> None:
    with pytest.raises(ValueError, match=f"{key} is not accepted"):
        Cluster(config={key: "1"})


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="brokers is 0: must be at least 1"):
        Cluster(0)
    with pytest.raises(BrokerError, match="no addresses before it is started"):
        _ = Cluster().bootstrap_servers
    with pytest.raises(BrokerError, match="no broker of the cluster runs"):
        Cluster().leader("orders")


def test_nothing_is_left_when_the_program_is_killed() -> None:
    need_etcd()
    program = """
import subprocess, sys, time
from barnabas_broker.testing import Cluster
cluster = Cluster(1)
cluster.start()
print(cluster._etcd._process.pid, cluster.brokers[0].pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        process.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + PATIENCE
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_fixture_starts_what_a_test_has_killed(pytester: pytest.Pytester) -> None:
    need_etcd()
    pytester.makepyfile(
        """
        import pytest

        pytestmark = pytest.mark.kafka_cluster(brokers=2, config={"num.partitions": 3})
        seen = []

        def test_one(kafka_cluster):
            kafka_cluster.create_topic("orders", -1)
            kafka_cluster.leader("orders", 2)
            kafka_cluster.kill(kafka_cluster.brokers[0])
            seen.append(kafka_cluster)

        def test_two(kafka_cluster):
            assert kafka_cluster is seen[0]
            assert len(kafka_cluster.running) == 2
            kafka_cluster.create_topic("orders")
            assert False

        @pytest.mark.kafka_cluster(broker=1)
        def test_wrong(kafka_cluster):
            pass
        """
    )
    result = pytester.runpytest("-p", "no:cacheprovider", "-p", "no:asyncio")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "the marker kafka_cluster has no argument broker: it takes brokers, config",
            "*-- kafka requests (broker 1) --*",
            "*-- kafka requests (broker 2) --*",
        ],
    )
