"""librdkafka's producers, consumers and transactions against a broker that is killed: the history has no anomaly."""

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.checker.checker import check
from tests.checker.groups import CONSUMER, EAGER, Plan, close, read_records
from tests.checker.history import History, Kind, Outcome
from tests.checker.workload import Workload, serves_transactions
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.conftest import QUICK_GROUPS
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server
from tests.needs import missing
from tests.sampling import slow

TOPIC = "ledger"
PARTITIONS = 3
#: Seconds for each step of a test.
PATIENCE = 90.0
#: Seconds for a request: a broker that was killed is back sooner, and librdkafka sometimes waits for ever after a kill.
LIMIT = 3.0
#: A group of the classic protocol, and one whose members change from it to the consumer protocol and back.
GROUPS = (Plan(TOPIC), Plan("migrating", [EAGER, CONSUMER]))
SETTINGS: Mapping[str, str | int | bool] = {
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
    "log.segment.bytes": 2_000_000,
    **QUICK_GROUPS,
}
#: Kafka's controller rejects a broker that was killed until its session has ended. With the default, 9 s, 30 kills take
#: longer than a test may.
KAFKA_SETTINGS: Mapping[str, str | int | bool] = {
    **SETTINGS,
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 500,
}

pytestmark = [pytest.mark.programs, pytest.mark.timeout(6 * PATIENCE)]


def seed() -> int:
    found = int(os.environ.get("BARNABAS_SEED", random.randrange(10**6)))
    print(f"BARNABAS_SEED={found}")
    return found


def create(server: Server) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE)


def count(history: History, kind: Kind) -> int:
    return sum(each.kind is kind and each.outcome is Outcome.OK for each in history.operations)


@pytest.fixture(params=[BarnabasBroker, pytest.param(ApacheKafka, marks=pytest.mark.kafka)])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of the test's own, which it may kill."""
    settings = SETTINGS
    if request.param is ApacheKafka:
        request.getfixturevalue("needs_jars")
        settings = KAFKA_SETTINGS
    with request.param(settings) as server:
        yield server


def survive(server: Server, kills: int, transactional: int = 0) -> History:
    """Kill the server under load; return the history of the load."""
    rng = random.Random(seed())
    history = History()
    create(server)
    with Workload(
        server.bootstrap_servers,
        TOPIC,
        PARTITIONS,
        history,
        seed=rng.randrange(10**6),
        groups=GROUPS,
        transactional=transactional,
        limit=LIMIT,
    ) as workload:
        for _ in range(kills):
            workload.await_acknowledged(rng.randrange(50, 150), PATIENCE)
            server.kill()
            server.start()
        workload.await_acknowledged(100, PATIENCE)
        if transactional:
            workload.await_acknowledged(10, PATIENCE, Kind.TXN)
        workload.finish(PATIENCE)
    return history


@pytest.mark.parametrize("kills", [2, slow(30)])
def test_a_killed_broker_shows_no_anomaly(server: Server, kills: int) -> None:
    history = survive(server, kills)
    assert check(history).lines() == []
    kinds = Kind.SEND, Kind.POLL, Kind.ASSIGN, Kind.COMMIT, Kind.COMMITTED, Kind.GAIN, Kind.SETTLE
    assert min(count(history, kind) for kind in kinds) > 0


@pytest.mark.slow
def test_a_log_that_loses_its_end_is_found() -> None:
    """The checker sees what a broker does wrong: half of a partition's log is cut off while it is down."""
    history = History()
    with BarnabasBroker({**SETTINGS, "log.segment.bytes": 100_000_000}) as broker:
        create(broker)
        with Workload(broker.bootstrap_servers, TOPIC, PARTITIONS, history, seed=seed(), limit=LIMIT) as workload:
            workload.await_acknowledged(500, PATIENCE)
            broker.kill()
            (log,) = (broker.log_dir / f"{TOPIC}-0").glob("*.log")
            with log.open("r+b") as file:
                file.truncate(log.stat().st_size // 2)
            broker.start()
            # The group commits up to the last acknowledged record: the log has to become as long as it was.
            workload.await_offset(0, workload.ends()[0], PATIENCE)
            workload.finish(PATIENCE)
    assert "lost-write" in check(history).bad


def test_a_client_that_has_failed_is_noticed() -> None:
    """A fatal error is a message, and comes once: a member that misses it polls a client that does nothing any more."""
    with BarnabasBroker(SETTINGS) as broker:
        create(broker)
        settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "group.instance.id": "i"}
        first, second = Consumer(settings), Consumer(settings)
        deadline = time.monotonic() + PATIENCE

        def poll_both() -> None:
            while time.monotonic() < deadline:
                read_records(second, TOPIC)
                read_records(first, TOPIC)

        try:
            first.subscribe([TOPIC])
            while not first.assignment() and time.monotonic() < deadline:
                read_records(first, TOPIC)
            second.subscribe([TOPIC])
            with pytest.raises(KafkaException, match="fenced"):
                poll_both()
        finally:
            close(first, LIMIT)
            close(second, LIMIT)


@pytest.mark.parametrize("kills", [1, slow(3)])
async def test_transactions_show_no_anomaly(server: Server, kills: int) -> None:
    if not await serves_transactions(server.bootstrap_servers):
        missing("the broker does not serve transactions", on_this_machine=False)
    history = await asyncio.to_thread(survive, server, kills, transactional=2)
    assert check(history).lines() == []
    assert count(history, Kind.TXN) >= 10
