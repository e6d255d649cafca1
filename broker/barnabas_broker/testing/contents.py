"""Contents of the topics of a test's broker: reads all records, past the clients."""

import asyncio
from base64 import b64encode
from typing import Any, Final

from barnabas_broker.replication.contents import read_batches
from barnabas_broker.replication.replica import DelayedFetch, Replica
from barnabas_broker.storage import Log

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
        replica.waiting[delayed] = None
    try:
        woken = [delayed.woken for _, delayed in waiting]
        await asyncio.wait(woken, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for replica, delayed in waiting:
            replica.waiting.pop(delayed, None)
            delayed.wake()


async def _read(number: int, log: Log) -> list[list[Any]]:
    return [
        [
            number,
            record.offset,
            record.timestamp,
            _encoded(record.key),
            _encoded(record.value),
            [[name, _encoded(value)] for name, value in record.headers],
        ]
        async for header, records in read_batches(log, _MOST_DECOMPRESSED)
        if not header.is_control
        for record in records
    ]


def _encoded(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode("ascii")
