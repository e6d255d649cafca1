"""The analysis of lag over time, from topics that brokers keep anyway.

``__consumer_offsets`` has every commit since its last compaction, the records of topics have timestamps, and Barnabas
writes the causes of rebalances to ``__group_events``. Spark reads the internal topics and reduces the commits to one
for each point in time; the driver computes the rest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import Remote
from barnabas_pipeline.errors import LagError
from barnabas_pipeline.lag import commits as commit_records
from barnabas_pipeline.lag.rebalances import COLUMNS, by_group, rebalances
from barnabas_pipeline.lag.rows import KEYS, Floats, Points, points, progress, stalls
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC

#: The number of points if no interval is given.
POINTS: Final = 240
#: The maximum of points: each is a request to the brokers.
_MOST_POINTS: Final = 20_000
#: Events of a rebalance that is under way at the first point may be this much older.
_MARGIN_MS: Final = 3_600_000


@dataclass(slots=True)
class LagTables:
    """The result of the analysis.

    Attributes:
        times: the points, ms since 1970.
        rows: with the columns :data:`barnabas_pipeline.lag.rows.COLUMNS`.
        stalls: with the columns :data:`barnabas_pipeline.lag.rows.STALL_COLUMNS`.
        rebalances: with the columns :data:`barnabas_pipeline.lag.rebalances.COLUMNS`, and `gap_seconds`: how long the
            group committed nothing around the start of the rebalance, NaN if there is no commit before or after it.
        events: whether the brokers record the causes of rebalances.
        broken: the number of records of ``__consumer_offsets`` that cannot be read.
    """

    times: Points
    rows: pd.DataFrame
    stalls: pd.DataFrame
    rebalances: pd.DataFrame
    events: bool
    broken: int


@dataclass(frozen=True, slots=True)
class LagWindow:
    """The groups and the time that are analyzed.

    Attributes:
        groups: the groups; all groups if empty.
        since: the start in ms since 1970; None for the first commit.
        until: the end in ms since 1970; None for now.
        interval_ms: the time between two points; None for what makes :data:`POINTS` points.
        stall_ms: the minimum duration of a stall; None for three intervals.
    """

    groups: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    interval_ms: int | None = None
    stall_ms: int | None = None


def analyze(
    spark: SparkSession,
    remote: Remote,
    options: dict[str, str],
    window: LagWindow,
    now: int,
    say: Callable[[str], None] = lambda text: None,
    shown: Callable[[int, int], None] = lambda done, known: None,
) -> LagTables:
    """Analyze the lag of groups over time.

    Args:
        spark: the session.
        remote: the brokers.
        options: options of the Spark source.
        window: what to analyze.
        now: ms since 1970.
        say: called with a description of each step.
        shown: called with the number of points that are done, and of all points.

    Raises:
        LagError: there are no commits, or the window is invalid.
        KafkaError: a request to the brokers failed.
        PySparkException: Spark failed.
    """
    say("reading commits")
    topics = remote.topics([OFFSETS_TOPIC, EVENTS_TOPIC])
    if OFFSETS_TOPIC not in topics:
        raise LagError(
            f"there is no topic {OFFSETS_TOPIC}: no group has committed an offset yet. To do: check the brokers"
        )
    commits = _records(spark, options, OFFSETS_TOPIC).select("key", "value", "offset", "timestamp")
    commits = commits.mapInArrow(commit_records.commits, commit_records.COMMITS).persist()
    try:
        broken = commits.where(sf.col("group").isNull()).count()
        commits = commits.where(sf.col("group").isNotNull())
        if window.groups:
            commits = commits.where(sf.col("group").isin(*window.groups))
        times = _times(commits, window, now)
        reduced = _reduced(commits, times)
        rows = progress(times, reduced, _ends(remote, reduced, times, shown))
        say("reading rebalances")
        found: list[dict[str, Any]] = []
        recorded = EVENTS_TOPIC in topics
        if recorded:
            events = _events(spark, options, window, int(times[0]) - _MARGIN_MS)
            found = rebalances(events, int(times[0]), int(times[-1]))
        gaps = _gaps(spark, commits, found)
    finally:
        commits.unpersist()
    interval = int(times[-1] - times[-2])
    stalled = stalls(rows, window.stall_ms or 3 * interval)
    frame = pd.DataFrame(found, columns=COLUMNS)
    frame["gap_seconds"] = np.array(gaps, dtype=np.float64)
    return LagTables(times, rows, stalled, frame, recorded, broken)


def _records(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format("barnabas").options(**options).option("subscribe", topic).load()


def _times(commits: DataFrame, window: LagWindow, now: int) -> Points:
    """Return the points of the window."""
    (first,) = commits.agg(sf.min("time")).collect()[0]
    if first is None:
        whose = f"of {', '.join(window.groups)} " if window.groups else ""
        raise LagError(f"there are no commits {whose}here. To do: check the names with `barnabas groups list`")
    until = now if window.until is None else window.until
    since = min(first, until) if window.since is None else window.since
    if since >= until:
        if window.since is not None:
            raise LagError("--since is not before --until. To do: swap them")
        since = until - 1000
    interval = window.interval_ms or max(-(-(until - since) // POINTS), 1000)
    if (until - since) // interval > _MOST_POINTS:
        raise LagError(
            f"an interval of {interval} ms makes {(until - since) // interval:,} points, the maximum is "
            f"{_MOST_POINTS:,}. To do: give a longer --interval, or a later --since"
        )
    return points(since, until, interval)


def _reduced(commits: DataFrame, times: Points) -> pd.DataFrame:
    """Return the last commit of each partition before each point."""
    interval, last = int(times[-1] - times[-2]), len(times) - 1
    back = sf.floor((sf.lit(int(times[-1])) - sf.col("time")) / sf.lit(interval))
    point = sf.greatest(sf.lit(last) - back, sf.lit(0)).cast("int")
    newest = sf.max_by("committed", sf.struct("time", "at"))
    grouped = commits.where(sf.col("time") <= int(times[-1])).groupBy(*KEYS, point.alias("point"))
    found = pd.DataFrame(grouped.agg(newest.alias("committed")).toPandas())
    found["committed"] = found["committed"].astype("float64")
    return found.sort_values([*KEYS, "point"], ignore_index=True)


def _ends(
    remote: Remote, commits: pd.DataFrame, times: Points, shown: Callable[[int, int], None]
) -> dict[tuple[str, int], Floats]:
    """Look up the end offset of each partition at each point."""
    wanted = {
        TopicPartition(str(topic), int(number))
        for topic, number in zip(commits["topic"], commits["partition"], strict=True)
    }
    topics = remote.topics({tp.topic for tp in wanted})
    partitions = sorted(tp for tp in wanted if tp.topic in topics and tp.partition in topics[tp.topic].partitions)
    latest = remote.latest(partitions)
    ends: dict[tuple[str, int], Floats] = {(tp.topic, tp.partition): np.full(len(times), np.nan) for tp in partitions}
    for at, time in enumerate(times):
        shown(at, len(times))
        # The end offset at that time is the offset of the first later record.
        for tp, offset in remote.offsets(dict.fromkeys(partitions, max(int(time) + 1, 0))).items():
            ends[tp.topic, tp.partition][at] = latest[tp] if offset < 0 else offset
    shown(len(times), len(times))
    return ends


def _events(spark: SparkSession, options: dict[str, str], window: LagWindow, since: int) -> dict[str, list[bytes]]:
    """Read the values of each group's events, oldest first."""
    records = _records(spark, options, EVENTS_TOPIC).where(
        sf.col("timestamp") >= sf.timestamp_millis(sf.lit(max(since, 0)))
    )
    if window.groups:
        records = records.where(sf.col("key").cast("string").isin(*window.groups))
    rows = records.orderBy("partition", "offset").select("key", "value").collect()
    return by_group([(_bytes(row[0]), _bytes(row[1])) for row in rows])


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def _gaps(spark: SparkSession, commits: DataFrame, found: list[dict[str, Any]]) -> list[float]:
    """Return for each rebalance how many seconds its group committed nothing around its start."""
    if not found:
        return []
    starts = spark.createDataFrame(
        [(number, row["group"], row["time"]) for number, row in enumerate(found)],
        "number int, group string, start bigint",
    )
    before = sf.max(sf.when(sf.col("time") <= sf.col("start"), sf.col("time")))
    after = sf.min(sf.when(sf.col("time") > sf.col("start"), sf.col("time")))
    joined = commits.join(sf.broadcast(starts), "group").groupBy("number").agg((after - before).alias("gap"))
    gaps = {row["number"]: row["gap"] for row in joined.collect()}
    return [float("nan") if gaps.get(number) is None else gaps[number] / 1000 for number in range(len(found))]
