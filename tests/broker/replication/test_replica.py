"""A replica that leads: acknowledgements, fetches and deletions that wait."""

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from barnabas_broker.cluster.image import LastKnown, PartitionInfo
from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.storage import Inline, LogDirectory, TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.builder import build_batch

Make = Callable[..., Replica]


def info(isr: tuple[int, ...] = (1, 2), *, leader: int = 1, epoch: int = 0) -> PartitionInfo:
    return PartitionInfo(leader, epoch, (1, 2), isr)


def batch(count: int = 1) -> bytearray:
    return build_batch([(None, b"value", (), 1000)] * count)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(isr: tuple[int, ...] = (1, 2), **overrides: str) -> Replica:
        config = Config(BROKER_KEYS, {})
        directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
        topic = TopicConfig(config, overrides, TOPIC_KEYS)
        replica = Replica(directory.create(TopicPartition("t", 0), b"t" * 16, topic, 0), info(isr))
        replica.lead(1, info(isr), 0.0)
        return replica

    return made


def code(future: "asyncio.Future[None] | asyncio.Future[int] | None") -> ErrorCode:
    assert future is not None
    error = future.exception()
    assert isinstance(error, KafkaError)
    return error.code


def test_a_partition_takes_little_memory(tmp_path: Path) -> None:
    config = Config(BROKER_KEYS, {})
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0, background=Inline())
    topic, many, replicas = TopicConfig(config, {}, TOPIC_KEYS), 100, []
    gc.collect()
    tracemalloc.start(25)
    try:
        for number in range(many):
            replica = Replica(directory.create(TopicPartition("t", number), b"t" * 16, topic, 0), info((1,)))
            replica.lead(1, info((1,)), 0.0)
            replicas.append(replica)
        gc.collect()
        # Brokers of other tests may run in threads of this process: what they allocate does not count.
        mine = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, __file__, all_frames=True)])
        used = sum(trace.size for trace in mine.traces)
        assert used / many < 6000  # 12,000 with deques and sets that are empty
    finally:
        tracemalloc.stop()
        directory.close(0)


async def test_without_followers_an_append_is_replicated_at_once(make: Make) -> None:
    replica = make((1,))
    appended = replica.append(batch(3), 0)
    assert replica.replicated(appended.last_offset) is None
    assert replica.high_watermark == 3


async def test_an_acknowledgement_waits_for_the_isr(make: Make) -> None:
    replica = make()
    first = replica.replicated(replica.append(batch(3), 0).last_offset)
    second = replica.replicated(replica.append(batch(2), 0).last_offset)
    assert first is not None and second is not None
    replica.fetched_by(2, 20, 2, 1.0)
    assert not first.done()
    replica.fetched_by(2, 20, 3, 1.0)
    assert first.done() and not second.done()
    replica.fetched_by(2, 20, 5, 1.0)
    assert second.done() and replica.high_watermark == 5


async def test_consumers_wait_for_the_high_watermark_and_followers_for_the_end(make: Make) -> None:
    replica = make()
    consumer, follower = DelayedFetch(1), DelayedFetch(1)
    replica.waiting[consumer] = None
    replica.following[follower] = None
    replica.append(batch(), 0)
    assert follower.woken.done() and not consumer.woken.done()
    replica.fetched_by(2, 20, 1, 1.0)
    assert consumer.woken.done()


async def test_fetches_that_wait_are_answered_in_the_order_in_which_they_came(make: Make) -> None:
    replica, woken = make(), list[DelayedFetch]()
    fetches = [DelayedFetch(1) for _ in range(30)]
    for fetch in fetches:
        fetch.woken.add_done_callback(partial(lambda fetch, _: woken.append(fetch), fetch))
        replica.wait_committed(fetch)
    replica.append(batch(), 0)
    replica.fetched_by(2, 20, 1, 1.0)
    await asyncio.sleep(0)
    assert woken == fetches


async def test_a_consumer_waits_for_as_many_bytes_as_it_asked_for(make: Make) -> None:
    replica = make()
    consumer = DelayedFetch(2 * len(batch()))
    replica.waiting[consumer] = None
    replica.append(batch(), 0)
    replica.append(batch(), 0)
    replica.fetched_by(2, 20, 1, 1.0)
    assert not consumer.woken.done()
    replica.fetched_by(2, 20, 2, 1.0)
    assert consumer.woken.done()


async def test_an_append_with_too_small_an_isr_is_rejected(make: Make) -> None:
    replica = make((1,), **{"min.insync.replicas": "2"})
    with pytest.raises(KafkaError) as refused:
        replica.check_isr()
    assert refused.value.code is ErrorCode.NOT_ENOUGH_REPLICAS


async def test_another_configuration_needs_another_isr(make: Make) -> None:
    replica = make((1,), **{"min.insync.replicas": "2"})
    acknowledged = replica.replicated(replica.append(batch(), 0).last_offset)
    assert replica.min_isr == 2
    replica.configure(TopicConfig(Config(BROKER_KEYS, {}), {"min.insync.replicas": "1"}, TOPIC_KEYS))
    assert replica.min_isr == 1
    replica.check_isr()
    assert replica.high_watermark == 1
    assert acknowledged is not None and acknowledged.result() is None
    replica.configure(TopicConfig(Config(BROKER_KEYS, {}), {"min.insync.replicas": "5"}, TOPIC_KEYS))
    assert replica.min_isr == 2, "the partition has two replicas"


