"""The records of a topic as JSON, for people who look at a few of them. Every read is bounded."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from barnabas_broker.http.json_rows import CHUNK, MOST_BYTES, Row, by_time, rows_of
from barnabas_broker.storage import Log
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_broker.storage.slices import joined
from barnabas_protocol.errors import KafkaError


class FoundRecords(NamedTuple):
    """Records that were read.

    Attributes:
        rows: the records, ready for JSON, by time.
        next: the offset of each partition at which to go on.
        gaps: what could not be read, in words.
    """

    rows: list[Row]
    next: dict[int, int]
    gaps: list[str]


class RecordReader:
    """Reads records of logs, for one request at a time, so that many requests take no more memory than one."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def last(self, logs: Mapping[int, Log], count: int) -> FoundRecords:
        """The last records of partitions, `count` in all at most."""
        each = max(count // max(len(logs), 1), 1)
        starts = {number: max(log.high_watermark - each, log.log_start_offset) for number, log in logs.items()}
        return await self.after(logs, starts, count)

    async def since(self, logs: Mapping[int, Log], time_ms: int, count: int) -> FoundRecords:
        """Records from a time on, by their own timestamps, in ms since 1970."""
        starts = {}
        async with self._lock:
            for number, log in logs.items():
                found = await log.offset_for_timestamp(time_ms)
                starts[number] = log.high_watermark if found is None else found.offset
        return await self.after(logs, starts, count)

    async def after(self, logs: Mapping[int, Log], starts: Mapping[int, int], count: int) -> FoundRecords:
        """Records from offsets on, `count` in all at most."""
        each = max(count // max(len(logs), 1), 1)
        partitions: list[tuple[int, list[Row]]] = []
        gaps: list[str] = []
        following: dict[int, int] = {}
        async with self._lock:
            for number, log in logs.items():
                start = min(max(starts.get(number, log.high_watermark), log.log_start_offset), log.high_watermark)
                found, following[number] = await _read(log, number, start, each, gaps)
                partitions.append((number, found))
        return FoundRecords(by_time(partitions), following, gaps)


async def _read(log: Log, number: int, start: int, count: int, gaps: list[str]) -> tuple[list[Row], int]:
    """At most `count` records from an offset on, and the offset after them."""
    rows: list[Row] = []
    offset, end, read = start, log.high_watermark, 0
    while offset < end and len(rows) < count and read < MOST_BYTES:
        try:
            if (warm := log.warm(offset, CHUNK)) is not None:
                await warm
            data = joined(log.read(offset, CHUNK, end, min_one=True))
        except DamagedLog as error:
            gaps.append(f"partition {number}: records are damaged from offset {error.damage.offset} on")
            offset = max(error.damage.next_offset, offset + 1)
            continue
        except (KafkaError, OSError) as error:
            gaps.append(f"partition {number} cannot be read from offset {offset} on: {error}")
            break
        if not data:
            return rows, end
        read += len(data)
        following, some = await log.disk.decode(partial(rows_of, data, number, offset, count - len(rows)))
        rows += some
        offset = max(following, offset + 1)
    return rows, min(offset, end)
