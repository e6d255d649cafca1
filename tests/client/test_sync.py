"""`barnabas.sync`: the clients without ``await``, against a broker in this process."""

import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

import barnabas
import barnabas.sync
from barnabas import AlterConfigOp, ConfigResource, ConsumerRebalanceListener, ConsumerRecord, NewTopic, TopicPartition
from barnabas.errors import (
    IllegalStateError,
    KafkaTimeoutError,
    RecordTooLargeError,
    WakeupError,
)
from barnabas.sync import Admin, Consumer, Producer, ShareConsumer, ShareRecord
from barnabas.testing import Broker
from barnabas_client.loop_thread import Call, close_loop_thread, loop_thread
from tests.client.test_program import signalled


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(
        process=False, config={"offsets.topic.num.partitions": 2, "transaction.state.log.num.partitions": 2}
    ) as one:
        yield one
    close_loop_thread()


@pytest.fixture
def topic(broker: Broker) -> str:
    """A topic with ten records, 0 to 9, in partition 0."""
    name = f"t-{uuid.uuid4().hex}"
    broker.create_topic(name)
    broker.append(name, [b"%d" % number for number in range(10)])
    return name


@pytest.fixture
def make(broker: Broker, topic: str) -> Callable[..., Consumer]:
    """Function that makes a consumer of the topic; its group has the name of the topic."""

    def consumer(**settings: Any) -> Consumer:
        given = {"group_id": topic, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50, **settings}
        return Consumer(topic, bootstrap_servers=broker.bootstrap_servers, **given)

    return consumer


@pytest.fixture
def workers(broker: Broker, topic: str) -> Callable[..., ShareConsumer]:
    """Function that makes a share consumer of the topic; its group reads from the beginning."""
    group = f"{topic}-workers"
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        earliest = AlterConfigOp("share.auto.offset.reset", "earliest")
        admin.incremental_alter_configs({ConfigResource.group(group): [earliest]})

    def consumer(mode: Any = "explicit", **settings: Any) -> ShareConsumer:
        given = {"group_id": group, "share_acknowledgement_mode": mode, "fetch_max_wait_ms": 50, **settings}
        return ShareConsumer(topic, bootstrap_servers=broker.bootstrap_servers, **given)

    return consumer


@pytest.mark.parametrize("name", ["Consumer", "Producer", "Admin", "ShareConsumer", "ShareRecord"])
def test_the_names_are_those_of_the_async_client(name: str) -> None:
    ours, theirs = getattr(barnabas.sync, name), getattr(barnabas, name)
    names = {one for one in dir(theirs) if not one.startswith("_")}
    assert {one for one in dir(ours) if not one.startswith("_")} - {"aclose"} == names
    for one in names:
        assert not inspect.iscoroutinefunction(getattr(ours, one)), one
        assert name == "ShareRecord" or getattr(ours, one).__doc__, one


def test_records_are_sent_and_read(broker: Broker) -> None:
    servers, topic = broker.bootstrap_servers, f"t-{uuid.uuid4().hex}"
    with Admin(bootstrap_servers=servers) as admin:
        assert [one.name for one in admin.create_topics([NewTopic(topic, num_partitions=2)])] == [topic]
        assert topic in admin.list_topics()
    with Producer(bootstrap_servers=servers, value_serializer=str.encode) as producer:
        assert producer.send_and_wait(topic, "first", partition=1).offset == 0
        receipt = producer.send(topic, "second", partition=1)
        assert receipt.result(60).offset == 1
        assert receipt.done()
        assert producer.send_nowait(topic, "third", partition=1).result().offset == 2
        (many,) = producer.send_many(topic, ["fourth", "fifth"], partition=1)
        assert len(many) == 2
        assert many.result().last_offset == 4
        assert list(many.records) == [0, 1]
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, "x" * 2_000_000)
    settings: dict[str, Any] = {"bootstrap_servers": servers, "auto_offset_reset": "earliest"}
    with Consumer(topic, value_deserializer=bytes.decode, **settings) as consumer:
        assert [next(consumer).value for _ in range(5)] == ["first", "second", "third", "fourth", "fifth"]


def test_every_poll(make: Callable[..., Consumer], topic: str) -> None:
    with make(group_id=None) as consumer:
        assert consumer.getone().offset == 0
        assert [
            record.offset for record in consumer.getmany(timeout_ms=10_000, max_records=3)[TopicPartition(topic, 0)]
        ] == [1, 2, 3]
        assert [record.offset for record in consumer.poll(10_000, max_records=2)] == [4, 5]
        assert [next(consumer).offset, next(consumer).offset] == [6, 7]
        assert consumer.getone().offset == 8
        assert next(consumer).offset == 9


