"""Members that commit nearly each record by itself: found from looks at their commits and committed offsets. Pure.

About 200 bytes are kept for each member that commits often; nothing is done per commit but to count it.
"""

from typing import Final

from barnabas_broker.groups.watched import Lasting

#: A member that commits less often than so many times a second pays little for it.
LEAST_PER_SECOND: Final = 20
#: More records than so many for each commit are a batch.
_MOST_RECORDS: Final = 1.5


class OftenCommits(Lasting):
    """The commits of a member since it has committed often, at a look.

    Args:
        partitions: hash of those that it owns; the offsets of other ones cannot be compared.
        offset: the sum of their committed offsets.
        commits: of the member until then.
        now: in seconds on the coordinator's clock.
    """

    __slots__ = ("_commits", "_offset", "commits", "partitions", "records", "seconds")

    def __init__(self, partitions: int, offset: int, commits: int, now: float) -> None:
        super().__init__(now)
        self.partitions = partitions
        self._offset = offset
        self._commits = commits
        self.commits = self.records = 0
        self.seconds = 0.0

    def look(self, offset: int, commits: int, now: float, patience: float) -> bool:
        """Take note of what the member has committed; returns whether it is to be reported: after `patience` seconds,
        and then each time that it has lasted twice as long."""
        self.commits, self.records, self.seconds = commits - self._commits, offset - self._offset, now - self.since
        each_alone = 0 < self.records <= _MOST_RECORDS * self.commits
        if not (self.is_due(now, patience) and each_alone and self.commits >= LEAST_PER_SECOND * self.seconds):
            return False
        self.told_at = now
        return True
