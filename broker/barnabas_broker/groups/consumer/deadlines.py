"""When the members of a group are checked: whether their sessions go on, and whether they do what they have to. Pure.

A heap, so that heartbeats cost nothing: each makes a deadline later, which is seen when the earlier one has come.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from math import inf
from typing import Final

from barnabas_broker.groups.consumer.members import ConsumerGroupMember

#: Entries that do not count, beside those of the members, after which they are removed.
_STALE: Final = 100


class Deadlines:
    """The times at which members are checked next. An entry counts if its member is armed for it (``check_at``).

    Args:
        members: of the group, by id, as they are at any time.
    """

    __slots__ = ("_heap", "_last", "_members")

    def __init__(self, members: Mapping[str, ConsumerGroupMember]) -> None:
        self._members = members
        self._heap: list[tuple[float, int, ConsumerGroupMember]] = []
        self._last = 0

    def __len__(self) -> int:
        return len(self._heap)

    def clear(self) -> None:
        """Check no member any more."""
        self._heap.clear()

    @property
    def first(self) -> float:
        """The earliest time, in seconds; inf for never."""
        return self._heap[0][0] if self._heap else inf

    def check(self, member: ConsumerGroupMember, at: float) -> None:
        """Check a member at this time, unless it is checked earlier."""
        if at >= member.check_at:
            return
        member.check_at = at
        self._last += 1
        heappush(self._heap, (at, self._last, member))
        if len(self._heap) > 4 * len(self._members) + _STALE:
            # Of members that are gone, and of deadlines that were replaced by earlier ones.
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapify(self._heap)

    def _counts(self, entry: tuple[float, int, ConsumerGroupMember]) -> bool:
        at, _, member = entry
        return at == member.check_at and self._members.get(member.member_id) is member

    def due(self, now: float, limit: int) -> list[ConsumerGroupMember]:
        """Some of the members that have to be checked now, in the order of their times. They are not armed any more."""
        due: list[ConsumerGroupMember] = []
        while self._heap and self._heap[0][0] <= now and len(due) < limit:
            entry = heappop(self._heap)
            if self._counts(entry):
                entry[2].check_at = inf
                due.append(entry[2])
        return due