def test_what_a_loop_has_not_received_is_not_committed(make: Callable[..., Consumer], topic: str) -> None:
    """The loop takes many records at a time from the event loop, but positions are those of the program."""
    partition = TopicPartition(topic, 0)
    with make() as consumer:
        for record in consumer:
            assert consumer.position(partition) == record.offset + 1
            if record.offset == 1:
                consumer.commit()
                assert consumer.committed(partition) == 2
            if record.offset == 4:
                break
    with make() as consumer:
        assert consumer.committed(partition) == 5
        assert next(consumer).offset == 5
        consumer.seek(partition, 1)
        assert [next(consumer).offset for _ in range(3)] == [1, 2, 3]
        consumer.pause(partition)
        assert consumer.poll(100) == []
        consumer.resume(partition)
        assert next(consumer).offset == 4


def test_another_thread_ends_a_loop(make: Callable[..., Consumer]) -> None:
    consumer = make()
    consumer.start()
    received: list[int] = []
    ten = threading.Event()

    def read() -> None:
        for record in consumer:
            received.append(record.offset)
            if record.offset == 9:
                ten.set()

    with ThreadPoolExecutor() as pool:
        reading = pool.submit(read)
        assert ten.wait(60)
        consumer.stop()
        reading.result(60)
    assert received == list(range(10))
    with pytest.raises(StopIteration):
        next(consumer)


def test_wakeup_ends_a_loop(make: Callable[..., Consumer]) -> None:
    with make() as consumer:
        assert next(consumer).offset == 0
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(consumer)
        assert next(consumer).offset == 1


