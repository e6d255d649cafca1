"""Reads partitions from some offset to the end, for commands that want all of something."""

from argparse import Namespace
from collections.abc import AsyncIterator, Mapping

from barnabas_client.cli import clients
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.structs import ConsumerRecord, TopicPartition

_POLL_MS = 500
#: Milliseconds that an answer waits for more data: short, for there is an end to come to.
_FETCH_WAIT_MS = 100


async def read(
    arguments: Namespace,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    follow: bool = False,
) -> AsyncIterator[list[ConsumerRecord]]:
    """Records, many at a time, in order within a partition; now and then none, while nothing comes.

    Args:
        arguments: tell the brokers.
        starts: where to start in each partition.
        ends: where each ends.
        follow: go on behind the ends, for ever.

    Raises:
        KafkaError: they cannot be read.
    """
    wanted = {tp: offset for tp, offset in starts.items() if follow or offset < ends[tp]}
    if not wanted:
        return
    async with clients.consumer(arguments, fetch_max_wait_ms=_FETCH_WAIT_MS, max_poll_records=5_000) as consumer:
        consumer.assign(wanted)
        for tp, offset in wanted.items():
            consumer.seek(tp, offset)
        while follow or await _drop_finished(consumer, ends):
            batches = await consumer.getmany(timeout_ms=_POLL_MS if follow else 2 * _FETCH_WAIT_MS)
            if not batches:
                yield []
            for records in batches.values():
                if follow:
                    yield records
                else:
                    end = ends[records[0].topic_partition]
                    yield [record for record in records if record.offset < end]


async def _drop_finished(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> bool:
    """Read no further in partitions that are at their end; whether any is left."""
    left = [tp for tp in consumer.assignment() - consumer.paused() if await consumer.position(tp) < ends[tp]]
    done = consumer.assignment() - consumer.paused() - set(left)
    if done:
        consumer.pause(*done)
    return bool(left)
