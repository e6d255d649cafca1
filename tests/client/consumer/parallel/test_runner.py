"""`Consumer.run` against a live broker: order, failures, back-pressure, pools, and what is refused."""

import asyncio
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import pytest

from barnabas_client import (
    Consumer,
    ConsumerRecord,
    Producer,
    TopicPartition,
)
from barnabas_client.consumer.parallel.config import HandlerOrder
from barnabas_client.consumer.parallel.dead_letters import PREFIX
from barnabas_client.errors import IllegalStateError, KafkaTimeoutError
from tests.client.parallel_world import Watched, World, reach

pytestmark = [pytest.mark.usefixtures("no_complaints"), pytest.mark.broad]


@pytest.fixture
def world(bootstrap_servers: str) -> World:
    return World(bootstrap_servers)


@pytest.mark.parametrize("order", ["partition", "key", "none"])
async def test_records_are_handled_in_the_configured_order(world: World, order: HandlerOrder) -> None:
    await world.fill(partitions=3, each=40)
    finish = world.until()
    seen: defaultdict[Any, list[int]] = defaultdict(list)
    at_once: Counter[Any] = Counter()
    most = 0

    def lanes(record: ConsumerRecord) -> Any:
        if order == "none":
            return record
        return record.topic_partition if order == "partition" else (record.topic_partition, record.key)

    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            nonlocal most
            lane = lanes(record)
            at_once[lane] += 1
            most = max(most, at_once.total())
            assert at_once[lane] == 1
            seen[lane].append(record.offset)
            for _ in range(record.offset % 4):
                await asyncio.sleep(0)
            at_once[lane] -= 1
            finish(record, consumer)

        await consumer.run(handler, concurrency=8, order=order)
    assert world.handled == world.total
    assert set(world.times.values()) == {1}
    assert all(offsets == sorted(offsets) for offsets in seen.values())
    assert 1 < most <= {"partition": 3, "key": 8, "none": 8}[order]
    assert await world.committed() == world.total


async def test_a_failed_record_is_retried(world: World) -> None:
    await world.fill(partitions=1, each=3)
    attempts: Counter[int] = Counter()
    order = []
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            attempts[record.offset] += 1
            if record.offset == 1 and attempts[1] < 3:
                raise ConnectionError("the database is away")
            order.append(record.offset)
            world.until()(record, consumer)

        await consumer.run(handler, retries=2, retry_backoff_ms=1)
    assert attempts == {0: 1, 1: 3, 2: 1}
    assert order == [0, 1, 2]
    assert await world.committed() == 3


async def test_a_record_without_attempts_left_becomes_a_dead_letter(world: World) -> None:
    await world.fill(partitions=1, each=3)
    letters = f"{world.topic}.dead"
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            if record.offset == 1 and world.times[record.topic_partition, 1] == 0:
                world.done[record.topic_partition].add(1)  # it may be committed once its dead letter is written
                raise ValueError("no number: ☃")
            if record.offset == 1:
                raise ValueError("no number: ☃")
            world.until()(record, consumer)

        await consumer.run(handler, retries=1, retry_backoff_ms=1, dead_letter_topic=letters)
    assert await world.committed() == 3
    async with Consumer(letters, bootstrap_servers=world.servers, auto_offset_reset="earliest") as reader:
        letter = await asyncio.wait_for(reader.getone(), 20)
    assert (letter.key, letter.value) == (b"1", b"1")
    added = {name.removeprefix(PREFIX): (value or b"").decode() for name, value in letter.headers}
    stack = added.pop("stacktrace")
    assert added.pop("timestamp").isdecimal()
    assert added == {
        "h": "1",
        "exception": "ValueError",
        "message": "no number: ☃",
        "topic": world.topic,
        "partition": "0",
        "offset": "1",
        "attempts": "2",
        "group": world.group,
    }
    assert "in handler" in stack and stack.rstrip().endswith("ValueError: no number: ☃")


async def test_a_failed_dead_letter_ends_the_run_and_skips_no_record(world: World) -> None:
    await world.fill(partitions=1, each=2)
    producer = Producer(bootstrap_servers=world.servers, max_request_size=300)
    async with world.consumer() as consumer, producer:

        async def handler(record: ConsumerRecord) -> None:
            raise ValueError("x" * 500)

        with pytest.raises(Exception, match=r"the dead letter of .*-0 at offset 0 could not be written to dead"):
            await consumer.run(handler, retries=0, dead_letter_topic="dead", producer=producer)
        assert await consumer.position(world.partitions[0]) == 0
    assert await world.committed() == 0


