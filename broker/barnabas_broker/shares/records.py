"""Records of ``__share_group_state``: keys and values to and from bytes, as Kafka's own tools read them. Pure.

Source: Kafka's ``ShareCoordinatorRecordHelpers`` and ``ShareCoordinatorRecordSerde``.
"""

from collections.abc import Callable
from struct import Struct
from struct import error as struct_error
from typing import Final, NamedTuple
from uuid import UUID

from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.shares.ports import StateBatch
from barnabas_broker.shares.state import SharePartitionState, Snapshot, StateRecord, Update, combined
from barnabas_protocol import coordinator_records as schemas
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.coordinator_records import (
    CorruptRecord,
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import BatchHeader, Record
from barnabas_protocol.uuids import uuid_text

#: The record types: the versions of the keys' schemas.
SNAPSHOT: Final = 0
UPDATE: Final = 1
_VERSION: Final = 0
_KEYS: Final[dict[int, type[ShareSnapshotKey] | type[ShareUpdateKey]]] = {
    SNAPSHOT: ShareSnapshotKey,
    UPDATE: ShareUpdateKey,
}
_INT16: Final = Struct(">h")
_MOST_DELIVERIES: Final = 2**15 - 1


class ShareKey(NamedTuple):
    """A share partition.

    Attributes:
        group: the share group.
        topic_id: of the partition.
        partition: its index.
    """

    group: str
    topic_id: UUID
    partition: int

    @property
    def name(self) -> str:
        """The key in FindCoordinator, which decides on the partition of the topic: "group:topicId:partition"."""
        return f"{self.group}:{uuid_text(self.topic_id.bytes)}:{self.partition}"


def record_of(key: ShareKey, record: StateRecord) -> tuple[bytes, bytes | None]:
    """Key and value of a record. A state is deleted by a tombstone under the key of its snapshots.

    Raises:
        EncodeError: the group's id is longer than a record allows.
    """
    group, topic_id, partition = key.group, key.topic_id.bytes, key.partition
    if isinstance(record, Update):
        update = ShareUpdateKey(group_id=group, topic_id=topic_id, partition=partition)
        value = ShareUpdateValue(
            snapshot_epoch=record.snapshot_epoch,
            leader_epoch=record.leader_epoch,
            start_offset=record.start_offset,
            delivery_complete_count=record.delivery_complete_count,
            state_batches=_written(record.batches),
        )
        return _INT16.pack(UPDATE) + encode(update, UPDATE), _INT16.pack(_VERSION) + encode(value, _VERSION)
    snapshot = ShareSnapshotKey(group_id=group, topic_id=topic_id, partition=partition)
    where = _INT16.pack(SNAPSHOT) + encode(snapshot, SNAPSHOT)
    if record is None:
        return where, None
    whole = ShareSnapshotValue(
        snapshot_epoch=record.snapshot_epoch,
        state_epoch=record.state_epoch,
        leader_epoch=record.leader_epoch,
        start_offset=record.start_offset,
        delivery_complete_count=record.delivery_complete_count,
        create_timestamp=record.created_ms,
        write_timestamp=record.written_ms,
        state_batches=_written(record.batches),
    )
    return where, _INT16.pack(_VERSION) + encode(whole, _VERSION)


def read_record(key: bytes | None, value: bytes | None) -> tuple[ShareKey, StateRecord] | None:
    """Read a record; None if its type is not known here.

    Raises:
        CorruptRecord: it cannot be read.
    """
    if key is None or len(key) < 2:
        raise CorruptRecord(f"key {key!r}")
    kind = int(_INT16.unpack_from(key)[0])
    if kind not in (SNAPSHOT, UPDATE):
        return None
    try:
        read: ShareSnapshotKey | ShareUpdateKey = decode(_KEYS[kind], kind, key[2:])
        where = ShareKey(read.group_id, UUID(bytes=bytes(read.topic_id)), read.partition)
        if value is None:
            return where, None
        version = int(_INT16.unpack_from(value)[0])
        if kind == UPDATE:
            update = decode(ShareUpdateValue, version, value[2:])
            return where, Update(
                update.snapshot_epoch,
                update.leader_epoch,
                update.start_offset,
                update.delivery_complete_count,
                _read(update.state_batches),
            )
        whole = decode(ShareSnapshotValue, version, value[2:])
    except (struct_error, DecodeError) as error:
        raise CorruptRecord(f"share partition: {error}") from error
    return where, Snapshot(
        whole.snapshot_epoch,
        whole.state_epoch,
        whole.leader_epoch,
        whole.start_offset,
        whole.delivery_complete_count,
        combined((), _read(whole.state_batches), whole.start_offset),
        whole.create_timestamp,
        whole.write_timestamp,
    )


def _written(batches: tuple[StateBatch, ...]) -> list[schemas.StateBatch]:
    return [
        schemas.StateBatch(
            first_offset=each.first_offset,
            last_offset=each.last_offset,
            delivery_state=each.state,
            delivery_count=min(each.delivery_count, _MOST_DELIVERIES),
        )
        for each in batches
    ]


def _read(batches: list[schemas.StateBatch]) -> tuple[StateBatch, ...]:
    if any(each.first_offset > each.last_offset for each in batches):
        raise CorruptRecord("share partition: a batch ends before it begins")
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


class ShareReplay(PartitionReplay):
    """The share partitions of the records replayed so far.

    Attributes:
        found: the machine of each share partition, and the offset of its last snapshot.
    """

    def __init__(self, report: Report, start: int, new: Callable[[], SharePartitionState]) -> None:
        super().__init__(report, start)
        self._new = new
        self.found: dict[ShareKey, tuple[SharePartitionState, int]] = {}

    def apply(self, header: BatchHeader, record: Record) -> None:
        """Replay a record."""
        if header.is_control:
            return
        read = read_record(record.key, record.value)
        if read is None:
            return
        key, state = read
        machine, offset = self.found.get(key) or (self._new(), record.offset)
        machine.apply(state)
        if machine.gone:
            self.found.pop(key, None)
        else:
            self.found[key] = machine, record.offset if isinstance(state, Snapshot) else offset
