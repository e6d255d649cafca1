"""The last values of the metrics that clients have pushed. Pure.

Names, labels and their number are the clients' choice, so all three are bounded.
"""

import re
from collections.abc import Set
from typing import Final, NamedTuple

from barnabas_broker.telemetry.points import Point

#: Maximum series of one client, and of all; and characters in the names and labels of all.
MOST_OF_CLIENT: Final = 1_000
MOST: Final = 20_000
MOST_CHARACTERS: Final = 8_000_000
_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")

#: A series: the name of its metric, and its labels in order.
SeriesKey = tuple[str, tuple[tuple[str, str], ...]]


class Value(NamedTuple):
    """The last value of a series.

    Attributes:
        value: the value.
        total: it is a sum, which stays until the client pushes another one.
    """

    value: float
    total: bool


class Values(dict[SeriesKey, Value]):
    """The last values of a client, by series.

    Attributes:
        characters: in the names and labels of all.
    """

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0


class Series:
    """The series of all clients of this broker.

    Attributes:
        dropped: points that came beyond :data:`MOST_OF_CLIENT` or :data:`MOST` series, or :data:`MOST_CHARACTERS`.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._count = self._characters = 0

    def __len__(self) -> int:
        return self._count

    def add(self, values: Values, point: Point) -> SeriesKey | None:
        """Add a point to the values of its client, and return its series; None if there are too many."""
        labels = {_name(key): value for key, value in point.labels.items()}
        key = _name(point.name.removeprefix(_PREFIX)), tuple(sorted(labels.items()))
        if key not in values:
            characters = _characters(key)
            most = self._characters + characters > MOST_CHARACTERS
            if len(values) >= MOST_OF_CLIENT or self._count >= MOST or most:
                self.dropped += 1
                return None
            self._count += 1
            self._characters += characters
            values.characters += characters
        before = values.get(key)
        value = point.value if before is None or not point.delta else before.value + point.value
        values[key] = Value(value, point.total)
        return key

    def keep(self, values: Values, pushed: Set[SeriesKey]) -> None:
        """Drop the gauges of a client that are not in its last push: what they tell is not so any more."""
        gone = [key for key, each in values.items() if not each.total and key not in pushed]
        characters = sum(map(_characters, gone))
        self._count -= len(gone)
        self._characters -= characters
        values.characters -= characters
        for key in gone:
            del values[key]

    def forget(self, values: Values) -> None:
        """Drop all values of a client."""
        self._count -= len(values)
        self._characters -= values.characters
        values.clear()
        values.characters = 0


def _characters(key: SeriesKey) -> int:
    name, labels = key
    return len(name) + sum(len(label) + len(text) for label, text in labels)


def _name(text: str) -> str:
    name = _NOT_IN_NAMES.sub("_", text)
    return name if name and not name[0].isdigit() else f"_{name}"
