"""The last values of the metrics that clients have pushed. Pure.

Names, labels and their number are the clients' choice, so all three are bounded.
"""

import re
from typing import Final

from barnabas_broker.telemetry.points import Point

#: Maximum series of one client, and of all.
MOST_OF_CLIENT: Final = 1_000
MOST: Final = 20_000
_PREFIX: Final = "org.apache.kafka."
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")

#: Values by the name of a metric and its labels.
Values = dict[tuple[str, tuple[tuple[str, str], ...]], float]


class Series:
    """The series of all clients of this broker.

    Attributes:
        dropped: points that came beyond :data:`MOST_OF_CLIENT` or :data:`MOST` series.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, values: Values, point: Point) -> None:
        """Add a point to the values of its client, unless there are too many."""
        labels = {_name(key): value for key, value in point.labels.items()}
        key = _name(point.name.removeprefix(_PREFIX)), tuple(sorted(labels.items()))
        if key not in values:
            if len(values) >= MOST_OF_CLIENT or self._count >= MOST:
                self.dropped += 1
                return
            self._count += 1
            values[key] = 0.0
        values[key] = values[key] + point.value if point.delta else point.value

    def forget(self, values: Values) -> None:
        """Drop all values of a client."""
        self._count -= len(values)
        values.clear()


def _name(text: str) -> str:
    name = _NOT_IN_NAMES.sub("_", text)
    return name if name and not name[0].isdigit() else f"_{name}"
