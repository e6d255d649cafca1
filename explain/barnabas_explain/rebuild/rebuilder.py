"""Reads the records of a group's partition and dispatches those of the group. Pure."""

import struct
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from barnabas_explain.catalog import UNKNOWN_GENERATION, GroupEvent
from barnabas_explain.members import Partition
from barnabas_explain.rebuild.classic import Generation, GenerationHistory
from barnabas_explain.rebuild.consumer import EpochHistory
from barnabas_explain.rebuild.history import (
    MOST_GAPS,
    MOST_PARTITIONS,
    History,
    RebuiltMember,
    RebuiltPartition,
)
from barnabas_explain.records import LATEST_MS
from barnabas_protocol.coordinator_records import CorruptRecord
from barnabas_protocol.group_records import (
    CONSUMER_KEYS,
    GROUP_KEY,
    OFFSET_KEYS,
    Committed,
    offset_key_head,
    read_consumer_record,
    read_group_value,
    read_offset_key,
    read_offset_value,
)

_INT16: Final = struct.Struct(">h")
#: The record type of subscribed topics, which only tombstones have since Kafka 4.1; epochs say the same.
_IGNORED_TYPES: Final = frozenset((4,))


class LogRecord(Protocol):
    """A record of ``__consumer_offsets``."""

    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...


