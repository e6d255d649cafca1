"""Three brokers: the cost of replication, of many partitions and topics, and the pause after a kill."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.bench.families.transactions import transactions_row
from tests.bench.loads.groups import cpu
from tests.bench.results import Table, count, mebibytes, seconds
from tests.bench.targets import Target, load
from tests.bench.wire import Link, create_topic
from tests.cluster.harness import Brokers, Etcd, Node, new_prefix
from tests.interop import process
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.process import owned_folder

TITLE: Final = "A cluster"
ABOUT: Final = (
    "Three brokers, one etcd (heartbeats of 50 ms, so that leases of 1 s are possible) and the load share this "
    "machine. On two cores, replication takes processor time from the load; with a machine for each broker it "
    "would not.\n\n"
    'Throughput: confluent-kafka as in "Produce and consume", 100 B, six partitions. p99: records of 1 KB at the '
    "given rate into six partitions, from when each record is due to its acknowledgement, beside the same topic "
    "with one replica. Failover: the broker that coordinates the group and leads partitions is killed with kill "
    "-9. The table shows the longest time until a record sent after the kill is acknowledged in each of its "
    "partitions, until the group's consumer receives it, and until the group commits. Partitions: the broker that "
    "leads most of them is killed or stopped; the time until the remaining brokers report another leader for "
    "each. Idle: the highest of the three brokers over 5 s. Topics: one partition and one replica each, 100 per "
    "request. Transactions: one producer of confluent-kafka, one partition; three replicas and one broker in turn. "
    "`--cores 2` is compared with one broker, one replica each.\n\n"
    "Beside Apache Kafka: three nodes of each, one cluster after the other, in each round anew. A minute of load warms "
    "each of them up. Then the rows with acks=all at a rate, and the transactions, with min.insync.replicas=2."
)
ROUNDS: Final = 3
THREE, ONE = "cluster", "one replica, one broker"
#: Seconds after which any wait fails.
LIMIT: Final = 300.0
NODES: Final = 3
#: Lease in seconds by its label; None is the default.
LEASES: Final = (("default lease", None), ("lease of 3 s", 3000), ("lease of 2 s", 2000), ("lease of 1 s", 1000))
#: Topics created by one request.
AT_ONCE: Final = 100
#: Seconds of load before a cluster is measured beside another one.
WARM_UP: Final = 60


def milliseconds(value: float) -> str:
    return f"{value * 1e3:,.1f} ms"


def percent(value: float) -> str:
    return f"{value:.1%}"


def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    several = [target for target in targets if target.cluster is not None or target.python is not None]
    if len(several) > 1:
        return _beside(several, rounds, quick)
    table = Table([THREE, ONE])
    for _ in range(rounds):
        asyncio.run(_replication(table, quick))
        for name, lease in LEASES[:1] + LEASES[-1:] if quick else LEASES:
            asyncio.run(_failover(table, name, lease))
        asyncio.run(_partitions(table, 100 if quick else 1000))
        asyncio.run(_transactions(table, 10 if quick else 1))
        _cores(table, 200_000 if quick else 2_000_000)
    asyncio.run(_topics(table, 500 if quick else 10_000))
    return table


@asynccontextmanager
async def _cluster(lease: int | None, *settings: str, python: str = sys.executable) -> AsyncIterator[Brokers]:
    """Run a cluster of three brokers. A lease of None is the broker's default."""
    with owned_folder("barnabas-bench-") as folder:
        etcd = Etcd(folder)
        brokers = Brokers(f"etcd://127.0.0.1:{etcd.port}/{new_prefix()}", folder, python=python)
        brokers.settings = [*settings, *([] if lease is None else [f"broker.session.timeout.ms={lease}"])]
        try:
            await brokers.start(NODES)
            yield brokers
        except Exception as error:
            raise RuntimeError(f"{error}\n{brokers.logs()}") from error
        finally:
            brokers.close()
            etcd.kill()


def _addresses(brokers: Brokers) -> str:
    return ",".join(f"127.0.0.1:{node.port}" for node in brokers.nodes.values())


def _pid(node: Node) -> int:
    assert node.process is not None
    return node.process.pid


