"""The storm score of a group: one number for how much it suffers from its rebalances, from its events. Pure.

The score is about the last ten minutes and goes from 0 (calm) to 100. It has up to 50 points for the rebalances (all of
them at one a minute), up to 30 for the time in which partitions had no owner (all of them at a third of the time), and
up to 20 for a repeated cause (all of them if every rebalance has the same). A group with 60 and more is flapping. The
rebalances of a program that was alone in the group do not count: they take time from no member.
"""

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any, Final, NamedTuple, Self

from barnabas_explain.catalog import NOT_RECORDED, GroupEvent, Started, in_words
from barnabas_explain.runs import Runs
from barnabas_explain.unowned import Pauses
from barnabas_protocol.counts import counted

#: The time that a score is about, in ms.
WINDOW_MS: Final = 600_000
#: A group with this score is flapping.
FLAPPING: Final = 60
#: The points for rebalances, for time without an owner, for a repeated cause.
_POINTS: Final = (50, 30, 20)
#: So many rebalances in the window, and this share of its time, have all points.
_MANY: Final = 10
_LONG: Final = 1 / 3
#: Rebalances that are remembered: far more than a score of 100 takes.
_MOST: Final = 1_000
#: What the sentence of a score begins with.
_SCORE: Final = "Storm score "
#: The clock of the coordinator may be ahead by this.
_SKEW_MS: Final = 60_000


class Score(NamedTuple):
    """A storm score, and what it counts.

    Attributes:
        value: 0 to 100.
        rebalances: in the last ten minutes.
        ownerless: the share of the time in which a partition had no owner, on average and at least; None if no
            partition is known.
        cause: the most frequent cause of these rebalances with its member, in words; "" without rebalances.
        times: how many rebalances have it.
        text: all of it in one sentence.
    """

    value: int
    rebalances: int
    ownerless: float | None
    cause: str
    times: int
    text: str

    def as_data(self) -> dict[str, Any]:
        """The score, ready for JSON."""
        return self._asdict()


class StormScore:
    """Counts the events of a group."""

    @classmethod
    def of(cls, events: Iterable[GroupEvent]) -> Self:
        """Count events that were read. Further ones can be added; forged ones cost no more than a bound."""
        made = cls()
        for event in events:
            if made._pauses.exhausted:
                break
            made.add(event)
        return made

    def __init__(self) -> None:
        self._starts: deque[tuple[int, str]] = deque(maxlen=_MOST)
        self._ended: deque[tuple[int, int]] = deque(maxlen=_MOST)
        self._pauses = Pauses()
        self._runs = Runs()

    def add(self, event: GroupEvent) -> None:
        """Take note of an event."""
        if isinstance(event, Started):
            self._starts.append((event.time, _cause_of(event)))
        paused = sum(min(each["at_least_ms"], WINDOW_MS) for each in self._pauses.add(event))
        if paused:
            self._ended.append((event.time, paused))
        run = self._runs.add(event)
        if run is not None:
            others = (each for each in self._starts if not run.joined.time <= each[0] <= run.end.time)
            self._starts = deque(others, maxlen=_MOST)

    def at(self, time_ms: int) -> Score:
        """The score at a time, in ms since 1970."""
        begin, end = time_ms - WINDOW_MS, time_ms + _SKEW_MS
        causes = Counter(cause for time, cause in self._starts if begin < time <= end)
        rebalances = causes.total()
        (cause, times), *_ = causes.most_common(1) or [("", 0)]
        ownerless = self._ownerless(begin, time_ms)
        frequent, long, repeated = _POINTS
        points = frequent * min(rebalances / _MANY, 1.0) + long * min((ownerless or 0.0) / _LONG, 1.0)
        if rebalances > 1:
            points += repeated * (times - 1) / (rebalances - 1)
        value = round(points)
        return Score(value, rebalances, ownerless, cause, times, _sentence(value, rebalances, ownerless, cause, times))

    def _ownerless(self, begin: int, time_ms: int) -> float | None:
        known = self._pauses.partitions
        if not known:
            return None
        paused = sum(duration for time, duration in self._ended if begin < time <= time_ms + _SKEW_MS)
        paused += sum(min(max(time_ms - since.latest, 0), WINDOW_MS) for since in self._pauses.lasting.values())
        return min(paused / (known * WINDOW_MS), 1.0)


def storm_score(events: Iterable[GroupEvent], time_ms: int) -> Score:
    """The storm score of a group.

    Args:
        events: of one group, oldest first.
        time_ms: the time at which it is wanted, in ms since 1970.
    """
    return StormScore.of(events).at(time_ms)


def is_score(sentence: str) -> bool:
    """Whether a sentence is that of a score."""
    return sentence.startswith(_SCORE)


def _cause_of(started: Started) -> str:
    """The cause of a rebalance in words, with its member."""
    said = in_words(started.cause or NOT_RECORDED)
    return f"{started.by[0].name[:200]} {said}" if started.by else said


def _sentence(value: int, rebalances: int, ownerless: float | None, cause: str, times: int) -> str:
    parts = [f"{counted(rebalances, 'rebalance') if rebalances else 'no rebalance'} in the last 10 minutes"]
    if times > 1:
        parts.append(f"{'all' if times == rebalances else times} of them because {cause}")
    if ownerless is not None and ownerless >= 0.001:
        parts.append(f"partitions had no owner for at least {ownerless:.1%} of the time")
    return f"{_SCORE}{value} of 100: {', '.join(parts)}."
