"""The archive on a broker: the lake, the quarantine and errors."""

import os
import signal
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

from barnabas_broker.testing import Broker
from barnabas_client import TopicPartition
from barnabas_client.errors import KafkaTimeoutError
from barnabas_pipeline.brokers.remote import Remote, remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import LOG, live_files, log, schema, snapshot
from barnabas_pipeline.lake.archive import ArchiveJob, TopicArchive, run_archive, summary
from barnabas_pipeline.lake.folder import HadoopFolder
from barnabas_pipeline.lake.table import Table, read
from tests.pipeline.support import admin, produce

pytestmark = pytest.mark.spark


class Lake:
    """A lake, and an archive for it."""

    def __init__(self, spark: SparkSession, broker: Broker, path: Path) -> None:
        self.spark, self.broker, self.path = spark, broker, path
        self.options = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        self.remote: Remote = remote_for(Settings.of(self.options))

    def archive(self, *topics: str, **settings: Any) -> dict[str, TopicArchive]:
        job = ArchiveJob(lake=str(self.path), options=self.options, **settings)
        return run_archive(self.spark, self.remote, list(topics), job, pause=None)

    def produce(self, topic: str, *values: bytes | None, partition: int | None = None) -> None:
        produce(self.broker.bootstrap_servers, topic, values, partition)

    def table(self, topic: str) -> Path:
        return self.path / f"topic={topic}"

    def rows(self, topic: str) -> pd.DataFrame:
        rows = pd.read_parquet(live_files(self.table(topic)))
        assert not rows.duplicated(["partition", "offset"]).any()
        return rows.sort_values(["partition", "offset"], ignore_index=True)

    def bad(self, topic: str) -> dict[bytes, str]:
        rows = pd.read_parquet(live_files(self.path / "_quarantine" / f"topic={topic}"))
        assert not rows.duplicated(["partition", "offset"]).any()
        return dict(zip(rows["value"], rows["reason"], strict=True))


@pytest.fixture
def lake(spark: SparkSession, broker: Broker, tmp_path: Path) -> Lake:
    return Lake(spark, broker, tmp_path / "lake")


def test_a_schema_is_inferred_once(lake: Lake, topic: str) -> None:
    lake.produce(topic, b'{"n":1,"s":"x"}', b'{"n":2}', None, b"nonsense")
    result = lake.archive(topic)[topic].progress
    assert (result.records, result.quarantined, result.lag, result.done) == (3, 1, 0, 4)
    assert "value:struct<n:bigint,s:string>" in read(lake.spark, str(lake.path), topic).schema.simpleString()

    lake.produce(topic, b'{"n":3,"s":"y"}', b'{"n":"four"}', b'{"n":5,"new":1}')
    result = lake.archive(topic)[topic].progress
    assert (result.records, result.quarantined) == (1, 2)
    found = [value and value["n"] for value in lake.rows(topic)["value"]]
    assert sorted(found, key=str) == [1, 2, 3, None]
    assert lake.bad(topic) == {
        b"nonsense": "the value is not one JSON document",
        b'{"n":"four"}': "does not fit the schema: n is not bigint",
        b'{"n":5,"new":1}': "the schema lacks: new",
    }
    # Without new records there is no entry.
    before = snapshot(lake.table(topic)).version
    assert lake.archive(topic)[topic].progress.records == 0
    assert snapshot(lake.table(topic)).version == before


def test_the_raw_format_keeps_bytes(lake: Lake, topic: str) -> None:
    values = [b"\x00\xff", b"", b"text", None]
    for value in values:
        lake.produce(topic, value, partition=1)
    lake.archive(topic, format=schema.RAW)
    rows = lake.rows(topic)
    assert rows["value"].tolist() == values
    assert rows["offset"].tolist() == [0, 1, 2, 3]
    columns = ["key", "value", "partition", "offset", "timestamp", "timestampType", "headers", "date"]
    assert read(lake.spark, str(lake.path), topic).columns == columns