async def test_an_acknowledgement_survives_an_isr_that_is_too_small_for_a_moment(make: Make) -> None:
    # As in Kafka since 3.7: nothing is committed meanwhile, and nothing fails. A producer that were told
    # NOT_ENOUGH_REPLICAS_AFTER_APPEND would send again what is in the log.
    replica = make(**{"min.insync.replicas": "2"})
    acknowledged = replica.replicated(replica.append(batch(), 0).last_offset)
    assert acknowledged is not None
    replica.lead(1, info((1,))._replace(elr=(2,), partition_epoch=1), 1.0)
    assert replica.high_watermark == 0
    assert not acknowledged.done()
    replica.fetched_by(2, 20, 1, 1.0)
    assert not acknowledged.done()
    replica.lead(1, info()._replace(partition_epoch=2), 2.0)
    assert replica.high_watermark == 1
    assert acknowledged.result() is None


async def test_an_acknowledgement_that_waits_for_a_larger_isr_ends_with_the_leadership(make: Make) -> None:
    replica = make((1,), **{"min.insync.replicas": "2"})
    acknowledged = replica.replicated(replica.append(batch(), 0).last_offset)
    replica.step_down()
    assert code(acknowledged) is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_coordinator_waits_for_the_records_of_earlier_leaders(make: Make) -> None:
    replica = make(**{"min.insync.replicas": "2"})
    replica.append(batch(), 0)
    replica.lead(1, info(epoch=1), 1.0)
    settled, abandoned = replica.when_settled(), replica.when_settled()
    assert settled is not None and abandoned is not None
    abandoned.cancel()
    replica.fetched_by(2, 20, 1, 1.0)
    await asyncio.wait_for(settled, 1)
    assert replica.when_settled() is None


async def test_a_coordinator_does_not_wait_for_replicas_that_are_missing(make: Make) -> None:
    replica = make(**{"min.insync.replicas": "2"})
    replica.append(batch(), 0)
    replica.lead(1, info(epoch=1), 1.0)
    settled = replica.when_settled()
    assert settled is not None
    replica.lead(1, info((1,), epoch=1)._replace(partition_epoch=1), 1.0)
    await asyncio.wait_for(settled, 1)
    assert not replica.settled
    assert replica.when_settled() is None, "nothing can be committed"


async def test_a_coordinator_does_not_wait_for_a_lost_leadership(make: Make) -> None:
    replica = make()
    replica.append(batch(), 0)
    replica.lead(1, info(epoch=1), 1.0)
    settled = replica.when_settled()
    assert settled is not None
    replica.step_down()
    await asyncio.wait_for(settled, 1)


async def test_a_smaller_isr_completes_acknowledgements(make: Make) -> None:
    replica = make()
    acknowledged = replica.replicated(replica.append(batch(), 0).last_offset)
    replica.lead(1, info((1,)), 1.0)
    assert acknowledged is not None and acknowledged.done() and acknowledged.exception() is None


async def test_losing_leadership_fails_acknowledgements_and_wakes_fetches(make: Make) -> None:
    replica = make()
    acknowledged, fetch = replica.replicated(replica.append(batch(), 0).last_offset), DelayedFetch(100)
    replica.waiting[fetch] = None
    replica.follow(info((2,), leader=2, epoch=1))
    assert code(acknowledged) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetch.woken.done()
    with pytest.raises(KafkaError):
        replica.append(batch(), 0)
    with pytest.raises(KafkaError):
        replica.fetched_by(2, 20, 1, 1.0)


async def test_a_new_leader_is_settled_once_its_high_watermark_covers_earlier_records(make: Make) -> None:
    replica = make()
    replica.append(batch(4), 0)
    replica.fetched_by(2, 20, 2, 1.0)
    replica.lead(1, info(epoch=1), 2.0)
    assert replica.high_watermark == 2 and not replica.settled
    replica.fetched_by(2, 20, 4, 3.0)
    assert replica.settled


async def test_a_new_leader_epoch_begins_at_the_log_end(make: Make) -> None:
    replica = make((1,))
    replica.append(batch(4), 0)
    replica.lead(1, info((1,), epoch=6), 2.0)
    replica.append(batch(), 0)
    assert replica.log.epoch_end_offset(5) == (0, 4)
    assert replica.log.epoch_end_offset(6) == (6, 5)