def _rss(pid: int) -> int:
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


def _create(link: Link, names: Sequence[str], partitions: int, factor: int) -> None:
    topics = [
        CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[])
        for name in names
    ]
    answer = link.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5, CreateTopicsResponse)
    errors = {each.error_code for each in answer.topics}
    if errors != {0}:
        raise RuntimeError(f"topics are not created: errors {errors}")


def _ports(nodes: Sequence[Node]) -> list[int]:
    return [node.port for node in nodes]


def _looks(port: int, topic: str) -> MetadataResponse:
    with Link(f"127.0.0.1:{port}") as link:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return link.ask(asked, 9, MetadataResponse)


def _wait(ports: Sequence[int], topic: str, partitions: int, in_sync: int, without: int | None = None) -> None:
    """Wait until the broker at each port reports `in_sync` replicas and a leader other than `without` for every
    partition."""
    deadline = time.monotonic() + LIMIT
    for port in ports:
        while True:
            (found,) = _looks(port, topic).topics
            good = [p for p in found.partitions if p.leader_id not in (-1, without) and len(p.isr_nodes) >= in_sync]
            if len(good) == partitions:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"{topic}: {len(good)} of {partitions} partitions are well after {LIMIT:.0f} s")
            time.sleep(0.005)


def _wait_for_brokers(address: str, number: int) -> None:
    """Wait until a broker reports so many brokers."""
    deadline = time.monotonic() + LIMIT
    with Link(address) as link:
        while len(link.ask(MetadataRequest(topics=[]), 9, MetadataResponse).brokers) < number:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{address} does not find {number} brokers after {LIMIT:.0f} s")
            time.sleep(0.02)


def _busiest(nodes: Sequence[Node], topic: str) -> tuple[Node, list[Node]]:
    """Return the broker that leads most partitions, and the others."""
    (found,) = _looks(nodes[0].port, topic).topics
    ((leader, _),) = Counter(partition.leader_id for partition in found.partitions).most_common(1)
    return next(n for n in nodes if n.node_id == leader), [n for n in nodes if n.node_id != leader]


async def _replication(table: Table, quick: bool) -> None:
    async with _cluster(None) as brokers:
        nodes, addresses = [*brokers.nodes.values()], _addresses(brokers)
        with Link(f"127.0.0.1:{nodes[0].port}") as link:
            for factor, column in ((3, THREE), (1, ONE)):
                topic = f"replicas-{factor}"
                _create(link, [topic], 6, factor)
                _wait(_ports(nodes), topic, 6, factor)
                done = load("produce", addresses, topic, 100_000 if quick else 1_000_000, 100, 6)
                table.add("produce 100 B, messages/s", column, done["count"] / done["seconds"], count)
                for rate in (500, 2000):
                    done = load("cluster", "pace", addresses, topic, rate, 3 if quick else 10)
                    table.add(f"{rate:,} records/s, p50", column, done["p50"], milliseconds)
                    table.add(f"{rate:,} records/s, p99", column, done["p99"], milliseconds)


