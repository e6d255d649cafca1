"""No content of a record ends an archive: every record is either in the table or, unchanged, in the quarantine."""

import json
import os
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from barnabas_pipeline.lake import schema
from tests.sampling import slow_except

pytestmark = pytest.mark.spark

DAY = 86_400_000
WHEN = datetime(2020, 1, 2, tzinfo=UTC)
#: Numbers at which a conversion overflows, or nearly does: of 32 and 64 bits, in ns, us, ms and s, and the first and
#: last day that a table has.
EDGES = [
    sign * (edge + near)
    for edge in (0, DAY, 1 << 31, 1 << 32, 1 << 53, (1 << 63) // 1000, (1 << 63) // 1_000_000, 1 << 63, 1 << 64)
    for near in (-1, 0, 1)
    for sign in (1, -1)
] + [1_700_000_000 * 10**power for power in (0, 3, 6, 9)]
LAST = 2_932_896
EDGES += [day * DAY + near for day in (LAST, LAST + 1) for near in (-1, 0, 1)]
#: Every type of a field that `--event-time` accepts.
KINDS = ("bigint", "int", "smallint", "tinyint", "string", "timestamp")
#: A value has a field of each type.
WIDE = (
    "t bigint, i int, s smallint, f float, d double, n decimal(10,2), b boolean, x string, bin binary, at timestamp, "
    "plain timestamp_ntz, day date, o struct<t: bigint, o: struct<at: timestamp>>, l array<struct<t: int>>, "
    "m map<string, struct<d: date>>, `a.b` int, `` int, `_barnabas_corrupt` string"
)
ODD_TEXTS = (
    '"1890-01-01T00:00:00Z"',
    '"0001-01-01"',
    '"-290308-12-21T19:59:05.224192Z"',
    '"294247-01-10T04:00:54.775807Z"',
    '"294247-01-10T04:00:54.775808Z"',
    '"+1000000-01-01"',
    '"1582-10-10"',
    '"9999-12-31T23:59:59.999999Z"',
    '"9999-12-31T23:59:59-12:00"',
    '"2020-02-30"',
    '"24:00"',
    '"now"',
    '"epoch"',
    '"\\u0000"',
    '"\\ud800"',
    '""',
    "1e400",
    "-1e400",
    "1e-400",
    "1e18",
    "NaN",
    '"NaN"',
    "Infinity",
    "-0",
    "9" * 400,
    "0." + "1" * 2000,
    "true",
    "null",
    "[]",
    "{}",
    "[[[1]]]",
    '{"":1}',
    '{"t":1,"t":2}',
    '{"1":{"d":"2020-01-01"},"1":{"d":"2020-01-01"}}',
    "[" * 1500 + "]" * 1500,
    '{"o":' * 1200 + "1" + "}" * 1200,
)


def odd_values(chance: random.Random, wide: StructType, count: int) -> Iterator[bytes | None]:
    """Objects with odd fields, and some of them damaged."""
    names = [*wide.names, "\\u0000", "T", " t"]
    for number in range(count):
        fields = []
        for name in chance.sample(names, chance.randint(0, 3)):
            text = chance.choice(ODD_TEXTS) if chance.random() < 0.6 else str(chance.choice(EDGES))
            fields.append(f'"{name}":{text}')
        value = ("{" + ",".join(fields) + "}").encode("utf-8", "surrogatepass")
        if number % 7 == 0:
            at = chance.randrange(len(value))
            value = value[:at] + bytes([chance.randrange(256)]) + value[at + chance.randint(0, 2) :]
        yield None if number % 50 == 49 else value


def stored(
    spark: SparkSession, folder: Path, records: list[tuple[Any, ...]], value: StructType | None, event: str | None
) -> Any:
    """Write the records as an archive does; return the rows of the table, and those of the quarantine."""
    schema.check_event_time(value, event)
    judged = schema.checked(spark.createDataFrame(records, schema.RECORD), value, event)
    found = []
    for name, rows in (("good", schema.good(judged, schema.columns(value))), ("bad", schema.bad(judged))):
        rows.coalesce(1).write.partitionBy("date").parquet(str(folder / name))
        back = spark.read.schema(rows.schema).parquet(str(folder / name))
        found.append({row["offset"]: row for row in back.select("offset", "date", *_rest(name)).collect()})
    return found


def _rest(name: str) -> list[Any]:
    # Python's datetime has no room for all times that Spark can store.
    return [sf.lit(1)] if name == "good" else [sf.col("value"), sf.col("reason")]


def day_of(time: int) -> date | None:
    day = time // DAY
    return date(1970, 1, 1) + timedelta(day) if 0 <= day <= LAST else None


@pytest.mark.parametrize("kind", slow_except(KINDS, "string"))
def test_an_odd_event_time_is_quarantined(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    texts = [str(edge) for edge in EDGES] + [text for text in ODD_TEXTS if len(text) < 500]
    values = [f'{{"t":{text}}}'.encode() for text in texts]
    records = [(None, value, 0, at, WHEN, 0, None) for at, value in enumerate(values)]
    good, bad = stored(spark, tmp_path, records, schema.parse_schema(f"t {kind}"), "t")
    assert sorted([*good, *bad]) == list(range(len(values)))
    for at, row in bad.items():
        assert bytes(row["value"]) == values[at] and row["reason"]
    for at, time in enumerate(EDGES):
        bits = {"bigint": 64, "int": 32, "smallint": 16, "tinyint": 8}.get(kind)
        if bits is not None:
            fits = -(1 << (bits - 1)) <= time < 1 << (bits - 1)
            assert (at in good) == (fits and day_of(time) is not None), time
            assert at in bad or good[at]["date"] == day_of(time)


@pytest.mark.slow
def test_odd_records_are_stored_or_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    seed = int(os.environ.get("BARNABAS_SEED", random.randrange(1 << 32)))
    print(f"BARNABAS_SEED={seed}")
    chance, wide = random.Random(seed), schema.parse_schema(WIDE)
    values = list(odd_values(chance, wide, 1500))
    edge = [datetime(1, 1, 1, 12, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC), WHEN]
    records = [
        (b"\xff", value, 0, at, chance.choice(edge), 0, chance.choice([None, [], [("", None), ("", b"\xff")]]))
        for at, value in enumerate(values)
    ]
    for number, (value, event) in enumerate(((wide, None), (wide, "o.o.at"), (None, None))):
        good, bad = stored(spark, tmp_path / str(number), records, value, event)
        assert sorted([*good, *bad]) == list(range(len(values)))
        assert not set(good) & set(bad)
        for at, row in bad.items():
            assert row["reason"]
            assert (row["value"] if row["value"] is None else bytes(row["value"])) == values[at]


@pytest.mark.slow
def test_a_schema_is_inferred_from_odd_records(spark: SparkSession, tmp_path: Path) -> None:
    """What the first records look like does not end the archive either."""
    texts = [
        '{"a":1,"A":2}',
        '{"":1}',
        '{"a.b":{"c d":1,"`":[{"=":2}]}}',
        '{"e":{}}',
        '{"_corrupt_record":1,"k":2}',
        '{"_barnabas_corrupt":{"x":1}}',
        '{"n":' + "9" * 400 + "}",
        '{"l":[1,"x",{"y":[]}]}',
        json.dumps({"date": "2020-01-01", "value": 1, "ä": 2}),
        '{"z":null}',
    ]
    value = schema.infer(spark, texts)
    records = [(None, text.encode(), 0, at, WHEN, 0, None) for at, text in enumerate(texts)]
    good, bad = stored(spark, tmp_path, records, value, None)
    assert sorted([*good, *bad]) == list(range(len(texts)))
    # Of two names that differ only in case the table has one; Spark infers neither empty names nor empty objects.
    reasons = {0: "the schema lacks: a", 1: "the schema lacks: ", 3: "the schema lacks: e"}
    assert {at: row["reason"] for at, row in bad.items()} == reasons