class Recorder(ConsumerRebalanceListener):
    """Uses its consumer as listeners do."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.calls: list[tuple[str, int]] = []
        self.refusal: Exception | None = None
        self.left = threading.Event()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        self.calls.append(("assigned", threading.get_ident()))
        for partition in assigned:
            self.consumer.seek(partition, 7)
        try:
            self.consumer.getone()
        except IllegalStateError as error:
            self.refusal = error

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        assert self.consumer is not None
        self.calls.append(("revoked", threading.get_ident()))
        self.consumer.commit(dict.fromkeys(revoked, 8))
        self.left.set()


def test_a_listener_is_called_in_the_thread_that_polls(make: Callable[..., Consumer], topic: str) -> None:
    listener = Recorder()
    consumer = listener.consumer = make()
    consumer.subscribe([topic], listener=listener)
    with consumer:
        assert next(consumer).offset == 7
    here = threading.get_ident()
    assert listener.calls == [("assigned", here), ("revoked", here)]
    assert "a rebalance listener cannot poll" in str(listener.refusal)


def test_a_listener_after_unsubscribe(make: Callable[..., Consumer], topic: str) -> None:
    """No call waits then that could run it."""
    listener = Recorder()
    consumer = listener.consumer = make()
    consumer.subscribe([topic], listener=listener)
    with consumer:
        consumer.unsubscribe()
        assert listener.left.wait(60)


def test_a_listener_with_coroutine_functions(make: Callable[..., Consumer], topic: str) -> None:
    class Listener(ConsumerRebalanceListener):
        async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
            calls.extend(assigned)

    calls: list[TopicPartition] = []
    consumer = make()
    consumer.subscribe([topic], listener=Listener())
    with consumer:
        assert calls == [TopicPartition(topic, 0)]


def test_members_can_be_told_apart(broker: Broker, make: Callable[..., Consumer], topic: str) -> None:
    # The others join while the first one does not poll: a start waits for an assignment only so long.
    with (
        make(request_timeout_ms=3_000) as one,
        make(request_timeout_ms=3_000) as other,
        make(request_timeout_ms=3_000, client_id="mine"),
        make(group_id=None) as alone,
    ):
        names = [client._client._client.client_id for client in (one, other, alone)]
    assert len(set(names)) == 3
    explained = broker.explain(topic)
    for name in (*names[:2], "mine"):
        assert re.search(rf"\b{name} \(127\.0\.0\.1\) joined", explained), explained
    assert f"barnabas-{os.getpid()}" in names[0]


def test_run_calls_plain_handlers_in_threads(make: Callable[..., Consumer], topic: str) -> None:
    done: set[int] = set()
    both = threading.Barrier(2, timeout=60)
    with make(enable_auto_commit=False) as consumer:

        def handle(record: ConsumerRecord) -> None:
            if record.offset < 2:
                both.wait()  # two at a time
            done.add(record.offset)
            if len(done) == 10:
                consumer.wakeup()

        consumer.run(handle, concurrency=2, order="none")
        assert consumer.committed(TopicPartition(topic, 0)) == 10

        async def wake(record: ConsumerRecord) -> None:
            consumer.wakeup()

        consumer.seek(TopicPartition(topic, 0), 9)
        consumer.run(wake)
        with pytest.raises(TypeError, match="concurrency"):
            consumer.run(handle, concurrency="2")  # type: ignore[call-overload]


def test_dead_letters_of_objects(broker: Broker, make: Callable[..., Consumer], topic: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers}

    def handle(record: ConsumerRecord) -> None:
        if record.offset == 9:
            consumer.wakeup()
        raise ValueError(record.value)

    consumer = make(enable_auto_commit=False, value_deserializer=bytes.decode)
    with Producer(value_serializer=str.encode, **settings) as producer, consumer:
        consumer.run(handle, retries=0, dead_letter_topic=f"{topic}.dead", producer=producer)
    with Consumer(f"{topic}.dead", auto_offset_reset="earliest", **settings) as dead:
        assert next(dead).value == b"0"


def test_transactions(broker: Broker, make: Callable[..., Consumer], topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=topic) as producer:
        with make(enable_auto_commit=False) as consumer:
            records = consumer.poll(10_000)
            with producer.transaction():
                receipt = producer.send(topic, b"result")
                producer.send_offsets_to_transaction(
                    {TopicPartition(topic, 0): records[-1].offset + 1}, consumer.group_metadata()
                )
            assert receipt.result().offset == 10
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"lost")
            print(1 // 0)
        producer.begin_transaction()
        producer.send(topic, b"lost")
        producer.abort_transaction()
    with make(isolation_level="read_committed") as consumer:
        assert consumer.committed(TopicPartition(topic, 0)) == 10
        assert next(consumer).value == b"result"
        assert consumer.poll(200) == []


def test_a_receipt_that_is_late(broker: Broker, topic: str) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
        receipt = producer.send(topic, b"x")
        with pytest.raises(KafkaTimeoutError, match=r"not acknowledged after 0.01 s. To do: call result\(\) again"):
            receipt.result(0.01)
        producer.flush()
        assert receipt.result().offset == 10


def test_a_call_that_would_wait_for_itself(make: Callable[..., Consumer]) -> None:
    outcome: list[object] = []
    over = threading.Event()

    def committed(offsets: object, error: object) -> None:
        try:
            consumer.assignment()
        except IllegalStateError as refusal:
            outcome.append(refusal)
        over.set()

    with make(enable_auto_commit=False) as consumer:
        next(consumer)
        consumer.commit_async(callback=committed)
        assert over.wait(60)
    assert "this call would wait for itself" in str(outcome)


def test_another_process_has_a_loop_of_its_own(make: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch) -> None:
    before, consumer = loop_thread(), make()
    monkeypatch.setattr(before, "_pid", -1)
    with pytest.raises(IllegalStateError, match="another process"):
        consumer.start()
    assert loop_thread() is not before
    close_loop_thread()
    monkeypatch.undo()
    before.close()


# Share groups.


def test_a_loop_over_a_queue(workers: Callable[..., ShareConsumer]) -> None:
    with workers() as consumer:
        for record in consumer:
            if record.offset == 0 and record.delivery_count == 1:
                record.release()
            elif record.offset == 1:
                record.reject()
            else:
                record.renew()
                record.accept()
            assert record.acknowledged
            with pytest.raises(IllegalStateError, match="acknowledged before"):
                record.accept()
            if record.offset == 9:
                break
        consumer.commit()
    with workers() as consumer:
        assert [(one.offset, one.delivery_count) for one in consumer.poll()] == [(0, 2)]


def test_a_queue_with_implicit_acknowledgement(workers: Callable[..., ShareConsumer], topic: str) -> None:
    with workers("implicit") as consumer:
        (records,) = consumer.getmany(timeout_ms=60_000, max_records=4).values()
        assert [one.value for one in records] == [b"0", b"1", b"2", b"3"]
        assert [next(consumer).offset, consumer.getone().offset] == [4, 5]
        assert consumer.subscription() == {topic}
        consumer.commit()
    with workers("implicit") as consumer:
        assert next(consumer).offset == 6


def test_run_calls_plain_handlers_of_a_queue_in_threads(workers: Callable[..., ShareConsumer]) -> None:
    done: set[int] = set()
    both = threading.Barrier(2, timeout=60)
    with workers() as consumer:

        def handle(record: ShareRecord) -> None:
            if record.offset < 2:
                both.wait()  # two at a time
            if record.offset == 5:
                record.reject()
            done.add(record.offset)
            if len(done) == 10:
                consumer.wakeup()

        consumer.run(handle, concurrency=2)
    assert done == set(range(10))
    with workers() as consumer:
        assert consumer.poll(300) == []


def test_a_coroutine_function_handles_a_queue_in_the_event_loop(workers: Callable[..., ShareConsumer]) -> None:
    with workers() as consumer:

        async def handle(record: barnabas.ShareRecord) -> None:
            await record.accept()
            if record.offset == 9:
                consumer.wakeup()

        consumer.run(handle, concurrency=1)


# Ctrl-C.


def interrupt_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Ctrl-C come at the very moment at which the next call is answered."""
    wait = Call.wait

    def interrupted(call: Call[Any]) -> Any:
        wait(call)
        monkeypatch.undo()
        call._inbox.put(None)
        raise KeyboardInterrupt

    monkeypatch.setattr(Call, "wait", interrupted)


