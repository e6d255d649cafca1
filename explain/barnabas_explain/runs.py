"""Runs of programs that were alone in their group: each joined an empty group, and left it by itself. Pure.

A scheduled job has such runs, and their rebalances take time from no member. In the classic protocol a static member
does not leave when it is closed: its run ends when it closes its connection, if it has committed just before that, and
does not commit all the time. In the consumer protocol it says that it is away.
"""

from typing import Final, NamedTuple

from barnabas_explain.catalog import (
    Departure,
    GroupEmpty,
    GroupEvent,
    MemberAway,
    MemberDisconnected,
    MemberExpired,
    MemberJoined,
    MemberLeft,
    MemberReplaced,
    Seen,
)

#: A member that stops closes its connection within so many milliseconds after it has left.
STOPS_MS: Final = 5_000
#: A static member that stops commits within so many milliseconds before it closes its connection. That says nothing if
#: it commits more often than once in so many milliseconds, or in so many times that time.
_COMMITS_MS: Final = 250
_SELDOM_MS: Final = 500
_SELDOM: Final = 10


class Run(NamedTuple):
    """A member that was alone in its group, or a program with several members, from its join to its end.

    Attributes:
        joined: its join.
        end: the event of its end.
        ended_at: the time of its end, in ms since 1970: of a static member that at which its connection was closed.
        is_away: whether it was a static member that has said that it is away.
        members: the number of members, if several of one client id joined together, and left together.
    """

    joined: MemberJoined | MemberReplaced
    end: Seen
    ended_at: float
    is_away: bool = False
    members: int = 1

    @property
    def took_ms(self) -> float:
        """For how long it was a member."""
        return self.ended_at - self.joined.time

    @property
    def is_static(self) -> bool:
        """Whether it was a static member that did not leave."""
        return not isinstance(self.end, MemberLeft) and not self.is_away

    @property
    def is_sure(self) -> bool:
        """Whether it has stopped in order: a static member that commits nothing, or all the time, may have crashed."""
        if not self.is_static:
            return True
        committed, closed, commits = self.end.committed_ago_ms, self.end.closed_ago_ms, self.end.commits
        if committed is None or closed is None or not commits:
            return False
        return self.took_ms / commits >= max(_SELDOM_MS, _SELDOM * (committed - closed))


class Runs:
    """Finds the runs of a group."""

    def __init__(self) -> None:
        #: Joins and departures since the group was last empty: the newest of each, and how many there were.
        self._joined: GroupEvent | None = None
        self._gone: GroupEvent | None = None
        self._joins = self._ends = 0
        #: The newest static member that said that it is away.
        self._away: MemberAway | None = None
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
            if self._left is not None and event.old_member_id == self._left.end.member.member_id:
                self._left = None
        elif isinstance(event, MemberAway):
            self._away = event
        elif isinstance(event, MemberReplaced):
            run = self._static(event, event.old_member_id)
            self._joined = event
            return run
        elif isinstance(event, Departure):
            self._gone = event
            self._ends += 1
        elif isinstance(event, GroupEmpty):
            self._left = self._alone()
            self._joins = self._ends = 0
            if self._left is not None and self._left.end.connection == "closed":
                return self._over()
        elif isinstance(event, MemberDisconnected) and self._left is not None:
            ago = event.gone_ago_ms
            if ago is not None and ago <= STOPS_MS and event.member.member_id == self._left.end.member.member_id:
                return self._over()
        return None

    def _alone(self) -> Run | None:
        gone = self._gone
        if self._ends != 1:
            return None
        if isinstance(gone, MemberExpired):
            self._ends = 0
            return self._static(gone, gone.member.member_id)
        joined = self._joined
        if self._joins != 1 or not isinstance(joined, MemberJoined | MemberReplaced):
            return None
        if not isinstance(gone, MemberLeft) or gone.removed_by is not None:
            return None
        return Run(joined, gone, gone.time) if joined.member.member_id == gone.member.member_id else None

    def _static(self, end: MemberExpired | MemberReplaced, member_id: str | None) -> Run | None:
        """The run of a static member that is not there any more, or another one in its place."""
        joined, closed, committed = self._joined, end.closed_ago_ms, end.committed_ago_ms
        if self._joins != 1 or self._ends or not isinstance(joined, MemberJoined | MemberReplaced):
            return None
        if not end.member.instance_id or joined.member.member_id != member_id:
            return None
        if self._away is not None and self._away.member.member_id == member_id:
            return Run(joined, end, self._away.time, is_away=True)
        if closed is None or end.closed_by != "client" or end.closed_error:
            return None
        # Without a record to read, it has nothing to commit.
        is_last = committed is None or committed - closed <= _COMMITS_MS
        return Run(joined, end, end.time - closed) if is_last else None

    def _over(self) -> Run | None:
        run, self._left = self._left, None
        return run
