"""Topics into a Parquet lake, each record once.

The lake itself remembers how far it holds a topic: a batch is the records between those offsets and some later ones,
and the log's entry that makes its files count also moves the offsets on (:mod:`barnabas_pipeline.lake`). Whenever a run
is killed, the next one finds either both or neither, and goes on from there. There is no checkpoint beside the lake
that could be lost or disagree with it.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from barnabas_client.structs import TopicPartition
from barnabas_pipeline import schema
from barnabas_pipeline.lake import LakeError, table_path
from barnabas_pipeline.lake_table import Table
from barnabas_pipeline.offsets import behind, limited, positions_to_json
from barnabas_pipeline.remote import Remote

#: Reasons that a summary names.
_MOST_REASONS: Final = 5
#: Records of a step whose size nobody has named: at least so many, at most so many.
_LEAST_BATCH: Final = 1_000_000
_MOST_BATCH: Final = 10_000_000
_TOPIC: Final = "barnabas.topic"
_TOPIC_ID: Final = "barnabas.topic.id"
_FORMAT: Final = "barnabas.format"
_EVENT_TIME: Final = "barnabas.event.time"


@dataclass(frozen=True, slots=True)
class Plan:
    """What is archived how.

    Attributes:
        lake: the path that holds all tables; executors must see it too.
        options: of the source, such as ``kafka.bootstrap.servers``.
        format: ``json`` or ``raw``.
        given: the schema of the value, if one is given.
        event_time: the field of the value that tells the day; None for the record's timestamp.
        quarantine: the path that holds the tables of bad records; within the lake if None.
        batch: the most records of a step; None for a million, and once the table tells how many bytes a record takes,
            for as many as fill a file of each task, up to ten million.
        target: the bytes that files should have.
        allow_loss: whether to go on where records were deleted before they were archived.
        group: a group to note the progress in, for lag tools.
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
        """Where bad records go."""
        return self.quarantine or f"{self.lake.rstrip('/')}/_quarantine"


