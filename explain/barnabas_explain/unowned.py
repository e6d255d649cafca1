"""For how long partitions had no owner, from the events of a group. Pure.

Rebuilt events (:mod:`~barnabas_explain.rebuild`) have their pauses; the events that a broker records do
not, so they are concluded here. Coordinator and member do not agree on a moment: a member revokes at some time between
the start of the rebalance and its JoinGroup. A pause is therefore two bounds, as in rebuilt events.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from barnabas_explain.catalog import (
    Departure,
    GroupDeleted,
    GroupEmpty,
    GroupEvent,
    GroupReconciled,
    MemberGone,
    MemberRefused,
    MemberReplaced,
    MemberRevoked,
    RebalanceOver,
    Started,
    TargetAssigned,
)
from barnabas_explain.members import Move, Partition, partitions_of

#: Assignors whose members revoke everything when they rejoin; members of others keep what does not move.
_EAGER: Final = frozenset(("range", "roundrobin", "sticky"))
#: Partitions that are looked at to conclude pauses: a bound for forged events.
_MOST_WORK: Final = 20_000_000


class Since(NamedTuple):
    """Since when a partition has no owner, in ms since 1970: at the earliest, and at the latest."""

    earliest: int
    latest: int


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
        self._started = 0

    def all_of(self, events: Iterable[GroupEvent]) -> list[dict[str, Any]]:
        """The pauses of a group's partitions, oldest first.

        Args:
            events: of one group, oldest first.

        Returns:
            For each pause its `topic` and `partition`, `start` (at the earliest) and `end` in ms since 1970,
            `at_least_ms` and `at_most_ms`. The `end` of a pause that lasts is None, and so are its durations.
        """
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

    def add(self, event: GroupEvent) -> list[dict[str, Any]]:
        """Take note of an event; returns the pauses that end with it."""
        time = event.time
        owned, without = self._owned, self.lasting
        match event:
            case RebalanceOver() | GroupReconciled() if event.pauses is not None:
                ended = [(each, each._asdict()) for each in event.pauses]
                return [{**each, "start": time - pause.at_most_ms, "end": time} for pause, each in ended]
            case Started():
                self._started = time
            case MemberReplaced():
                owned[str(event.member.member_id)] = owned.pop(str(event.old_member_id), set())
            case Departure() if not isinstance(event, MemberRefused | MemberGone):
                heard = time - round(event.heard_ago_ms or 0)
                gone = owned.pop(str(event.member.member_id), set())
                self.spent += len(owned) * len(gone)
                for each in gone:
                    if not any(each in others for others in owned.values()):  # several members of a share group may
                        without.setdefault(each, Since(heard, time))
            case MemberRevoked():
                since = Since(time - round(event.waited_ms), time)
                without.update(dict.fromkeys(partitions_of(event.partitions), since))
            case TargetAssigned():
                self._move(event.moves or ())
            case GroupReconciled():
                return list(_ended(without, self._all(), time, time))
            case RebalanceOver() if event.moves is not None:
                joined = time - round(event.sync_took_ms or 0)
                before = self._all()
                if event.protocol in _EAGER:
                    for each in before:
                        without.setdefault(each, Since(min(self._started, joined) or joined, joined))
                self._move(event.moves)
                after = self._all()
                assigned = list(_ended(without, after, time, joined))
                for each in before - after:
                    without.setdefault(each, Since(time, time))
                return assigned
            case GroupEmpty() | GroupDeleted():
                # No member is left that could wait for these partitions.
                without.clear()
                owned.clear()
        return []

    def _all(self) -> set[Partition]:
        """The partitions with an owner."""
        found: set[Partition] = set().union(*self._owned.values())
        self.spent += len(found)
        return found

    def _move(self, moves: Iterable[Move]) -> None:
        for move in moves:
            member_id = str(move.member.member_id)
            partitions = self._owned.setdefault(member_id, set())
            partitions |= partitions_of(move.gained)
            partitions -= partitions_of(move.lost)
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
