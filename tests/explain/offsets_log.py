"""A partition of ``__consumer_offsets``, written by tests record by record."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from barnabas_explain.catalog import GroupEvent
from barnabas_explain.rebuild.history import RebuiltMember
from barnabas_explain.rebuild.rebuilder import GroupRebuilder
from barnabas_explain.records import record_of
from barnabas_protocol.codec import encode
from barnabas_protocol.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from barnabas_protocol.coordinator_records import CoordinatorRecord, GroupMetadataValue, MemberMetadata
from barnabas_protocol.group_records import (
    Committed,
    group_key,
    group_record,
    group_value,
    offset_key,
    offset_key_head,
    offset_value,
)
from tests.broker.groups.support import assignment

#: 2026-01-31 12:00:00 UTC in ms since 1970.
NOON = 1_769_860_800_000


class Record(NamedTuple):
    """A record, as the client's consumer returns it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def subscription(*topics: str, owned: Mapping[str, Iterable[int]] | None = None) -> bytes:
    """A subscription of version 1, with the partitions that the member owns (KIP-429)."""
    parts = [TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in (owned or {}).items()]
    return b"\x00\x01" + encode(ConsumerProtocolSubscription(topics=list(topics), owned_partitions=parts), 1)


def member(
    name: str,
    *partitions: int,
    topic: str = "t",
    topics: tuple[str, ...] = ("t",),
    owned: Mapping[str, Iterable[int]] | None = None,
    instance: str | None = None,
    session: int = 10_000,
    rebalance: int = 60_000,
    client: str | None = None,
) -> MemberMetadata:
    """A member of a classic group with partitions of a topic."""
    return MemberMetadata(
        member_id=name,
        group_instance_id=instance,
        client_id=client or f"client-{name}",
        client_host="/10.0.0.7",
        rebalance_timeout=rebalance,
        session_timeout=session,
        subscription=subscription(*topics, owned=owned),
        assignment=assignment(**{topic: partitions}) if partitions else b"",
    )


class OffsetsLog:
    """Writes records of the group "g", and of others, and has them rebuilt.

    Attributes:
        offset: of the next record.
        events: all events so far.
    """

    def __init__(self, group: str = "g", topic_names: Mapping[bytes, str] | None = None) -> None:
        self.group = group
        self.rebuilder = GroupRebuilder(group, (topic_names or {}).get)
        self.offset = 0
        self.events: list[GroupEvent] = []

    def raw(
        self, key: bytes | None, value: bytes | None, at: int = 0, *, absolute: bool = False
    ) -> list[dict[str, Any]]:
        """Write a record `at` ms after noon; the events that it tells."""
        record = Record(self.offset, at if absolute else NOON + at, key, value)
        self.offset += 1
        return self._told(self.rebuilder.add([record]))

    def skip(self, records: int = 1) -> None:
        """Records that compaction has removed."""
        self.offset += records

    def generation(
        self, at: int, number: int, *members: MemberMetadata, joined: int | None = None, kind: str = "consumer"
    ) -> list[dict[str, Any]]:
        """A generation of a classic group, whose members had joined at `joined`, 10 ms before if not given."""
        value = GroupMetadataValue(
            protocol_type=kind,
            generation=number,
            protocol="range" if members else None,
            leader=members[0].member_id if members else None,
            current_state_timestamp=NOON + (at - 10 if joined is None else joined),
            members=list(members),
        )
        return self.raw(group_key(self.group), group_value(value), at)

    def commit(
        self, at: int, partition: int, offset: int = 1, topic: str = "t", group: str | None = None
    ) -> list[dict[str, Any]]:
        """A committed offset."""
        key = offset_key(offset_key_head(group or self.group, topic), partition)
        return self.raw(key, offset_value(Committed(offset, -1, "", NOON + at)), at)

    def coordinator_record(self, record: CoordinatorRecord, at: int) -> list[dict[str, Any]]:
        """A record of a group of the consumer protocol."""
        key, value = group_record(record)
        return self.raw(key, value, at)

    def finish(self) -> list[dict[str, Any]]:
        """The events at the end."""
        return self._told(self.rebuilder.finish())

    def look(self, time: int, state: str, members: Iterable[RebuiltMember]) -> list[dict[str, Any]]:
        """Look at the group at a time; the events that it tells."""
        return self._told(self.rebuilder.observe(time, state, members))

    def of(self, event_type: str) -> list[dict[str, Any]]:
        """The events of a type so far."""
        return [record_of(event) for event in self.events if event.type == event_type]

    def _told(self, events: list[GroupEvent]) -> list[dict[str, Any]]:
        self.events += events
        return [record_of(event) for event in events]
