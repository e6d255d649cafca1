"""Parses values on a command line: durations, times, partitions, pairs. Pure.

Each function raises `ValueError` with a text that shows a valid value; argparse prints it.
"""

import re
from collections.abc import Callable, Iterable
from datetime import datetime, time, timedelta
from typing import Final, NamedTuple

#: Values of --compression.
CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SHORT: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
#: ISO 8601, as Java's Duration writes it: PnDTnHnMnS.
_ISO: Final = re.compile(r"P(?!$)(?:(\d+)D)?(?:T(?!$)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
#: A time of day: 10:02 or 10:02:11.
_CLOCK: Final = re.compile(r"\d\d:\d\d(:\d\d)?")
_ISO_UNITS: Final = (86_400_000, 3_600_000, 60_000, 1_000)


def duration(text: str) -> int:
    """Parse ``10m``, ``1h30m``, ``500ms`` or ISO 8601's ``PT10M`` to milliseconds.

    Raises:
        ValueError: `text` is not a duration.
    """
    iso = _ISO.fullmatch(text)
    if iso is not None:
        return round(sum(float(part or 0) * unit for part, unit in zip(iso.groups(), _ISO_UNITS, strict=True)))
    parts = _SHORT.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration: write it as 10m, 1h30m, 90s or PT10M")
    return round(sum(float(number) * _UNITS[unit] for number, unit in parts))


def instant(text: str) -> int:
    """Parse ``2026-01-31T12:00:00``, in local time unless it names a zone, to milliseconds since 1970.

    Digits only are milliseconds since 1970. A time before 1970 is 0, because negative times have other meanings on the
    wire.

    Raises:
        ValueError: `text` is not a time.
    """
    if text.isdecimal():
        return int(text)
    try:
        return max(round(datetime.fromisoformat(text).timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise ValueError(
            f"{text!r} is not a time: write it as 2026-01-31T12:00:00, with Z or +02:00 for a zone, or in ms since 1970"
        ) from None


class Since(NamedTuple):
    """A time in the past: `ago` milliseconds before now, the time `at`, or the last time that it was `clock`."""

    ago: int | None
    at: int | None
    clock: time | None = None

    def ms(self, now: int) -> int:
        """Milliseconds since 1970."""
        if self.clock is not None:
            today = datetime.fromtimestamp(now / 1000)
            found = datetime.combine(today.date(), self.clock)
            return round((found if found <= today else found - timedelta(days=1)).timestamp() * 1000)
        return max(now - self.ago, 0) if self.ago is not None else self.at or 0


def since(text: str) -> Since:
    """Parse a duration before now, a time, or a time of day.

    Raises:
        ValueError: `text` is neither.
    """
    try:
        return Since(duration(text), None)
    except ValueError:
        pass
    try:
        if _CLOCK.fullmatch(text):
            return Since(None, None, time.fromisoformat(text))
        return Since(None, instant(text))
    except ValueError:
        raise ValueError(
            f"{text!r} is neither a duration, such as 10m, nor a time, such as 2026-01-31T12:00 or 12:00"
        ) from None


class TopicSpec(NamedTuple):
    """A topic and some of its partitions; None for all."""

    topic: str
    partitions: tuple[int, ...] | None


def topic_spec(text: str) -> TopicSpec:
    """Parse ``flights``, ``flights:0`` or ``flights:0,2``.

    Raises:
        ValueError: a partition is not a number.
    """
    topic, colon, numbers = text.partition(":")
    parts = [part.strip() for part in numbers.split(",")] if colon else []
    if not topic or not all(part.isdecimal() for part in parts):
        raise ValueError(f"{text!r} is not a topic with partitions: write flights, flights:0 or flights:0,2")
    return TopicSpec(topic, tuple(int(part) for part in parts) if colon else None)


def pair(text: str) -> tuple[str, str]:
    """Parse ``name=value``.

    Raises:
        ValueError: the name or the equals sign is missing.
    """
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text!r} is not name=value")
    return name.strip(), value


def any_case(known: Iterable[str]) -> Callable[[str], str]:
    """A parser of one of the `known` words in any case; it returns other words as they are."""
    by_lower = {word.lower(): word for word in known}
    return lambda text: by_lower.get(text.lower(), text)


def positive(text: str) -> int:
    """Parse a whole number of at least 1.

    Raises:
        ValueError: `text` is not such a number.
    """
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"must be a number of at least 1, got {text!r}")
    return int(text)


def seconds(text: str) -> float:
    """Parse a duration to seconds; a number without a unit is seconds.

    Raises:
        ValueError: `text` is not a duration, or zero.
    """
    value = float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else duration(text) / 1000
    if not value:
        raise ValueError(f"{text!r} is not a time: write it as 10 or 10s")
    return value


_SIZES: Final = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 2**10, "mi": 2**20, "gi": 2**30}


def size(text: str) -> int:
    """Parse ``10MB``, ``512KiB`` or a number of bytes.

    Raises:
        ValueError: `text` is not a size of at least one byte.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmg]i?)?b?", text.lower())
    value = 0 if found is None else round(float(found[1]) * _SIZES[found[2] or ""])
    if value < 1:
        raise ValueError(f"{text!r} is not a size: write it as 10MB, 512KiB or in bytes")
    return value


def shown_size(count: int) -> str:
    """Format a number of bytes: ``512 B``, ``3.2 MB``."""
    amount, units = float(count), iter(("B", "kB", "MB", "GB", "TB"))
    unit = next(units)
    while amount >= 999.5 and unit != "TB":
        amount, unit = amount / 1000, next(units)
    return f"{count} B" if unit == "B" else f"{amount:.0f} {unit}" if amount >= 99.5 else f"{amount:.1f} {unit}"


def shown_age(milliseconds: int) -> str:
    """Format a duration: 3.1s, 12m04s, 2h05m."""
    seconds = max(milliseconds, 0) / 1000
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"


def shown_partitions(partitions: Iterable[tuple[str, int]]) -> str:
    """Format partitions as Kafka's tools do: ``flights:0,1,2, other:0``."""
    grouped: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        grouped.setdefault(topic, []).append(number)
    return ", ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in grouped.items())
