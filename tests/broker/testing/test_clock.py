"""A broker's clock that a test advances, and members whose session it ends."""

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas_broker.testing import Broker
from barnabas_broker.testing.clock import AdvancingClock

#: Seconds after which a client has given up.
PATIENCE = 60.0
DAY = 86_400
programs = pytest.mark.programs


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(process=False) as broker:
        yield broker


def consumer(broker: Broker, name: str, group: str, **settings: str | int) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "log_level": 0,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def assigned(*consumers: Consumer) -> None:
    """Poll until each has partitions."""
    ended = threading.Event()
    timer = threading.Timer(PATIENCE, ended.set)
    timer.start()
    try:
        while not all(each.assignment() for each in consumers):
            assert not ended.is_set()
            for each in consumers:
                each.poll(0.02)
    finally:
        timer.cancel()


def happened(broker: Broker, group: str) -> list[str]:
    return [event["type"] for event in broker.group_history.get(group, [])]


async def test_what_becomes_due_happens_at_its_time() -> None:
    clock = AdvancingClock(ahead=5.0)
    began, seen = clock.now(), list[tuple[str, int]]()

    def note(name: str) -> None:
        seen.append((name, round(clock.now() - began)))
        if name == "first":
            clock.call_later(10, note, "after it")
            clock.call_later(31, note, "too late")

    clock.call_later(30, note, "second")
    clock.call_later(15, note, "first")
    clock.call_later(20, note, "cancelled").cancel()
    clock.advance(45)
    assert seen == [("first", 15), ("after it", 25), ("second", 30)]
    assert clock.ahead == 50.0
    assert round(clock.now() - began) == 45
    clock.advance(2)
    assert seen[3:] == [("too late", 46)]


async def test_a_timer_of_the_clock_runs_by_itself() -> None:
    clock = AdvancingClock()
    done = clock.create_future()
    clock.call_later(0.001, done.set_result, None)
    await done


@programs
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_session_of_45_seconds_ends_at_once(broker: Broker, protocol: str) -> None:
    topic = group = f"session-{protocol}"
    broker.create_topic(topic)
    own = {"session_timeout_ms": 45_000} if protocol == "classic" else {}
    member = consumer(broker, "reader", group, group_protocol=protocol, **own)
    member.subscribe([topic])
    assigned(member)
    ahead = broker.clock.ahead
    broker.clock.advance(40)
    assert "member_expired" not in happened(broker, group)
    broker.clock.advance(45)
    assert happened(broker, group).count("member_expired") == 1
    assert broker.clock.ahead == ahead + 85
    member.close()


@programs
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_member_expires_and_the_other_one_takes_over(broker: Broker, protocol: str) -> None:
    topic = group = f"expired-{protocol}"
    broker.create_topic(topic, partitions=2)
    first, second = (consumer(broker, name, group, group_protocol=protocol) for name in ("first", "second"))
    for member in (first, second):
        member.subscribe([topic])
    assigned(first, second)
    assert broker.expire_member(group, "first")
    assert happened(broker, group).count("member_expired") == 1
    with pytest.raises(ValueError, match=rf"group '{group}' has no member 'third'; its members are: .*second"):
        broker.expire_member(group, "third")
    # It learns of it, and joins again.
    assigned(first, second)
    first.close()
    second.close()


@programs
def test_there_is_no_such_group(broker: Broker) -> None:
    with pytest.raises(ValueError, match="group 'nothing' has no member 'x'; its members are: none"):
        broker.expire_member("nothing", "x")


@programs
def test_a_rebalance_does_not_wait_for_a_member_that_does_not_poll(broker: Broker) -> None:
    broker.create_topic("rebalance", partitions=2)
    stuck, second = (consumer(broker, name, "rebalance", max_poll_interval_ms=300_000) for name in ("stuck", "second"))
    stuck.subscribe(["rebalance"])
    assigned(stuck)
    second.subscribe(["rebalance"])
    second.poll(0)
    broker.wait_for_request("JoinGroup", client_id="second", count=2)
    broker.clock.advance(300)
    assigned(second)
    assert len(second.assignment()) == 2
    second.close()
    stuck.close()


@programs
def test_a_transaction_that_stays_open_is_aborted(broker: Broker) -> None:
    broker.create_topic("ledger")
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "transactional.id": "ledger",
            "transaction.timeout.ms": 60_000,
            "log_level": 0,
        }
    )
    producer.init_transactions(PATIENCE)
    producer.begin_transaction()
    producer.produce("ledger", b"never committed")
    assert producer.flush(PATIENCE) == 0
    broker.clock.advance(62)
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE)


@programs
def test_records_and_offsets_expire(broker: Broker) -> None:
    broker.create_topic("old", config={"retention.ms": 7 * DAY * 1000})
    broker.append("old", ["one", "two"])
    reader = consumer(broker, "reader", "old")
    reader.commit(offsets=[TopicPartition("old", 0, 1)], asynchronous=False)
    assert len(broker.records("old", count=2)) == 2
    broker.clock.advance(6 * DAY)
    assert len(broker.records("old")) == 2
    assert reader.committed([TopicPartition("old", 0)], PATIENCE)[0].offset == 1
    broker.clock.advance(2 * DAY)
    assert broker.records("old") == []
    assert reader.committed([TopicPartition("old", 0)], PATIENCE)[0].offset < 0
    reader.close()


@programs
@pytest.mark.parametrize("process", [True, False], ids=["process", "thread"])
def test_the_clock_stays_ahead_over_restarts(process: bool) -> None:
    with Broker(process=process) as broker:
        broker.clock.advance(DAY)
        broker.restart()
        broker.stop()
        broker.start()
        broker.create_topic("t", config={"retention.ms": DAY * 1000})
        broker.append("t", ["new"])
        assert broker.clock.ahead == DAY
        assert len(broker.records("t", count=1)) == 1
        with pytest.raises(ValueError, match="seconds is -1: a clock cannot be set back"):
            broker.clock.advance(-1)
        assert repr(broker.clock) == "<BrokerClock 86400 s ahead>"
