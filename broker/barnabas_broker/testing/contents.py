"""Contents of the topics of a test's broker: writes records past the clients, and reads all of them."""

import asyncio
from base64 import b64encode
from typing import Any, Final

from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.storage import Log
from barnabas_broker.storage.slices import joined
from barnabas_protocol.records import decode_records, iter_batches

#: Bytes that are read at once.
_CHUNK: Final = 1024 * 1024
#: Bytes of the records of one batch.
_MOST_DECOMPRESSED: Final = 1024 * 1024 * 1024


async def read_records(replicas: list[tuple[int, Replica]], count: int, timeout: float) -> list[list[Any]]:
    """The records of partitions, by partition and offset, once there are `count`; those of open and of aborted
    transactions too.

    Args:
        replicas: the partitions.
        count: how many to wait for.
        timeout: seconds to wait.

    Raises:
        TimeoutError: there were fewer.
    """
    deadline = asyncio.get_running_loop().time() + timeout
    while True:
        rows = [row for number, replica in replicas for row in await _read(number, replica.log)]
        left = deadline - asyncio.get_running_loop().time()
        if len(rows) >= count:
            return rows
        if left <= 0:
            raise TimeoutError(f"within {timeout:g} s {len(rows)} records were written, not {count}")
        await _more(replicas, left)


async def _more(replicas: list[tuple[int, Replica]], seconds: float) -> None:
    """Wait until something is appended, for so many seconds at most."""
    waiting = [(replica, DelayedFetch(1)) for _, replica in replicas]
    for replica, delayed in waiting:
        replica.waiting.add(delayed)
    try:
        woken = [delayed.woken for _, delayed in waiting]
        await asyncio.wait(woken, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for replica, delayed in waiting:
            replica.waiting.discard(delayed)
            delayed.wake()


async def _read(number: int, log: Log) -> list[list[Any]]:
    rows: list[list[Any]] = []
    offset, end = log.log_start_offset, log.high_watermark
    while offset < end:
        if (warm := log.warm(offset, _CHUNK)) is not None:
            await warm
        data = joined(log.read(offset, _CHUNK, end, min_one=True))
        if not data:
            break
        for header, batch in iter_batches(data, partial_ok=True):
            offset = max(header.next_offset, offset + 1)
            if not header.is_control:
                rows += (
                    [
                        number,
                        record.offset,
                        record.timestamp,
                        _encoded(record.key),
                        _encoded(record.value),
                        [[name, _encoded(value)] for name, value in record.headers],
                    ]
                    for record in decode_records(batch, max_bytes=_MOST_DECOMPRESSED)
                    if record.offset >= log.log_start_offset
                )
    return rows


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")
