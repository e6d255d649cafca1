"""The lag report: a self-contained HTML page, a chart, and the numbers as Parquet."""

import base64
import html
import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pandas as pd

from barnabas_pipeline.lag.analysis import LagTables
from barnabas_pipeline.lag.chart import MOST_PANELS, draw, groups_by_lag, png, svg
from barnabas_pipeline.text import duration
from barnabas_protocol.counts import counted

#: The maximum of rows of a table on the page; the Parquet files have all.
_MOST_ROWS: Final = 100

_STYLE: Final = """
:root { color-scheme: light; --ink: #1d2a33; --soft: #5b6b76; --line: #e1e6ea; --paper: #ffffff; --back: #f4f6f8;
  --bad: #c23a30; --good: #2c8257; }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 32px 24px 64px; }
h1 { font-size: 26px; margin: 0; } h2 { font-size: 19px; margin: 0 0 2px; overflow-wrap: anywhere; }
h3 { font-size: 14px; margin: 22px 0 6px; }
p { margin: 4px 0; } .soft { color: var(--soft); }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(160px, 1fr)); gap: 12px; margin: 22px 0; }
.tile { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 12px 16px; }
.tile b { display: block; font-size: 26px; line-height: 1.2; font-variant-numeric: tabular-nums; }
.tile.bad b { color: var(--bad); } .tile.good b { color: var(--good); }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 20px 22px;
  margin: 16px 0; }
img { width: 100%; height: auto; display: block; margin-top: 8px; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th { text-align: left; font-weight: 600; color: var(--soft); border-bottom: 1px solid var(--line);
  padding: 5px 12px 5px 0; white-space: nowrap; }
td { border-bottom: 1px solid var(--line); padding: 6px 12px 6px 0; vertical-align: top; overflow-wrap: anywhere; }
tr:last-child td { border-bottom: 0; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; } .t { white-space: nowrap; }
.hot { color: var(--bad); font-weight: 600; }
.todo { color: var(--soft); margin-top: 2px; } .todo b { color: var(--ink); }
"""


class Html(str):
    """A cell that is HTML already."""


def page(tables: LagTables, now: int) -> str:
    """Return the HTML page.

    Args:
        tables: the analysis.
        now: the time of the report, ms since 1970.
    """
    groups = groups_by_lag(tables)
    last = latest(tables)
    body = [
        "<h1>Consumer lag</h1>",
        f'<p class="soft">{_when(tables.times[0])} to {_when(tables.times[-1])} UTC, one point every '
        f"{_seconds((int(tables.times[-1]) - int(tables.times[-2])) / 1000)}. Created {_when(now)} UTC.</p>",
        _tiles(tables, last),
    ]
    if tables.broken:
        body.append(
            f'<p class="hot">{tables.broken:,} records of __consumer_offsets could not be read and are left out.</p>'
        )
    body += [_group(tables, last, group) for group in groups]
    if not tables.events:
        body.append(
            '<p class="soft">These brokers have no topic __group_events: the causes of rebalances are not known.</p>'
        )
    title = "Consumer lag"
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def latest(tables: LagTables) -> pd.DataFrame:
    """Return the rows of the last point."""
    return tables.rows[tables.rows["time"] == int(tables.times[-1])]


def _tiles(tables: LagTables, last: pd.DataFrame) -> str:
    lag, behind = float(last["lag"].sum()), float(tables.rows["lag_seconds"].max()) if len(tables.rows) else 0.0
    tiles = [
        (f"{tables.rows['group'].nunique():,}", "groups", ""),
        (f"{lag:,.0f}", "records behind at the end", "" if lag else "good"),
        (_seconds(behind), "maximum time behind", ""),
        (f"{len(tables.stalls):,}", "stalls of partitions", "bad" if len(tables.stalls) else "good"),
        (f"{len(tables.rebalances):,}" if tables.events else "?", "rebalances", ""),
    ]
    cells = "".join(
        f'<div class="tile {look}"><b>{number}</b><span class="soft">{what}</span></div>'
        for number, what, look in tiles
    )
    return f'<div class="tiles">{cells}</div>'


def _group(tables: LagTables, last: pd.DataFrame, group: str) -> str:
    chart = base64.b64encode(svg(draw(tables, [group], titled=False))).decode()
    stalls = tables.stalls[tables.stalls["group"] == group]
    rebalances = tables.rebalances[tables.rebalances["group"] == group]
    now = last[last["group"] == group].sort_values(["lag", "topic", "partition"], ascending=[False, True, True])
    parts = [
        f"<h2>{html.escape(group)}</h2>",
        f'<p class="soft">{_in_words(now, stalls, rebalances)}</p>',
        f'<img alt="lag of {html.escape(group)} over time" src="data:image/svg+xml;base64,{chart}">',
    ]
    if len(rebalances):
        parts += ["<h3>Rebalances</h3>", _rebalances(rebalances)]
    if len(stalls):
        stalled: list[Sequence[Any]] = [
            (
                f"{one.topic}-{one.partition}",
                Html(f'<span class="t">{_when(one.since)}</span>'),
                duration(one.seconds),
                f"{one.offset:,}",
                f"{one.lag_before:,.0f}",
                f"{one.lag_after:,.0f}",
            )
            for one in stalls.sort_values("seconds", ascending=False).head(_MOST_ROWS).itertuples()
        ]
        stall_heads = ("partition", "stalled since", "for", "at offset", "lag before", "lag after")
        parts += [
            "<h3>Stalls: nothing consumed while more was produced</h3>",
            _table(stall_heads, stalled, 2, len(stalls)),
        ]
    rows: list[Sequence[Any]] = [
        (
            f"{one.topic}-{one.partition}",
            f"{one.committed:,.0f}",
            _number(one.end),
            _number(one.lag),
            _seconds(one.lag_seconds),
            f"{one.consumed_rate:,.1f}",
            f"{one.produced_rate:,.1f}",
        )
        for one in now.head(_MOST_ROWS).itertuples()
    ]
    heads = ("partition", "committed", "end", "lag", "behind", "consumed/s", "produced/s")
    parts += ["<h3>Partitions at the end</h3>", _table(heads, rows, 1, len(now))]
    return f"<section>{''.join(parts)}</section>"


