"""The current state of a consumer group: members, and for each partition committed offset, end offset and owner."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, ListedOffset, MemberDescription, OffsetSpec
from barnabas_client.structs import TopicPartition


class Row(NamedTuple):
    """A partition of a group; or a member without partitions, whose row has no partition."""

    partition: TopicPartition | None
    committed: int | None
    end: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The number of records after the committed offset; None if it is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(self.end - self.committed, 0)

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
    def lag(self) -> int:
        """The sum of the known lags of all partitions."""
        return sum(row.lag or 0 for row in self.rows)


async def look(admin: Admin, group: GroupDescription) -> GroupView:
    """Look up the committed offsets and the end offsets of a described group.

    Raises:
        KafkaError: the committed offsets cannot be read.
    """
    committed = await admin.list_consumer_group_offsets(group.group_id, raise_errors=False)
    owners = {tp: member for member in group.members for tp in member.partitions}
    partitions = sorted({*committed, *owners})
    ends: dict[TopicPartition, ListedOffset] = {}
    if partitions:
        # A deleted partition, or one without a leader, has no end offset; the others are shown.
        specs = dict.fromkeys(partitions, OffsetSpec.LATEST)
        ends = await admin.list_offsets(specs, raise_errors=False)
    rows = []
    for tp in partitions:
        end, offset = ends[tp], committed.get(tp)
        rows.append(
            Row(tp, offset.offset if offset else None, end.offset if end.error is None else None, owners.get(tp))
        )
    rows.extend(Row(None, None, None, member) for member in group.members if not member.partitions)
    return GroupView(group, rows)


def members_as_data(members: Iterable[MemberDescription]) -> list[dict[str, Any]]:
    """Convert members to JSON data."""
    return [
        {
            "consumer_id": member.member_id,
            "group_instance_id": member.instance_id,
            "host": member.host,
            "client_id": member.client_id,
            "topics": list(member.topics),
            "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in member.partitions],
        }
        for member in members
    ]
