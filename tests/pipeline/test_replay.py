"""Replay: the records that arrive, their order, and when they are due."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from barnabas_broker.testing import Broker
from barnabas_pipeline.brokers.remote import remote_for
from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import schema
from barnabas_pipeline.lake.archive import ArchiveJob, run_archive
from barnabas_pipeline.replay import Pace, ReplayJob, rows, send
from tests.pipeline.support import consume, produce


def options(broker: Broker) -> dict[str, str]:
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def replayed(spark: SparkSession, broker: Broker, table: Path, topic: str, **settings: Any) -> int:
    replay = ReplayJob(str(table), topic, **settings)
    return send(remote_for(Settings.of(options(broker))), replay, rows(spark, replay))


def test_a_rate_spaces_records_evenly() -> None:
    pace = Pace(200, None)
    assert [pace.due(number, None) for number in (0, 1, 200)] == [0, 0.005, 1]


def test_a_speed_follows_the_timestamps_and_never_goes_back() -> None:
    pace = Pace(None, 10)
    assert [pace.due(number, time) for number, time in enumerate((5_000, 15_000, 7_000, 25_000))] == [0, 1, 1, 2]
    assert pace.due(9, None) == 2


def test_without_a_limit_records_are_due_at_once() -> None:
    pace = Pace(None, None)
    assert [pace.due(number, number * 1000) for number in range(3)] == [0, 0, 0]


@pytest.mark.spark
def test_a_table_is_replayed_with_keys_order_and_timestamps(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    values = [b"%d" % (number % 7) for number in range(100)]
    produce(broker.bootstrap_servers, topic, values)
    plan = ArchiveJob(lake=str(tmp_path), options=options(broker), format=schema.RAW, batch=40)
    run_archive(spark, remote_for(Settings.of(options(broker))), [topic], plan, pause=None)
    copy = f"{topic}-copy"
    broker.create_topic(copy, partitions=3)
    assert replayed(spark, broker, tmp_path / f"topic={topic}", copy, keep_timestamps=True, rate=2_000) == 100

    def sent_to(name: str) -> list[Any]:
        return [(one.partition, one.key, one.value, one.timestamp) for one in consume(broker.bootstrap_servers, name)]

    assert sent_to(copy) == sent_to(topic)
    assert replayed(spark, broker, tmp_path / f"topic={topic}", copy, where="partition = 99") == 0
    broker.delete_topic(copy)


@pytest.mark.spark
@pytest.mark.slow
def test_absent_fields_stay_absent(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    values: list[bytes | None] = [b'{"a":1,"o":{"x":1}}', b'{"l":[1,null]}', b'{"o":{"y":2}}', b"{}", None]
    produce(broker.bootstrap_servers, topic, values, partition=0)
    job = ArchiveJob(
        lake=str(tmp_path),
        options=options(broker),
        given=schema.parse_schema("a INT, l ARRAY<INT>, o STRUCT<x: INT, y: INT>"),
    )
    run_archive(spark, remote_for(Settings.of(options(broker))), [topic], job, pause=None)
    copy = f"{topic}-copy"
    broker.create_topic(copy, partitions=1)
    assert replayed(spark, broker, tmp_path / f"topic={topic}", copy) == 5
    assert [one.value for one in consume(broker.bootstrap_servers, copy, 1)] == values
    broker.delete_topic(copy)


@pytest.mark.spark
def test_any_table_is_replayed_as_json(spark: SparkSession, broker: Broker, topic: str, tmp_path: Path) -> None:
    began = datetime(2020, 1, 1, tzinfo=UTC)
    table = [("b", 2, None, began + timedelta(seconds=1)), ("a", 1, 0.5, began)]
    spark.createDataFrame(table, "name string, number int, share double, at timestamp").write.parquet(
        str(tmp_path / "t")
    )
    assert replayed(spark, broker, tmp_path / "t", topic, key="name", order_by=("at",), speed=20.0) == 2
    found = {one.key: json.loads(one.value or b"") for one in consume(broker.bootstrap_servers, topic)}
    assert found[b"b"] == {"name": "b", "number": 2, "share": None, "at": "2020-01-01T00:00:01.000Z"}
    assert found[b"a"]["share"] == 0.5

    for settings, why in (
        ({}, "has no columns that determine its order"),
        ({"order_by": ("nothing",)}, "does not fit"),
        ({"order_by": ("number",), "speed": 1.0}, "its original speed is not known"),
        ({"order_by": ("at",), "key": "nothing"}, "does not fit"),
        ({"order_by": ("at",), "where": "nothing = 1"}, "does not fit"),
    ):
        with pytest.raises(LakeError, match=why):
            replayed(spark, broker, tmp_path / "t", topic, **settings)
    with pytest.raises(LakeError, match="cannot be read"):
        replayed(spark, broker, tmp_path / "nowhere", topic)