@dataclass(slots=True)
class Archived:
    """What a run did with a topic.

    Attributes:
        first: offsets at which it began.
        position: offsets that it got to.
        ends: where the topic ends, as of the last look.
        records: that were archived.
        quarantined: that were bad.
        size: bytes that were written.
        compacted: small files that were merged.
        lost: offsets that were deleted before they were archived.
        swept: files that a killed run had left.
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
        """Offsets that this run has behind it."""
        return behind(self.first, self.position)

    @property
    def lag(self) -> int:
        """Offsets that it has before it."""
        return behind(self.position, self.ends)


class TopicArchive:
    """The archive of one topic.

    Args:
        spark: the session.
        remote: the brokers.
        topic: its name.
        plan: what is archived how.

    Attributes:
        told: what was done.

    Raises:
        LakeError: the lake does not go with the plan or the topic.
        KafkaError: the brokers cannot be asked.
    """

    def __init__(self, spark: SparkSession, remote: Remote, topic: str, plan: Plan) -> None:
        self.spark, self.remote, self.topic, self.plan = spark, remote, topic, plan
        self.told = Archived()
        self.table = Table(spark, table_path(plan.lake, topic))
        self.bad = Table(spark, table_path(plan.bad, topic))
        self.told.swept = self.table.sweep() + self.bad.sweep()
        if self.table.exists:
            self._agree()
        self._reasons_from = set(self.bad.state.files)
        self.look()

    def _agree(self) -> None:
        """Whether the lake holds what the plan says; a wider schema is taken over."""
        pinned, plan = self.table.state.configuration, self.plan
        at = self.table.folder.path
        for name, key, wanted in (
            ("--format", _FORMAT, plan.format),
            ("--event-time", _EVENT_TIME, plan.event_time or ""),
        ):
            have = pinned.get(key, "")
            if have != wanted:
                raise LakeError(
                    f"{at} was begun with {name} {have or '(none)'}, not {wanted or '(none)'}. To do: leave it "
                    "so, or archive to "
                    "another path"
                )
        if plan.given is not None and plan.format == schema.JSON:
            columns = schema.columns(plan.given)
            schema.check_wider(self.table.schema["value"].dataType, plan.given)
            if columns != self.table.schema:
                self.table.widen(columns)

    def look(self) -> int:
        """See where the topic ends, and where it begins; offsets that are to be archived.

        Raises:
            LakeError: the topic is gone, is another one than that in the lake, or has lost records.
            KafkaError: the brokers cannot be asked.
        """
        found = self.remote.topics([self.topic]).get(self.topic)
        if found is None:
            raise missing(self.topic)
        pinned = self.table.state.configuration.get(_TOPIC_ID, "")
        if pinned and found.id and pinned != found.id:
            raise LakeError(
                f"topic {self.topic!r} was deleted and created again: the lake holds the one with id {pinned}, "
                "there is one "
                f"with id {found.id}. To do: archive to another path"
            )
        partitions = [TopicPartition(self.topic, number) for number in found.partitions]
        firsts, ends = self.remote.earliest(partitions), self.remote.latest(partitions)
        for tp in partitions:
            at = self.told.position.get(tp, self.table.state.offsets.get(tp.partition))
            if at is None:
                at = firsts[tp]
            elif at < firsts[tp] or at > ends[tp]:
                at = self._lost(tp, at, firsts[tp], ends[tp])
            self.told.position[tp] = at
            self.told.first.setdefault(tp, at)
        self.told.ends = dict(ends)
        self._id = found.id
        return self.told.lag

    def _lost(self, tp: TopicPartition, at: int, first: int, end: int) -> int:
        """Where to go on when the records after `at` are gone."""
        gone = f"offsets {at} to {first - 1} were deleted" if at < first else f"it ends at {end}, before {at}"
        if not self.plan.allow_loss:
            raise LakeError(
                f"{tp} is archived up to offset {at}, and {gone}. To do: give --allow-loss to go on with what "
                "there is, and the "
                "topic a longer retention.ms"
            )
        self.told.lost += max(first - at, 0)
        return first if at < first else end

    def step(self) -> bool:
        """Archive the next batch; False if there is nothing to be done.

        Raises:
            LakeError: no schema can be inferred, or somebody else writes to the table.
            PySparkException: Spark failed; the lake is as it was before.
        """
        start = self.told.position
        end = limited(start, self.told.ends, self.plan.batch or self._batch())
        taken = {tp: offset for tp, offset in end.items() if offset > start[tp]}
        if not taken:
            return False
        records = self._records({tp: start[tp] for tp in taken}, taken)
        if not self.table.exists:
            self._pin(records)
        table = self.table.schema
        kind = table["value"].dataType
        judged = schema.judged(records, kind if isinstance(kind, StructType) else None, self.plan.event_time)
        seen = Observation()
        counted = judged.observe(
            seen, sf.count(sf.lit(1)).alias("records"), sf.count(sf.col(schema.REASON)).alias("bad")
        )
        good = schema.good(counted, table)
        if self.plan.event_time:
            # Days are mixed within a batch: without this every task would write a file for each of them.
            good = good.hint("rebalance", "date")
        else:
            good = good.coalesce(self._tasks())
        staged = self.table.stage(good, self.plan.target)
        told = seen.get
        offsets = {tp.partition: offset for tp, offset in taken.items()}
        if told["bad"]:
            self._quarantine(judged, offsets, told["bad"])
        self.told.size += self.table.append(staged, offsets, told["records"] - told["bad"])
        self.told.records += told["records"] - told["bad"]
        self.told.quarantined += told["bad"]
        start.update(taken)
        if self.plan.group:
            self.remote.commit(self.plan.group, taken, "barnabas-pipeline archive", 30.0)
        return True

    def compact(self) -> int:
        """Merge small files; how many."""
        merged = self.table.compact(self.plan.target) + self.bad.compact(self.plan.target)
        self.told.compacted += merged
        return merged

    def reasons(self) -> dict[str, int]:
        """Why records were quarantined in this run: the most frequent reasons."""
        files = set(self.bad.state.files) - self._reasons_from
        if not self.told.quarantined or not files:
            return {}
        counted = self.bad.read(files).groupBy(schema.REASON).count().orderBy(sf.desc("count"), schema.REASON)
        return {row[0]: row[1] for row in counted.limit(_MOST_REASONS).collect()}

    def _tasks(self) -> int:
        """How many tasks write a step: one for each partition, but where Spark runs on this machine alone no more than
        it has cores. Each writes files of its own, and many small ones would have to be merged. (On a cluster, cores
        may come when there are tasks for them.)"""
        context, partitions = self.spark.sparkContext, len(self.told.position)
        return min(partitions, context.defaultParallelism) if str(context.master).startswith("local") else partitions

    def _batch(self) -> int:
        """The most records of the next step: what is written in files of their full size need not be merged."""
        filling = self.table.rows_in(self.plan.target * self._tasks())
        return min(max(filling, _LEAST_BATCH), _MOST_BATCH)

    def _records(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> DataFrame:
        reader = self.spark.read.format("barnabas").options(**self.plan.options)
        return (
            reader.option("assign", json.dumps({self.topic: sorted(tp.partition for tp in end)}))
            .option("startingOffsets", json.dumps(positions_to_json(start)))
            .option("endingOffsets", json.dumps(positions_to_json(end)))
            .option("includeHeaders", "true")
            .load()
            .drop("topic")
        )

    def _pin(self, records: DataFrame) -> None:
        """Create the table, with the schema that is given, or that the first records have."""
        value: StructType | None = None
        if self.plan.format == schema.JSON:
            value = self.plan.given
            if value is None:
                text = sf.col("value").cast("string")
                rows = (
                    records.where(sf.col("value").isNotNull() & sf.is_valid_utf8(text))
                    .select(text)
                    .limit(schema.SAMPLE)
                )
                value = schema.infer(self.spark, [row[0] for row in rows.collect()])
        schema.check_event_time(value, self.plan.event_time)
        pinned = {
            _TOPIC: self.topic,
            _TOPIC_ID: self._id,
            _FORMAT: self.plan.format,
            _EVENT_TIME: self.plan.event_time or "",
        }
        self.table.create(schema.columns(value), pinned)

    def _quarantine(self, judged: DataFrame, offsets: Mapping[int, int], count: int) -> None:
        """Add the bad records of a batch, but for those that were added before a kill."""
        if not self.bad.exists:
            self.bad.create(schema.quarantine_columns(), {_TOPIC: self.topic, _TOPIC_ID: self._id})
        rows = schema.bad(judged)
        for partition, had in self.bad.state.offsets.items():
            rows = rows.where((sf.col("partition") != partition) | (sf.col("offset") >= had))
        ahead = {
            partition: max(offset, self.bad.state.offsets.get(partition, 0)) for partition, offset in offsets.items()
        }
        self.told.size += self.bad.append(self.bad.stage(rows, self.plan.target), ahead, count)


def missing(topic: str) -> LakeError:
    """What to raise where a topic is not there."""
    return LakeError(f"there is no topic {topic!r} at these brokers. To do: check its name with `barnabas topics list`")


def archive(
    spark: SparkSession,
    remote: Remote,
    topics: list[str],
    plan: Plan,
    *,
    pause: Callable[[], bool] | None,
    shown: Callable[[Mapping[str, TopicArchive]], None] = lambda archives: None,
) -> dict[str, TopicArchive]:
    """Archive topics.

    Args:
        spark: the session.
        remote: the brokers.
        topics: their names.
        plan: what is archived how.
        pause: called when all is archived, waits a little, and says whether to look again; None to archive what is
            there at the start, and merge what is small then.
        shown: called after each batch.

    Raises:
        LakeError, KafkaError, PySparkException: see :class:`TopicArchive`; the lake holds every batch before that.
    """
    archives = {topic: TopicArchive(spark, remote, topic, plan) for topic in topics}
    shown(archives)
    while True:
        for _ in _steps(archives):
            shown(archives)
        for one in archives.values():
            if one.compact():
                shown(archives)
        if pause is None or not pause():
            return archives
        for one in archives.values():
            one.look()
        shown(archives)


def _steps(archives: Mapping[str, TopicArchive]) -> Iterator[None]:
    """A batch of each topic in turn, until all are where they ended when they were looked at."""
    left = list(archives.values())
    while left:
        for one in list(left):
            if one.step():
                yield
            else:
                left.remove(one)


def summary(archives: Mapping[str, TopicArchive], began: float, *, reasons: bool = True) -> dict[str, Any]:
    """What a run did, ready for JSON.

    Args:
        archives: of the topics.
        began: when it began, on the clock of `time.monotonic`.
        reasons: whether to look up why records were bad, which takes Spark a moment.
    """
    seconds = time.monotonic() - began
    topics = {}
    for topic, one in archives.items():
        told, files = one.told, one.table.state.files
        topics[topic] = {
            "path": one.table.folder.path,
            "records": told.records,
            "quarantined": told.quarantined,
            "reasons": one.reasons() if reasons else {},
            "bytes": told.size,
            "merged_files": told.compacted,
            "lost_offsets": told.lost,
            "lag": told.lag,
            "offsets": {str(tp.partition): offset for tp, offset in sorted(told.position.items())},
            "lake_records": one.table.state.rows,
            "lake_files": len(files),
            "lake_bytes": sum(file.size for file in files.values()),
            "lake_days": len({file.date for file in files.values()}),
        }
    records = sum(one.told.records for one in archives.values())
    return {"topics": topics, "records": records, "seconds": round(seconds, 3), "rate": round(records / seconds, 1)}