async def test_without_a_dead_letter_topic_a_failure_ends_the_run_and_the_next_run_continues_there(
    world: World,
) -> None:
    await world.fill(partitions=1, each=10)
    healed = False
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            if record.offset == 4 and not healed:
                raise ZeroDivisionError("four")
            world.until()(record, consumer)

        with pytest.raises(ZeroDivisionError, match="four") as raised:
            await consumer.run(handler, retries=1, retry_backoff_ms=1)
        assert f"raised for {world.topic}-0 at offset 4, attempt 2" in raised.value.__notes__[0]
        assert await consumer.committed(world.partitions[0]) == 4
        assert await consumer.position(world.partitions[0]) == 4
        healed = True
        await consumer.run(handler)
    assert set(world.times.values()) == {1}
    assert await world.committed() == 10


async def test_a_handler_that_cancels_itself_has_failed(world: World) -> None:
    await world.fill(partitions=1, each=1)
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            raise asyncio.CancelledError

        with pytest.raises(RuntimeError, match="cancelled from within"):
            await consumer.run(handler, retries=0)


async def test_a_partition_with_too_many_records_in_flight_is_paused(world: World) -> None:
    await world.fill(partitions=2, each=100)
    stuck, free = world.partitions
    go = asyncio.Event()
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            if record.topic_partition == stuck:
                await go.wait()
            world.until()(record, consumer)

        run = asyncio.create_task(consumer.run(handler, max_in_flight=20, commit_interval_ms=10))
        await reach(lambda: len(world.done[free]) == 100)
        assert stuck in consumer.paused()
        assert await consumer.position(stuck) <= 10
        go.set()
        await run
        assert consumer.paused() == frozenset()
    assert await world.committed() == 200


async def test_without_a_group_nothing_is_committed(world: World) -> None:
    await world.fill(partitions=2, each=5)
    async with world.consumer(group_id=None, enable_auto_commit=True) as consumer:

        async def handler(record: ConsumerRecord) -> None:
            world.until()(record, consumer)

        await consumer.run(handler)
    assert world.handled == 10


async def test_plain_functions_run_in_threads(world: World) -> None:
    await world.fill(partitions=1, each=20)
    meeting = threading.Barrier(4, timeout=60)
    names = set()
    async with world.consumer() as consumer:
        loop = asyncio.get_running_loop()

        def handler(record: ConsumerRecord) -> None:
            meeting.wait()
            names.add(threading.current_thread().name)
            loop.call_soon_threadsafe(world.until(), record, consumer)

        with ThreadPoolExecutor(4, thread_name_prefix="worker") as pool:
            await consumer.run(handler, order="none", concurrency=4, executor=pool)
    assert len(names) == 4
    assert all(name.startswith("worker") for name in names)
    assert world.handled == 20


async def test_a_thread_that_does_not_end_delays_neither_rebalance_nor_stop(world: World) -> None:
    await world.fill(partitions=1, each=2)
    go, started = threading.Event(), asyncio.Event()
    async with world.consumer() as consumer:
        loop = asyncio.get_running_loop()

        def handler(record: ConsumerRecord) -> None:
            loop.call_soon_threadsafe(started.set)
            go.wait(60)
            raise ValueError("too late for anybody to hear")

        with ThreadPoolExecutor(1) as pool, pytest.MonkeyPatch.context() as patch:
            patch.setattr("barnabas_client.consumer.parallel.handlers._CLEANUP", 0.05)
            run = asyncio.create_task(consumer.run(handler, executor=pool, drain_timeout_ms=0))
            await started.wait()
            consumer.wakeup()
            await run
            go.set()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if "_handle" in repr(task)), return_exceptions=True)
    assert await world.committed() == 0


def die(record: ConsumerRecord) -> None:
    os._exit(3)


def square(record: ConsumerRecord) -> None:
    if record.value == b"7":
        raise ValueError(f"{record.offset} in another process")


async def test_plain_functions_run_in_processes(world: World) -> None:
    await world.fill(partitions=1, each=8)
    world.done[world.partitions[0]] = set(range(8))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        async with world.consumer() as consumer:
            with pytest.raises(ValueError, match="7 in another process"):
                await consumer.run(square, executor=pool, order="none", retries=0)
    assert await world.committed() == 7


async def test_a_broken_pool_ends_the_run_without_retries(world: World) -> None:
    await world.fill(partitions=1, each=2)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        async with world.consumer() as consumer:
            with pytest.raises(BrokenProcessPool):
                await consumer.run(die, executor=pool, dead_letter_topic="dead")
    assert await world.committed() == 0


