"""Replays a partition of ``__consumer_offsets`` into groups and offsets. Pure: batches in, groups and offsets out.

A record that cannot be read is reported with its offset and skipped; earlier records stay in effect.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.records import (
    GROUP_KEY,
    OFFSET_KEYS,
    CorruptRecord,
    key_type,
    read_group_key,
    read_group_value,
    read_offset_key,
    read_offset_value,
)
from barnabas_protocol.coordinator_records import GroupMetadataValue
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import (
    BatchHeader,
    ControlType,
    Record,
    check_crc,
    control_record_type,
    decode_records,
    read_header,
)
from barnabas_protocol.wire import Buffer

#: Records that are replayed before other tasks may run.
STEP: Final = 2_000

Report = Callable[[int, str], None]


@dataclass(slots=True)
class Slot:
    """The offset that a record sets. Cached by key: keys repeat, and each one is parsed once."""

    offsets: GroupOffsets
    topic: str
    partition: int


class Replay:
    """The groups and offsets of the records replayed so far.

    Attributes:
        groups: the last record of each group.
        offsets: committed offsets by group.
        records: number of records replayed.
        next_offset: where to continue to read.

    Args:
        report: called with the offset of each record that cannot be read, and the reason.
        start: the log start offset.
    """

    def __init__(self, report: Report, start: int) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[str, GroupOffsets] = {}
        self.records = 0
        self.next_offset = start
        self._report = report
        self._slots: dict[bytes, Slot] = {}

    def feed(self, data: Buffer) -> Iterator[None]:
        """Replay the batches in `data`; yields now and then, so that other tasks can run."""
        view = memoryview(data)
        at = 0
        while at < len(view):
            try:
                header = read_header(view, at)
                batch = view[at : at + header.size]
                check_crc(batch)
                if header.size > len(view) - at:
                    raise DecodeError(f"batch of {header.size} bytes, {len(view) - at} left")
                if header.next_offset > self.next_offset:
                    yield from self._batch(header, batch)
            except DecodeError as error:
                self._report(self.next_offset, str(error))
                found = self._resume(view, at + 1)
                if found is None:
                    self.next_offset = self._beyond(view, at)
                    return
                at = found
                continue
            at += header.size
            self.next_offset = max(self.next_offset, header.next_offset)

    def _resume(self, view: memoryview, at: int) -> int | None:
        """Where the next complete batch starts that has not been replayed; None if there is none."""
        while at < len(view):
            try:
                header = read_header(view, at)
                if self.next_offset <= header.base_offset and header.size <= len(view) - at:
                    check_crc(view[at : at + header.size])
                    return at
            except DecodeError:
                pass
            at += 1
        return None

    def _beyond(self, view: memoryview, at: int) -> int:
        """Where to continue after a corrupt batch without a complete one after it: behind it, if that is plausible."""
        try:
            header = read_header(view, at)
        except DecodeError:
            return self.next_offset + 1
        plausible = header.base_offset >= self.next_offset and 0 <= header.last_offset_delta < header.size
        return header.next_offset if plausible else self.next_offset + 1

    def _batch(self, header: BatchHeader, batch: memoryview) -> Iterator[None]:
        records = decode_records(batch)
        if header.is_control:
            for record in records:
                self._marker(header, record)
            return
        producer_id = header.producer_id if header.is_transactional else -1
        done = self.records
        for record in records:
            try:
                self._record(record, producer_id)
            except CorruptRecord as error:
                self._report(record.offset, str(error))
            done += 1
            if done % STEP == 0:
                yield
        self.records = done

    def _record(self, record: Record, producer_id: int) -> None:
        offset, _, key, value, _ = record
        slot = self._slots.get(key) if key is not None else None
        if slot is None:
            record_type = key_type(key)
            if key is None or (record_type not in OFFSET_KEYS and record_type != GROUP_KEY):
                return  # A record of another group protocol (KIP-848, KIP-932).
            if record_type == GROUP_KEY:
                self._group(read_group_key(key), value)
                return
            group_id, topic, partition = read_offset_key(key)
            if value is not None and group_id not in self.offsets:
                read_offset_value(value, offset)  # A corrupt value must not create a group.
            offsets = self.offsets.get(group_id)
            if offsets is None:
                offsets = self.offsets[group_id] = GroupOffsets()
            slot = self._slots[key] = Slot(offsets, topic, partition)
        if value is None:
            slot.offsets.remove(slot.topic, slot.partition, offset)
        elif producer_id < 0:
            slot.offsets.commit(slot.topic, slot.partition, read_offset_value(value, offset))
        else:
            slot.offsets.commit_pending(producer_id, slot.topic, slot.partition, read_offset_value(value, offset))

    def _group(self, group_id: str, value: bytes | None) -> None:
        if value is None:
            self.groups.pop(group_id, None)
        else:
            self.groups[group_id] = read_group_value(value)

    def _marker(self, header: BatchHeader, record: Record) -> None:
        marker = control_record_type(record)
        if marker in (ControlType.COMMIT, ControlType.ABORT):
            for offsets in self.offsets.values():
                offsets.end_transaction(header.producer_id, marker is ControlType.COMMIT)
