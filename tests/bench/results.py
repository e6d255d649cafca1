"""Samples of several rounds, and the tables made of them."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

Format = Callable[[float], str]


def count(value: float) -> str:
    return f"{value:,.0f}"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB/s"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def mebibytes(value: float) -> str:
    return f"{value / 1024**2:,.0f} MiB"


#: In the cell of what a target does not do.
NOTHING: Final = "–"


@dataclass
class Table:
    """Rows by what is measured, columns by whom (who does none of it has none); a cell is the median and, in brackets,
    the lowest and the highest.

    The last column compares the first target with each other one, round by round, because two numbers of one round
    have met the same machine.
    """

    targets: Sequence[str]
    _samples: defaultdict[str, defaultdict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _formats: dict[str, Format] = field(default_factory=dict)

    def add(self, row: str, target: str, value: float, shown: Format) -> None:
        self._formats[row] = shown
        self._samples[row][target].append(value)

    def markdown(self) -> str:
        there = {target for samples in self._samples.values() for target in samples}
        first, *others = [target for target in self.targets if target in there]
        head = ["", first, *others, *(f"{first} / {other}" for other in others)]
        lines = [f"| {' | '.join(head)} |", "|---|" + "---:|" * (len(head) - 1)]
        for row, samples in self._samples.items():
            cells = [self._cell(samples.get(target, []), self._formats[row]) for target in (first, *others)]
            ratios = [self._ratio(samples.get(first, []), samples.get(other, [])) for other in others]
            lines.append(f"| {' | '.join([row, *cells, *ratios])} |")
        return "\n".join(lines)

    @staticmethod
    def _cell(samples: Sequence[float], shown: Format) -> str:
        if not samples:
            return NOTHING
        middle = shown(statistics.median(samples))
        return middle if len(samples) == 1 else f"{middle} ({shown(min(samples))} – {shown(max(samples))})"

    @staticmethod
    def _ratio(mine: Sequence[float], theirs: Sequence[float]) -> str:
        if not mine or not theirs:
            return NOTHING
        return f"{statistics.median(one / other for one, other in zip(mine, theirs, strict=True)):.2f}"