async def test_a_failed_commit_is_covered_by_the_next(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.fill(partitions=1, each=10)
    commits = 0
    real = Watched.commit

    async def commit(self: Watched, offsets: Mapping[TopicPartition, Any] | None = None) -> None:
        nonlocal commits
        commits += 1
        if commits == 1:
            raise KafkaTimeoutError("the coordinator is away")
        await real(self, offsets)

    monkeypatch.setattr(Watched, "commit", commit)
    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            if record.offset == 5:
                await reach(lambda: commits >= 2)
            world.until()(record, consumer)

        await consumer.run(handler, commit_interval_ms=5)
    assert await world.committed() == 10


async def test_only_one_run_at_a_time(world: World) -> None:
    await world.fill(partitions=1, each=1)

    async with world.consumer() as consumer:

        async def handler(record: ConsumerRecord) -> None:
            with pytest.raises(IllegalStateError, match="runs already"):
                await consumer.run(handler)
            world.until()(record, consumer)

        await consumer.run(handler)


async def nothing(record: ConsumerRecord) -> None:
    pass


def plainly(record: ConsumerRecord) -> None:
    pass


@pytest.mark.parametrize(
    ("handler", "settings", "words"),
    [
        (nothing, {"concurrency": 0}, "concurrency is 0: give at least 1"),
        (nothing, {"concurrency": "3"}, "concurrency is '3': give an integer"),
        (nothing, {"order": "random"}, "order is 'random'"),
        (nothing, {"executor": 4}, "ThreadPoolExecutor"),
        (nothing, {"executor": ThreadPoolExecutor(1)}, "leave executor out"),
        (nothing, {"dead_letter_topic": ""}, "give the topic's name"),
        (nothing, {"producer": object()}, "without dead_letter_topic"),
        (nothing, {"drain_timeout_ms": -1}, "at least 0"),
        ("handler", {}, "give a function"),
        (plainly, {}, "make it `async def`"),
    ],
)
async def test_invalid_settings_are_refused(world: World, handler: Any, settings: dict[str, Any], words: str) -> None:
    await world.fill(partitions=1, each=1)
    async with world.consumer() as consumer:
        with pytest.raises((TypeError, ValueError), match=words):
            await consumer.run(handler, **settings)
    assert await world.committed() == 0


async def test_consumers_that_cannot_run_raise(world: World) -> None:
    with pytest.raises(IllegalStateError, match="not started"):
        await world.consumer().run(nothing)
    await world.fill(partitions=1, each=1)
    async with world.consumer(enable_auto_commit=True) as consumer:
        with pytest.raises(IllegalStateError, match="enable_auto_commit=False"):
            await consumer.run(nothing)
        consumer.unsubscribe()
    async with world.consumer(value_deserializer=bytes.decode) as consumer:
        with pytest.raises(TypeError, match="deserialize in the handler"):
            await consumer.run(nothing, dead_letter_topic="dead")


async def test_batches(world: World) -> None:
    await world.fill(partitions=2, each=50)
    finish = world.until()
    sizes: Counter[int] = Counter()
    failed: list[list[ConsumerRecord]] = []

    async with world.consumer() as consumer:

        async def handler(records: list[ConsumerRecord]) -> None:
            assert len({one.topic_partition for one in records}) == 1
            if not failed and len(records) > 1:
                failed.append(records)
                raise ValueError("once")
            sizes[len(records)] += 1
            for one in records:
                finish(one, consumer)

        await consumer.run(handler, batch_size=10, batch_timeout_ms=50, retry_backoff_ms=1)
    assert failed
    assert set(world.times.values()) == {1}
    assert max(sizes) <= 10
    assert sum(sizes.values()) < 50
    assert await world.committed() == 100


async def test_the_dead_letters_of_a_batch(world: World) -> None:
    await world.fill(partitions=1, each=6)
    async with world.consumer() as consumer:

        def handler(records: list[ConsumerRecord]) -> None:
            for one in records:
                world.finish(one)
            if records[0].offset < 3:
                raise ValueError("no")
            consumer.wakeup()  # a batch runs once the letters of the one before are written

        with ThreadPoolExecutor(1) as pool:
            settings: dict[str, Any] = {"dead_letter_topic": f"{world.topic}.dead", "executor": pool}
            await consumer.run(handler, batch_size=3, batch_timeout_ms=1_000, retries=0, **settings)
    settings = {"bootstrap_servers": world.servers, "auto_offset_reset": "earliest"}
    async with Consumer(f"{world.topic}.dead", **settings) as dead:
        async with asyncio.timeout(20):
            assert [(await dead.getone()).value for _ in range(3)] == [b"0", b"1", b"2"]


async def test_batch_settings_that_are_refused(world: World) -> None:
    async with world.consumer() as consumer:
        with pytest.raises(ValueError, match="batch_size is 0: give at least 1"):
            await consumer.run(print, batch_size=0)
        with pytest.raises(ValueError, match="batch_timeout_ms is given without batch_size"):
            await consumer.run(print, batch_timeout_ms=5)
