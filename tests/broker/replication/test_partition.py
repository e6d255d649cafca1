"""A partition as leader: who waits, and what was promised."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_broker.cluster.image import PartitionInfo
from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.replication.partition import DelayedFetch, Hosted
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.builder import build_batch

Make = Callable[..., Hosted]


def info(isr: tuple[int, ...] = (1, 2), *, leader: int = 1, epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(leader, epoch, (1, 2), isr)


def batch(count: int = 1) -> bytearray:
    return build_batch([(None, b"value", (), 1000)] * count)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(isr: tuple[int, ...] = (1, 2), **overrides: str) -> Hosted:
        config = Config(BROKER_KEYS, {})
        directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
        topic = TopicConfig(config, overrides, TOPIC_KEYS)
        hosted = Hosted(directory.create(TopicPartition("t", 0), b"t" * 16, topic, 0), info(isr))
        hosted.lead(1, info(isr), 0.0)
        return hosted

    return made


def code(future: "asyncio.Future[None] | asyncio.Future[int] | None") -> ErrorCode:
    assert future is not None
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error.code


async def test_alone_everything_is_replicated_at_once(make: Make) -> None:
    hosted = make((1,))
    appended = hosted.append(batch(3), 0)
    assert hosted.replicated(appended.last_offset) is None
    assert hosted.high_watermark == 3


async def test_an_acknowledgement_waits_for_the_isr(make: Make) -> None:
    hosted = make()
    first = hosted.replicated(hosted.append(batch(3), 0).last_offset)
    second = hosted.replicated(hosted.append(batch(2), 0).last_offset)
    assert first is not None and second is not None
    hosted.fetched_by(2, 20, 2, 1.0)
    assert not first.done()
    hosted.fetched_by(2, 20, 3, 1.0)
    assert first.done() and not second.done()
    hosted.fetched_by(2, 20, 5, 1.0)
    assert second.done() and hosted.high_watermark == 5


async def test_consumers_wait_for_the_high_watermark_and_followers_for_the_end(make: Make) -> None:
    hosted = make()
    consumer, follower = DelayedFetch(1), DelayedFetch(1)
    hosted.waiting.add(consumer)
    hosted.following.add(follower)
    hosted.append(batch(), 0)
    assert follower.woken.done() and not consumer.woken.done()
    hosted.fetched_by(2, 20, 1, 1.0)
    assert consumer.woken.done()


async def test_a_consumer_waits_for_as_many_bytes_as_it_asked_for(make: Make) -> None:
    hosted = make()
    consumer = DelayedFetch(2 * len(batch()))
    hosted.waiting.add(consumer)
    hosted.append(batch(), 0)
    hosted.append(batch(), 0)
    hosted.fetched_by(2, 20, 1, 1.0)
    assert not consumer.woken.done()
    hosted.fetched_by(2, 20, 2, 1.0)
    assert consumer.woken.done()


async def test_too_small_an_isr_is_refused_before(make: Make) -> None:
    hosted = make((1,), **{"min.insync.replicas": "2"})
    with pytest.raises(KafkaError) as refused:
        hosted.check_isr()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_too_small_an_isr_is_told_after(make: Make) -> None:
    hosted = make(**{"min.insync.replicas": "2"})
    promise = hosted.replicated(hosted.append(batch(), 0).last_offset)
    hosted.lead(1, info((1,)), 1.0)
    assert hosted.high_watermark == 1
    assert code(promise) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


async def test_a_smaller_isr_sets_free_what_waited_for_the_one_that_left(make: Make) -> None:
    hosted = make()
    promise = hosted.replicated(hosted.append(batch(), 0).last_offset)
    hosted.lead(1, info((1,)), 1.0)
    assert promise is not None and promise.done() and promise.exception() is None


async def test_losing_the_leadership_breaks_promises_and_wakes_fetches(make: Make) -> None:
    hosted = make()
    promise, fetch = hosted.replicated(hosted.append(batch(), 0).last_offset), DelayedFetch(100)
    hosted.waiting.add(fetch)
    hosted.follow(info((2,), leader=2, epoch=1))
    assert code(promise) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch.woken.done()
    with pytest.raises(KafkaError):
        hosted.append(batch(), 0)
    with pytest.raises(KafkaError):
        hosted.fetched_by(2, 20, 1, 1.0)


async def test_a_new_leader_does_not_tell_its_end_before_its_high_watermark_is_there(make: Make) -> None:
    hosted = make()
    hosted.append(batch(4), 0)
    hosted.fetched_by(2, 20, 2, 1.0)
    hosted.lead(1, info(epoch=1), 2.0)
    assert hosted.high_watermark == 2 and not hosted.settled
    hosted.fetched_by(2, 20, 4, 3.0)
    assert hosted.settled


async def test_a_new_leadership_notes_where_its_epoch_begins(make: Make) -> None:
    hosted = make((1,))
    hosted.append(batch(4), 0)
    hosted.lead(1, info((1,), epoch=6), 2.0)
    hosted.append(batch(), 0)
    assert hosted.log.epoch_end_offset(5) == (0, 4)
    assert hosted.log.epoch_end_offset(6) == (6, 5)


async def test_deleted_records_are_gone_when_followers_have_deleted_them(make: Make) -> None:
    hosted = make()
    hosted.append(batch(5), 0)
    hosted.fetched_by(2, 20, 5, 1.0, 0)
    hosted.log.delete_records(3)
    assert hosted.low_watermark((1, 2)) == 0
    follower = DelayedFetch(1)
    hosted.following.add(follower)
    waiter = hosted.deleted_everywhere(3)
    assert follower.woken.done(), "the follower hears of it at once"
    hosted.fetched_by(2, 20, 5, 2.0, 2)
    hosted.settle_deletions((1, 2))
    assert not waiter.done()
    hosted.fetched_by(2, 20, 5, 3.0, 3)
    hosted.settle_deletions((1, 2))
    assert waiter.result() == 3


async def test_who_has_not_fetched_may_have_anything(make: Make) -> None:
    hosted = make((1,))
    hosted.append(batch(5), 0)
    hosted.log.delete_records(3)
    assert hosted.low_watermark((1, 2)) == -1
    hosted.fetched_by(2, 20, 0, 1.0, -7)
    assert hosted.low_watermark((1, 2)) == -1


async def test_a_follower_that_is_gone_does_not_keep_a_deletion_waiting(make: Make) -> None:
    hosted = make((1,))
    hosted.append(batch(5), 0)
    hosted.log.delete_records(3)
    waiter = hosted.deleted_everywhere(3)
    hosted.settle_deletions((1,))
    assert waiter.result() == 3


async def test_a_deletion_that_waits_is_told_when_the_leadership_is_lost(make: Make) -> None:
    hosted = make()
    waiter = hosted.deleted_everywhere(3)
    hosted.follow(info(leader=2, epoch=1))
    assert code(waiter) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        hosted.low_watermark((1, 2))
