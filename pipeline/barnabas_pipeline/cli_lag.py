"""`barnabas-pipeline lag`."""

import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import pandas as pd

from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.output import Column, Output
from barnabas_pipeline.cli_archive import source_options
from barnabas_pipeline.cli_progress import Progress
from barnabas_pipeline.cli_spark import session
from barnabas_pipeline.lag import LagTables, Window, look
from barnabas_pipeline.remote import remote_for
from barnabas_pipeline.report import latest, page
from barnabas_pipeline.report_chart import MOST_PANELS, draw, groups_by_lag, png
from barnabas_pipeline.settings import Settings


def lag(arguments: Namespace, output: Output) -> int:
    """Write what is known of the lag of groups, and draw it; the status is 1 if a record could not be read."""
    options = source_options(arguments)
    remote = remote_for(Settings.of(options))
    now = time.time_ns() // 1_000_000
    window = Window(
        groups=arguments.groups,
        since=None if arguments.since is None else arguments.since.ms(now),
        until=None if arguments.until is None else arguments.until.ms(now),
        interval_ms=None if arguments.interval is None else max(round(arguments.interval * 1000), 1),
        stall_ms=None if arguments.stall is None else round(arguments.stall * 1000),
    )
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    with Progress(output, "lag", "points") as progress:
        progress.say("starting Spark")
        spark = session("barnabas-pipeline lag", dict(arguments.conf))
        tables = look(spark, remote, options, window, now, progress.say, progress.show)
        progress.say("drawing")
        write(tables, out, now)
    told = summary(tables, out)
    if output.json:
        output.data(told)
    else:
        _tell(told, output)
    if tables.broken:
        output.error(f"{tables.broken:,} records of __consumer_offsets could not be read and are left out")
    return FAILED if tables.broken else DONE


def write(tables: LagTables, out: Path, now: int) -> None:
    """Write lag.parquet, stalls.parquet, rebalances.parquet, lag.png and report.html to a folder of this machine.

    Args:
        tables: what is known.
        out: the folder.
        now: ms since 1970.
    """
    for name, frame in (("lag", tables.rows), ("stalls", tables.stalls), ("rebalances", tables.rebalances)):
        with_times(frame).to_parquet(out / f"{name}.parquet", index=False)
    png(draw(tables, groups_by_lag(tables)[:MOST_PANELS]), out / "lag.png")
    (out / "report.html").write_text(page(tables, now))


def with_times(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with times as timestamps, and offsets as whole numbers."""
    times = {
        name: pd.to_datetime(frame[name], unit="ms", utc=True) for name in ("time", "since", "until") if name in frame
    }
    whole = {name: frame[name].astype("Int64") for name in ("committed", "end", "lag", "offset") if name in frame}
    return frame.assign(**times, **whole)


def summary(tables: LagTables, out: Path) -> dict[str, Any]:
    """What was found, ready for JSON."""
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


def _tell(told: dict[str, Any], output: Output) -> None:
    columns = [Column("GROUP"), Column("LAG", 8), Column("BEHIND", 8), Column("STALLS", 8), Column("REBALANCES", 0)]
    rows = [
        (
            group,
            one["lag"],
            None if one["lag_seconds"] is None else f"{one['lag_seconds']:.1f}s",
            one["stalls"],
            one["rebalances"],
        )
        for group, one in told["groups"].items()
    ]
    output.table(columns, rows)
    output.line(
        f"{told['report']} tells and shows more, {told['chart']} is its picture, the numbers are beside them as Parquet"
    )
