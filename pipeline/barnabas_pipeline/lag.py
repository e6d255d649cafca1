"""Lag of consumer groups over time, out of what the brokers keep anyway.

``__consumer_offsets`` has every commit since it was last compacted, the topics have timestamps, and with Barnabas
``__group_events`` says why groups rebalanced. Spark reads the first and the last and reduces commits to one for each
point in time; what is left is small, and is the driver's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from barnabas_client.cli.plugins import find_explainer
from barnabas_client.structs import TopicPartition
from barnabas_pipeline import lag_rebalances, lag_records, lag_rows
from barnabas_pipeline.lag_rows import Floats, Points
from barnabas_pipeline.lake import LakeError
from barnabas_pipeline.remote import Remote
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC

#: Points in time, unless an interval is given.
POINTS: Final = 240
#: The most points: each is a question to the brokers.
_MOST_POINTS: Final = 20_000
#: Events of a rebalance that was under way at the first point may be so much older.
_MARGIN_MS: Final = 3_600_000


@dataclass(slots=True)
class LagTables:
    """What is known about the lag of groups.

    Attributes:
        times: the points, ms since 1970.
        rows: columns :data:`barnabas_pipeline.lag_rows.COLUMNS`.
        stalls: columns :data:`barnabas_pipeline.lag_rows.STALL_COLUMNS`.
        rebalances: columns :data:`barnabas_pipeline.lag_rebalances.COLUMNS`, then `gap_seconds`: how long nothing was
            committed around its start, NaN if there is no commit before or after it.
        events: whether these brokers keep the causes of rebalances.
        broken: records of ``__consumer_offsets`` that cannot be read.
    """

    times: Points
    rows: pd.DataFrame
    stalls: pd.DataFrame
    rebalances: pd.DataFrame
    events: bool
    broken: int


@dataclass(frozen=True, slots=True)
class Window:
    """What is looked at: groups, all if there are none; ms since 1970; what is None is chosen by what there is."""

    groups: Sequence[str] = ()
    since: int | None = None
    until: int | None = None
    interval_ms: int | None = None
    stall_ms: int | None = None


def look(
    spark: SparkSession,
    remote: Remote,
    options: dict[str, str],
    window: Window,
    now: int,
    say: Callable[[str], None] = lambda text: None,
    shown: Callable[[int, int], None] = lambda done, known: None,
) -> LagTables:
    """Work out the lag of groups over time.

    Args:
        spark: the session.
        remote: the brokers.
        options: of the Spark source.
        window: what is looked at.
        now: ms since 1970.
        say: told what goes on.
        shown: told how many of how many points are looked up.

    Raises:
        LakeError: nothing was committed, or the window makes no sense.
        KafkaError: the brokers cannot be asked.
        PySparkException: Spark failed.
    """
    say("reading commits")
    topics = remote.topics([OFFSETS_TOPIC, EVENTS_TOPIC])
    if OFFSETS_TOPIC not in topics:
        raise LakeError(
            f"there is no topic {OFFSETS_TOPIC}: no group has committed anything here yet. To do: check the brokers"
        )
    commits = _records(spark, options, OFFSETS_TOPIC).select("key", "value", "offset", "timestamp")
    commits = commits.mapInArrow(lag_records.commits, lag_records.COMMITS).persist()
    try:
        broken = commits.where(sf.col("group").isNull()).count()
        commits = commits.where(sf.col("group").isNotNull())
        if window.groups:
            commits = commits.where(sf.col("group").isin(*window.groups))
        times = _times(commits, window, now)
        reduced = _reduced(commits, times)
        rows = lag_rows.progress(times, reduced, _ends(remote, reduced, times, shown))
        say("reading rebalances")
        found: list[dict[str, Any]] = []
        tell = find_explainer() if EVENTS_TOPIC in topics else None
        if tell is not None:
            events = _events(spark, options, window, int(times[0]) - _MARGIN_MS)
            found = lag_rebalances.rebalances(events, tell, int(times[0]), int(times[-1]))
        gaps = _gaps(spark, commits, found)
    finally:
        commits.unpersist()
    interval = int(times[-1] - times[-2])
    stalled = lag_rows.stalls(rows, window.stall_ms or 3 * interval)
    frame = pd.DataFrame(found, columns=lag_rebalances.COLUMNS)
    frame["gap_seconds"] = np.array(gaps, dtype=np.float64)
    return LagTables(times, rows, stalled, frame, tell is not None, broken)


def _records(spark: SparkSession, options: dict[str, str], topic: str) -> DataFrame:
    return spark.read.format("barnabas").options(**options).option("subscribe", topic).load()


def _times(commits: DataFrame, window: Window, now: int) -> Points:
    """The points to look at."""
    (first,) = commits.agg(sf.min("time")).collect()[0]
    if first is None:
        whose = f"of {', '.join(window.groups)} " if window.groups else ""
        raise LakeError(f"no commits {whose}are recorded here. To do: check the names with `barnabas groups list`")
    until = now if window.until is None else window.until
    since = min(first, until) if window.since is None else window.since
    if since >= until:
        if window.since is not None:
            raise LakeError("--since is not before --until. To do: turn them round")
        since = until - 1000
    interval = window.interval_ms or max(-(-(until - since) // POINTS), 1000)
    if (until - since) // interval > _MOST_POINTS:
        raise LakeError(
            f"an interval of {interval} ms makes {(until - since) // interval:,} points, {_MOST_POINTS:,} are "
            "the most. To do: give a "
            "longer --interval, or a later --since"
        )
    return lag_rows.points(since, until, interval)


def _reduced(commits: DataFrame, times: Points) -> pd.DataFrame:
    """The last commit of each partition before each point."""
    interval, last = int(times[-1] - times[-2]), len(times) - 1
    back = sf.floor((sf.lit(int(times[-1])) - sf.col("time")) / sf.lit(interval))
    point = sf.greatest(sf.lit(last) - back, sf.lit(0)).cast("int")
    newest = sf.max_by("committed", sf.struct("time", "at"))
    grouped = commits.where(sf.col("time") <= int(times[-1])).groupBy(*lag_rows.KEYS, point.alias("point"))
    found = pd.DataFrame(grouped.agg(newest.alias("committed")).toPandas())
    found["committed"] = found["committed"].astype("float64")
    return found.sort_values([*lag_rows.KEYS, "point"], ignore_index=True)


def _ends(
    remote: Remote, commits: pd.DataFrame, times: Points, shown: Callable[[int, int], None]
) -> dict[tuple[str, int], Floats]:
    """Where each partition ended at each point."""
    wanted = {
        TopicPartition(str(topic), int(number))
        for topic, number in zip(commits["topic"], commits["partition"], strict=True)
    }
    there = remote.topics({tp.topic for tp in wanted})
    partitions = sorted(tp for tp in wanted if tp.topic in there and tp.partition in there[tp.topic].partitions)
    latest = remote.latest(partitions)
    ends: dict[tuple[str, int], Floats] = {(tp.topic, tp.partition): np.full(len(times), np.nan) for tp in partitions}
    for at, time in enumerate(times):
        shown(at, len(times))
        # The first record after that time stands where the partition ended then.
        for tp, offset in remote.offsets(dict.fromkeys(partitions, max(int(time) + 1, 0))).items():
            ends[tp.topic, tp.partition][at] = latest[tp] if offset < 0 else offset
    shown(len(times), len(times))
    return ends


def _events(spark: SparkSession, options: dict[str, str], window: Window, since: int) -> dict[str, list[bytes]]:
    """The events of groups, oldest first."""
    records = _records(spark, options, EVENTS_TOPIC).where(
        sf.col("timestamp") >= sf.timestamp_millis(sf.lit(max(since, 0)))
    )
    if window.groups:
        records = records.where(sf.col("key").cast("string").isin(*window.groups))
    rows = records.orderBy("partition", "offset").select("key", "value").collect()
    return lag_rebalances.by_group([(_bytes(row[0]), _bytes(row[1])) for row in rows])


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)


def _gaps(spark: SparkSession, commits: DataFrame, found: list[dict[str, Any]]) -> list[float]:
    """For each rebalance the seconds around its start in which its group committed nothing."""
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
