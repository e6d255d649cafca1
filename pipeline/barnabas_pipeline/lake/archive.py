"""The archive: it copies topics into a Parquet lake, each record once.

The log of a table records up to which offsets it holds the topic. A batch has the records from there to some later
offsets, and the entry of the log that adds its files also advances the offsets (:mod:`barnabas_pipeline.lake.log`).
After a kill the next run finds either both or neither, and continues from there. There is no separate checkpoint that
could be lost or disagree with the table.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from barnabas_client.logs import logger
from barnabas_client.structs import TopicPartition
from barnabas_pipeline.brokers.remote import NO_ANSWER, Remote
from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import schema
from barnabas_pipeline.lake.log import table_path
from barnabas_pipeline.lake.table import Table
from barnabas_pipeline.source.offsets import behind, limited, positions_to_json
from barnabas_pipeline.text import duration
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_pipeline")

#: The maximum of reasons in a summary.
_MOST_REASONS: Final = 5
#: The minimum and maximum of records in a batch if the job does not set it.
_LEAST_BATCH: Final = 1_000_000
_MOST_BATCH: Final = 10_000_000
#: What Spark raises: PySpark's own errors, and those of the JVM that it does not know.
_SPARK_ERRORS: Final = (PySparkException, Py4JError)
#: How often a batch is repeated after a Python process of Spark was killed. Spark repeats tasks on clusters only.
_REPEATS: Final = 3
#: What Spark's errors say then.
_KILLED: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "java.net.ConnectException",
)
#: What they say if the process that starts the others was killed. Spark still keeps idle workers of that process, and
#: each attempt to use one of them fails; so there are as many attempts as there may be idle workers.
_KILLED_BEFORE: Final = ("java.io.IOException: Broken pipe", "java.io.IOException: Stream closed", "SocketException")
_IDLE: Final = 50
_TOPIC: Final = "barnabas.topic"
_TOPIC_ID: Final = "barnabas.topic.id"
_FORMAT: Final = "barnabas.format"
_EVENT_TIME: Final = "barnabas.event.time"


@dataclass(frozen=True, slots=True)
class ArchiveJob:
    """Settings of an archive.

    Attributes:
        lake: the path of the folder with all tables, as executors see it too.
        options: options of the source, such as ``kafka.bootstrap.servers``.
        format: ``json`` or ``raw``.
        given: the schema of the value, if the user gave one.
        event_time: the field of the value that determines the day; None for the record's timestamp.
        quarantine: the path of the folder with the tables of bad records; None for a folder in the lake.
        batch: the maximum of records in a batch; None for a million, and once the size of a record can be estimated,
            for as many as fill a file of each task, up to ten million.
        target: the target size of files in bytes.
        allow_loss: whether to continue if records were deleted before they were archived, or the topic was created
            again.
        group: a group to commit the progress to, for lag tools.
    """

    lake: str
    options: Mapping[str, str]
    format: str = schema.JSON
    given: StructType | None = None
    event_time: str | None = None
    quarantine: str | None = None
    batch: int | None = None
    target: int = 128 * 1024 * 1024
    allow_loss: bool = False
    group: str | None = None

    @property
    def bad(self) -> str:
        """The path of the folder with the tables of bad records."""
        return self.quarantine or f"{self.lake.rstrip('/')}/_quarantine"


@dataclass(slots=True)
class ArchiveProgress:
    """The progress of a run with one topic.

    Attributes:
        first: the offsets at which the run began.
        position: the offsets that it has reached.
        ends: the offsets at which the topic ended at the last check.
        records: the number of records archived.
        quarantined: the number of bad records.
        size: the bytes written.
        compacted: the number of small files merged.
        lost: the number of offsets that were deleted before they were archived.
        swept: the number of files that a killed run had left behind.
    """

    first: dict[TopicPartition, int] = field(default_factory=dict)
    position: dict[TopicPartition, int] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    records: int = 0
    quarantined: int = 0
    size: int = 0
    compacted: int = 0
    lost: int = 0
    swept: int = 0

    @property
    def done(self) -> int:
        """The number of offsets that the run has archived."""
        return behind(self.first, self.position)

    @property
    def lag(self) -> int:
        """The number of offsets that are not archived yet."""
        return behind(self.position, self.ends)


class TopicArchive:
    """The archive of one topic.

    Args:
        spark: the session.
        remote: the brokers.
        topic: its name.
        job: what to archive, and how.

    Attributes:
        progress: what was done.

    Raises:
        LakeError: the table does not match the job or the topic.
        KafkaError: a request to the brokers failed.
    """

    def __init__(self, spark: SparkSession, remote: Remote, topic: str, job: ArchiveJob) -> None:
        self.spark, self.remote, self.topic, self.job = spark, remote, topic, job
        self.progress = ArchiveProgress()
        self.table = Table(spark, table_path(job.lake, topic))
        self.bad = Table(spark, table_path(job.bad, topic))
        self.progress.swept = self.table.sweep() + self.bad.sweep()
        if self.table.exists:
            self._check_table()
        self._reasons_from = set(self.bad.state.files)
        self.look_up_ends()

    def _check_table(self) -> None:
        """Check that the table matches the job; add the fields of a wider schema."""
        pinned, job = self.table.state.configuration, self.job
        at = self.table.folder.path
        for name, key, wanted in (
            ("--format", _FORMAT, job.format),
            ("--event-time", _EVENT_TIME, job.event_time or ""),
        ):
            have = pinned.get(key, "")
            if have != wanted:
                raise LakeError(
                    f"{at} was created with {name} {have or '(none)'}, not {wanted or '(none)'}. To do: use the "
                    "same value, or archive to another path"
                )
        if job.given is not None and job.format == schema.JSON:
            columns = schema.columns(job.given)
            schema.check_wider(self.table.schema["value"].dataType, job.given)
            if columns != self.table.schema:
                self.table.widen(columns)

    def look_up_ends(self) -> int:
        """Look up where the topic begins and ends; return the number of offsets to archive.

        Raises:
            LakeError: the topic was deleted or recreated, or has lost records.
            KafkaError: a request to the brokers failed.
        """
        found = self.remote.topics([self.topic]).get(self.topic)
        if found is None:
            raise missing_topic(self.topic)
        partitions = [TopicPartition(self.topic, number) for number in found.partitions]
        firsts, ends = self.remote.earliest(partitions), self.remote.latest(partitions)
        pinned = self.table.state.configuration.get(_TOPIC_ID, "")
        if pinned and found.id and pinned != found.id:
            self._recreated(pinned, found.id, firsts)
        for tp in partitions:
            at = self.progress.position.get(tp, self.table.state.offsets.get(tp.partition))
            if at is None:
                at = firsts[tp]
            elif at < firsts[tp] or at > ends[tp]:
                at = self._lost(tp, at, firsts[tp], ends[tp])
            self.progress.position[tp] = at
            self.progress.first.setdefault(tp, at)
        self.progress.ends = dict(ends)
        self._id = found.id
        return self.progress.lag

    def _recreated(self, old: str, new: str, firsts: Mapping[TopicPartition, int]) -> None:
        """Continue with a topic that was deleted and created again: at its beginning, in the same tables."""
        if not self.job.allow_loss:
            raise LakeError(
                f"topic {self.topic!r} was deleted and created again: the lake has the one with id {old}, the brokers "
                f"the one with id {new}. To do: archive to another path, or give --allow-loss to add the new topic's "
                "records to the table, whose offsets then repeat"
            )
        _log.warning(
            "the topic was deleted and created again; continuing at its beginning", topic=self.topic, old=old, new=new
        )
        offsets = {tp.partition: first for tp, first in firsts.items()}
        # The table comes last: after a kill in between the next run finds its old id, and does the same again.
        for table in (self.bad, self.table):
            if table.exists and table.state.configuration.get(_TOPIC_ID) != new:
                table.restart({**table.state.configuration, _TOPIC_ID: new}, offsets)
        for tp, first in firsts.items():
            done = self.progress.position.get(tp, first) - self.progress.first.get(tp, first)
            self.progress.position[tp], self.progress.first[tp] = first, first - done

    def _lost(self, tp: TopicPartition, at: int, first: int, end: int) -> int:
        """Return where to continue if the records after `at` were deleted."""
        what = f"offsets {at} to {first - 1} were deleted" if at < first else f"it ends at {end}, before {at}"
        if not self.job.allow_loss:
            raise LakeError(
                f"{tp} is archived up to offset {at}, and {what}. To do: give --allow-loss to continue with the "
                "records that exist, and the topic a longer retention.ms"
            )
        self.progress.lost += max(first - at, 0)
        return first if at < first else end

    def archive_batch(self) -> bool:
        """Archive the next batch; return False if there are no new records.

        Raises:
            LakeError: no schema can be inferred, or another process writes to the table.
            PySparkException: Spark failed; the table is unchanged.
        """
        start = self.progress.position
        end = limited(start, self.progress.ends, self.job.batch or self._batch())
        batch_end = {tp: offset for tp, offset in end.items() if offset > start[tp]}
        if not batch_end:
            return False
        killed = idle = 0
        while True:
            try:
                return self._archive_to(start, batch_end)
            except _SPARK_ERRORS as error:
                # The entry of the log comes last, and does not go through Spark: nothing of the batch is in the table.
                now, before = (any(sign in str(error) for sign in signs) for signs in (_KILLED, _KILLED_BEFORE))
                killed, idle = killed + now, idle + before
                if not (now or before) or killed > _REPEATS or idle > _IDLE:
                    raise
                if killed + idle == 1:
                    _log.warning("a Python process of Spark was killed; the batch is repeated", topic=self.topic)

    def _archive_to(self, start: dict[TopicPartition, int], batch_end: Mapping[TopicPartition, int]) -> bool:
        records = self._records({tp: start[tp] for tp in batch_end}, batch_end)
        if not self.table.exists:
            self._create_table(records)
        table = self.table.schema
        kind = table["value"].dataType
        checked = schema.checked(records, kind if isinstance(kind, StructType) else None, self.job.event_time)
        observed = Observation()
        counted = checked.observe(
            observed, sf.count(sf.lit(1)).alias("records"), sf.count(sf.col(schema.REASON)).alias("bad")
        )
        good = schema.good(counted, table)
        if self.job.event_time:
            # A batch has records of many days: without this hint every task would write a file for each of them.
            good = good.hint("rebalance", "date")
        else:
            good = good.coalesce(self._tasks())
        staged = self.table.stage(good, self.job.target)
        counts = observed.get
        offsets = {tp.partition: offset for tp, offset in batch_end.items()}
        if counts["bad"]:
            self._quarantine(checked, offsets, counts["bad"])
        self.progress.size += self.table.append(staged, offsets, counts["records"] - counts["bad"])
        self.progress.records += counts["records"] - counts["bad"]
        self.progress.quarantined += counts["bad"]
        start.update(batch_end)
        if self.job.group:
            self.remote.commit(self.job.group, batch_end, "barnabas-pipeline archive", 30.0)
        return True

    def compact(self) -> int:
        """Merge small files; return how many."""
        merged = self.table.compact(self.job.target) + self.bad.compact(self.job.target)
        self.progress.compacted += merged
        return merged

    def reasons(self) -> dict[str, int]:
        """Return the most frequent reasons for which this run quarantined records, with their counts."""
        files = set(self.bad.state.files) - self._reasons_from
        if not self.progress.quarantined or not files:
            return {}
        counted = self.bad.read(files).groupBy(schema.REASON).count().orderBy(sf.desc("count"), schema.REASON)
        return {row[0]: row[1] for row in counted.limit(_MOST_REASONS).collect()}

    def _tasks(self) -> int:
        """Return how many tasks write a batch.

        One for each partition; if Spark runs on this machine only, no more than it has cores. Each task writes files
        of its own, and small files have to be merged. (A cluster may add executors when there are more tasks.)
        """
        context, partitions = self.spark.sparkContext, len(self.progress.position)
        return min(partitions, context.defaultParallelism) if str(context.master).startswith("local") else partitions

    def _batch(self) -> int:
        """Return the maximum of records in the next batch: full files do not have to be merged."""
        filling = self.table.rows_in(self.job.target * self._tasks())
        return min(max(filling, _LEAST_BATCH), _MOST_BATCH)

    def _records(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> DataFrame:
        reader = self.spark.read.format("barnabas").options(**self.job.options)
        return (
            reader.option("assign", json.dumps({self.topic: sorted(tp.partition for tp in end)}))
            .option("startingOffsets", json.dumps(positions_to_json(start)))
            .option("endingOffsets", json.dumps(positions_to_json(end)))
            .option("includeHeaders", "true")
            .load()
            .drop("topic")
        )

    def _create_table(self, records: DataFrame) -> None:
        """Create the table, with the schema that was given or that is inferred from the first records."""
        value: StructType | None = None
        if self.job.format == schema.JSON:
            value = self.job.given
            if value is None:
                text = sf.col("value").cast("string")
                rows = (
                    records.where(sf.col("value").isNotNull() & sf.is_valid_utf8(text))
                    .select(text)
                    .limit(schema.SAMPLE)
                )
                value = schema.infer(self.spark, [row[0] for row in rows.collect()])
        schema.check_event_time(value, self.job.event_time)
        pinned = {
            _TOPIC: self.topic,
            _TOPIC_ID: self._id,
            _FORMAT: self.job.format,
            _EVENT_TIME: self.job.event_time or "",
        }
        self.table.create(schema.columns(value), pinned)

    def _quarantine(self, checked: DataFrame, offsets: Mapping[int, int], count: int) -> None:
        """Add the bad records of a batch, except those that were added before a kill."""
        if not self.bad.exists:
            self.bad.create(schema.quarantine_columns(), {_TOPIC: self.topic, _TOPIC_ID: self._id})
        rows = schema.bad(checked)
        for partition, had in self.bad.state.offsets.items():
            rows = rows.where((sf.col("partition") != partition) | (sf.col("offset") >= had))
        ahead = {
            partition: max(offset, self.bad.state.offsets.get(partition, 0)) for partition, offset in offsets.items()
        }
        self.progress.size += self.bad.append(self.bad.stage(rows, self.job.target), ahead, count)


def _brokers_away(error: Exception) -> bool:
    """Return whether the brokers did not answer, the driver or a task of Spark."""
    return error.retriable if isinstance(error, KafkaError) else NO_ANSWER in str(error)


def missing_topic(topic: str) -> LakeError:
    """Return the error for a topic that does not exist."""
    return LakeError(f"there is no topic {topic!r} at these brokers. To do: check its name with `barnabas topics list`")


def run_archive(
    spark: SparkSession,
    remote: Remote,
    topics: list[str],
    job: ArchiveJob,
    *,
    pause: Callable[[], bool] | None,
    shown: Callable[[Mapping[str, TopicArchive]], None] = lambda archives: None,
) -> dict[str, TopicArchive]:
    """Archive topics.

    Args:
        spark: the session.
        remote: the brokers.
        topics: their names.
        job: what to archive, and how.
        pause: called when all records are archived; it waits, and returns whether to continue. None to archive what the
            topics have at the start.
        shown: called after each batch.

    With `pause` an outage of the brokers does not end the run: it is logged, once and again with its duration when the
    brokers are back.

    Raises:
        LakeError, KafkaError, PySparkException: as :class:`TopicArchive`; the lake has all batches before the failed
            one.
    """
    archives = {topic: TopicArchive(spark, remote, topic, job) for topic in topics}
    shown(archives)
    away: float | None = None
    while True:
        began = time.monotonic()
        try:
            if away is not None:
                _look_up_all(archives)
                _log.warning("the brokers answer again", after=duration(time.monotonic() - away))
                away = None
            for _ in _archive_all(archives):
                shown(archives)
            for one in archives.values():
                if one.compact():
                    shown(archives)
            if pause is None or not pause():
                return archives
            began = time.monotonic()
            _look_up_all(archives)
        except (KafkaError, *_SPARK_ERRORS) as error:
            if pause is None or not _brokers_away(error):
                raise
            if away is None:
                away = began
                _log.warning("the brokers do not answer; trying again until they do", servers=remote.servers)
            if not pause():
                return archives
        else:
            shown(archives)


def _look_up_all(archives: Mapping[str, TopicArchive]) -> None:
    for one in archives.values():
        one.look_up_ends()


def _archive_all(archives: Mapping[str, TopicArchive]) -> Iterator[None]:
    """Archive a batch of each topic in turn, until all have reached the ends that were looked up."""
    left = list(archives.values())
    while left:
        for one in list(left):
            if one.archive_batch():
                yield
            else:
                left.remove(one)


def summary(archives: Mapping[str, TopicArchive], began: float, *, reasons: bool = True) -> dict[str, Any]:
    """Return a summary of a run for JSON.

    Args:
        archives: the archives by topic.
        began: when the run began, by `time.monotonic`.
        reasons: whether to count the reasons of bad records, which is a Spark job.
    """
    seconds = time.monotonic() - began
    topics = {}
    for topic, one in archives.items():
        progress, files = one.progress, one.table.state.files
        topics[topic] = {
            "path": one.table.folder.path,
            "records": progress.records,
            "quarantined": progress.quarantined,
            "reasons": one.reasons() if reasons else {},
            "bytes": progress.size,
            "merged_files": progress.compacted,
            "lost_offsets": progress.lost,
            "lag": progress.lag,
            "offsets": {str(tp.partition): offset for tp, offset in sorted(progress.position.items())},
            "lake_records": one.table.state.rows,
            "lake_files": len(files),
            "lake_bytes": sum(file.size for file in files.values()),
            "lake_days": len({file.date for file in files.values()}),
        }
    records = sum(one.progress.records for one in archives.values())
    return {"topics": topics, "records": records, "seconds": round(seconds, 3), "rate": round(records / seconds, 1)}
