"""The states of records in ``__share_group_state``, where share coordinators keep them (KIP-932). Pure.

Apache Kafka and Barnabas write the same records: snapshots of a share partition, and updates since then. A state is
written when a delivery has ended, so a record that a member has now shows the deliveries before.

Source: ``ShareCoordinatorShard.java``, ``PersisterStateBatchCombiner.java``.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas_client.membership.heartbeats import TopicIdPartition
from barnabas_protocol.codec import decode
from barnabas_protocol.coordinator_records import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.uuids import uuid_text

#: Deliveries from which on a record counts as one that comes back again and again.
AGAIN: Final = 2
#: Offsets of one batch that are looked at: the window of a share partition is far smaller.
_MOST_OFFSETS: Final = 100_000
#: The schemas of keys, by the type of the record.
_KEYS: Final[dict[int, type[ShareSnapshotKey] | type[ShareUpdateKey]]] = {0: ShareSnapshotKey, 1: ShareUpdateKey}


class DeliveryState(IntEnum):
    """The states that are written."""

    #: It is delivered again, or with a member now.
    AVAILABLE = 0
    ACKNOWLEDGED = 2
    #: It was rejected, or has reached the limit of deliveries.
    ARCHIVED = 4


class Delivered(NamedTuple):
    """How often a record was delivered, and its state after that."""

    deliveries: int
    state: int


@dataclass(slots=True)
class _Window:
    """Records of a share partition that were delivered again and again, by offset."""

    start: int = 0
    records: dict[int, Delivered] = field(default_factory=dict)

    def add(self, start: int, batches: Iterable[StateBatch]) -> None:
        """Merge states: the higher delivery count applies, then the higher state."""
        if start >= 0:
            self.start = start
            self.records = {offset: one for offset, one in self.records.items() if offset >= start}
        for batch in batches:
            if batch.delivery_count < AGAIN:
                continue
            first, new = max(batch.first_offset, self.start), Delivered(batch.delivery_count, batch.delivery_state)
            for offset in range(first, min(batch.last_offset, first + _MOST_OFFSETS) + 1):
                self.records[offset] = max(self.records.get(offset, new), new)


def state_key(group: str, where: TopicIdPartition) -> str:
    """The name of a share partition, which decides on its partition of the topic: "group:topicId:partition"."""
    return f"{group}:{uuid_text(where.topic_id)}:{where.partition}"


class ShareStates:
    """The records of one group that come back again and again.

    Args:
        group: the share group.
    """

    def __init__(self, group: str) -> None:
        self._group = group
        self._windows: dict[TopicIdPartition, _Window] = {}

    def add(self, key: bytes | None, value: bytes | None) -> None:
        """Replay a record. One that cannot be read, or that is of another group, is left out."""
        kind = int.from_bytes((key or b"")[:2])
        if key is None or len(key) < 2 or kind not in _KEYS:
            return
        try:
            read: ShareSnapshotKey | ShareUpdateKey = decode(_KEYS[kind], kind, key[2:])
            where = TopicIdPartition(bytes(read.topic_id), read.partition)
            if read.group_id != self._group:
                return
            if value is None:
                self._windows.pop(where, None)
            elif isinstance(read, ShareUpdateKey):
                update = decode(ShareUpdateValue, int.from_bytes(value[:2]), value[2:])
                if where in self._windows:  # otherwise it belongs to a state that was deleted
                    self._windows[where].add(update.start_offset, update.state_batches)
            else:
                whole = decode(ShareSnapshotValue, int.from_bytes(value[:2]), value[2:])
                window = self._windows[where] = _Window()
                window.add(whole.start_offset, whole.state_batches)
        except (struct_error, DecodeError):
            return

    def stuck(self) -> Iterator[tuple[TopicIdPartition, int, Delivered]]:
        """The records that were delivered again and again, and not acknowledged."""
        for where, window in self._windows.items():
            for offset, one in sorted(window.records.items()):
                if one.state in (DeliveryState.AVAILABLE, DeliveryState.ARCHIVED):
                    yield where, offset, one
