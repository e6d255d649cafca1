"""State of a group while its records are read: its events, its commits, and the owners of partitions. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from barnabas_explain.catalog import GroupEvent, HistoryGap, OffsetsCommitted, OffsetsExpired
from barnabas_explain.members import MOST_MEMBERS, Commit, Member, Partition, Pause
from barnabas_explain.records import LATEST_MS
from barnabas_protocol.group_records import Committed

#: Partitions that are remembered; others are left out, with a gap.
MOST_PARTITIONS: Final = 200_000
#: Gaps of a kind that are reported one by one.
MOST_GAPS: Final = 20
#: A clock that goes back by less is not reported: brokers append from several threads.
_CLOCK_STEP_MS: Final = 1_000

NOTHING: Final[frozenset[Partition]] = frozenset()

E = TypeVar("E", bound=GroupEvent)


@dataclass(frozen=True, slots=True)
class RebuiltMember:
    """A member of a group, as the records describe it.

    Attributes:
        member_id: given by the coordinator, or by the client (KIP-848).
        instance_id: of a static member.
        client_id: of its client.
        host: the address of its client, as Kafka prints it.
        session_ms: its session timeout, if the records have it.
        rebalance_ms: its rebalance timeout, if the records have it.
        topics: what it subscribes to; None if that cannot be read.
        partitions: its assignment.
        kept: partitions that it owned when it joined the rebalance that led to this assignment.
    """

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    host: str = ""
    session_ms: int | None = None
    rebalance_ms: int | None = None
    topics: frozenset[str] | None = None
    partitions: frozenset[Partition] = NOTHING
    kept: frozenset[Partition] = NOTHING

    def identity(self) -> Member:
        """The member's ids and address, for events."""
        return Member(self.member_id, self.client_id, self.host, self.instance_id)


@dataclass(slots=True)
class RebuiltPartition:
    """A partition: its committed offset, and its owner.

    Attributes:
        committed: its committed offset.
        committed_ms: when that was committed.
        owned_at: the last time at which it is known to have had an owner; None before the first one.
        lost_by: the first time at which it is known to have none; None while it has one.
    """

    committed: Committed | None = None
    committed_ms: int | None = None
    owned_at: int | None = None
    lost_by: int | None = None


