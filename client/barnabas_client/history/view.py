"""The current state of a consumer group: members, and for each partition committed offset, end offset and owner."""

import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, MemberDescription, OffsetSpec
from barnabas_client.structs import TopicPartition
from barnabas_explain.waits import Waiting, idle_ms
from barnabas_protocol.errors import ErrorCode


class Row(NamedTuple):
    """A partition of a group; or a member without partitions, whose row has no partition.

    `start`, the log start offset, is looked up only where no offset is committed.
    """

    partition: TopicPartition | None
    committed: int | None
    end: int | None
    member: MemberDescription | None
    start: int | None = None

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset; None if it is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)

    @property
    def uncommitted(self) -> int | None:
        """The number of records, if no offset is committed; None if there is one, or the number is not known.

        How many of them are lag depends on the consumer: none with `auto_offset_reset` "latest", all with "earliest".
        """
        if self.committed is not None or self.end is None or self.start is None:
            return None
        return max(self.end - self.start, 0)

    def as_data(self) -> dict[str, Any]:
        """Convert to JSON data."""
        member = self.member
        return {
            "topic": None if self.partition is None else self.partition.topic,
            "partition": None if self.partition is None else self.partition.partition,
            "current_offset": self.committed,
            "log_end_offset": self.end,
            "lag": self.lag,
            "consumer_id": None if member is None else member.member_id,
            "host": None if member is None else member.host,
            "client_id": None if member is None else member.client_id,
        }


@dataclass(slots=True)
class GroupView:
    """A group, its rows, and the time of the view in seconds since 1970."""

    group: GroupDescription
    rows: list[Row]
    time: float = field(default_factory=time.time)

    @property
    def lag(self) -> int | None:
        """The sum of the lags of all partitions; None if there are none, or one is not known.

        A partition without records has no lag, committed or not.
        """
        rows = [row for row in self.rows if row.partition is not None]
        if not rows or any(row.lag is None and row.uncommitted != 0 for row in rows):
            return None
        return self.known_lag

    @property
    def known_lag(self) -> int:
        """The sum of the lags of the partitions with a committed offset."""
        return sum(row.lag or 0 for row in self.rows)

    @property
    def uncommitted(self) -> int:
        """The number of records in partitions without a committed offset."""
        return sum(row.uncommitted or 0 for row in self.rows)


async def look(admin: Admin, group: GroupDescription) -> GroupView:
    """Look up the committed offsets and the end offsets of a described group.

    Raises:
        KafkaError: the committed offsets cannot be read.
    """
    committed = await admin.list_consumer_group_offsets(group.group_id, raise_errors=False)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted({*committed, *owners, *await _subscribed(admin, group)})
    offsets = {tp: one.offset for tp, one in committed.items()}
    ends = await _listed(admin, partitions, OffsetSpec.LATEST)
    starts = await _listed(admin, [tp for tp in partitions if offsets.get(tp) is None], OffsetSpec.EARLIEST)
    rows = [Row(tp, offsets.get(tp), ends.get(tp), owners.get(tp), starts.get(tp)) for tp in partitions]
    rows.extend(Row(None, None, None, member) for member in group.members if not member.partitions)
    return GroupView(group, rows)


async def _subscribed(admin: Admin, group: GroupDescription) -> list[TopicPartition]:
    """The partitions of the topics that members subscribe to, also those that no member owns since a topic has grown.
    During a rebalance they own none."""
    topics = sorted({topic for member in group.members for topic in member.topics}) if group.state == "Stable" else []
    described = await admin.describe_topics(topics, raise_errors=False) if topics else []
    known = (one for one in described if one.error in (None, ErrorCode.NONE))
    return [TopicPartition(one.name, number) for one in known for number in range(len(one.partitions))]


async def waiting(admin: Admin, rows: Iterable[Row]) -> list[Waiting]:
    """The partitions in which a group has read all up to an open transaction. Brokers without these APIs say nothing
    about producers."""
    lagging = {row.partition: row for row in rows if row.partition is not None and row.lag}
    stable = {}
    if lagging:
        found = await admin.list_offsets(
            dict.fromkeys(lagging, OffsetSpec.LATEST), read_committed=True, raise_errors=False
        )
        stable = {tp: one.offset for tp, one in found.items() if one.error is None}
    stuck = {
        tp: at
        for tp, at in stable.items()
        if lagging[tp].committed is not None and at <= (lagging[tp].committed or 0) and at < (lagging[tp].end or 0)
    }
    if not stuck:
        return []
    described = await admin.describe_producers(stuck, raise_errors=False)
    producers = {
        tp: next((one for one in state.producers if one.transaction_start_offset == stuck[tp]), None)
        for tp, state in described.items()
    }
    ids = sorted({one.producer_id for one in producers.values() if one is not None})
    listed = await admin.list_transactions(producer_ids=ids, raise_errors=False) if ids else []
    names = {one.producer_id: one.transactional_id for one in listed}
    known = await admin.describe_transactions(sorted(set(names.values())), raise_errors=False) if names else []
    now = time.time_ns() // 1_000_000
    opened = {one.transactional_id: one for one in known if one.start_time_ms is not None}
    waits = []
    for tp, at in sorted(stuck.items()):
        producer = producers.get(tp)
        name = None if producer is None else names.get(producer.producer_id)
        transaction = opened.get(name or "")
        open_ms = None if transaction is None else max(now - (transaction.start_time_ms or 0), 0)
        waits.append(
            Waiting(
                tp,
                at,
                (lagging[tp].end or 0) - at,
                None if producer is None else producer.producer_id,
                name,
                open_ms,
                None if transaction is None else transaction.timeout_ms,
                None if producer is None else idle_ms(producer.last_timestamp_ms, open_ms, now),
            )
        )
    return waits


async def _listed(admin: Admin, partitions: Collection[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
    """Look up offsets; deleted partitions and those without a leader are left out."""
    if not partitions:
        return {}
    found = await admin.list_offsets(dict.fromkeys(partitions, spec), raise_errors=False)
    return {tp: one.offset for tp, one in found.items() if one.error is None}
