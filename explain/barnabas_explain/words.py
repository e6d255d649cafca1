"""The words of sentences about groups: names, counts, durations, partitions. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from barnabas_explain.members import Member
from barnabas_protocol.counts import counted

#: The members, topics or events that one sentence names; the others are counted.
MAX_NAMED: Final = 5


class Told(NamedTuple):
    """A sentence about an event, and what to do about it, if that is known."""

    text: str
    remedy: str | None = None


def names_of(members: Iterable[Member]) -> str:
    """The names of members; members with the same name, as those of one process often have, are counted."""
    by_name: dict[str, list[Member]] = {}
    for member in members:
        by_name.setdefault(member.common_name, []).append(member)
    return listed(
        [each[0].name if len(each) == 1 else f"{len(each)} members named {name}" for name, each in by_name.items()]
    )


def listed(names: Sequence[str]) -> str:
    """Names as a list, like "a, b and 3 more"."""
    shown = list(names[:MAX_NAMED])
    if len(names) > MAX_NAMED:
        shown.append(f"{len(names) - MAX_NAMED} more")
    return " and ".join((", ".join(shown[:-1]), shown[-1])) if len(shown) > 1 else shown[0]


def count(number: int, noun: str) -> str:
    """A number of things: "no members", "1 member", "2 members"."""
    return counted(number, noun) if number else f"no {noun}s"


def times(number: int) -> str:
    """How often: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(number, f"{number} times")


def were(number: int) -> str:
    """The verb after a number of things."""
    return "was" if number == 1 else "were"


def are(number: int) -> str:
    """The verb before or after a number of things that are so now."""
    return "is" if number == 1 else "are"


def partitions(by_topic: Mapping[str, Sequence[int]]) -> str:
    """Runs of partitions in short, like "t-0 to t-3, u-1"."""
    parts = []
    for topic, numbers in by_topic.items():
        start = 0
        for at in range(1, len(numbers) + 1):
            if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
                first, last = numbers[start], numbers[at - 1]
                parts.append(f"{topic}-{first}" if first == last else f"{topic}-{first} to {topic}-{last}")
                start = at
    return ", ".join(parts)


def ms(milliseconds: float) -> str:
    """A duration in milliseconds, as people say it."""
    return span(milliseconds / 1000)


def span(seconds: float) -> str:
    """A duration in seconds, as people say it."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    if seconds < 7_200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3_600:.1f} h".replace(".0 h", " h")


def rate(records: int, milliseconds: float) -> str:
    """Records per time, as people say it: "20 records/s", "3 records/min"."""
    per_second = records * 1_000 / milliseconds
    if per_second >= 1:
        number, unit = per_second, "s"
    elif per_second * 60 >= 1:
        number, unit = per_second * 60, "min"
    else:
        number, unit = per_second * 3_600, "h"
    return f"{number:,.0f} records/{unit}" if number >= 10 else f"{number:.1f} records/{unit}".replace(".0 ", " ")


def clock(milliseconds: int) -> str:
    """The time of day of ms since 1970, in the local zone."""
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%H:%M:%S")


def moment(milliseconds: int) -> str:
    """Date and time of day of ms since 1970, in the local zone."""
    return datetime.fromtimestamp(milliseconds / 1000).strftime("%Y-%m-%d %H:%M:%S")


def capital(text: str) -> str:
    """A text with a capital letter at its beginning."""
    return text[:1].upper() + text[1:]
