"""The check of records against a schema, and the reasons of bad ones."""

from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake import schema
from tests.sampling import slow

pytestmark = pytest.mark.spark

DDL = "a bigint, b string, c struct<x: int>, d array<struct<y: int>>, m map<string, struct<k: int>>, at timestamp"

#: Values, and the reason why each does not fit; None if it fits.
VALUES: list[tuple[bytes | None, str | None]] = [
    (b'{"a":1,"b":"x","c":{"x":1},"d":[{"y":1}],"m":{"u":{"k":1}}}', None),
    (b'{"a":1}  \n', None),
    (b'{"b":5}', None),
    (b"{}", None),
    (None, None),
    (b'{"a":1.5}', "does not fit the schema: a is not bigint"),
    (b'{"a":"1","b":"x"}', "does not fit the schema: a is not bigint"),
    (b'{"a":99999999999999999999}', "does not fit the schema: a is not bigint"),
    (b'{"c":5}', "does not fit the schema: c is not struct<x:int>"),
    (b'{"c":{"x":"q"}}', "does not fit the schema: a field within another one"),
    (b'{"a":1,"z":2}', "the schema lacks: z"),
    (b'{"A":1}', "the schema lacks: A"),
    (b'{"c":{"x":1,"q":2}}', "the schema lacks: c.q"),
    (b'{"d":[{"y":1},{"y":2,"w":1}]}', "the schema lacks: d[].w"),
    (b'{"m":{"u":{"k":1,"l":2}}}', "the schema lacks: m.*.l"),
    (b'{"a":1} and more', "the value is not one JSON document"),
    (b'{"a":1}{"a":2}', "the value is not one JSON document"),
    (b'{"a":1},{"a":2}', "the value is not one JSON document"),
    (b'{"a":1', "the value is not one JSON document"),
    (b"", "the value is not one JSON document"),
    (b"plain text", "the value is not one JSON document"),
    (b"[]", "the value is JSON, but not an object"),
    (b"null", "the value is JSON, but not an object"),
    (b"123", "the value is JSON, but not an object"),
    (b'{"a":1,"a":2}', "the value has a field twice"),
    (b'{"b":"\xff"}', "the value is not UTF-8"),
]


def test_records_are_checked(spark: SparkSession) -> None:
    when = datetime(2020, 1, 2, tzinfo=UTC)
    rows = [(b"k", value, 0, at, when, 0, None) for at, (value, _) in enumerate(VALUES)]
    wanted = StructType.fromDDL(DDL)
    assert isinstance(wanted, StructType)
    judged = schema.checked(spark.createDataFrame(rows, schema.RECORD), wanted, None)
    reasons = {row["offset"]: row["reason"] for row in judged.collect()}
    assert [reasons[at] for at in range(len(VALUES))] == [reason for _, reason in VALUES]
    good = {row["offset"]: row for row in schema.good(judged, schema.columns(wanted)).collect()}
    assert sorted(good) == [at for at, (_, reason) in enumerate(VALUES) if reason is None]
    assert good[0]["value"].asDict(recursive=True) == {
        "a": 1,
        "b": "x",
        "c": {"x": 1},
        "d": [{"y": 1}],
        "m": {"u": {"k": 1}},
        "at": None,
    }
    assert good[4]["value"] is None
    assert str(good[0]["date"]) == "2020-01-02"
    bad = {row["offset"]: bytes(row["value"]) for row in schema.bad(judged).collect()}
    assert bad == {at: value for at, (value, reason) in enumerate(VALUES) if reason is not None}


@pytest.mark.parametrize(
    ("event_time", "kind", "time"),
    [
        slow(("at", "timestamp", '"2013-05-06T23:59:59Z"')),
        slow(("at", "string", '"2013-05-06T23:59:59Z"')),
        ("at", "bigint", "1367884799000"),
    ],
)
def test_the_day_is_that_of_the_event(spark: SparkSession, event_time: str, kind: str, time: str) -> None:
    wanted = StructType.fromDDL(f"at {kind}")
    assert isinstance(wanted, StructType)
    when = datetime(2020, 1, 2, tzinfo=UTC)
    values = (f'{{"at":{time}}}'.encode(), None, b"{}", b'{"at":"1890-01-01T00:00:00Z"}' if kind == "string" else b"{}")
    rows = [(None, value, 0, at, when, 0, None) for at, value in enumerate(values)]
    judged = schema.checked(spark.createDataFrame(rows, schema.RECORD), wanted, event_time).orderBy("offset").collect()
    assert [str(row["date"]) for row in judged[:2]] == ["2013-05-06", "2020-01-02"]
    wrong = "value.at has no day from 1970 to 9999"
    assert [row["reason"] for row in judged] == [None, None, wrong, wrong]


def test_schemas_are_parsed_and_checked(spark: SparkSession) -> None:
    parsed = schema.parse_schema("a BIGINT, b STRING")
    assert schema.parse_schema(parsed.json()) == parsed
    for text in ("a NOTYPE", "{", '{"type":"struct"}', ""):
        with pytest.raises(LakeError, match="the schema cannot be read"):
            schema.parse_schema(text)
    with pytest.raises(LakeError, match="no schema can be inferred: none of the first 2 records"):
        schema.infer(spark, ["nonsense", "[1"])
    assert (
        schema.infer(spark, ['{"a":1}', '{"b":{"c":1.5}}', "x"]).simpleString() == "struct<a:bigint,b:struct<c:double>>"
    )


def test_schemas_only_grow(spark: SparkSession) -> None:
    old = schema.parse_schema("a BIGINT, b STRUCT<c: INT>, d ARRAY<STRUCT<e: INT>>")
    schema.check_wider(
        old, schema.parse_schema("a BIGINT, b STRUCT<c: INT, x: INT>, d ARRAY<STRUCT<e: INT, f: INT>>, g INT")
    )
    for text, where in (
        ("b STRUCT<c: INT>, d ARRAY<STRUCT<e: INT>>", "value.a"),
        ("a STRING, b STRUCT<c: INT>, d ARRAY<STRUCT<e: INT>>", "value.a"),
        ("a BIGINT, b STRUCT<c: STRING>, d ARRAY<STRUCT<e: INT>>", "value.b.c"),
        ("a BIGINT, b STRUCT<c: INT>, d ARRAY<STRUCT<f: INT>>", r"value.d\[\].e"),
    ):
        with pytest.raises(LakeError, match=where):
            schema.check_wider(old, schema.parse_schema(text))


def test_the_event_time_must_be_a_time(spark: SparkSession) -> None:
    value = schema.parse_schema("a DOUBLE, b STRUCT<t: TIMESTAMP>, c BOOLEAN")
    schema.check_event_time(value, "b.t")
    schema.check_event_time(value, None)
    for name, why in (("a", "type double"), ("c", "type boolean"), ("x", "no such field"), ("b", "type struct")):
        with pytest.raises(LakeError, match=why):
            schema.check_event_time(value, name)
    with pytest.raises(LakeError, match="no such field"):
        schema.check_event_time(None, "a")
