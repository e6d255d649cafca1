"""A family's chart: the medians side by side, with the range of the rounds and the ratio."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib
from matplotlib.figure import Figure

from tests.bench.results import Chart, Table, times

#: Colours of the bars, in the order of the targets.
COLOURS: Final = ("#2a6f97", "#e09f3e", "#8d99ae")
BETTER, WORSE, NEITHER = "#2d6a4f", "#9d0208", "#495057"
#: Ratios closer to 1 than this are not significant.
SAME: Final = 0.05
#: Charts in a row, and the size of one with its frame in inches.
COLUMNS: Final = 3
WIDTH, HEIGHT = 3.9, 3.3
#: Minimum width of a group of bars in inches, and the minimum number of groups for which a chart has room.
GROUP, GROUPS = 0.8, 2.4
STYLE: Final[Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.edgecolor": "#adb5bd",
    "grid.color": "#e9ecef",
    "xtick.bottom": False,
    "xtick.labelsize": 8,
    "ytick.color": "#6c757d",
    "ytick.left": False,
}


def draw(path: Path, title: str, subtitle: str, table: Table, charts: Sequence[Chart]) -> None:
    """Write a PNG. Rows that were not measured are left out."""
    targets = table.measured()
    columns = min(COLUMNS, len(charts))
    lines = -(-len(charts) // columns)
    head = 0.95
    with matplotlib.rc_context(STYLE):
        most = max(len(chart.rows) for chart in charts)
        width, height = max(max(WIDTH, GROUP * most + 0.6) * columns, 7), HEIGHT * lines + head
        figure = Figure(figsize=(width, height), dpi=150)
        grid = figure.subplots(lines, columns, squeeze=False)
        places = [place for line in grid for place in line]
        handles = [_chart(place, table, targets, chart) for place, chart in zip(places, charts, strict=False)]
        for place in places[len(charts) :]:
            place.set_axis_off()
        figure.tight_layout(rect=(0, 0, 1, 1 - head / height), h_pad=2, w_pad=2)
        figure.text(0.012, 1 - 0.1 / height, title, fontsize=14, fontweight="bold", va="top")
        if len(targets) == 2:
            subtitle += f"   ·   in bold: {targets[0]} / {targets[1]}"
        figure.text(0.012, 1 - 0.42 / height, subtitle, fontsize=9, color=NEITHER, va="top")
        figure.legend(
            handles[0],
            targets,
            loc="upper left",
            bbox_to_anchor=(0.004, 1 - 0.56 / height),
            ncols=len(targets),
            frameon=False,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, facecolor="white")


def _chart(place: Any, table: Table, targets: Sequence[str], chart: Chart) -> list[Any]:
    """Draw one group of bars for each row; return the bars of the first group, for the legend."""
    rows = {label: row for label, row in chart.rows.items() if all(table.samples(row, one) for one in targets[:1])}
    wide = 0.8 / len(targets)
    top = 0.0
    handles = []
    for number, target in enumerate(targets):
        found = [[value * chart.factor for value in table.samples(row, target)] or [0.0] for row in rows.values()]
        middles = [statistics.median(values) for values in found]
        spread = [
            [middle - min(values) for middle, values in zip(middles, found, strict=True)],
            [max(values) - middle for middle, values in zip(middles, found, strict=True)],
        ]
        where = [index + (number - (len(targets) - 1) / 2) * wide for index in range(len(rows))]
        bars = place.bar(where, middles, wide * 0.94, color=COLOURS[number], zorder=2)
        place.errorbar(where, middles, spread, fmt="none", ecolor="#343a40", elinewidth=0.8, capsize=2, zorder=3)
        handles.append(bars[0])
        top = max([top, *(max(values) for values in found)])
    for index, row in enumerate(rows.values()):
        _ratio(place, table, targets, chart, row, index, top)
    place.set_ylim(0, top * 1.22 or 1)
    spare = max(0.0, GROUPS - len(rows)) / 2
    place.set_xlim(-0.6 - spare, len(rows) - 0.4 + spare)
    place.set_xticks(range(len(rows)), list(rows))
    place.set_title(chart.title, loc="left", fontsize=10, fontweight="bold", pad=16)
    less = ", less is better" if chart.less_is_better else ""
    place.text(0, 1.02, f"{chart.unit}{less}", transform=place.transAxes, color="#6c757d", fontsize=8, va="bottom")
    place.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    return handles


def _ratio(place: Any, table: Table, targets: Sequence[str], chart: Chart, row: str, index: int, top: float) -> None:
    """Draw the ratio to the second target. It is only unambiguous with two targets."""
    if len(targets) != 2:
        return
    mine, theirs = (table.samples(row, target) for target in targets)
    if not mine or not theirs:
        return
    ratio = Table.ratio(mine, theirs)
    highest = max(*mine, *theirs) * chart.factor
    better = ratio < 1 if chart.less_is_better else ratio > 1
    colour = NEITHER if abs(ratio - 1) < SAME else BETTER if better else WORSE
    place.text(
        index,
        highest + top * 0.03,
        f"{times(ratio)}×",
        ha="center",
        va="bottom",
        color=colour,
        fontweight="bold",
        fontsize=9,
    )
