"""Lag and rates of groups over the last hour, from samples of offsets. Pure: offsets and times are arguments.

Memory is bounded: for each group two rings, one of the last minutes and one of the last hour, 20 bytes for each sample
(:data:`GROUP_BYTES` in all); for each partition at most :data:`_MOST_MARKS` marks of 16 bytes, which say when its end
was where. At most :data:`MOST_GROUPS` groups and :data:`MOST_PARTITIONS` partitions have them. The rates of the list of
groups need less, and :data:`MOST_RATES` groups with :data:`MOST_MOVING` partitions have them.
"""

from array import array
from bisect import bisect_right
from collections.abc import Container, Iterable
from math import isnan, nan
from typing import Any, Final, NamedTuple

from barnabas_broker.http.rates import UNKNOWN, Movement, Offsets, Rates, shown

#: Minimum seconds between two samples of a group.
INTERVAL: Final = 2.0
#: Groups and partitions of which samples are kept; further ones have none.
MOST_GROUPS: Final = 1_000
MOST_PARTITIONS: Final = 10_000
#: Groups whose rates are known, and the partitions of all of these.
MOST_RATES: Final = 20_000
MOST_MOVING: Final = 200_000
#: Samples of the last minutes, and of the last hour.
_RECENT: Final = 300
_HOUR: Final = 360
#: Seconds between two samples in the ring of the last hour.
_HOUR_INTERVAL: Final = 10.0
#: Bytes of the samples of a group.
GROUP_BYTES: Final = 20 * (_RECENT + _HOUR)
#: Marks of a partition; when there are more, those that are close together for their age are dropped.
_MOST_MARKS: Final = 48
_CLOSE: Final = 0.25

#: The columns of samples, in the order of their arrays.
COLUMNS: Final = ("lag", "lag_ms", "commit_rate", "produce_rate")


class Age(NamedTuple):
    """For how long the oldest record that is not consumed has been in its log.

    Attributes:
        ms: 0 if everything is consumed.
        exact: False if it may be longer, because the record was written before the first sample.
    """

    ms: int
    exact: bool


class OffsetTimes:
    """When the end of a partition passed an offset: marks of time and offset, and straight lines between them."""

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times = array("d")
        self._ends = array("q")

    def add(self, now: float, end: int) -> None:
        """Add a mark: the end at a time, in seconds."""
        times, ends = self._times, self._ends
        if times and (now <= times[-1] or end < ends[-1]):
            # The clock was set back, or the log was truncated or made again: what was seen before says nothing now.
            del times[:], ends[:]
        if len(ends) >= 2 and ends[-1] == ends[-2] == end:
            times[-1] = now
            return
        times.append(now)
        ends.append(end)
        if len(times) > _MOST_MARKS:
            self._thin(now)

    def age(self, offset: int, now: float) -> Age:
        """The age of the record at an offset."""
        times, ends = self._times, self._ends
        at = bisect_right(ends, offset)
        if at == len(ends):
            return Age(0, True)
        if at == 0:
            return Age(_ms(now - times[0]), False)
        share = (offset - ends[at - 1]) / (ends[at] - ends[at - 1])
        written = times[at - 1] + share * (times[at] - times[at - 1])
        return Age(_ms(now - written), True)

    def _thin(self, now: float) -> None:
        times, ends = self._times, self._ends
        kept = [len(times) - 1]
        for at in range(len(times) - 2, 0, -1):
            if times[kept[-1]] - times[at - 1] > _CLOSE * (now - times[at]):
                kept.append(at)
        kept.append(0)
        kept.reverse()
        # As many as may be if they are far apart, for instance after the machine has slept.
        kept = kept[-_MOST_MARKS:]
        self._times = array("d", (times[at] for at in kept))
        self._ends = array("q", (ends[at] for at in kept))


class _Ring:
    """The last samples of a group, `size` at most.

    Args:
        size: samples.
        interval: seconds between two of them, at least.
    """

    __slots__ = ("_at", "_columns", "_interval", "_size", "_times", "last", "totals")

    def __init__(self, size: int, interval: float) -> None:
        self._size = size
        self._interval = interval
        self._at = 0
        self._times = array("I")
        self._columns = tuple(array("f") for _ in COLUMNS)
        #: Hundredths of a second since the group's first sample.
        self.last = -1
        #: Records committed and produced since the newest sample.
        self.totals: list[float] = [0, 0]

    def add(self, time: int, lag: float, age: float, committed: float, produced: float) -> None:
        """Add a sample, if the newest one is old enough; rates are averages since then."""
        totals = self.totals
        totals[0] += committed if not isnan(committed) else 0
        totals[1] += produced if not isnan(produced) else 0
        passed = (time - self.last) / 100
        if self.last >= 0 and passed < self._interval * 0.9:
            return
        known = self.last >= 0 and not isnan(committed)
        values = (lag, age, totals[0] / passed if known else nan, totals[1] / passed if known else nan)
        self.totals = [0, 0]
        self.last = time
        if len(self._times) < self._size:
            self._times.append(time)
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)
        else:
            self._times[self._at] = time
            for column, value in zip(self._columns, values, strict=True):
                column[self._at] = value
            self._at = (self._at + 1) % self._size

    def rows(self) -> list[tuple[int, tuple[float, ...]]]:
        """Times and values, oldest first."""
        order = [*range(self._at, len(self._times)), *range(self._at)]
        return [(self._times[at], tuple(column[at] for column in self._columns)) for at in order]


