"""A chart of lag over time: one panel for each group, stalls shaded, rebalances marked. Needs no display."""

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import pandas as pd
from matplotlib import dates
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import EngFormatter, MaxNLocator

from barnabas_pipeline.lag import rows
from barnabas_pipeline.lag.analysis import LagTables

#: The maximum of groups in the chart of all groups; the report has every group.
MOST_PANELS: Final = 12
#: The maximum of topics in a panel; the others are added up.
_MOST_TOPICS: Final = 6
_COLORS: Final = ("#2f6db5", "#e08a1e", "#3a9a68", "#8a5bb0", "#c2506e", "#5f7d8c")
_OTHER: Final = "#9aa5ad"
#: matplotlib.dates has no type annotations.
_DATES: Final[Any] = dates
_STALL: Final = "#d8453a"
_REBALANCE: Final = "#20303c"
_STYLE: Final[Any] = {
    "font.size": 9.5,
    "axes.edgecolor": "#c5cdd3",
    "axes.labelcolor": "#4a5963",
    "axes.titlecolor": "#1d2a33",
    "xtick.color": "#4a5963",
    "ytick.color": "#4a5963",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "barnabas",
    # Names of groups and topics are not formulas.
    "text.parse_math": False,
}


def groups_by_lag(tables: LagTables) -> list[str]:
    """Return the groups, those with the largest lag first."""
    if tables.rows.empty:
        return []
    whole = tables.rows.groupby(["group", "time"], as_index=False)["lag"].sum()
    worst = whole.groupby("group")["lag"].max().reset_index().sort_values(["lag", "group"], ascending=[False, True])
    return [str(name) for name in worst["group"]]


def draw(tables: LagTables, groups: Sequence[str], *, titled: bool = True) -> Figure:
    """Draw a figure with a panel for each of `groups`; `titled` adds their names."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 0.5 + 2.75 * max(len(groups), 1)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(max(len(groups), 1), 1, squeeze=False, sharex=True)[:, 0]
        totals = rows.totals(tables.rows)
        for at, (axis, group) in enumerate(zip(axes, groups, strict=False)):
            _panel(axis, tables, totals[totals["group"] == group], group, last=at == len(groups) - 1)
            if titled:
                axis.set_title(_short(group), loc="left", fontweight="bold", fontsize=11)
        return figure


def png(figure: Figure, path: Path) -> None:
    """Write a figure as PNG."""
    with mpl.rc_context(_STYLE):
        figure.savefig(path, format="png", dpi=140)


def svg(figure: Figure) -> bytes:
    """Return a figure as SVG."""
    out = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _panel(axis: Any, tables: LagTables, totals: pd.DataFrame, group: str, *, last: bool) -> None:
    first, end = _time(tables.times[0]), _time(tables.times[-1])
    lag = totals.pivot(index="time", columns="topic", values="lag").fillna(0.0)
    order = lag.max().sort_values(ascending=False).index
    shown = list(order[:_MOST_TOPICS])
    rest = lag.drop(columns=shown).sum(axis=1)
    series = [(name, lag[name], _COLORS[at]) for at, name in enumerate(shown)]
    if len(order) > _MOST_TOPICS:
        series.append((f"{len(order) - _MOST_TOPICS} other topics", rest, _OTHER))
    times = [_time(time) for time in lag.index]
    axis.stackplot(times, [values for _, values, _ in series], colors=[f"{color}38" for _, _, color in series], lw=0)
    top = pd.Series(0.0, index=lag.index)
    for _, values, color in series:
        top = top + values
        axis.plot(times, top, color=color, lw=1.6, solid_joinstyle="round")

    stalls = tables.stalls[tables.stalls["group"] == group]
    for since, until in merged(zip(stalls["since"], stalls["until"], strict=True)):
        axis.axvspan(_time(since), _time(until), color=_STALL, alpha=0.13, lw=0, zorder=0)
    rebalances = tables.rebalances[tables.rebalances["group"] == group]
    for since, until in zip(rebalances["time"], rebalances["until"], strict=True):
        axis.axvspan(_time(since), _time(until), color=_REBALANCE, alpha=0.10, lw=0, zorder=0)
        axis.axvline(_time(since), color=_REBALANCE, lw=0.8, ls=(0, (2, 2)), alpha=0.7)
    if len(rebalances):
        marks = [_time(since) for since in rebalances["time"]]
        axis.plot(
            marks, [1.0] * len(marks), "v", color=_REBALANCE, ms=5, transform=axis.get_xaxis_transform(), clip_on=False
        )

    axis.set_ylabel("records behind")
    axis.set_ylim(bottom=0, top=max(float(top.max()) * 1.12, 1.0))
    axis.set_xlim(first, end)
    axis.yaxis.set_major_formatter(EngFormatter(sep=""))
    axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axis.grid(axis="y", color="#e6eaed", lw=0.8)
    axis.set_axisbelow(True)
    locator = _DATES.AutoDateLocator(maxticks=10)
    axis.xaxis.set_major_locator(locator)
    axis.xaxis.set_major_formatter(_DATES.ConciseDateFormatter(locator, tz=UTC))
    axis.tick_params(length=3)
    if last:
        axis.set_xlabel("time (UTC)")
    handles: list[Any] = [Line2D([], [], color=color, lw=2.2, label=_short(name)) for name, _, color in series]
    if len(stalls):
        handles.append(Patch(color=_STALL, alpha=0.25, lw=0, label="stalled"))
    if len(rebalances):
        handles.append(Line2D([], [], color=_REBALANCE, marker="v", ms=5, ls="", label="rebalance"))
    axis.legend(
        handles=handles,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=len(handles),
        frameon=False,
        fontsize=9,
        borderaxespad=0.2,
        handlelength=1.3,
        columnspacing=1.2,
    )


def merged(spans: Any) -> list[tuple[int, int]]:
    """Merge spans of time that overlap or touch; oldest first."""
    out: list[tuple[int, int]] = []
    for since, until in sorted((int(since), int(until)) for since, until in spans):
        if out and since <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], until))
        else:
            out.append((since, until))
    return out


def _time(milliseconds: float) -> datetime:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC)


def _short(name: str) -> str:
    clean = "".join(letter if letter.isprintable() else "?" for letter in name)
    return clean if len(clean) <= 60 else f"{clean[:57]}..."
