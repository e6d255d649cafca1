"""Events of the records of share groups: locks that expire, releases, dead letters. Pure.

A member may release thousands of records in a second, one by one. So the same thing that happens again (to records of
one partition that one member had) is one event with the number of records: events are made of what came together
(:meth:`Incidents.take`), at once after a quiet time, and then every :data:`TOGETHER` seconds. In between, no more than
:data:`MOST` different ones are kept, and :data:`MOST_OF_GROUP` of one group; of the others only the number is known.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from barnabas_broker.groups.share.partition import Part, Reason, Returned, Undeliverable
from barnabas_explain.catalog import (
    UNKNOWN_GENERATION,
    GroupEvent,
    ShareDeadLetters,
    ShareLocksExpired,
    ShareRecords,
    ShareRecordsArchived,
    ShareRecordsRejected,
    ShareRecordsReleased,
    ShareWindowBlocked,
    ShareWindowMoved,
)
from barnabas_explain.members import Member

#: Seconds for which what happens again and again becomes one event.
TOGETHER: Final = 10.0
#: The most different incidents in that time, and those of one group.
MOST: Final = 1_000
MOST_OF_GROUP: Final = 50


@dataclass(frozen=True, slots=True)
class Place:
    """A share partition: the group, and the partition of the topic."""

    group: str
    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.group}:{self.topic}-{self.partition}"


class Letters(NamedTuple):
    """Result of writing dead letters.

    Attributes:
        topic: for dead letters.
        written: the records that became dead letters.
        failed: those that did not.
        error: why not; None if all did.
    """

    topic: str
    written: int
    failed: int
    error: str | None


class _Kind(NamedTuple):
    """Incidents that are alike.

    Attributes:
        event: the type of the event.
        place: the share partition.
        member: the member that had the records; "" if that is not known.
        detail: fields of the event that do not add up.
    """

    event: type[ShareRecords]
    place: Place
    member: str
    detail: tuple[tuple[str, Any], ...] = ()


@dataclass(slots=True)
class _Sum:
    """Records of incidents: the number, the first and the last one, and the highest number of deliveries.

    Attributes:
        owner: the member that had them.
        more: fields of the event that only some types have.
    """

    records: int
    first: int
    last: int
    deliveries: int
    owner: Member | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def add(self, records: int, first: int, last: int, deliveries: int) -> None:
        """Add more of them."""
        self.records += records
        self.first, self.last = min(self.first, first), max(self.last, last)
        self.deliveries = max(self.deliveries, deliveries)


def _by_member(returned: Iterable[Returned]) -> dict[str, _Sum]:
    """The records of each member."""
    found: dict[str, _Sum] = {}
    for member, first, last, deliveries in returned:
        known = found.get(member)
        if known is None:
            found[member] = _Sum(last - first + 1, first, last, deliveries)
        else:
            known.add(last - first + 1, first, last, deliveries)
    return found


class Incidents:
    """Collects what happens to records.

    Args:
        identity: the member of a group with an id.
        never_acknowledged: whether a member of a group has not acknowledged a single record; False if that is not
            known.

    Attributes:
        dropped: incidents that became no events, because there were too many.
    """

    def __init__(self, identity: Callable[[str, str], Member], never_acknowledged: Callable[[str, str], bool]) -> None:
        self.dropped = 0
        self._identity = identity
        self._never_acknowledged = never_acknowledged
        self._sums: dict[_Kind, _Sum] = {}
        self._of_group: Counter[str] = Counter()
        #: When the next events may be made.
        self._next = 0.0

    def __len__(self) -> int:
        return len(self._sums)

    def expired(self, place: Place, expired: Iterable[Returned], lock_seconds: float) -> None:
        """The locks of records have expired, which last for so many seconds."""
        for member, each in _by_member(expired).items():
            never = self._never_acknowledged(place.group, member) or None
            detail = (("lock_ms", lock_seconds * 1000), ("never_acknowledged", never))
            self._add(_Kind(ShareLocksExpired, place, member, detail), each)

    def released(self, place: Place, released: Iterable[Returned]) -> None:
        """Members want records to be delivered again."""
        for member, each in _by_member(released).items():
            self._add(_Kind(ShareRecordsReleased, place, member), each)

    def undeliverable(self, place: Place, undeliverable: Iterable[Undeliverable], limit: int) -> None:
        """The delivery of records has ended without success; after `limit` deliveries it does."""
        ended: dict[Reason, list[Returned]] = {}
        for first, last, deliveries, reason, member in undeliverable:
            ended.setdefault(reason, []).append(Returned(member, first, last, deliveries))
        for member, each in _by_member(ended.get(Reason.REJECTED, ())).items():
            self._add(_Kind(ShareRecordsRejected, place, member), each)
        for member, each in _by_member(ended.get(Reason.DELIVERY_LIMIT, ())).items():
            self._add(_Kind(ShareRecordsArchived, place, member, (("limit", limit),)), each)

    def dead_letters(self, place: Place, undeliverable: Iterable[Undeliverable], letters: Letters) -> None:
        """Records have become dead letters, or should have."""
        detail = (("letters", letters.topic), ("error", letters.error))
        (each,) = _by_member(Returned("", *one[:3]) for one in undeliverable).values()
        each.records = letters.written
        found = self._add(_Kind(ShareDeadLetters, place, "", detail), each)
        if found is not None:
            found.more["failed"] = found.more.get("failed", 0) + letters.failed

    def blocked(self, place: Place, by: Part, window: int, seconds: float) -> None:
        """A window with so many records is full, and has started with this record for so many seconds."""
        newest = _Sum(window, by.first, by.first, by.delivery_count)
        found = self._add(_Kind(ShareWindowBlocked, place, by.member), newest)
        if found is not None:
            found.records, found.first, found.last, found.deliveries = window, by.first, by.first, by.delivery_count
            found.more["waited_ms"] = seconds * 1000

    def moved(self, place: Place, by: Part, seconds: float) -> None:
        """A window moves again, after these records have held it back for so many seconds."""
        found = self._add(_Kind(ShareWindowMoved, place, ""), _Sum(1, by.first, by.first, by.delivery_count))
        if found is not None:
            found.more["waited_ms"] = max(found.more.get("waited_ms", 0.0), seconds * 1000)

    def _add(self, kind: _Kind, more: _Sum) -> _Sum | None:
        """Add records to those of the same kind. None if there are too many kinds."""
        found = self._sums.get(kind)
        if found is not None:
            found.add(more.records, more.first, more.last, more.deliveries)
            return found
        group = kind.place.group
        if len(self._sums) >= MOST or self._of_group[group] >= MOST_OF_GROUP:
            self.dropped += 1
            return None
        self._of_group[group] += 1
        more.owner = self._identity(group, kind.member) if kind.member else None
        self._sums[kind] = more
        return more

    def take(self, now: float) -> list[tuple[str, GroupEvent]]:
        """The events of what has happened, each with its group; none if the last ones are too new."""
        if not self._sums or now < self._next:
            return []
        self._next = now + TOGETHER
        events: list[tuple[str, GroupEvent]] = []
        for kind, found in self._sums.items():
            event = kind.event(
                generation=UNKNOWN_GENERATION,
                topic=kind.place.topic,
                partition=kind.place.partition,
                owner=found.owner,
                records=found.records,
                first_offset=found.first,
                last_offset=found.last,
                deliveries=found.deliveries,
                **dict(kind.detail),
                **found.more,
            )
            events.append((kind.place.group, event))
        self._sums.clear()
        self._of_group.clear()
        return events
