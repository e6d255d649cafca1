"""The consumer of a share group with a broker in the test's event loop."""

import asyncio
from pathlib import Path

import pytest

from barnabas_client import (
    Admin,
    Consumer,
    ShareConsumer,
    ShareRecord,
)
from barnabas_client.errors import ConsumerStoppedError, IllegalStateError, KafkaError, RecordDeserializationError
from tests.client.shares.queue_world import GROUP, TOPIC, queue, servers_of, worker

pytestmark = pytest.mark.usefixtures("no_complaints")

#: Seconds until everything must have been received.
PATIENCE = 30.0


async def next_of(consumer: ShareConsumer) -> ShareRecord:
    async with asyncio.timeout(PATIENCE):
        return await consumer.getone()


async def nothing(consumer: ShareConsumer) -> bool:
    """Whether a poll finds nothing, after a fetch that the broker has answered."""
    return not await consumer.poll(300)


async def test_two_consumers_share_one_partition(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(200)]
    done: list[bytes | None] = []
    by_worker: list[int] = [0, 0]
    all_done = asyncio.Event()

    async with queue(tmp_path, *values) as broker:

        async def work(number: int, consumer: ShareConsumer) -> None:
            async for record in consumer:
                by_worker[number] += 1
                done.append(record.value)
                await record.accept()
                await asyncio.sleep(0)
                if len(done) == len(values):
                    all_done.set()

        settings = {"max_poll_records": 5, "share_acquire_mode": "record_limit"}
        async with worker(broker, **settings) as one, worker(broker, **settings) as other:
            tasks = [asyncio.create_task(work(0, one)), asyncio.create_task(work(1, other))]
            async with asyncio.timeout(PATIENCE):
                await all_done.wait()
            await one.commit()
            await other.commit()
        await asyncio.gather(*tasks)
    assert sorted(done, key=lambda value: int(value or b"")) == values, "each one once"
    assert all(by_worker), "both of them have worked"