class GroupRebuilder:
    """Rebuilds the events of one group.

    Args:
        group_id: the group.
        topic_name: the name of a topic by its id, None if it is not known. Groups of the consumer protocol record ids.
    """

    def __init__(self, group_id: str, topic_name: Callable[[bytes], str | None] = lambda topic_id: None) -> None:
        self._history = History(group_id)
        self._classic = GenerationHistory(self._history)
        self._consumers = EpochHistory(self._history, topic_name)
        self._offset_head = offset_key_head(group_id, "")[:-2]
        self._name = self._offset_head[2:]
        self._by_key: dict[bytes, RebuiltPartition | None] = {}
        self._next_offset: int | None = None
        self._unknown_types = set(_IGNORED_TYPES)
        self._seen_busy: int | None = None

    @property
    def members(self) -> list[RebuiltMember]:
        """The members after the newest record; those of a group of the consumer protocol may be known in part."""
        if self._consumers.members or self._consumers.epoch is not None:
            return [each.member for each in self._consumers.members.values()]
        generation = self._classic.generation
        return [] if generation is None else list(generation.members.values())

    @property
    def generation(self) -> int | None:
        """The generation, or the group epoch, after the newest record; None if none was read."""
        if self._consumers.epoch is not None:
            return self._consumers.epoch
        return None if self._classic.generation is None else self._classic.generation.number

    @property
    def state(self) -> str:
        """The state after the newest record: Stable, Reconciling or Empty. Nothing is recorded of a join phase."""
        if not self.members:
            return "Empty"
        return "Reconciling" if self._consumers.reconciling else "Stable"

    @property
    def protocol(self) -> str:
        """The name of the assignor; "" if it is not recorded, as in groups of the consumer protocol."""
        generation = self._classic.generation
        return "" if generation is None else generation.protocol

    @property
    def holes(self) -> int:
        """The number of offsets so far that have no record, or one that cannot be read."""
        return self._history.all_holes + self._history.holes

    @property
    def offsets(self) -> dict[Partition, Committed]:
        """The committed offsets after the newest record, as far as their records were read."""
        return {name: owned.committed for name, owned in self._history.by_name.items() if owned.committed is not None}

    def add(self, records: Iterable[LogRecord]) -> list[GroupEvent]:
        """Read further records of the group's partition, of all groups, in their order; the events that they tell."""
        history = self._history
        head, name, by_key = self._offset_head, self._name, self._by_key
        end = 2 + len(name)
        expected = self._next_offset
        for record in records:
            offset, key = record.offset, record.key
            if offset != expected and expected is not None:
                history.holes += max(offset - expected, 0)
            expected = offset + 1
            if key is None:
                self._unreadable(offset, "it has no key")
            elif key.startswith(head):
                owned = by_key.get(key)
                if owned is None:
                    owned = self._offset_partition(key, offset)
                    if owned is None:
                        continue
                timestamp = record.timestamp
                # As advance(), which costs a call: most records are commits.
                if history.now <= timestamp <= LATEST_MS:
                    history.now = timestamp
                else:
                    history.advance(timestamp, offset)
                value = record.value
                if value is None:
                    history.removed += owned.committed is not None
                    owned.committed = None
                    continue
                try:
                    history.commit(owned, read_offset_value(value, offset))
                except CorruptRecord as error:
                    self._unreadable(offset, str(error))
            elif key[2:end] == name or len(key) < 4:
                self._group_record(record, key)
        self._next_offset = expected
        return self._taken()

    def finish(self) -> list[GroupEvent]:
        """The events of what is still open at the end of the records: commits since the last change of the group."""
        self._consumers.release()
        if self._consumers.epoch is not None:
            self._consumers.flush_triggers()
        self._history.flush_commits()
        self._history.rest_of_gaps()
        return self._taken()

    def unstable_from(self, offset: int, records: int) -> list[GroupEvent]:
        """Records from `offset` on follow the beginning of an open transaction: it is not known which of them count."""
        self._history.gap("open_transaction", offset=offset, records=records)
        return self._taken()

    def observe(self, time: int, state: str, members: Iterable[RebuiltMember]) -> list[GroupEvent]:
        """Compare the group with how it was at the last look, for a program that may not read the records.

        Args:
            time: of the look, in ms since 1970.
            state: of the group. Members are compared when it is Stable or Empty.
            members: of the group.
        """
        history, classic = self._history, self._classic
        history.advance(time, -1)
        if state not in ("Stable", "Empty"):
            self._seen_busy = self._seen_busy or time
            return self._taken()
        busy, self._seen_busy = self._seen_busy, None
        new = Generation(UNKNOWN_GENERATION, time, busy, {each.member_id: each for each in members}, True)
        before = classic.generation
        if before is None or busy or before.members != new.members:
            classic.next(new, 0)
        else:
            classic.generation = new  # nothing changed until this look
            for name in new.partitions:
                history.assigned(name, time, time)
        return self._taken()

    def _taken(self) -> list[GroupEvent]:
        events, self._history.events = self._history.events, []
        return events

    def _offset_partition(self, key: bytes, offset: int) -> RebuiltPartition | None:
        """The partition of an offset's key; None if the key cannot be read, or there are too many."""
        if len(self._by_key) >= MOST_PARTITIONS:
            self._history.gap("too_many", what="partitions", most=MOST_PARTITIONS)
            return None
        try:
            read = read_offset_key(key)
        except CorruptRecord as error:
            self._unreadable(offset, str(error))
            return None
        owned = self._history.partition((read.topic, read.partition))
        self._by_key[key] = owned
        return owned

    def _group_record(self, record: LogRecord, key: bytes) -> None:
        """A record of the group that is not an offset, or one whose key is too short to tell."""
        history, value, offset = self._history, record.value, record.offset
        if len(key) < 4:
            self._unreadable(offset, f"its key has {len(key)} bytes")
            return
        (record_type,) = _INT16.unpack_from(key)
        history.advance(record.timestamp, offset)
        try:
            if record_type == GROUP_KEY:
                read = None if value is None else read_group_value(value)
                converted = read is None and self._consumers.epoch is not None
                if not converted:
                    self._classic.record(read)
            elif record_type in CONSUMER_KEYS:
                self._consumers.record(*read_consumer_record(record_type, key, value))
            elif record_type in OFFSET_KEYS:
                self._legacy_offset(key, value, offset)
            elif record_type not in self._unknown_types and len(self._unknown_types) < MOST_GAPS:
                self._unknown_types.add(record_type)
                history.gap("unknown_type", offset=offset, record_type=record_type)
        except CorruptRecord as error:
            self._unreadable(offset, str(error))

    def _legacy_offset(self, key: bytes, value: bytes | None, offset: int) -> None:
        owned = self._by_key.get(key) or self._offset_partition(key, offset)
        if owned is not None and value is not None:
            self._history.commit(owned, read_offset_value(value, offset))
        elif owned is not None:
            self._history.removed += owned.committed is not None
            owned.committed = None

    def _unreadable(self, offset: int, reason: str) -> None:
        self._history.holes += 1
        self._history.gap("unreadable", offset=offset, reason=reason[:200])
