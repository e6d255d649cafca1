"""The options of the sink, columns and their types, and rows as records."""

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

from barnabas_pipeline.sink.options import WriteOptions
from barnabas_pipeline.sink.records import SinkRecord, to_records

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
#: Types by their SQL names, which PySpark cannot parse without Java.
TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map": MapType(StringType(), BinaryType()),
    "headers": ArrayType(HEADER),
}


def options(columns: str, given: dict[str, str] | None = None, *, streaming: bool = True) -> WriteOptions:
    fields = [StructField(name, TYPES[kind]) for name, kind in map(str.split, columns.split(","))]
    return WriteOptions.of({**SERVERS, **(given or {})}, StructType(fields), streaming=streaming)


@pytest.mark.parametrize(
    "columns", ["value string, topic string", "VALUE binary, Topic string, headers headers, partition int"]
)
def test_columns_that_can_be_written(columns: str) -> None:
    found = options(columns)
    assert (found.topic, found.checkpoint) == (None, None)


@pytest.mark.parametrize(
    ("columns", "given", "match"),
    [
        ("value string", {}, "topic option required when no 'topic' column is present"),
        ("key string", {"topic": "t"}, "required column 'value' not found: there are key"),
        ("value int", {"topic": "t"}, "value column type must be a string or binary, but it is int"),
        ("value string, key int", {"topic": "t"}, "key column type must be a string or binary, but it is int"),
        ("value string, topic int", {"topic": "t"}, "topic column type must be a string, but it is int"),
        ("value string, partition bigint", {"topic": "t"}, "partition column type must be an int, but it is bigint"),
        ("value string, headers map", {"topic": "t"}, "headers column type must be array<struct<"),
        ("value string", {"topic": "t", "exactlyOnce": "true"}, "'exactlyOnce' needs the option 'checkpointLocation'"),
        (
            "value string",
            {"topic": "t", "exactlyOnce": "true", "checkpointLocation": "/x", "kafka.acks": "1"},
            "'exactlyOnce' needs kafka.acks=all",
        ),
        ("value string", {"topics": "t"}, "option 'topics' is not known: did you mean 'topic'"),
    ],
)
def test_invalid_writes_are_errors(columns: str, given: dict[str, str], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        options(columns, given)


def test_a_batch_cannot_be_written_exactly_once() -> None:
    with pytest.raises(ValueError, match="only for streaming queries"):
        options("value string", {"topic": "t", "exactlyOnce": "true", "checkpointLocation": "/x"}, streaming=False)


def test_rows_become_records() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "Value": pa.array(["grüß", None]),
            "key": pa.array([b"k", None], pa.binary()),
            "topic": pa.array(["a", "b"]),
            "partition": pa.array([None, 3], pa.int32()),
            "headers": [[{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None],
            "more": [1, 2],
        }
    )
    assert list(to_records(batch, None)) == [
        SinkRecord("a", None, b"k", "grüß".encode(), (("h", b"1"), ("h", None))),
        SinkRecord("b", 3, None, None, ()),
    ]
    assert [row.topic for row in to_records(batch, "c")] == ["c", "c"]


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ({"value": ["x"], "topic": pa.array([None], pa.string())}, "null topic present in the data"),
        ({"value": ["x"], "topic": ["t"], "headers": [[{"key": None, "value": b"x"}]]}, "a header without a name"),
    ],
)
def test_invalid_rows_are_errors(content: dict[str, object], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        list(to_records(pa.RecordBatch.from_pydict(content), None))
