"""Runs of programs that were alone in their group: each joined an empty group, and left it by itself. Pure.

A scheduled job has such runs, and their rebalances take time from no member.
"""

from typing import Final, NamedTuple

from barnabas_explain.catalog import Departure, GroupEmpty, GroupEvent, MemberDisconnected, MemberJoined, MemberLeft

#: A member that stops closes its connection within so many milliseconds after it has left.
STOPS_MS: Final = 5_000


class Run(NamedTuple):
    """A member that was alone in its group, from its join to its leave."""

    joined: MemberJoined
    left: MemberLeft

    @property
    def took_ms(self) -> int:
        """For how long it was a member."""
        return self.left.time - self.joined.time


class Runs:
    """Finds the runs of a group."""

    def __init__(self) -> None:
        #: Joins and departures since the group was last empty: the newest of each, and how many there were.
        self._joined: GroupEvent | None = None
        self._gone: GroupEvent | None = None
        self._joins = self._ends = 0
        #: The last run, whose connection was not closed yet.
        self._left: Run | None = None

    def add(self, event: GroupEvent) -> Run | None:
        """Take note of the next event; returns the run that it ends.

        A run ends when the connection of its member is closed: a member that has polled too slowly leaves, too, and
        joins again.
        """
        if isinstance(event, MemberJoined):
            self._joined = event
            self._joins += 1
            if self._left is not None and event.old_member_id == self._left.left.member.member_id:
                self._left = None
        elif isinstance(event, Departure):
            self._gone = event
            self._ends += 1
        elif isinstance(event, GroupEmpty):
            self._left = self._alone()
            self._joins = self._ends = 0
            if self._left is not None and self._left.left.connection == "closed":
                return self._over()
        elif isinstance(event, MemberDisconnected) and self._left is not None:
            ago = event.gone_ago_ms
            if ago is not None and ago <= STOPS_MS and event.member.member_id == self._left.left.member.member_id:
                return self._over()
        return None

    def _alone(self) -> Run | None:
        joined, gone = self._joined, self._gone
        if self._joins != 1 or self._ends != 1 or not isinstance(joined, MemberJoined):
            return None
        if not isinstance(gone, MemberLeft) or gone.removed_by is not None:
            return None
        return Run(joined, gone) if joined.member.member_id == gone.member.member_id else None

    def _over(self) -> Run | None:
        run, self._left = self._left, None
        return run
