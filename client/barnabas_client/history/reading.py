"""Reads partitions from an offset to the end."""

from collections.abc import AsyncIterator, Mapping

from barnabas_client.consumer.consumer import Consumer
from barnabas_client.history.ports import Connect
from barnabas_client.structs import ConsumerRecord, TopicPartition

_POLL_MS = 500
#: `fetch_max_wait_ms`: short, because the read stops at the end.
_FETCH_WAIT_MS = 100


async def read(
    connect: Connect,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    follow: bool = False,
    read_committed: bool = False,
) -> AsyncIterator[list[ConsumerRecord]]:
    """Yield lists of records, in order within a partition; an empty list while no records arrive.

    Args:
        connect: creates the consumer that reads.
        starts: the offset to start at in each partition.
        ends: the end offset of each partition.
        follow: do not stop at the ends.
        read_committed: leave out records of aborted transactions; the ends must be last stable offsets.

    Raises:
        KafkaError: the partitions cannot be read.
    """
    wanted = {tp: offset for tp, offset in starts.items() if follow or offset < ends[tp]}
    if not wanted:
        return
    settings = {"isolation_level": "read_committed"} if read_committed else {}
    async with connect(fetch_max_wait_ms=_FETCH_WAIT_MS, max_poll_records=5_000, **settings) as consumer:
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
    """Pause the partitions that are at their end; returns whether any is left."""
    left = [tp for tp in consumer.assignment() - consumer.paused() if await consumer.position(tp) < ends[tp]]
    done = consumer.assignment() - consumer.paused() - set(left)
    if done:
        consumer.pause(*done)
    return bool(left)
