"""Rebalance storms: a group that does nothing but rebalance is told as one story. Pure.

Member ids are new after every restart, so who causes a rebalance is known by what stays: the instance id, or else the
client id and the host.
"""

from collections import Counter, OrderedDict, deque
from typing import Any, Final

from barnabas_broker.groups.effects import Kind, Note

#: So many rebalances within so many seconds are a storm.
STORM_REBALANCES: Final = 6
STORM_SECONDS: Final = 60.0
#: A storm is over when there was no rebalance for so many seconds.
CALM_SECONDS: Final = 120.0
#: Groups that are watched at most, the least recently rebalanced are forgotten.
_MOST_GROUPS: Final = 10_000


class _Watched:
    __slots__ = ("rebalances", "storm")

    def __init__(self) -> None:
        self.rebalances: deque[tuple[float, str]] = deque(maxlen=STORM_REBALANCES)
        self.storm = False


class StormWatch:
    """Notices when a group's rebalances become a storm."""

    def __init__(self) -> None:
        self._groups: OrderedDict[str, _Watched] = OrderedDict()

    def hear(self, group_id: str, note: Note, now: float) -> Note | None:
        """Hear a note; the first one of a storm is answered with the story so far."""
        if note.kind is not Kind.REBALANCE_STARTED:
            return None
        watched = self._groups.setdefault(group_id, _Watched())
        self._groups.move_to_end(group_id)
        if len(self._groups) > _MOST_GROUPS:
            self._groups.popitem(last=False)
        recent = watched.rebalances
        if watched.storm and recent and now - recent[-1][0] > CALM_SECONDS:
            watched.storm = False
            recent.clear()
        by: list[dict[str, Any]] = note.data.get("by") or [{}]
        recent.append((now, name_of(by[0])))
        if watched.storm or len(recent) < STORM_REBALANCES or now - recent[0][0] > STORM_SECONDS:
            return None
        watched.storm = True
        (culprit, times), *_ = Counter(name for _, name in recent).most_common(1)
        data = {"rebalances": len(recent), "seconds": now - recent[0][0], "culprit": culprit, "times": times}
        return Note(Kind.STORM, note.generation, data)

    def is_storm(self, group_id: str) -> bool:
        """Whether the log shall be spared the group's lines."""
        watched = self._groups.get(group_id)
        return watched is not None and watched.storm


def name_of(who: dict[str, Any]) -> str:
    """What a person calls a member: its instance id, or else its client id and host."""
    if who.get("instance_id"):
        return str(who["instance_id"])
    name = who.get("client_id") or who.get("member_id") or "nobody"
    host = str(who.get("host") or "").removeprefix("/")
    return f"{name} ({host})" if host else str(name)
