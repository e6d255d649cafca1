"""Replays a partition of ``__consumer_offsets`` into groups and offsets. Pure: batches in, groups and offsets out."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.groups.consumer.records import ReplayedGroup, replay_record
from barnabas_broker.groups.offsets.offsets import NO_PRODUCER, GroupOffsets
from barnabas_broker.groups.share.group import ShareGroup
from barnabas_protocol.coordinator_records import ConsumerGroupMetadataKey, CoordinatorRecord, GroupMetadataValue
from barnabas_protocol.group_records import (
    CONSUMER_KEYS,
    GROUP_KEY,
    OFFSET_KEYS,
    SHARE_KEYS,
    ShareGroupKey,
    key_type,
    read_consumer_record,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from barnabas_protocol.records import BatchHeader, ControlType, Record, control_record_type


@dataclass(slots=True)
class Slot:
    """The offset that a record sets. Cached by key: keys repeat, and each one is parsed once."""

    group_id: str
    offsets: GroupOffsets
    topic: str
    partition: int


class Replay(PartitionReplay):
    """The groups and offsets of the records replayed so far: the type of a record says which machine owns it.

    Attributes:
        groups: the last record of each classic group.
        consumer_groups: the last records of each group of the consumer protocol.
        downgraded: ids of classic groups whose last record is that of their downgrade: they have not rebalanced since
            then, and the partitions of the last member of the consumer protocol have no owner.
        share_groups: the machine of each share group, of deleted ones too: compaction may have left any record of a
            group as its first one.
        offsets: committed offsets by group.
        emptied: ids of groups that have had offsets, and have not been deleted since then. Those without an offset and
            without a record of their own exist until they expire, as in Kafka.
        transactions: ids of the groups in which each open transaction has committed offsets, by producer id.

    Args:
        report: called with the offset of each record that cannot be read, and the reason.
        start: the log start offset.
        new_share_group: makes the machine of a share group.
    """

    def __init__(self, report: Report, start: int, new_share_group: Callable[[str], ShareGroup]) -> None:
        super().__init__(report, start)
        self._new_share_group = new_share_group
        self.share_groups: dict[str, ShareGroup] = {}
        self.groups: dict[str, GroupMetadataValue] = {}
        self.consumer_groups: dict[str, ReplayedGroup] = {}
        self.downgraded: set[str] = set()
        #: The groups of the consumer protocol that were deleted last, with the base offset of the batch.
        self._deleted: dict[str, int] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.emptied: set[str] = set()
        self.transactions: dict[int, set[str]] = {}
        self._slots: dict[bytes, Slot] = {}

    def apply(self, header: BatchHeader, record: Record) -> None:
        """Replay a record, or a marker."""
        if header.is_control:
            self._marker(header, record)
        else:
            self._record(record, header.producer_id if header.is_transactional else NO_PRODUCER, header.base_offset)

    def _record(self, record: Record, producer_id: int, base_offset: int) -> None:
        offset, _, key, value, _ = record
        slot = self._slots.get(key) if key is not None else None
        if slot is None:
            record_type = key_type(key)
            if key is not None and (record_type in CONSUMER_KEYS or record_type in SHARE_KEYS):
                read = read_consumer_record(record_type, key, value)
                if isinstance(read[0], ShareGroupKey):
                    self._share_group(read[0].group_id, read)
                    return
                replay_record(self.consumer_groups, *read)
                if value is None and isinstance(read[0], ConsumerGroupMetadataKey):
                    self._deleted[read[0].group_id] = base_offset
                    self.emptied.discard(read[0].group_id)
                return
            if key is None or (record_type not in OFFSET_KEYS and record_type != GROUP_KEY):
                return  # A record of another group protocol: of streams groups (KIP-1071).
            if record_type == GROUP_KEY:
                self._group(read_group_key(key), value, base_offset)
                return
            group_id, topic, partition = read_offset_key(key)
            if value is not None and group_id not in self.offsets:
                read_offset_value(value, offset)  # A corrupt value must not create a group.
            offsets = self.offsets.get(group_id)
            if offsets is None:
                offsets = self.offsets[group_id] = GroupOffsets()
            slot = self._slots[key] = Slot(group_id, offsets, topic, partition)
        if value is None and slot.offsets:
            self.emptied.add(slot.group_id)
        committed = None if value is None else read_offset_value(value, offset)
        slot.offsets.apply(slot.topic, slot.partition, committed, offset, producer_id)
        if value is not None and producer_id != NO_PRODUCER:
            self.transactions.setdefault(producer_id, set()).add(slot.group_id)

    def _group(self, group_id: str, value: bytes | None, base_offset: int) -> None:
        # A downgrade deletes the group of the consumer protocol and makes the classic one with the same batch.
        if self._deleted.pop(group_id, -1) == base_offset and value is not None:
            self.downgraded.add(group_id)
        else:
            self.downgraded.discard(group_id)
        if value is None:
            self.groups.pop(group_id, None)
            self.emptied.discard(group_id)
        else:
            self.groups[group_id] = read_group_value(value)

    def _share_group(self, group_id: str, record: CoordinatorRecord) -> None:
        group = self.share_groups.get(group_id)
        if group is None:
            group = self.share_groups[group_id] = self._new_share_group(group_id)
        group.apply(record)

    def _marker(self, header: BatchHeader, record: Record) -> None:
        marker = control_record_type(record)
        if marker in (ControlType.COMMIT, ControlType.ABORT):
            for group_id in self.transactions.pop(header.producer_id, ()):
                offsets = self.offsets[group_id]
                if offsets:
                    self.emptied.add(group_id)
                offsets.end_transaction(header.producer_id, marker is ControlType.COMMIT)