@pytest.mark.parametrize(
    "poll",
    [
        lambda consumer: next(consumer),
        lambda consumer: consumer.getone(),
        lambda consumer: consumer.getmany(timeout_ms=10_000),
        lambda consumer: consumer.poll(timeout_ms=10_000),
    ],
    ids=["next", "getone", "getmany", "poll"],
)
def test_records_of_an_interrupted_poll_are_returned_by_the_next(
    make: Callable[..., Consumer], monkeypatch: pytest.MonkeyPatch, poll: Callable[[Consumer], object]
) -> None:
    with make(group_id=None) as consumer:
        assert next(consumer).offset == 0
        consumer.position(*consumer.assignment())  # gives the others back
        interrupt_next(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            poll(consumer)
        assert [consumer.getone().offset for _ in range(3)] == [1, 2, 3]


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
@pytest.mark.parametrize("take", ["getone", "poll", "getmany"])
def test_records_of_an_interrupted_poll_of_a_queue_are_returned_by_the_next(
    workers: Callable[..., ShareConsumer], monkeypatch: pytest.MonkeyPatch, mode: str, take: str
) -> None:
    with workers(mode) as consumer:
        assert consumer.getone().offset == 0
        interrupt_next(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            getattr(consumer, take)()
        again = [consumer.getone() for _ in range(3)]
        assert [(one.offset, one.delivery_count) for one in again] == [(1, 1), (2, 1), (3, 1)]


WAITING = """
from barnabas.sync import Consumer

with Consumer("{topic}", bootstrap_servers="{servers}", group_id="{topic}-c", auto_offset_reset="earliest") as consumer:
    try:
        for record in consumer:
            if record.offset == 9:
                print("read", flush=True)
    except KeyboardInterrupt:
        print("interrupted", consumer.committed(*consumer.assignment()))
    print(consumer.poll(), flush=True)
"""


@pytest.mark.programs
def test_ctrl_c_ends_a_call(broker: Broker, topic: str) -> None:
    code = WAITING.format(topic=topic, servers=broker.bootstrap_servers)
    assert signalled(code, signal.SIGINT) == (["read", "interrupted None", "[]"], "", 0)


@pytest.mark.programs
def test_the_end_of_a_process_stops_its_clients(broker: Broker, topic: str) -> None:
    code = f"""
from barnabas.sync import Consumer, Producer
producer = Producer(bootstrap_servers={broker.bootstrap_servers!r}, linger_ms=60_000)
producer.start()
producer.send({topic!r}, b"the last one")
consumer = Consumer({topic!r}, bootstrap_servers={broker.bootstrap_servers!r}, group_id="{topic}-left")
consumer.start()
print(len(consumer.assignment()))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("1\n", 0), done.stderr
    assert broker.records(topic, 11)[-1].value == b"the last one"
    assert "left" in broker.explain(f"{topic}-left")


def test_a_deleted_client_is_stopped(make: Callable[..., Consumer], topic: str, broker: Broker) -> None:
    consumer = make()
    consumer.start()
    inner = consumer._client
    del consumer
    with make(group_id=None) as other:  # its calls come after the stop
        for _ in range(1000):
            if "stopped" in repr(inner):
                break
            other.poll(10)
    assert "stopped" in repr(inner)