async def test_a_released_record_comes_back_with_its_count(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one") as broker, worker(broker) as consumer:
        record = await next_of(consumer)
        assert (record.value, record.delivery_count, record.offset) == (b"one", 1, 0)
        await record.release()
        again = await next_of(consumer)
        assert (again.value, again.delivery_count) == (b"one", 2)
        await again.accept()
        await consumer.commit()


async def test_a_rejected_record_does_not_come_back(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one", b"two") as broker, worker(broker) as consumer:
        record = await next_of(consumer)
        await record.reject()
        second = await next_of(consumer)
        assert (record.value, second.value) == (b"one", b"two")
        await second.accept()
        await consumer.commit()
        assert await nothing(consumer)


async def test_records_of_a_consumer_that_dies_come_back_at_the_end_of_their_locks(tmp_path: Path) -> None:
    """Here it is alive, but silent: its locks expire."""
    async with (
        queue(tmp_path, b"one", share_record_lock_duration_ms="1000") as broker,
        worker(broker) as silent,
        worker(broker) as other,
    ):
        assert (await next_of(silent)).delivery_count == 1
        again = await next_of(other)
        assert (again.value, again.delivery_count) == (b"one", 2)


async def test_a_late_acknowledgement_is_an_error_of_commit(tmp_path: Path) -> None:
    async with (
        queue(tmp_path, b"one", share_record_lock_duration_ms="1000") as broker,
        worker(broker) as slow,
        worker(broker) as other,
    ):
        late = await next_of(slow)
        await next_of(other)
        await late.accept()
        with pytest.raises(KafkaError, match="acknowledge records"):
            await slow.commit()
        await slow.commit()


async def test_a_consumer_that_closes_gives_back_what_it_has_not_acknowledged(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one", b"two") as broker:
        async with worker(broker) as first:
            accepted, kept = await next_of(first), await next_of(first)
            assert (accepted.value, kept.value) == (b"one", b"two")
            await accepted.accept()
        with pytest.raises(IllegalStateError):
            await kept.accept()
        async with worker(broker) as second:
            record = await next_of(second)
            assert record.value == b"two"
            await record.accept()
            await second.commit()
        async with Admin(bootstrap_servers=servers_of(broker)) as admin:
            listings = await admin.list_consumer_groups()
        assert {one.group_id: one.state for one in listings}[GROUP] == "Empty", "both have left"


async def test_implicit_acknowledgement_accepts_at_the_next_poll_and_at_the_end(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one", b"two", b"three") as broker:
        async with worker(broker, "implicit") as consumer:
            assert [(await next_of(consumer)).value, (await next_of(consumer)).value] == [b"one", b"two"]
        async with worker(broker, "implicit") as consumer:
            record = await next_of(consumer)
            assert (record.value, record.delivery_count) == (b"three", 2)
            with pytest.raises(IllegalStateError, match="explicit"):
                await record.accept()
            await consumer.commit()
            assert await nothing(consumer)


async def test_an_error_in_the_block_does_not_accept_the_record(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one") as broker:

        async def failing() -> None:
            async with worker(broker, "implicit") as consumer:
                await next_of(consumer)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await failing()
        async with worker(broker, "implicit") as consumer:
            assert (await next_of(consumer)).delivery_count == 2


async def test_a_lock_is_renewed_until_it_has_expired(tmp_path: Path) -> None:
    async with queue(tmp_path, b"one") as broker, worker(broker) as consumer:
        record = await next_of(consumer)
        await record.renew()
        await record.renew()
        await record.accept()
        await consumer.commit()
        with pytest.raises(IllegalStateError, match="acknowledged before"):
            await record.renew()


async def test_a_lock_that_has_expired_is_not_renewed(tmp_path: Path) -> None:
    async with (
        queue(tmp_path, b"one", share_record_lock_duration_ms="1000") as broker,
        worker(broker) as slow,
        worker(broker) as other,
    ):
        late = await next_of(slow)
        await next_of(other)
        with pytest.raises(KafkaError, match="INVALID_RECORD_STATE"):
            await late.renew()


async def test_a_record_that_cannot_be_deserialized_is_released(tmp_path: Path) -> None:
    async with (
        queue(tmp_path, b"no number", b"2") as broker,
        ShareConsumer(
            TOPIC, group_id=GROUP, bootstrap_servers=servers_of(broker), value_deserializer=int, max_poll_records=2
        ) as consumer,
    ):
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(RecordDeserializationError):
                await consumer.getone()
            record = await consumer.getone()
        assert (record.offset, record.value) == (1, 2)


async def test_a_cancelled_poll_loses_no_records(tmp_path: Path) -> None:
    async def slowly(value: bytes) -> bytes:
        if value == b"two":
            entered.set()
            await gate.wait()
        return value

    entered, gate = asyncio.Event(), asyncio.Event()
    async with (
        queue(tmp_path, b"one", b"two") as broker,
        worker(broker, "implicit", value_deserializer=slowly) as consumer,
    ):
        poll = asyncio.create_task(consumer.poll(int(PATIENCE * 1000)))
        received: list[bytes | None] = []
        async with asyncio.timeout(PATIENCE):
            while not entered.is_set():
                done, _ = await asyncio.wait({poll, asyncio.create_task(entered.wait())}, return_when="FIRST_COMPLETED")
                if poll in done:
                    received += [record.value for record in poll.result()]
                    poll = asyncio.create_task(consumer.poll(int(PATIENCE * 1000)))
        poll.cancel()
        await asyncio.wait({poll})
        gate.set()
        async with asyncio.timeout(PATIENCE):
            while len(received) < 2:
                received += [record.value for record in await consumer.poll()]
        assert received == [b"one", b"two"]


async def test_a_stopped_consumer(tmp_path: Path) -> None:
    async with queue(tmp_path) as broker:
        consumer = worker(broker)
        with pytest.raises(IllegalStateError):
            await consumer.poll()
        await consumer.start()
        waiting = asyncio.create_task(consumer.getone())
        await asyncio.sleep(0)
        await consumer.stop()
        with pytest.raises(ConsumerStoppedError):
            await waiting
        assert [record async for record in consumer] == []
        await consumer.stop()


async def test_a_group_of_another_type_is_an_error(tmp_path: Path) -> None:
    async with (
        queue(tmp_path, b"one") as broker,
        Consumer(TOPIC, bootstrap_servers=servers_of(broker), group_id="readers"),
        worker(broker, group_id="readers") as consumer,
    ):
        with pytest.raises(KafkaError):
            await next_of(consumer)