def _beside(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
    """Measure three brokers of each version and three nodes of other programs, in turn."""
    table = Table([target.name for target in targets])
    for _ in range(rounds):
        for target in targets:
            if target.cluster is None:
                assert target.python is not None
                asyncio.run(_three(table, target.name, target.python, quick))
            else:
                with target.cluster(NODES) as addresses:
                    _warmed(table, target.name, addresses, quick)
    return table


async def _three(table: Table, column: str, python: str, quick: bool) -> None:
    async with _cluster(None, "min.insync.replicas=2", python=python) as brokers:
        _warmed(table, column, _addresses(brokers), quick)


def _warmed(table: Table, column: str, addresses: str, quick: bool) -> None:
    """Warm a cluster up, and measure latencies and transactions."""
    ports = [int(address.rpartition(":")[2]) for address in addresses.split(",")]
    for port in ports:
        _wait_for_brokers(f"127.0.0.1:{port}", len(ports))

    def create(topic: str, partitions: int) -> str:
        with Link(f"127.0.0.1:{ports[0]}") as link:
            _create(link, [topic], partitions, NODES)
        _wait(ports, topic, partitions, NODES)
        return topic

    paced = create("paced", 6)
    load("cluster", "pace", addresses, paced, 2000, 5 if quick else WARM_UP)
    load("transactions", "rate", addresses, create("transactions-first", 1), 1, 20 if quick else 500)
    for rate in (500, 2000):
        done = load("cluster", "pace", addresses, paced, rate, 3 if quick else 10)
        table.add(f"{rate:,} records/s, p50", column, done["p50"], milliseconds)
        table.add(f"{rate:,} records/s, p99", column, done["p99"], milliseconds)
    for records, transactions in ((1, 1_000), (100, 500)):
        topic = create(f"transactions-{records}", 1)
        done = load("transactions", "rate", addresses, topic, records, transactions // (10 if quick else 1))
        table.add(transactions_row(records), column, done["count"] / done["seconds"], count)


async def _failover(table: Table, name: str, lease: int | None) -> None:
    async with _cluster(lease, "min.insync.replicas=2", "offsets.topic.num.partitions=6") as brokers:
        nodes = [*brokers.nodes.values()]
        with Link(f"127.0.0.1:{nodes[0].port}") as link:
            _create(link, ["failing"], 6, 3)
        _wait(_ports(nodes), "failing", 6, 3)
        pids = ",".join(f"{node.node_id}={_pid(node)}" for node in nodes)
        done = load("cluster", "failover", _addresses(brokers), "failing", pids)
        for what in ("acknowledged", "consumed", "committed"):
            table.add(f"{name}: kill -9 to next record {what}", THREE, done[what], seconds)


async def _partitions(table: Table, partitions: int) -> None:
    async with _cluster(2000) as brokers:
        nodes = [*brokers.nodes.values()]
        await _idle(table, "idle", nodes)
        label, topic = f"{partitions:,} partitions", "many"
        started = time.perf_counter()
        with Link(f"127.0.0.1:{nodes[0].port}") as link:
            _create(link, [topic], partitions, 3)
        _wait(_ports(nodes), topic, partitions, 3)
        table.add(f"{label}, three replicas: create", THREE, time.perf_counter() - started, seconds)
        await _idle(table, f"idle with {label}", nodes)
        victim, left = _busiest(nodes, topic)
        started = time.perf_counter()
        victim.kill()
        _wait(_ports(left), topic, partitions, 2, victim.node_id)
        table.add(f"{label}: kill -9 to all led, lease of 2 s", THREE, time.perf_counter() - started, seconds)
        started = time.perf_counter()
        await victim.start()
        table.add(f"{label}: start after kill -9", THREE, time.perf_counter() - started, seconds)
        _wait(_ports(nodes), topic, partitions, 3)
        table.add(f"{label}: start to all in sync", THREE, time.perf_counter() - started, seconds)
        victim, left = _busiest(nodes, topic)
        started = time.perf_counter()
        os.kill(_pid(victim), signal.SIGTERM)
        _wait(_ports(left), topic, partitions, 2, victim.node_id)
        table.add(f"{label}: SIGTERM to all led", THREE, time.perf_counter() - started, seconds)


async def _idle(table: Table, label: str, nodes: Sequence[Node]) -> None:
    """Measure processor time and memory of an idle broker."""
    await asyncio.sleep(2)
    before, started = [cpu(_pid(node)) for node in nodes], time.perf_counter()
    await asyncio.sleep(5)
    elapsed = time.perf_counter() - started
    used = max(cpu(_pid(node)) - was for node, was in zip(nodes, before, strict=True))
    table.add(f"{label}: processor time of a broker", THREE, used / elapsed, percent)
    table.add(f"{label}: memory of a broker", THREE, max(_rss(_pid(node)) for node in nodes), mebibytes)


async def _transactions(table: Table, share: int) -> None:
    """Measure transactions on three replicas, and on one broker, in turn."""
    async with _cluster(None, "min.insync.replicas=2") as brokers:
        nodes, addresses = [*brokers.nodes.values()], _addresses(brokers)
        with BarnabasBroker() as server:
            for records, transactions in ((1, 1_000), (100, 500), (10_000, 40)):
                name = f"transactions-{records}"
                with Link(f"127.0.0.1:{nodes[0].port}") as link:
                    _create(link, [name], 1, 3)
                _wait(_ports(nodes), name, 1, 3)
                create_topic(server.bootstrap_servers, name, 1)
                for column, address in ((THREE, addresses), (ONE, server.bootstrap_servers)):
                    done = load("transactions", "rate", address, name, records, transactions // share)
                    table.add(transactions_row(records), column, done["count"] / done["seconds"], count)


async def _topics(table: Table, topics: int) -> None:
    async with _cluster(None) as brokers:
        nodes = [*brokers.nodes.values()]
        bare = max(_rss(_pid(node)) for node in nodes)
        times = []
        with Link(f"127.0.0.1:{nodes[0].port}") as link:
            for first in range(0, topics, AT_ONCE):
                started = time.perf_counter()
                _create(link, [f"topic-{number}" for number in range(first, first + AT_ONCE)], 1, 1)
                times.append(time.perf_counter() - started)
        # The response is sent when one broker knows the topics; others may learn of them later.
        _wait(_ports(nodes), f"topic-{topics - 1}", 1, 1)
        label = f"{topics:,} topics"
        tenth = max(1, len(times) // 10)
        table.add(f"{label}: create", THREE, sum(times), seconds)
        table.add(f"{label}: create one of the first tenth", THREE, sum(times[:tenth]) / tenth / AT_ONCE, milliseconds)
        table.add(f"{label}: create one of the last tenth", THREE, sum(times[-tenth:]) / tenth / AT_ONCE, milliseconds)
        await _idle(table, label, nodes)
        table.add(f"{label}: memory that they take", THREE, max(_rss(_pid(n)) for n in nodes) - bare, mebibytes)
        started = time.perf_counter()
        with Link(f"127.0.0.1:{nodes[1].port}") as link:
            metadata = link.ask(MetadataRequest(topics=None), 9, MetadataResponse)
        table.add(f"{label}: metadata of all", THREE, time.perf_counter() - started, milliseconds)
        if len(metadata.topics) < topics:
            raise RuntimeError(f"metadata lists {len(metadata.topics)} of {topics} topics")
        started = time.perf_counter()
        await nodes[2].stop()
        table.add(f"{label}: stop", THREE, time.perf_counter() - started, seconds)
        started = time.perf_counter()
        await nodes[2].start()
        table.add(f"{label}: start after a stop", THREE, time.perf_counter() - started, seconds)


def _cores(table: Table, records: int) -> None:
    """Measure `--cores 2` and one broker, in turn."""
    with owned_folder("barnabas-bench-") as folder, _supervised(folder) as address:
        _throughput(table, THREE, address, records)
    with BarnabasBroker() as server:
        _throughput(table, ONE, server.bootstrap_servers, records)


def _throughput(table: Table, column: str, address: str, records: int) -> None:
    create_topic(address, "wide", 6)
    done = load("produce", address, "wide", records, 100, 6)
    table.add("--cores 2: produce 100 B, messages/s", column, done["count"] / done["seconds"], count)
    done = load("consume", address, "wide", done["count"])
    table.add("--cores 2: consume 100 B, messages/s", column, done["count"] / done["seconds"], count)


@contextmanager
def _supervised(folder: Path) -> Iterator[str]:
    """Run `broker --cores 2`; wait until both brokers know each other; yield their addresses."""
    command = [
        sys.executable,
        "-m",
        "barnabas_broker",
        "--cores",
        "2",
        "--port",
        "0",
        "--data-dir",
        str(folder / "data"),
    ]
    with (folder / "log").open("w") as log:
        supervisor = process.spawn(command, subprocess.DEVNULL, subprocess.PIPE, log.fileno())
    assert supervisor.stdout is not None
    try:
        addresses = [supervisor.stdout.readline().rpartition(" ")[2].strip() for _ in range(2)]
        for address in addresses:
            _wait_for_brokers(address, len(addresses))
        yield addresses[0]
    finally:
        process.end(supervisor, 30)
        supervisor.stdout.close()