class History:
    """Events, commits and owners of partitions of a group of either protocol."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.events: list[GroupEvent] = []
        #: The time of the newest record, in ms since 1970.
        self.now = 0
        #: Offsets without a record since the last record of the group, and records that cannot be read.
        self.holes = 0
        #: The same, before that record.
        self.all_holes = 0
        self.generation = 0
        self.by_name: dict[Partition, RebuiltPartition] = {}
        self._gaps: dict[str, int] = {}
        self.commits = 0
        self.removed = 0
        self._first_commit = self._last_commit = 0
        self._committed: set[int] = set()

    def take_holes(self) -> int:
        """The number of records that are missing since the last record of the group."""
        holes, self.holes = self.holes, 0
        self.all_holes += holes
        return holes

    def emit(
        self, event_type: type[GroupEvent], time: int | None = None, generation: int | None = None, **fields: Any
    ) -> None:
        """Add an event, of now and of the current generation if not told otherwise."""
        self.events.append(self.event(event_type, time, generation, **fields))

    def event(self, event_type: type[E], time: int | None = None, generation: int | None = None, **fields: Any) -> E:
        """An event, of now and of the current generation if not told otherwise."""
        return event_type(
            group=self.group_id,
            time=self.now if time is None else time,
            generation=self.generation if generation is None else generation,
            **fields,
        )

    def gap(self, gap: str, **data: Any) -> None:
        """Add a gap; beyond a number of gaps of a kind they are only counted, for :meth:`rest_of_gaps`."""
        self._gaps[gap] = self._gaps.get(gap, 0) + 1
        if self._gaps[gap] <= MOST_GAPS:
            self.emit(HistoryGap, gap=gap, **data)

    def rest_of_gaps(self) -> None:
        """Add a gap for each kind of which more were found than reported."""
        for gap, count in self._gaps.items():
            if count > MOST_GAPS:
                self.emit(HistoryGap, gap=gap, more=count - MOST_GAPS)
                self._gaps[gap] = MOST_GAPS

    def advance(self, timestamp: int, offset: int) -> int:
        """Move the time to that of a record; returns it, or the time before if the record's cannot be right."""
        if not 0 <= timestamp <= LATEST_MS:
            self.gap("clock", offset=offset, timestamp=timestamp)
            return self.now
        if timestamp + _CLOCK_STEP_MS < self.now:
            self.gap("clock", offset=offset, back_ms=self.now - timestamp)
            # Durations across the step would be wrong.
            for owned in self.by_name.values():
                owned.owned_at = owned.committed_ms = None
        self.now = timestamp
        return timestamp

    def partition(self, name: Partition) -> RebuiltPartition | None:
        """The state of a partition; None if there are too many."""
        owned = self.by_name.get(name)
        if owned is None:
            if len(self.by_name) >= MOST_PARTITIONS:
                self.gap("too_many", what="partitions", most=MOST_PARTITIONS)
                return None
            owned = self.by_name[name] = RebuiltPartition()
        return owned

    def commit(self, owned: RebuiltPartition, committed: Committed) -> None:
        """Count a committed offset."""
        if not self.commits:
            self._first_commit = self.now
        self.commits += 1
        owned.committed = committed
        owned.committed_ms = self._last_commit = self.now
        self._committed.add(id(owned))

    def flush_commits(self) -> None:
        """Add an event for the commits since the last change of the group, and one for removed offsets."""
        if self.commits:
            times, count = (self._first_commit, self._last_commit), len(self._committed)
            self.emit(OffsetsCommitted, self._last_commit, commits=self.commits, partitions=count, between=times)
        if self.removed:
            self.emit(OffsetsExpired, offsets=self.removed, inferred=True)
        self.commits = self.removed = 0
        self._committed.clear()

    def assigned(self, name: Partition, at: int, free_by: int) -> Pause | None:
        """A member gets a partition that had no owner from `free_by` on; for how long it had none, if that is known."""
        owned = self.partition(name)
        if owned is None:
            return None
        pause = None
        if owned.owned_at is not None:
            stopped = free_by if owned.lost_by is None else min(owned.lost_by, free_by)
            since = owned.owned_at
            if owned.committed_ms is not None and since < owned.committed_ms <= stopped:
                since = owned.committed_ms
            if since <= stopped <= at:
                pause = Pause(*name, at_least_ms=at - stopped, at_most_ms=at - since)
        owned.owned_at, owned.lost_by = at, None
        return pause

    def lost(self, name: Partition, owned_at: int, lost_by: int) -> None:
        """A member that owned a partition at `owned_at` does not own it at `lost_by`."""
        owned = self.partition(name)
        if owned is not None:
            owned.owned_at, owned.lost_by = owned_at, lost_by

    def last_commit(self, partitions: Collection[Partition], after: int) -> Commit | None:
        """The newest commit of some partitions, if there is one after a time."""
        newest: tuple[int, Partition] | None = None
        for name in partitions:
            owned = self.by_name.get(name)
            at = None if owned is None else owned.committed_ms
            if at is not None and at > after and (newest is None or at > newest[0]):
                newest = at, name
        return None if newest is None else Commit(*newest[1], time=newest[0])


def listed(pauses: list[Pause]) -> dict[str, Any]:
    """Pauses for an event: the longest ones, and how many are left out."""
    pauses.sort(key=lambda each: (-each.at_most_ms, each.topic, each.partition))
    more = len(pauses) - MOST_MEMBERS
    return {"pauses": tuple(pauses[:MOST_MEMBERS]), **({"more_pauses": more} if more > 0 else {})}