async def test_a_deletion_completes_when_followers_have_deleted(make: Make) -> None:
    replica = make()
    replica.append(batch(5), 0)
    replica.fetched_by(2, 20, 5, 1.0, 0)
    replica.log.delete_records(3)
    assert replica.low_watermark((1, 2)) == 0
    follower = DelayedFetch(1)
    replica.following[follower] = None
    waiter = replica.deleted_everywhere(3)
    assert follower.woken.done(), "the follower learns of it at once"
    replica.fetched_by(2, 20, 5, 2.0, 2)
    replica.complete_deletions((1, 2))
    assert not waiter.done()
    replica.fetched_by(2, 20, 5, 3.0, 3)
    replica.complete_deletions((1, 2))
    assert waiter.result() == 3


async def test_the_low_watermark_is_unknown_until_all_followers_have_fetched(make: Make) -> None:
    replica = make((1,))
    replica.append(batch(5), 0)
    replica.log.delete_records(3)
    assert replica.low_watermark((1, 2)) == -1
    replica.fetched_by(2, 20, 0, 1.0, -7)
    assert replica.low_watermark((1, 2)) == -1


async def test_a_deletion_does_not_wait_for_a_fenced_follower(make: Make) -> None:
    replica = make((1,))
    replica.append(batch(5), 0)
    replica.log.delete_records(3)
    waiter = replica.deleted_everywhere(3)
    replica.complete_deletions((1,))
    assert waiter.result() == 3


async def test_a_deletion_fails_when_leadership_is_lost(make: Make) -> None:
    replica = make()
    waiter = replica.deleted_everywhere(3)
    replica.follow(info(leader=2, epoch=1))
    assert code(waiter) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(KafkaError):
        replica.low_watermark((1, 2))


async def test_the_high_watermark_stays_while_the_isr_is_too_small(make: Make) -> None:
    # Replicas that have left the ISR may lead, so nothing that they lack may become visible (KIP-966).
    replica = make((1, 2), **{"min.insync.replicas": "2"})
    replica.append(batch(3), 0)
    replica.fetched_by(2, 7, 3, 1.0)
    assert replica.high_watermark == 3
    replica.lead(1, info((1,))._replace(elr=(2,), partition_epoch=1), 1.0)
    replica.append(batch(), 0)
    assert replica.high_watermark == 3
    acknowledged = replica.replicated(3)
    assert acknowledged is not None and not acknowledged.done()
    replica.lead(1, info((1, 2))._replace(partition_epoch=2), 1.0)
    replica.fetched_by(2, 7, 4, 2.0)
    assert replica.high_watermark == 4
    assert acknowledged.done()


async def test_the_high_watermark_stays_while_other_replicas_are_eligible(make: Make) -> None:
    replica = make((1,))
    replica.lead(1, info((1,))._replace(elr=(2,), partition_epoch=1), 1.0)
    assert replica.outgrows_elr()
    replica.append(batch(), 0)
    acknowledged = replica.replicated(0)
    assert replica.high_watermark == 0
    assert acknowledged is not None
    assert not acknowledged.done()
    replica.lead(1, info((1,))._replace(partition_epoch=2), 1.0)
    assert not replica.outgrows_elr()
    assert replica.high_watermark == 1
    assert acknowledged.result() is None


def test_a_replica_reports_the_end_of_its_log_only_where_it_is_awaited(make: Make) -> None:
    replica = make((1,))
    assert not replica.is_awaited(1, "a")
    waiting = info((), leader=-1, epoch=1)._replace(last_known=(LastKnown(1, "a"), LastKnown(2, "b", 0, 5)))
    replica.follow(waiting)
    assert replica.is_awaited(1, "a")
    assert not replica.is_awaited(1, "another")
    assert not replica.is_awaited(2, "b"), "it has reported"
    replica.follow(waiting._replace(leader=2))
    assert not replica.is_awaited(1, "a")


@pytest.mark.parametrize(
    ("partition", "may"),
    [
        (PartitionInfo(2, 5, (1, 2), (2,)), True),
        (PartitionInfo(2, 4, (1, 2), (2,)), False),
        (PartitionInfo(2, 5, (1, 2), (1, 2)), False),
        (PartitionInfo(2, 5, (1, 2), (2,), elr=(1,)), False),
        (PartitionInfo(-1, 5, (1, 2), (2,)), False),
        (PartitionInfo(1, 5, (1, 2), (2,)), False),
    ],
)
def test_a_replica_removes_records_only_when_nobody_takes_it_for_whole(
    make: Make, partition: PartitionInfo, *, may: bool
) -> None:
    replica = make()
    replica.lost_since = 4
    replica.info = partition
    assert replica.may_drop(1) is may


async def test_what_waits_is_refused_and_the_leadership_goes_on(make: Make) -> None:
    """As when the lease has ended and nothing else is heard: another broker may lead, or none."""
    replica = make()
    acknowledged = replica.replicated(replica.append(batch(), 0).last_offset)
    deleted, consumer = replica.deleted_everywhere(1), DelayedFetch(1)
    replica.waiting[consumer] = None
    replica.refuse_waiting("the lease has ended")
    assert code(acknowledged) is code(deleted) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert consumer.woken.done()
    again = replica.replicated(replica.append(batch(), 0).last_offset)
    assert again is not None
    replica.fetched_by(2, 20, 2, 1.0)
    assert again.done() and again.exception() is None and replica.high_watermark == 2