@pytest.mark.slow
def test_many_batches_are_merged_and_read_once(lake: Lake, topic: str) -> None:
    lake.produce(topic, *(b'{"n":%d}' % number for number in range(60)))
    one = lake.archive(topic, batch=10)[topic]
    assert one.progress.records == 60
    assert one.progress.compacted >= 8
    assert one.compact() == 0
    assert sorted(value["n"] for value in lake.rows(topic)["value"]) == list(range(60))
    # Readers that list the folder, with Spark or pandas, see the same.
    assert lake.spark.read.parquet(str(lake.table(topic))).count() == 60
    assert len(pd.read_parquet(lake.table(topic))) == 60
    assert len(live_files(lake.table(topic))) == len(list(lake.table(topic).glob("date=*/*.parquet"))) < 8
    result = summary({topic: one}, 0.0)["topics"][topic]
    assert (result["records"], result["lake_records"], result["lag"]) == (60, 60, 0)


@pytest.mark.slow
def test_a_lake_on_a_file_system_of_hadoop(lake: Lake, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on HDFS or an object store: every access goes through the JVM."""
    monkeypatch.setattr("barnabas_pipeline.lake.table.folder_at", HadoopFolder)
    monkeypatch.setattr("barnabas_pipeline.lake.folder._BULK", 3)
    monkeypatch.setattr(log, "EVERY", 6)
    monkeypatch.setattr(log, "KEPT", 4)
    lake.produce(topic, *(b"%d" % number for number in range(40)), partition=0)
    one = lake.archive(topic, format=schema.RAW, batch=4)[topic]
    assert isinstance(one.table.folder, HadoopFolder)
    assert one.progress.compacted == 10
    entries = [name for name in one.table.folder.names(LOG) if log.version_of(name) is not None]
    assert one.table.state.version == 11 and len(entries) == 9
    # From the checkpoint, and from the entries after it; the checkpoint of version 6 is replaced by that of 12.
    assert Table(lake.spark, str(lake.table(topic))).state == one.table.state == snapshot(lake.table(topic))
    lake.produce(topic, b"40", b"bad", partition=0)
    stale = Table(lake.spark, str(lake.table(topic)))
    assert lake.archive(topic, format=schema.RAW)[topic].progress.records == 2
    assert sorted(map(bytes, lake.rows(topic)["value"]))[-1] == b"bad"
    with pytest.raises(LakeError, match="another process has written"):
        stale.widen(stale.schema)
    assert not [name for name in one.table.folder.names(LOG) if name.startswith(".") and not name.endswith(".crc")]
    (lake.table(topic) / "date=2020-01-01").mkdir()
    (lake.table(topic) / "date=2020-01-01" / "left.parquet").touch()
    assert lake.archive(topic, format=schema.RAW)[topic].progress.swept == 1


@pytest.mark.slow
def test_files_of_several_days_are_merged_at_once(lake: Lake, topic: str) -> None:
    day = 86_400_000
    lake.produce(topic, *(b'{"t":%d}' % (number % 2 * day + number) for number in range(60)), partition=0)
    one = lake.archive(topic, batch=6, event_time="t")[topic]
    assert one.progress.compacted >= 16
    rows = lake.rows(topic)
    assert [value["t"] % day for value in rows["value"]] == list(range(60))
    assert rows["date"].astype(str).tolist() == ["1970-01-01", "1970-01-02"] * 30
    files = live_files(lake.table(topic))
    assert len(files) == 2
    for file in files:
        assert pd.read_parquet(file)["offset"].is_monotonic_increasing


@pytest.mark.slow
def test_batches_grow_until_they_fill_a_file_per_core(lake: Lake, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_pipeline.lake.archive._LEAST_BATCH", 15)
    lake.produce(topic, *(b"%d" % number for number in range(60)))
    one = lake.archive(topic, format=schema.RAW)[topic]
    state = one.table.state
    assert (one.progress.records, one.progress.compacted, state.rows) == (60, 0, 60)
    # The table is created; after 15 records or a few more the size of a record is known; the rest is one batch.
    assert state.version == 2
    assert len(state.files) <= 2 * 2
    assert one.table.rows_in(sum(file.size for file in state.files.values())) == 60


def test_leftovers_of_a_kill_are_swept_and_the_other_writer_is_fenced(lake: Lake, topic: str) -> None:
    lake.produce(topic, b'{"n":1}')
    lake.archive(topic)
    table = lake.table(topic)
    first = Table(lake.spark, str(table))
    staged = first.stage(first.read(), 0)
    first._place(staged)  # and killed before its commit
    (table / LOG / ".00000000000000000002.json.beef").write_text("{")
    assert len(pd.read_parquet(table)) == 2
    lake.produce(topic, b'{"n":2}')
    one = lake.archive(topic)[topic]
    assert one.progress.swept == 2
    assert len(pd.read_parquet(table)) == len(lake.rows(topic)) == 2
    with pytest.raises(LakeError, match="another process has written"):
        first.append(first.stage(first.read(), 0), {0: 9}, 1)
    lake.archive(topic)
    assert sorted(value["n"] for value in lake.rows(topic)["value"]) == [1, 2]


@pytest.mark.slow
def test_bad_records_are_not_quarantined_twice(lake: Lake, topic: str) -> None:
    """After a kill between the two commits of a batch with bad records."""
    for value in (b"bad 1", b'{"n":1}'):
        lake.produce(topic, value, partition=0)
    lake.archive(topic, given=schema.parse_schema("n BIGINT"))
    last = snapshot(lake.table(topic)).version
    (lake.table(topic) / LOG / log.name_of(last)).unlink()
    lake.produce(topic, b"bad 2", partition=0)
    one = lake.archive(topic)[topic]
    assert one.progress.swept
    assert [value["n"] for value in lake.rows(topic)["value"]] == [1]
    assert sorted(lake.bad(topic)) == [b"bad 1", b"bad 2"]


@pytest.mark.slow
def test_a_schema_can_be_widened(lake: Lake, topic: str) -> None:
    lake.produce(topic, b'{"n":1}')
    lake.archive(topic)
    lake.produce(topic, b'{"n":2,"s":"x"}')
    assert lake.archive(topic, given=schema.parse_schema("n BIGINT, s STRING"))[topic].progress.records == 1
    rows = read(lake.spark, str(lake.path), topic).selectExpr("value.n", "value.s").collect()
    assert sorted((row["n"], row["s"]) for row in rows) == [(1, None), (2, "x")]
    with pytest.raises(LakeError, match=r"value\.s"):
        lake.archive(topic, given=schema.parse_schema("n BIGINT"))


@pytest.mark.slow
def test_other_settings_than_those_of_the_table_are_errors(lake: Lake, topic: str) -> None:
    lake.produce(topic, b'{"n":1}')
    lake.archive(topic)
    with pytest.raises(LakeError, match="created with --format json, not raw"):
        lake.archive(topic, format=schema.RAW)
    with pytest.raises(LakeError, match=r"created with --event-time \(none\), not n"):
        lake.archive(topic, event_time="n")
    with pytest.raises(LakeError, match="no topic 'nowhere'"):
        lake.archive("nowhere")
    with pytest.raises(LakeError, match="has no table of topic 'nowhere'"):
        read(lake.spark, str(lake.path), "nowhere")


@pytest.mark.slow
def test_lost_records_and_a_recreated_topic_are_errors(lake: Lake, topic: str) -> None:
    for number in range(6):
        lake.produce(topic, b'{"n":%d}' % number, partition=0)
        if number == 1:
            lake.archive(topic)
    tp = TopicPartition(topic, 0)
    admin(lake.broker.bootstrap_servers, lambda connected: connected.delete_records({tp: 4}))
    with pytest.raises(LakeError, match=rf"{topic}-0 is archived up to offset 2, and offsets 2 to 3 were deleted"):
        lake.archive(topic)
    result = lake.archive(topic, allow_loss=True)[topic].progress
    assert (result.records, result.lost) == (2, 2)
    assert [value["n"] for value in lake.rows(topic)["value"]] == [0, 1, 4, 5]

    lake.broker.delete_topic(topic)
    lake.broker.create_topic(topic, partitions=3)
    lake.produce(topic, b'{"n":6}', b"bad", partition=0)
    with pytest.raises(LakeError, match="was deleted and created again"):
        lake.archive(topic)
    one = lake.archive(topic, allow_loss=True)[topic]
    assert (one.progress.records, one.progress.quarantined, one.progress.done) == (1, 1, 2)
    # Offsets repeat, so the helper that checks them does not do.
    values = pd.read_parquet(live_files(lake.table(topic)))["value"]
    assert sorted(value["n"] for value in values) == [0, 1, 4, 5, 6]
    assert list(lake.bad(topic)) == [b"bad"]
    assert lake.archive(topic)[topic].progress.done == 0


@pytest.mark.slow
@pytest.mark.parametrize("which", ["worker", "daemon"])
def test_a_killed_python_process_of_spark_does_not_end_an_archive(
    lake: Lake, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    died, good, count = tmp_path / "died", schema.good, 20

    def fatal(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            if not died.exists():
                died.touch()
                os.kill(os.getpid() if which == "worker" else os.getppid(), signal.SIGKILL)
            yield batch

    def through(rows: DataFrame, table: Any) -> DataFrame:
        return good(rows.mapInArrow(fatal, rows.schema), table)

    monkeypatch.setattr(schema, "good", through)
    lake.produce(topic, *(b"%d" % number for number in range(count)))
    one = lake.archive(topic, format=schema.RAW)[topic]
    assert died.exists()
    assert one.progress.records == len(lake.rows(topic)) == count


@pytest.mark.slow
def test_an_outage_of_the_brokers_is_logged_once_and_survived(
    lake: Lake, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.produce(topic, b"1")
    looked, paused = 0, 0
    look_up = TopicArchive.look_up_ends

    def failing(one: TopicArchive) -> int:
        nonlocal looked
        looked += 1
        # The first look is that of the start.
        if 2 <= looked <= 4:
            raise KafkaTimeoutError("the brokers did not answer within 20 s")
        return look_up(one)

    def pause() -> bool:
        nonlocal paused
        paused += 1
        if paused == 3:
            lake.produce(topic, b"2")
        return paused < 6

    monkeypatch.setattr(TopicArchive, "look_up_ends", failing)
    job = ArchiveJob(lake=str(lake.path), options=lake.options, format=schema.RAW)
    done = run_archive(lake.spark, lake.remote, [topic], job, pause=pause)[topic]
    assert done.progress.records == len(lake.rows(topic)) == 2
    lines = [record.getMessage() for record in caplog.records if record.name == "barnabas_pipeline"]
    assert [("do not answer" in line, "answer again" in line) for line in lines] == [(True, False), (False, True)]
    assert "after" in lines[1]

    # An archive with --once ends.
    looked = 0
    monkeypatch.setattr(TopicArchive, "look_up_ends", lambda one: failing(one) + failing(one))
    with pytest.raises(KafkaTimeoutError):
        lake.archive(topic, format=schema.RAW)


def test_progress_is_committed_to_a_group_and_new_partitions_are_found(lake: Lake, topic: str) -> None:
    lake.produce(topic, b'{"n":1}', partition=2)
    lake.archive(topic, group="lake-keepers")
    admin(lake.broker.bootstrap_servers, lambda connected: connected.create_partitions({topic: 4}))
    lake.produce(topic, b'{"n":2}', partition=3)
    lake.archive(topic, group="lake-keepers")
    assert sorted(value["n"] for value in lake.rows(topic)["value"]) == [1, 2]
    noted = admin(
        lake.broker.bootstrap_servers, lambda connected: connected.list_consumer_group_offsets("lake-keepers")
    )
    assert {tp.partition: one.offset for tp, one in noted.items()} == {2: 1, 3: 1}


@pytest.mark.slow
def test_a_failed_batch_leaves_the_lake_unchanged(lake: Lake, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.produce(topic, b'{"n":1}')
    lake.archive(topic)
    before = snapshot(lake.table(topic))
    lake.produce(topic, b'{"n":2}')

    def full(*_: object) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr("barnabas_pipeline.lake.local.LocalFolder.write_once", full)
        with pytest.raises(OSError, match="disk"):
            lake.archive(topic)
    assert snapshot(lake.table(topic)) == before
    lake.archive(topic)
    assert sorted(value["n"] for value in lake.rows(topic)["value"]) == [1, 2]


@pytest.mark.slow
def test_a_continuous_run_archives_several_topics(lake: Lake, topic: str) -> None:
    other = f"{topic}-other"
    lake.broker.create_topic(other, partitions=1)
    lake.produce(topic, b'{"n":1}')
    lake.produce(other, b'{"m":1}')
    looks: list[int] = []

    def pause() -> bool:
        lake.produce(other, b'{"m":%d}' % (len(looks) + 2))
        looks.append(1)
        return len(looks) < 3

    shown: list[Mapping[str, TopicArchive]] = []
    job = ArchiveJob(lake=str(lake.path), options=lake.options)
    run_archive(lake.spark, lake.remote, [topic, other], job, pause=pause, shown=shown.append)
    assert len(lake.rows(topic)) == 1
    assert sorted(value["m"] for value in lake.rows(other)["value"]) == [1, 2, 3]
    assert len(shown) >= 6
    both = lake.spark.read.parquet(str(lake.path)).select("topic").distinct().collect()
    assert {row["topic"] for row in both} == {topic, other}
    lake.broker.delete_topic(other)
