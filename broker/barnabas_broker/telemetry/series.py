"""The last values of the metrics that clients have pushed. Pure.

Names, labels and their number are the clients' choice, so all three are bounded.
"""

import re
from typing import Final

from barnabas_broker.telemetry.points import Point

#: Maximum series of one client, and of all; and characters in the names and labels of all.
MOST_OF_CLIENT: Final = 1_000
MOST: Final = 20_000
MOST_CHARACTERS: Final = 8_000_000
_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")

#: A metric: its name, and its labels in order.
_Key = tuple[str, tuple[tuple[str, str], ...]]
#: Values by the name of a metric and its labels.
Values = dict[_Key, float]


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

    def add(self, values: Values, point: Point) -> None:
        """Add a point to the values of its client, unless there are too many."""
        labels = {_name(key): value for key, value in point.labels.items()}
        key = _name(point.name.removeprefix(_PREFIX)), tuple(sorted(labels.items()))
        if key not in values:
            characters = self._characters + _characters(key)
            if len(values) >= MOST_OF_CLIENT or self._count >= MOST or characters > MOST_CHARACTERS:
                self.dropped += 1
                return
            self._count += 1
            self._characters = characters
            values[key] = 0.0
        values[key] = values[key] + point.value if point.delta else point.value

    def forget(self, values: Values) -> None:
        """Drop all values of a client."""
        self._count -= len(values)
        self._characters -= sum(map(_characters, values))
        values.clear()


def _characters(key: _Key) -> int:
    name, labels = key
    return len(name) + sum(len(label) + len(text) for label, text in labels)


def _name(text: str) -> str:
    name = _NOT_IN_NAMES.sub("_", text)
    return name if name and not name[0].isdigit() else f"_{name}"
