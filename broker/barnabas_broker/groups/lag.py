"""Lag that grows because less is consumed than is written: found from looks at committed offsets and ends. Pure.

A group that commits seldom has a lag like a saw, which grows between two commits and is no disease. So only its lows
count: the lag at looks that see a commit. It grows if its lows rise, steadily and for long enough. A burst rises at
once, a group that catches up falls, and one that only stands still has another explanation (:mod:`groups.stuck`).

Memory is bounded: about 400 bytes for each of :data:`MOST` groups, and 170 for each of at most :data:`_MOST_LOWS` lows
of a group. Nothing is done per record.
"""

from itertools import accumulate, pairwise
from typing import Final, NamedTuple

#: Groups that are watched at a time.
MOST: Final = 10_000
#: Lows of a group; when there are more, one that is close to its neighbours for its age is dropped.
_MOST_LOWS: Final = 24
#: The longest time between two lows, as a part of the time for which the lag grows: what happens once is a burst.
_LONGEST_PAUSE: Final = 1 / 4
#: The least lows that rise.
_LEAST_LOWS: Final = 5
#: The part of the growth that lies in its first half.
_STEADY: Final = (0.2, 0.8)
#: A look sees a commit up to one look late: the lag grows by more than what is written in so many looks.
_LOOKS: Final = 3.0
#: The least records by which it grows.
_LEAST: Final = 100


class Low(NamedTuple):
    """The lag of a group just after a commit.

    Attributes:
        time: in seconds on the coordinator's clock.
        lag: records after the committed offsets.
        committed: the sum of the committed offsets.
    """

    time: float
    lag: int
    committed: int


class Growth(NamedTuple):
    """A lag that grows.

    Attributes:
        first: the low with which it began.
        last: the newest one.
    """

    first: Low
    last: Low

    @property
    def seconds(self) -> float:
        """For how long it has grown."""
        return self.last.time - self.first.time

    @property
    def records(self) -> int:
        """By how many records it has grown."""
        return self.last.lag - self.first.lag

    @property
    def consumed(self) -> int:
        """The records that were committed meanwhile."""
        return self.last.committed - self.first.committed

    @property
    def written(self) -> int:
        """The records that were written meanwhile."""
        return self.consumed + self.records


class _Watched:
    """The lag of a group.

    Attributes:
        partitions: hash of those that it is the lag of.
        lows: each is below all later ones.
        committed: the sum of the committed offsets; None before the first look.
        seen_at: when it was looked at last.
        told: the growth that was reported last; None for none.
    """

    __slots__ = ("committed", "lows", "partitions", "seen_at", "told")

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.lows: list[Low] = []
        self.committed: int | None = None
        self.seen_at = 0.0
        self.told: Growth | None = None

    def add(self, low: Low) -> None:
        lows = self.lows
        if self.told is not None and low.lag <= self.told.last.lag:
            self.told = None  # What grows from now on is another growth.
        while lows and lows[-1].lag >= low.lag:
            lows.pop()
        lows.append(low)
        if len(lows) > _MOST_LOWS:
            del lows[min(range(1, len(lows) - 1), key=lambda at: self._gap_without(at, low.time))]

    def _gap_without(self, at: int, now: float) -> float:
        """The pause without a low, as a part of its age."""
        before, after = self.lows[at - 1].time, self.lows[at + 1].time
        return (after - before) / (now - before)

    def growth(self, patience: float, looks: float) -> Growth | None:
        """The longest steady growth until now; None if there is none.

        Args:
            patience: the least time that it lasts, in seconds.
            looks: the seconds between two looks.
        """
        lows, last = self.lows, self.lows[-1]
        pauses = [later.time - earlier.time for earlier, later in pairwise(lows)]
        longest = [*accumulate(reversed(pauses), max)][::-1]
        for at, pause in enumerate(longest[: len(lows) - _LEAST_LOWS + 1]):
            growth = Growth(lows[at], last)
            if growth.seconds < patience:
                break
            noise = _LOOKS * looks * growth.written / growth.seconds
            is_even = pause <= growth.seconds * _LONGEST_PAUSE
            if is_even and growth.records >= max(_LEAST, noise) and self._is_steady(growth, at):
                return growth
        return None

    def _is_steady(self, growth: Growth, at: int) -> bool:
        half = growth.first.time + growth.seconds / 2
        middle = min(self.lows[at:], key=lambda low: abs(low.time - half))
        least, most = _STEADY
        return least <= (middle.lag - growth.first.lag) / growth.records <= most


class GrowingLags:
    """The groups whose lag is watched.

    Args:
        patience: a lag that grows for so many seconds is reported.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._groups: dict[str, _Watched] = {}

    def look(self, group_id: str, partitions: int, committed: int, lag: int, now: float) -> Growth | None:
        """Take note of the lag of a group.

        Args:
            group_id: the group.
            partitions: hash of those in which it has committed offsets; sums of other ones cannot be compared.
            committed: the sum of these offsets.
            lag: the records after them.
            now: in seconds on the coordinator's clock.

        Returns:
            The growth, if one is to be reported: when it has lasted for the patience, and then each time that it has
            lasted twice as long.
        """
        watched = self._groups.get(group_id)
        if watched is None and len(self._groups) >= MOST:
            return None
        is_comparable = watched is not None and watched.partitions == partitions
        if watched is None or not is_comparable or committed < (watched.committed or 0):
            watched = self._groups[group_id] = _Watched(partitions)
        looks = now - watched.seen_at
        has_moved = watched.committed is not None and committed > watched.committed
        watched.committed, watched.seen_at = committed, now
        if not has_moved:
            return None
        watched.add(Low(now, lag, committed))
        growth, told = watched.growth(self._patience, looks), watched.told
        if growth is None:
            return None
        if told is not None:
            if now - told.last.time < told.seconds:
                return None
            growth = Growth(told.first, growth.last)
        watched.told = growth
        return growth

    def groups(self) -> list[str]:
        """The groups that are watched."""
        return list(self._groups)

    def forget(self, group_id: str) -> None:
        """Forget a group that is gone, or has no members."""
        self._groups.pop(group_id, None)
