"""``ShareConsumer.run`` with a broker in the test's event loop."""

import asyncio
import pickle
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_client import Consumer, Producer, ShareConsumer, ShareRecord
from barnabas_client.consumer.parallel.dead_letters import PREFIX
from barnabas_client.errors import IllegalStateError, KafkaError, WakeupError
from barnabas_client.shares import runner
from barnabas_client.shares.polls import SharePolls
from tests.client.parallel_world import reach
from tests.client.shares.queue_world import TOPIC, queue, servers_of, worker

pytestmark = pytest.mark.usefixtures("no_complaints")

#: Seconds until everything must have been handled.
PATIENCE = 30.0
#: One retry at once.
AT_ONCE: dict[str, Any] = {"retries": 1, "retry_backoff_ms": 1}

Record = ShareRecord


@asynccontextmanager
async def running(consumer: ShareConsumer, handler: Any, **settings: Any) -> AsyncIterator[None]:
    """A run in the background; it is ended with the block."""
    task = asyncio.create_task(consumer.run(handler, **settings))
    try:
        yield
    finally:
        consumer.wakeup()
        async with asyncio.timeout(PATIENCE):
            await asyncio.wait({task})
    await task


async def left(broker: BrokerServer, count: int = 0) -> list[tuple[bytes | None, int]]:
    """The records that another consumer gets, at least so many, with their delivery counts."""
    found: list[tuple[bytes | None, int]] = []
    async with worker(broker) as consumer, asyncio.timeout(PATIENCE):
        while True:
            found += [(one.value, one.delivery_count) for one in await consumer.poll(300)]
            if len(found) >= count:
                return found


@pytest.mark.parametrize("mode", ["explicit", "implicit"])
async def test_handled_records_are_accepted(tmp_path: Path, mode: str) -> None:
    values = {b"%d" % number for number in range(30)}
    seen: list[bytes | None] = []
    most = running_now = 0

    async with queue(tmp_path, *values) as broker, worker(broker, mode) as consumer:

        async def handler(record: Record) -> None:
            nonlocal most, running_now
            running_now += 1
            most = max(most, running_now)
            await asyncio.sleep(0)
            running_now -= 1
            seen.append(record.value)
            if len(seen) == len(values):
                consumer.wakeup()

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler, concurrency=4)
        assert set(seen) == values and len(seen) == len(values)
        assert 1 < most <= 4
        assert await left(broker) == []


async def test_no_more_records_are_locked_than_handlers_are_free(tmp_path: Path) -> None:
    begun = asyncio.Semaphore(0)
    go_on = asyncio.Event()

    async def slow(record: Record) -> None:
        begun.release()
        await go_on.wait()

    async with (
        queue(tmp_path, b"1", b"2", b"3", b"4") as broker,
        worker(broker) as consumer,
        running(consumer, slow, concurrency=2),
    ):
        async with asyncio.timeout(PATIENCE):
            await begun.acquire()
            await begun.acquire()
        assert await left(broker, 2) == [(b"3", 1), (b"4", 1)]
        go_on.set()


