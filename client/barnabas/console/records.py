"""Reads some records of a topic of any cluster, in the shape of the broker's endpoint. Every read is bounded."""

import asyncio
from argparse import Namespace
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from barnabas_broker.http.json_rows import CHUNK, MOST_BYTES, MOST_PARTITIONS, Row, by_time, rows_of
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.cli.advice import for_command_line
from barnabas_client.config import ClientConfig, parse_servers
from barnabas_client.errors import error_for
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import NO_ID, TopicInfo
from barnabas_client.network.network import Network
from barnabas_client.network.versions import TOPICS_BY_NAME
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData


class RecordReader:
    """Reads records for one request at a time, so that many requests take no more memory than one.

    Args:
        arguments: of the command; they name the brokers.
        admin: of the brokers.
    """

    def __init__(self, arguments: Namespace, admin: Admin) -> None:
        self._admin = admin
        self._network = Network(
            ClientConfig(
                servers=parse_servers(arguments.servers.text),
                request_timeout_ms=max(round(arguments.timeout * 1000), 1),
                client_id="barnabas-console",
                **arguments.servers.security,
            )
        )
        self._started = False
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Disconnect."""
        if self._started:
            await self._network.close()

    async def read(
        self,
        topic: TopicInfo,
        numbers: Sequence[int],
        count: int,
        *,
        after: Mapping[int, int] | None = None,
        since: int | None = None,
    ) -> dict[str, Any]:
        """Read records: those from offsets on, those from a time on, or the last ones.

        Args:
            topic: the topic.
            numbers: of its partitions; more than can be read at once are left out.
            count: at most so many records.
            after: the offset to begin at, by partition.
            since: the time to begin at, in ms since 1970.

        Returns:
            `partitions` that were read, `more_partitions` if some were left out, `next` with the offset of each at
            which to go on, `gaps` with what could not be read, and `records`.

        Raises:
            KafkaError: the brokers do not answer.
        """
        wanted = [TopicPartition(topic.name, number) for number in numbers[:MOST_PARTITIONS]]
        each = max(count // max(len(wanted), 1), 1)
        gaps: list[str] = []
        async with self._lock:
            if not self._started:
                await self._network.start()
                self._started = True
            firsts, ends = (
                await self._offsets(wanted, OffsetSpec.EARLIEST),
                await self._offsets(wanted, OffsetSpec.LATEST),
            )
            if after is not None:
                starts = {tp: after.get(tp.partition, ends.get(tp, 0)) for tp in wanted}
            elif since is not None:
                found = await self._offsets(wanted, since)
                starts = {tp: offset if offset >= 0 else ends.get(tp, 0) for tp, offset in found.items()}
            else:
                starts = {tp: end - each for tp, end in ends.items()}
            read: list[tuple[int, list[Row]]] = []
            following: dict[int, int] = {}
            for tp in wanted:
                if tp not in ends or tp not in firsts:
                    gaps.append(f"partition {tp.partition} cannot be read: its offsets are not known")
                    continue
                start = min(max(starts.get(tp, ends[tp]), firsts[tp]), ends[tp])
                rows, following[tp.partition] = await self._read(topic, tp, start, ends[tp], each, gaps)
                read.append((tp.partition, rows))
        return {
            "partitions": [tp.partition for tp in wanted],
            "more_partitions": len(numbers) > len(wanted),
            "next": following,
            "gaps": gaps,
            "records": by_time(read),
        }

    async def _offsets(self, partitions: Sequence[TopicPartition], spec: OffsetSpec | int) -> dict[TopicPartition, int]:
        found = await self._admin.list_offsets(dict.fromkeys(partitions, spec), raise_errors=False)
        return {tp: one.offset for tp, one in found.items() if one.error is None}

    async def _read(
        self, topic: TopicInfo, tp: TopicPartition, start: int, end: int, count: int, gaps: list[str]
    ) -> tuple[list[Row], int]:
        """At most `count` records from an offset on, and the offset after them."""
        rows: list[Row] = []
        offset, read = start, 0
        while offset < end and len(rows) < count and read < MOST_BYTES:
            try:
                data = await self._fetch(topic, tp, offset)
                if not data:
                    return rows, end
                read += len(data)
                following, some = await asyncio.to_thread(
                    partial(rows_of, data, tp.partition, offset, count - len(rows))
                )
            except (KafkaError, DecodeError) as error:
                what = for_command_line(error)
                gaps.append(f"partition {tp.partition} cannot be read from offset {offset} on: {what}")
                break
            rows += [row for row in some if row["offset"] < end]
            offset = max(following, offset + 1)
        return rows, min(offset, end)

    async def _fetch(self, topic: TopicInfo, tp: TopicPartition, offset: int) -> bytes:
        """The batches from an offset on; the first one whole, however large it is.

        Raises:
            KafkaError: the leader does not answer, or refuses.
        """
        leader = topic.partitions[tp.partition].leader
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=CHUNK,
            topics=[
                FetchTopic(
                    topic=tp.topic,
                    topic_id=topic.id,
                    partitions=[FetchPartition(partition=tp.partition, fetch_offset=offset, partition_max_bytes=CHUNK)],
                )
            ],
        )
        at_most = TOPICS_BY_NAME if topic.id == NO_ID else None
        response = await self._network.ask(leader, request, FetchResponse, purpose=Purpose.FETCH, at_most=at_most)
        what = f"fetch {tp.topic}-{tp.partition}"
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, what)
        answered = _only(response)
        if answered is None:
            return b""
        if answered.error_code != ErrorCode.NONE:
            raise error_for(answered.error_code, what)
        return bytes(answered.records or b"")


def _only(response: FetchResponse) -> PartitionData | None:
    """The one partition that was asked for."""
    return next((each for topic in response.responses for each in topic.partitions), None)
