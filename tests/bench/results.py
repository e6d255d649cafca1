"""Samples of several rounds, and tables of them."""

import logging
import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

Format = Callable[[float], str]

LOG: Final = logging.getLogger(__name__)


def count(value: float) -> str:
    return f"{value:,.0f}"


def megabytes(value: float) -> str:
    return f"{value / 1e6:,.0f} MB/s"


def seconds(value: float) -> str:
    return f"{value:.2f} s"


def mebibytes(value: float) -> str:
    return f"{value / 1024**2:,.0f} MiB"


def milliseconds(value: float) -> str:
    return f"{value * 1e3:,.2f} ms"


def times(ratio: float) -> str:
    """Format a ratio with three digits, small ones with two."""
    if ratio >= 10:
        return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"
    return f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


@dataclass(frozen=True)
class Chart:
    """Rows of a table that are shown side by side in a chart, by their labels there.

    Values are multiplied by `factor` to convert them to `unit`.
    """

    title: str
    rows: Mapping[str, str]
    unit: str
    factor: float = 1.0
    less_is_better: bool = False


#: Text of a cell that a target does not support.
NOTHING: Final = "–"


@dataclass
class Table:
    """A row is a measurement, a column is a target (targets without samples have none); a cell is the median and, in
    brackets, the lowest and the highest sample.

    The last column compares the first target with each other one, round by round, because two samples of one round
    have the same conditions.
    """

    targets: Sequence[str]
    _samples: defaultdict[str, defaultdict[str, list[float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _formats: dict[str, Format] = field(default_factory=dict)

    def add(self, row: str, target: str, value: float, shown: Format) -> None:
        self._formats[row] = shown
        self._samples[row][target].append(value)
        LOG.info("round %d: %s, %s: %s", len(self._samples[row][target]), row, target, shown(value))

    def samples(self, row: str, target: str) -> Sequence[float]:
        """Return one sample for each round; none if it was not measured."""
        return self._samples[row][target] if target in self._samples.get(row, {}) else ()

    def measured(self) -> Sequence[str]:
        """The targets that have samples."""
        there = {target for samples in self._samples.values() for target in samples}
        return [target for target in self.targets if target in there]

    @staticmethod
    def ratio(mine: Sequence[float], theirs: Sequence[float]) -> float:
        """Return the median of the ratios of the rounds."""
        return statistics.median(one / other for one, other in zip(mine, theirs, strict=True))

    def markdown(self) -> str:
        first, *others = self.measured()
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

    def _ratio(self, mine: Sequence[float], theirs: Sequence[float]) -> str:
        return times(self.ratio(mine, theirs)) if mine and theirs else NOTHING
