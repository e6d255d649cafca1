"""Contents of partitions, for parts of the broker that keep their state in a topic, and for tests."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Final

from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import Log
from barnabas_broker.storage.slices import joined
from barnabas_protocol.records import BatchHeader, Headers, Record, build_batch, decode_records, iter_batches
from barnabas_protocol.wire import Buffer

#: Bytes that are read at once.
_CHUNK: Final = 1024 * 1024


async def append_records(
    replica: Replica, records: Sequence[tuple[bytes | None, bytes | None, Headers, int]], now_ms: int
) -> None:
    """Append records as one batch, and wait until all replicas in sync have it.

    Args:
        replica: the partition.
        records: key, value, headers and timestamp of each.
        now_ms: the time, in ms since 1970.

    Raises:
        KafkaError: they were not appended, or not replicated.
    """
    info = replica.append(bytes(build_batch(records)), now_ms)
    await asyncio.gather(*replica.unacknowledged(info.last_offset, acks_all=True))


async def read_batches(log: Log, most_decompressed: int) -> AsyncIterator[tuple[BatchHeader, list[Record]]]:
    """Read a log up to its high watermark; those of open and of aborted transactions, and markers, too.

    Args:
        log: the log.
        most_decompressed: bytes of the records of one batch.

    Raises:
        DecodeError: a batch cannot be read.
        DamagedLog: the file is damaged.
    """
    offset, end = log.log_start_offset, log.high_watermark
    while offset < end:
        if (warm := log.warm(offset, _CHUNK)) is not None:
            await warm
        data = joined(log.read(offset, _CHUNK, end, min_one=True))
        if not data:
            break
        for header, records in await log.disk.decode(partial(_decoded, data, most_decompressed)):
            offset = max(header.next_offset, offset + 1)
            yield header, [each for each in records if each.offset >= log.log_start_offset]


def _decoded(
    data: Buffer, most_decompressed: int, stopped: Callable[[], bool]
) -> list[tuple[BatchHeader, list[Record]]]:
    found: list[tuple[BatchHeader, list[Record]]] = []
    for header, batch in iter_batches(data, partial_ok=True):
        if stopped():
            break
        found.append((header, decode_records(batch, max_bytes=most_decompressed)))
    return found