def _in_words(now: pd.DataFrame, stalls: pd.DataFrame, rebalances: pd.DataFrame) -> str:
    lag = float(now["lag"].sum())
    words = [
        f"{counted(round(lag), 'record')} behind at the end, in {int((now['lag'] > 0).sum())} of "
        f"{counted(len(now), 'partition')}"
        if lag
        else "nothing behind at the end"
    ]
    if len(stalls):
        words.append(f"{counted(len(stalls), 'stall')}, the longest {duration(float(stalls['seconds'].max()))}")
    if len(rebalances):
        words.append(counted(len(rebalances), "rebalance"))
    return "; ".join(words) + "."


def _rebalances(rebalances: pd.DataFrame) -> str:
    rows = []
    for one in rebalances.head(_MOST_ROWS).itertuples():
        remedy = f'<div class="todo"><b>To do:</b> {html.escape(one.remedy)}</div>' if one.remedy else ""
        details = f'<div class="todo">{html.escape(one.details)}</div>' if one.details else ""
        rows.append(
            (
                Html(f'<span class="t">{_when(one.time)}</span>'),
                Html(f"{html.escape(one.text)}{details}{remedy}"),
                Html(f'<span class="n">{_seconds((one.until - one.time) / 1000)}</span>'),
                Html(f'<span class="n">{_seconds(one.gap_seconds)}</span>'),
            )
        )
    return _table(("when", "why", "took", "no commits for"), rows, 4, len(rebalances))


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]], text: int, count: int) -> str:
    """Return a table; its first `text` columns are text, the others numbers."""
    classes = ["" if at < text else ' class="n"' for at in range(len(heads))]
    head = "".join(f"<th{look}>{name}</th>" for name, look in zip(heads, classes, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{look}>{_cell(cell)}</td>' for cell, look in zip(row, classes, strict=True))}</tr>"
        for row in rows
    )
    more = f'<p class="soft">{count - _MOST_ROWS:,} more are in the Parquet files.</p>' if count > _MOST_ROWS else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{more}'


def _cell(cell: Any) -> str:
    return cell if isinstance(cell, Html) else html.escape(str(cell))


def _number(number: float) -> str:
    return "?" if math.isnan(number) else f"{number:,.0f}"


def _seconds(seconds: float) -> str:
    if math.isnan(seconds):
        return "?"
    return (
        f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else f"{seconds:.1f} s" if 0 < seconds < 10 else duration(seconds)
    )


def _when(milliseconds: float) -> str:
    return datetime.fromtimestamp(int(milliseconds) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def write(tables: LagTables, out: Path, now: int) -> None:
    """Write lag.parquet, stalls.parquet, rebalances.parquet, lag.png and report.html to a local folder.

    Args:
        tables: the analysis.
        out: the folder; it must exist.
        now: the time of the report, ms since 1970.
    """
    for name, frame in (("lag", tables.rows), ("stalls", tables.stalls), ("rebalances", tables.rebalances)):
        with_times(frame).to_parquet(out / f"{name}.parquet", index=False)
    png(draw(tables, groups_by_lag(tables)[:MOST_PANELS]), out / "lag.png")
    (out / "report.html").write_text(page(tables, now))


def with_times(frame: pd.DataFrame) -> pd.DataFrame:
    """Convert times to timestamps and offsets to whole numbers."""
    times = {
        name: pd.to_datetime(frame[name], unit="ms", utc=True) for name in ("time", "since", "until") if name in frame
    }
    whole = {name: frame[name].astype("Int64") for name in ("committed", "end", "lag", "offset") if name in frame}
    return frame.assign(**times, **whole)


def summary(tables: LagTables, out: Path) -> dict[str, Any]:
    """Return a summary for JSON."""
    last = latest(tables)
    groups = {}
    for group in groups_by_lag(tables):
        now = last[last["group"] == group]
        groups[group] = {
            "lag": int(now["lag"].sum()),
            "lag_seconds": float(now["lag_seconds"].max()) if now["lag_seconds"].notna().any() else None,
            "stalls": int((tables.stalls["group"] == group).sum()),
            "rebalances": int((tables.rebalances["group"] == group).sum()),
        }
    return {
        "groups": groups,
        "points": len(tables.times),
        "broken_records": tables.broken,
        "report": str(out / "report.html"),
        "chart": str(out / "lag.png"),
        "tables": [str(out / f"{name}.parquet") for name in ("lag", "stalls", "rebalances")],
    }
