"""How fast a group consumes, and how fast the partitions that it reads grow. Pure: offsets and times are arguments.

Rates come from offsets that are looked at again and again, so they cost nothing per record. A group that commits every
five seconds moves in steps: a rate is the average of the last 15 to 30 seconds, and not known before there are
:data:`LEAST` of them.
"""

from array import array
from collections.abc import Sequence
from itertools import groupby
from math import nan
from operator import attrgetter
from typing import Final, NamedTuple

#: Minimum seconds that a rate is the average of. Until two looks are that far apart it is not known, rather than 0.
LEAST: Final = 10.0
#: The average is that of the time since the last mark but one; marks are at least this many seconds apart.
_MARKS: Final = 15.0
#: A look that comes this many times later than usual, and this many seconds later, begins again: an average over the
#: time in between would say nothing about now.
_LATE: Final = 10
_LATE_SECONDS: Final = 60.0


class Offsets(NamedTuple):
    """State of a group in one partition.

    Attributes:
        topic: of the partition.
        partition: its number.
        committed: the committed offset; None if there is none.
        end: the high watermark; None if it is not known here.
        complete: records from `committed` on that are processed, too: members of share groups do not keep the order.
    """

    topic: str
    partition: int
    committed: int | None
    end: int | None
    complete: int = 0


class Rates(NamedTuple):
    """Records per second; None where that is not known.

    Attributes:
        commit: by which the committed offsets of a group move forward.
        produce: by which the partitions grow for which it has committed offsets.
    """

    commit: float | None
    produce: float | None

    def as_data(self) -> dict[str, float | None]:
        """The rates, ready for JSON."""
        commit, produce = (None if each is None else shown(each) for each in self)
        return {"commit_rate": commit, "produce_rate": produce}


UNKNOWN: Final = Rates(None, None)


class _Mark(NamedTuple):
    """Sums up to a moment: of the seconds between comparable looks, of the records committed and produced in them."""

    seconds: float
    committed: float
    produced: float


_NOTHING: Final = _Mark(0, 0, 0)


class Movement:
    """How the offsets of a group move: 16 bytes for each partition, and about 800 for the group."""

    __slots__ = ("_before", "_committed", "_ends", "_known_since", "_mark", "_shape", "_step", "_sum", "_time")

    def __init__(self) -> None:
        self._time = nan
        self._step = nan
        self._shape: tuple[tuple[str, int], ...] = ()
        self._committed = array("q")
        self._ends = array("q")
        self._sum = self._mark = self._before = _NOTHING
        #: Since when all ends are known, in the seconds of the sums.
        self._known_since = 0.0

    def __len__(self) -> int:
        """The number of partitions."""
        return len(self._ends)

    def look(self, now: float, found: Sequence[Offsets]) -> tuple[float, float]:
        """Take note of the offsets of a group.

        Args:
            now: in seconds, later than before.
            found: its offsets, by topic.

        Returns:
            The records that were committed and produced since the last look; NaN if these cannot be compared.
        """
        shape = tuple((topic, sum(1 for _ in some)) for topic, some in groupby(found, attrgetter("topic")))
        committed = array("q", (-1 if each.committed is None else each.committed for each in found))
        ends = array("q", (-1 if each.end is None else each.end for each in found))
        step = now - self._time
        moved = (nan, nan)
        # The offsets before are comparable while the group has the same partitions.
        if shape and shape == self._shape:
            moved = _moved(self._committed, committed), _moved(self._ends, ends)
            if step > max(_LATE_SECONDS, _LATE * self._step):
                self._mark = self._before = self._sum
            else:
                self._add(step, *moved)
        if -1 in ends:
            self._known_since = self._sum.seconds
        if max(self._committed, default=-1) < 0:
            self._mark = self._before = self._sum  # nothing was committed: that is not a rate of 0
        self._time, self._step, self._shape, self._committed, self._ends = now, step, shape, committed, ends
        return moved

    def _add(self, seconds: float, committed: float, produced: float) -> None:
        before = self._sum
        self._sum = _Mark(before.seconds + seconds, before.committed + committed, before.produced + produced)
        if self._sum.seconds - self._mark.seconds >= _MARKS:
            self._before, self._mark = self._mark, self._sum

    def follows(self, now: float) -> bool:
        """Whether a time is not before the last look: the clock was not set back."""
        return not now <= self._time

    @property
    def rates(self) -> Rates:
        """The rates now."""
        total, before = self._sum, self._before
        seconds = total.seconds - before.seconds
        if seconds < LEAST:
            return UNKNOWN
        commit = (total.committed - before.committed) / seconds
        known = self._known_since <= before.seconds and self._known_since < total.seconds
        return Rates(commit, (total.produced - before.produced) / seconds if known else None)


def shown(value: float) -> float:
    """A number with the digits that people look at."""
    return round(value) if value >= 100 or value == int(value) else round(value, 2)


def _moved(before: "array[int]", after: "array[int]") -> int:
    """By how many records offsets moved forward; those that are not known, or that were set back, do not count."""
    return sum(new - old for old, new in zip(before, after, strict=True) if new > old >= 0)
