"""Where the events of groups and transactions are: why groups rebalanced, as Barnabas brokers record it in the topic
``__group_events``, and which transactions were slow or aborted, in ``__transaction_events``.

The events of a group are in the partition that the group has in ``__consumer_offsets``.
"""

import json
import time
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.history.ports import Connect
from barnabas_client.history.reading import read
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.internal_topics import EVENTS_TOPIC, TRANSACTION_EVENTS_TOPIC, partition_for

#: Events of transactions that are kept; older ones are left out.
_MOST_TRANSACTION_EVENTS: Final = 20_000
#: A member that revokes for longer is an exception: max.poll.interval.ms is 5 minutes by default.
_LONGEST_REVOCATION_MS: Final = 3_600_000


class EventRange(NamedTuple):
    """The records with a group's events: a partition, its first offset, and the offset after the last."""

    partition: TopicPartition
    start: int
    end: int


async def locate(admin: Admin, groups: Collection[str], since: int | None) -> list[EventRange]:
    """Look up where the events of groups are; nothing if the brokers do not record events.

    Args:
        admin: of the brokers.
        groups: the group ids; none for all groups.
        since: leave out events before this time, in ms since 1970.

    Raises:
        KafkaError: the topic cannot be described.
    """
    count = await partition_count(admin, EVENTS_TOPIC)
    numbers = {partition_for(group, count) for group in groups} if count and groups else range(count)
    return await ranges(admin, [TopicPartition(EVENTS_TOPIC, number) for number in sorted(numbers)], since)


async def transaction_events(connect: Connect, admin: Admin, since: int | None) -> list[bytes] | None:
    """The newest events of transactions, as values of ``__transaction_events``; None if the brokers record none.

    Args:
        connect: creates the consumer that reads.
        admin: of the brokers.
        since: leave out events before this time, in ms since 1970.

    Raises:
        KafkaError: the events cannot be read.
    """
    count = await partition_count(admin, TRANSACTION_EVENTS_TOPIC)
    if not count:
        return None
    newest: deque[bytes] = deque(maxlen=_MOST_TRANSACTION_EVENTS)
    found = await ranges(admin, [TopicPartition(TRANSACTION_EVENTS_TOPIC, number) for number in range(count)], since)
    starts, ends = {one.partition: one.start for one in found}, {one.partition: one.end for one in found}
    async for records in read(connect, starts, ends):
        newest.extend(record.value for record in records if record.value is not None)
    return list(newest)


async def partition_count(admin: Admin, name: str) -> int:
    """The number of partitions of a topic; 0 if it does not exist."""
    (topic,) = await admin.describe_topics([name], raise_errors=False)
    return 0 if topic.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else len(topic.partitions)


async def ranges(admin: Admin, partitions: Sequence[TopicPartition], since: int | None) -> list[EventRange]:
    """The records since a time."""
    if not partitions:
        return []
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    start = OffsetSpec.EARLIEST if since is None else max(since, 0)
    firsts = await admin.list_offsets(dict.fromkeys(partitions, start))
    return [
        EventRange(tp, ends[tp].offset if firsts[tp].offset < 0 else firsts[tp].offset, ends[tp].offset)
        for tp in partitions
    ]


class Revoking(NamedTuple):
    """Since when a member has been revoking partitions, in ms since 1970, and its rebalance timeout."""

    since_ms: int
    timeout_ms: int


async def revoking_members(connect: Connect, admin: Admin, group: str) -> dict[str, Revoking]:
    """Since when members of a group have been revoking partitions, by member id; nothing if no events are recorded.

    Raises:
        KafkaError: the events cannot be read.
    """
    found: dict[str, Revoking] = {}
    for where in await locate(admin, [group], time.time_ns() // 1_000_000 - _LONGEST_REVOCATION_MS):
        async for records in read(connect, {where.partition: where.start}, {where.partition: where.end}):
            for record in records:
                if record.key != group.encode() or record.value is None:
                    continue
                with suppress(
                    ValueError, KeyError, TypeError
                ):  # not an event: elsewhere, clients may write to the topic
                    event = json.loads(record.value)
                    if event["type"] == "member_revoking":
                        found[event["member_id"]] = Revoking(int(event["time"]), int(event["timeout_ms"]))
                    elif event["type"] == "member_revoked":
                        found.pop(event["member_id"], None)
    return found