async def test_quick_handlers_need_no_round_trip_for_each_round_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many records as handlers work off within a moment are in stock."""
    monkeypatch.setattr(runner, "_AHEAD", 10.0)
    fetches = 0
    acquire = SharePolls.acquire

    async def count(self: SharePolls[Any, Any], most: int) -> list[ShareRecord[Any, Any]]:
        nonlocal fetches
        fetches += 1
        return await acquire(self, most)

    monkeypatch.setattr(SharePolls, "acquire", count)
    left_to_do = 200

    async with queue(tmp_path, *(b"%d" % number for number in range(left_to_do))) as broker, worker(broker) as consumer:

        async def handler(record: Record) -> None:
            nonlocal left_to_do
            left_to_do -= 1
            if not left_to_do:
                consumer.wakeup()

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler, concurrency=2)
    assert fetches < 10


async def test_a_failed_record_is_delivered_again(tmp_path: Path) -> None:
    counts: list[int] = []

    async with queue(tmp_path, b"1") as broker, worker(broker) as consumer:

        async def handler(record: Record) -> None:
            counts.append(record.delivery_count)
            if len(counts) < 3:
                raise ConnectionError("the database is away")
            consumer.wakeup()

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler, retries=2, retry_backoff_ms=1)
        assert counts == [1, 2, 3]
        assert await left(broker) == []


async def test_a_record_without_retries_left_is_rejected(tmp_path: Path) -> None:
    bad: list[int] = []

    async with queue(tmp_path, b"bad", b"good", share_delivery_count_limit="10") as broker, worker(broker) as consumer:

        async def handler(record: Record) -> None:
            if record.value == b"bad":
                bad.append(record.delivery_count)
                raise ValueError("no number")
            if len(bad) < 2:
                await record.release()  # it comes after the bad one, which is rejected by then
            else:
                consumer.wakeup()

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler, concurrency=1, **AT_ONCE)
        assert bad == [1, 2]
        assert await left(broker) == []


async def test_a_record_without_retries_left_becomes_a_dead_letter(tmp_path: Path) -> None:
    async with queue(tmp_path, b"bad") as broker, worker(broker) as consumer:

        async def handler(record: Record) -> None:
            raise ValueError("no number")

        servers = servers_of(broker)
        reader = Consumer("dead", bootstrap_servers=servers, auto_offset_reset="earliest", metadata_max_age_ms=200)
        async with running(consumer, handler, dead_letter_topic="dead", **AT_ONCE), reader:
            async with asyncio.timeout(PATIENCE):
                letter = await reader.getone()
        added = {name.removeprefix(PREFIX): value for name, value in letter.headers}
        assert letter.value == b"bad"
        assert (added["message"], added["attempts"], added["offset"]) == (b"no number", b"2", b"0")
        assert await left(broker) == []


async def test_a_failed_dead_letter_ends_the_run_and_releases_the_record(tmp_path: Path) -> None:
    async with queue(tmp_path, b"bad") as broker:
        producer = Producer(bootstrap_servers=servers_of(broker), max_request_size=300)
        async with worker(broker) as consumer, producer:

            async def handler(record: Record) -> None:
                raise ValueError("x" * 500)

            with pytest.raises(KafkaError, match=r"the dead letter of .* could not be written"):
                async with asyncio.timeout(PATIENCE):
                    await consumer.run(handler, retries=0, dead_letter_topic="dead", producer=producer)
        assert await left(broker, 1) == [(b"bad", 2)]


async def test_a_handler_acknowledges_its_record_itself(tmp_path: Path) -> None:
    async with queue(tmp_path, b"1") as broker, worker(broker, "implicit") as consumer:

        async def handler(record: Record) -> None:
            await record.reject()
            consumer.wakeup()
            raise ValueError("this does not release it")

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler)
        assert await left(broker) == []


async def test_locks_are_renewed_while_a_handler_is_slow(tmp_path: Path) -> None:
    """The other consumer polls for longer than a lock lasts."""
    go_on = asyncio.Event()
    begun = asyncio.Event()

    async def slow(record: Record) -> None:
        begun.set()
        await go_on.wait()

    async with queue(tmp_path, b"1", share_record_lock_duration_ms="1000") as broker, worker(broker) as consumer:
        async with running(consumer, slow), worker(broker) as other:
            await asyncio.wait_for(begun.wait(), PATIENCE)
            assert await other.poll(2_500) == []
            go_on.set()
        assert await left(broker) == []


async def test_a_handler_is_cancelled_when_its_lock_is_lost(tmp_path: Path) -> None:
    cancelled = asyncio.Event()

    async def slow(record: Record) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    configs = {"share_record_lock_duration_ms": "1000", "share_renew_acknowledge_enable": "false"}
    async with (
        queue(tmp_path, b"1", **configs) as broker,
        worker(broker) as consumer,
        running(consumer, slow, drain_timeout_ms=3_600_000),
    ):
        await asyncio.wait_for(cancelled.wait(), PATIENCE)


async def test_the_end_of_a_run_waits_for_handlers_and_releases_the_others(tmp_path: Path) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def handler(record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("the record waits for its release")
        begun.set()
        await go_on.wait()

    async with queue(tmp_path, b"bad", b"slow") as broker, worker(broker) as consumer:
        task = asyncio.create_task(consumer.run(handler, concurrency=2, retry_backoff_ms=3_600_000))
        await asyncio.wait_for(begun.wait(), PATIENCE)
        consumer.wakeup()
        go_on.set()
        await asyncio.wait_for(task, PATIENCE)
        assert await left(broker, 1) == [(b"bad", 2)], "the slow one is accepted"


async def test_a_stop_ends_the_run_first(tmp_path: Path) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def handler(record: Record) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with queue(tmp_path, b"1") as broker:
        async with worker(broker) as consumer:
            task = asyncio.create_task(consumer.run(handler, drain_timeout_ms=0))
            await asyncio.wait_for(begun.wait(), PATIENCE)
            await asyncio.wait_for(consumer.stop(), PATIENCE)
            assert ended.is_set()
            await asyncio.wait_for(task, PATIENCE)
        assert await left(broker, 1) == [(b"1", 2)]


async def test_a_handler_cannot_stop_the_consumer(tmp_path: Path) -> None:
    async with queue(tmp_path, b"1") as broker, worker(broker) as consumer:
        errors: list[BaseException] = []

        async def handler(record: Record) -> None:
            try:
                await consumer.stop()
            except IllegalStateError as error:
                errors.append(error)
            consumer.wakeup()

        async with asyncio.timeout(PATIENCE):
            await consumer.run(handler)
        assert "wakeup()" in str(errors[0])


async def test_plain_handlers_run_in_an_executor(tmp_path: Path) -> None:
    seen: list[bytes | None] = []

    async with queue(tmp_path, b"1", b"2") as broker, worker(broker) as consumer:

        def handler(record: Record) -> None:
            seen.append(record.value)
            if len(seen) == 2:
                consumer.wakeup()

        with ThreadPoolExecutor(2) as pool:
            async with asyncio.timeout(PATIENCE):
                await consumer.run(handler, executor=pool)
        assert sorted(seen, key=repr) == [b"1", b"2"]
        assert await left(broker) == []


async def test_a_handler_that_ends_after_the_consumer_was_stopped_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_client.consumer.parallel.handlers._CLEANUP", 0.05)
    loop, begun, go_on = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def handler(record: Record) -> None:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait(PATIENCE)

    async with queue(tmp_path, b"1") as broker:
        with ThreadPoolExecutor(1) as pool:
            async with worker(broker) as consumer:
                task = asyncio.create_task(consumer.run(handler, executor=pool, drain_timeout_ms=0))
                await asyncio.wait_for(begun.wait(), PATIENCE)
                runner = consumer._runner
                await asyncio.wait_for(consumer.stop(), PATIENCE)
                await asyncio.wait_for(task, PATIENCE)
            go_on.set()
            await reach(lambda: runner is not None and len(runner.handlers) == 0)
        assert await left(broker, 1) == [(b"1", 2)]


async def test_a_pickled_record_is_a_copy(tmp_path: Path) -> None:
    async with queue(tmp_path, b"1") as broker, worker(broker) as consumer:
        async with asyncio.timeout(PATIENCE):
            record = await consumer.getone()
        copy = pickle.loads(pickle.dumps(record))
        assert repr(copy) == repr(record) and copy.topic == TOPIC
        with pytest.raises(IllegalStateError, match="copy"):
            await copy.accept()


async def test_invalid_runs(tmp_path: Path) -> None:
    async def handler(record: Record) -> None: ...

    none: Any = None
    async with queue(tmp_path) as broker:
        with pytest.raises(IllegalStateError, match="not started"):
            await worker(broker).run(handler)
        async with worker(broker) as consumer:
            with pytest.raises(TypeError, match="give a function"):
                await consumer.run(none)
            with pytest.raises(ValueError, match="concurrency is 0"):
                await consumer.run(handler, concurrency=0)
            async with running(consumer, handler):
                await asyncio.sleep(0)
                with pytest.raises(IllegalStateError, match="runs already"):
                    await consumer.run(handler)
        async with worker(broker, value_deserializer=bytes.decode) as consumer:
            with pytest.raises(TypeError, match="give a producer="):
                await consumer.run(handler, dead_letter_topic="dead")


async def test_wakeup_ends_the_poll_that_waits(tmp_path: Path) -> None:
    async with queue(tmp_path) as broker, worker(broker) as consumer:
        poll = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        consumer.wakeup()
        with pytest.raises(WakeupError):
            await asyncio.wait_for(poll, PATIENCE)
        assert await consumer.poll(0) == [], "once"