class _GroupSamples:
    """The samples of a group.

    Attributes:
        began: the time of the first one, in seconds since 1970.
        age: of its oldest record that is not consumed.
    """

    __slots__ = ("_rings", "age", "began")

    def __init__(self, began: float) -> None:
        self.began = began
        self.age: Age | None = None
        self._rings = (_Ring(_HOUR, _HOUR_INTERVAL), _Ring(_RECENT, INTERVAL))

    def add(self, now: float, lag: float, age: Age | None, committed: float, produced: float) -> None:
        self.age = age
        time = max(round((now - self.began) * 100), 0)
        for ring in self._rings:
            ring.add(time, lag, nan if age is None else age.ms, committed, produced)

    def rows(self, since: float) -> list[tuple[int, tuple[float, ...]]]:
        """Times in ms since 1970 and values, oldest first."""
        hour, recent = (ring.rows() for ring in self._rings)
        older = [row for row in hour if not recent or row[0] < recent[0][0]]
        began = round(self.began * 1000)
        rows = ((began + time * 10, values) for time, values in [*older, *recent])
        return [row for row in rows if row[0] >= since]

    @property
    def newest(self) -> int:
        """The time of the newest sample, in ms since 1970."""
        return round(self.began * 1000) + self._rings[1].last * 10


class Samples:
    """The samples of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, _GroupSamples] = {}
        self._movements: dict[str, Movement] = {}
        #: Partitions of all movements.
        self._moving = 0
        self._partitions: dict[tuple[str, int], OffsetTimes] = {}
        self._seen: set[tuple[str, int]] = set()

    def add(self, group_id: str, offsets: Iterable[Offsets], now: float) -> None:
        """Add a sample of a group.

        Args:
            group_id: the group.
            offsets: of all partitions for which it has committed offsets, by topic; of a share group its start offsets.
            now: in seconds since 1970.
        """
        found = list(offsets)
        committed, produced = self._moved(group_id, found, now)
        samples = self._groups.get(group_id)
        if samples is None:
            if len(self._groups) >= MOST_GROUPS:
                return
            samples = self._groups[group_id] = _GroupSamples(now)
        elif now * 1000 <= samples.newest:
            # The clock was set back: curves begin again.
            samples = self._groups[group_id] = _GroupSamples(now)
        lag, oldest = nan, None
        for each in found:
            if each.end is None:
                continue
            times = self._marked(each, now)
            if each.committed is None:
                continue
            lag = (0 if isnan(lag) else lag) + max(each.end - each.committed - each.complete, 0)
            if times is not None:
                age = times.age(each.committed, now)
                oldest = age if oldest is None or age.ms > oldest.ms else oldest
        samples.add(now, lag, oldest, committed, produced)

    def _moved(self, group_id: str, found: list[Offsets], now: float) -> tuple[float, float]:
        """The records that a group committed, and that were produced for it, since its last sample."""
        movement = self._movements.get(group_id)
        before = 0 if movement is None else len(movement)
        too_many = movement is None and len(self._movements) >= MOST_RATES
        if too_many or self._moving - before + len(found) > MOST_MOVING:
            if self._movements.pop(group_id, None) is not None:
                self._moving -= before
            return nan, nan
        if movement is None or not movement.follows(now):
            movement = self._movements[group_id] = Movement()
        self._moving += len(found) - before
        return movement.look(now, found)

    def _marked(self, each: Offsets, now: float) -> OffsetTimes | None:
        """The marks of a partition, with one of now; None if there are too many partitions."""
        key = (each.topic, each.partition)
        times = self._partitions.get(key)
        if times is None:
            if len(self._partitions) >= MOST_PARTITIONS:
                return None
            times = self._partitions[key] = OffsetTimes()
        if key not in self._seen and each.end is not None:
            self._seen.add(key)
            times.add(now, each.end)
        return times

    def end_round(self, groups: Container[str]) -> None:
        """All groups have been sampled: forget those that do not exist any more, and partitions that no group reads."""
        self._groups = {name: each for name, each in self._groups.items() if name in groups}
        self._movements = {name: each for name, each in self._movements.items() if name in groups}
        self._moving = sum(map(len, self._movements.values()))
        self._partitions = {key: each for key, each in self._partitions.items() if key in self._seen}
        self._seen = set()

    def age(self, group_id: str) -> Age | None:
        """The age of a group's oldest record that is not consumed, at its newest sample; None if it is not known."""
        samples = self._groups.get(group_id)
        return None if samples is None else samples.age

    def rates(self, group_id: str) -> Rates:
        """How fast a group consumes, and how fast what it reads grows."""
        movement = self._movements.get(group_id)
        return UNKNOWN if movement is None else movement.rates

    def newest(self, group_id: str) -> int:
        """The time of a group's newest sample in ms since 1970; 0 if there is none."""
        samples = self._groups.get(group_id)
        return 0 if samples is None else samples.newest

    def curves(self, group_id: str, since_ms: int) -> dict[str, Any]:
        """The samples of a group as columns, ready for JSON: `times` in ms since 1970, `lag` in records, `lag_ms` (the
        age of the oldest record that is not consumed), `commit_rate` and `produce_rate` in records per second. Null
        where a value is not known. `kept` is False if there are too many groups to sample this one."""
        samples = self._groups.get(group_id)
        rows = [] if samples is None else samples.rows(since_ms)
        columns = {name: [_number(values[at]) for _, values in rows] for at, name in enumerate(COLUMNS)}
        kept = samples is not None or len(self._groups) < MOST_GROUPS
        return {"times": [time for time, _ in rows], **columns, "kept": kept}


def _number(value: float) -> float | None:
    return None if isnan(value) else shown(value)


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 0)
