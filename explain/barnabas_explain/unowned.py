"""For how long partitions had no owner, from the events of a group. Pure.

Rebuilt events (:mod:`~barnabas_explain.rebuild`) have their pauses; the events that a broker records do
not, so they are concluded here. Coordinator and member do not agree on a moment: a member revokes at some time between
the start of the rebalance and its JoinGroup. A pause is therefore two bounds, as in rebuilt events.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from barnabas_explain.catalog import EventType
from barnabas_explain.records import EventRecord, Partition

#: Assignors whose members revoke everything when they rejoin; members of others keep what does not move.
_EAGER: Final = frozenset(("range", "roundrobin", "sticky"))
#: Events after which a member owns nothing.
_LEFT: Final = frozenset(
    each.value
    for each in (
        EventType.MEMBER_LEFT,
        EventType.MEMBER_EXPIRED,
        EventType.MEMBER_NOT_REJOINED,
        EventType.MEMBER_NOT_SYNCED,
        EventType.MEMBER_NOT_REVOKED,
    )
)

#: Partitions that are looked at to conclude pauses: a bound for forged events.
_MOST_WORK: Final = 20_000_000


class Since(NamedTuple):
    """Since when a partition has no owner, in ms since 1970: at the earliest, and at the latest."""

    earliest: int
    latest: int


def pauses_of(events: Iterable[EventRecord]) -> list[dict[str, Any]]:
    """The pauses of a group's partitions, oldest first.

    Args:
        events: of one group, oldest first.

    Returns:
        For each pause its `topic` and `partition`, `start` (at the earliest) and `end` in ms since 1970, `at_least_ms`
        and `at_most_ms`. The `end` of a pause that lasts is None, and so are its durations.
    """
    return Pauses().all_of(events)


class Pauses:
    """Concludes the pauses of a group from its events, one after the other.

    Attributes:
        lasting: the partitions that have no owner now, and since when.
        spent: so many partitions were looked at.
    """

    def __init__(self) -> None:
        self.lasting: dict[Partition, Since] = {}
        self.spent = 0
        self._owned: dict[str, set[Partition]] = {}
        self._started = self._revoking = 0

    def all_of(self, events: Iterable[EventRecord]) -> list[dict[str, Any]]:
        """The pauses of events, see :func:`pauses_of`."""
        found: list[dict[str, Any]] = []
        for event in events:
            found += self.add(event)
            if self.exhausted:
                return found
        for (topic, partition), lasting in sorted(self.lasting.items()):
            found.append(
                {
                    "topic": topic,
                    "partition": partition,
                    "at_least_ms": None,
                    "at_most_ms": None,
                    "start": lasting.earliest,
                    "end": None,
                }
            )
        return found

    @property
    def exhausted(self) -> bool:
        """Whether so much was looked at that forged events are likely: then it is better not to go on."""
        return self.spent > _MOST_WORK

    @property
    def partitions(self) -> int:
        """The number of partitions that are known: those with an owner, and those without one."""
        return len(set(self.lasting).union(*self._owned.values()))

    def add(self, event: EventRecord) -> list[dict[str, Any]]:
        """Take note of an event; returns the pauses that end with it."""
        kind, time = event["type"], event["time"]
        owned, without = self._owned, self.lasting
        if "pauses" in event:
            return [{**each, "start": time - each["at_most_ms"], "end": time} for each in event["pauses"]]
        if kind in (EventType.REBALANCE_STARTED.value, EventType.EPOCH_BUMPED.value):
            self._started = time
        elif kind == EventType.MEMBER_REPLACED.value:
            owned[str(event.get("member_id"))] = owned.pop(str(event.get("old_member_id")), set())
        elif kind in _LEFT:
            heard = time - event.get("heard_ago_ms", 0)
            for each in owned.pop(str(event.get("member_id")), ()):
                without.setdefault(each, Since(heard, time))
        elif kind == EventType.MEMBER_REVOKING.value:
            self._revoking = time
        elif kind == EventType.MEMBER_REVOKED.value:
            since = Since(time - event.get("waited_ms", time - self._revoking), time)
            without.update(dict.fromkeys(_named(event.get("partitions")), since))
        elif kind == EventType.TARGET_ASSIGNED.value:
            self._move(event)
        elif kind == EventType.GROUP_RECONCILED.value:
            return list(_ended(without, self._all(), time, time))
        elif kind == EventType.REBALANCE_OVER.value and "moves" in event:
            joined = time - event.get("sync_took_ms", 0)
            before = self._all()
            if event.get("protocol") in _EAGER:
                for each in before:
                    without.setdefault(each, Since(min(self._started, joined) or joined, joined))
            self._move(event)
            after = self._all()
            ended = list(_ended(without, after, time, joined))
            for each in before - after:
                without.setdefault(each, Since(time, time))
            return ended
        elif kind in (EventType.GROUP_EMPTY.value, EventType.GROUP_DELETED.value):
            # No member is left that could wait for these partitions.
            without.clear()
            owned.clear()
        return []

    def _all(self) -> set[Partition]:
        """The partitions with an owner."""
        found: set[Partition] = set().union(*self._owned.values())
        self.spent += len(found)
        return found

    def _move(self, event: EventRecord) -> None:
        for move in event.get("moves") or ():
            member_id = str(move["member_id"])
            partitions = self._owned.setdefault(member_id, set())
            partitions |= _named(move["gained"])
            partitions -= _named(move["lost"])
            if not partitions:
                del self._owned[member_id]


def _ended(
    without: dict[Partition, Since], assigned: set[Partition], time: int, joined: int
) -> Iterable[dict[str, Any]]:
    """The pauses that end because a member is assigned the partition."""
    for name in sorted(assigned & without.keys()):
        since = without.pop(name)
        # In the consumer protocol it is not recorded when the next owner begins: it may have been at once.
        least = 0 if joined == time and since.latest < time else time - since.latest
        yield {
            "topic": name[0],
            "partition": name[1],
            "at_least_ms": max(least, 0),
            "at_most_ms": max(time - since.earliest, 0),
            "start": min(since.earliest, time),
            "end": time,
        }


def _named(by_topic: Mapping[str, Iterable[int]] | None) -> set[Partition]:
    return {(topic, each) for topic, numbers in (by_topic or {}).items() for each in numbers}
