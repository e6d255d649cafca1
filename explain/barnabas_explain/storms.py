"""Rebalance storms: groups that rebalance again and again. Pure.

Member ids are new after every restart, so the member that causes a rebalance is identified by what stays: its instance
id, or else its client id and host.
"""

from collections import Counter, OrderedDict, deque
from typing import Final

from barnabas_explain.catalog import GroupEmpty, GroupEvent, MemberLeft, RebalanceStarted, RebalanceStorm
from barnabas_explain.members import Member

#: This many rebalances within this many seconds are a storm.
STORM_REBALANCES: Final = 6
STORM_SECONDS: Final = 60.0
#: A storm is over after this many seconds without a rebalance.
CALM_SECONDS: Final = 120.0
#: Maximum number of groups that are watched; beyond that the least recently rebalanced one is dropped.
_MAX_GROUPS: Final = 10_000


class _Rebalances:
    """The last rebalances of a group: when each started, which member caused it, and the cause of the newest."""

    __slots__ = ("cause", "last", "storm")

    def __init__(self) -> None:
        self.cause = ""
        self.last: deque[tuple[float, str]] = deque(maxlen=STORM_REBALANCES)
        self.storm = False


class StormDetector:
    """Detects rebalance storms."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, _Rebalances] = OrderedDict()

    def add(self, event: GroupEvent, now: float) -> RebalanceStorm | None:
        """Add a group event; returns another one if this is the start of a storm."""
        group_id = event.group
        if isinstance(event, GroupEmpty):
            self._emptied(group_id)
        if not isinstance(event, RebalanceStarted):
            return None
        rebalances = self._groups.setdefault(group_id, _Rebalances())
        self._groups.move_to_end(group_id)
        if len(self._groups) > _MAX_GROUPS:
            self._groups.popitem(last=False)
        rebalances.cause = event.cause
        last = rebalances.last
        if rebalances.storm and last and now - last[-1][0] > CALM_SECONDS:
            rebalances.storm = False
            last.clear()
        last.append((now, (*(event.by or ()), Member())[0].name))
        if rebalances.storm or len(last) < STORM_REBALANCES or now - last[0][0] > STORM_SECONDS:
            return None
        rebalances.storm = True
        (culprit, times), *_ = Counter(name for _, name in last).most_common(1)
        return RebalanceStorm(
            generation=event.generation,
            group=group_id,
            time=event.time,
            rebalances=len(last),
            seconds_ms=(now - last[0][0]) * 1000,
            culprit=culprit,
            times=times,
        )

    def _emptied(self, group_id: str) -> None:
        """The last member is gone. If it left by itself, a program has done its work, and the next may follow at once:
        no rebalance of such runs takes time from another member. A member that was removed is a problem."""
        rebalances = self._groups.get(group_id)
        if rebalances is not None and rebalances.cause == MemberLeft.type:
            del self._groups[group_id]

    def is_storm(self, group_id: str) -> bool:
        """Whether the group is in a storm: its log lines then go to the debug level."""
        rebalances = self._groups.get(group_id)
        return rebalances is not None and rebalances.storm

    def is_storm_at(self, group_id: str, now: float) -> bool:
        """Whether the group is in a storm, and its last rebalance is not longer ago than :data:`CALM_SECONDS`."""
        rebalances = self._groups.get(group_id)
        return rebalances is not None and rebalances.storm and now - rebalances.last[-1][0] <= CALM_SECONDS
