"""Members that commit the offset of the last record in place of the next one, while records go on. Pure.

Such a commit leaves out exactly the last record that the member has got: it has asked for the next one before. A member
that is busy, or commits by time, leaves out others, or none. About 300 bytes are kept for each partition of which one
record is left over in two looks, of at most :data:`~.watched.MOST`.
"""

from typing import Final

from barnabas_broker.groups.stuck import NOTHING, Standing
from barnabas_broker.groups.watched import Lasting
from barnabas_explain.members import Member

#: So many looks have to find it.
_LEAST_TIMES: Final = 5
#: The time of a commit is known to so many seconds.
_EXACTLY: Final = 0.001


class OneBehind(Lasting):
    """A partition that was never consumed to its end, and of which one record was left over at looks.

    Attributes:
        owner: its member; None if that is not known yet.
        looks: how many looks have found one record left over.
        times: in how many of them the member had asked for the end, and then committed all but the last record.
    """

    __slots__ = ("_offset", "looks", "owner", "times")

    def __init__(self, now: float) -> None:
        super().__init__(now)
        self.owner: Member | None = None
        self.looks = self.times = 0
        self._offset = NOTHING

    def look(self, offset: int, committed_at: float, before: Standing | None, now: float) -> None:
        """Take note that one record is left over.

        Args:
            offset: the committed offset.
            committed_at: when it was committed, in seconds on the coordinator's clock.
            before: the Fetches of the partition since the last look; None if they were not counted.
            now: in seconds on that clock.
        """
        self.looks += 1
        has_moved, self._offset = offset != self._offset, offset
        if before is None or not before.is_clear or before.owner is None:
            return
        if before.owner != self.owner:
            self.owner, self.times, self.since, self.told_at = before.owner, 0, now, None
        watch = before.watch
        self.times += has_moved and watch.last == offset + 1 and committed_at + _EXACTLY >= watch.last_since

    def is_found(self, now: float, patience: float) -> bool:
        """Whether it is to be reported."""
        return self.times >= _LEAST_TIMES and self.is_due(now, patience)
