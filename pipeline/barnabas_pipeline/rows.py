"""What a DataFrame must look like to be written, and its rows as records.

The columns are those of Spark's Kafka connector: `value` (string or binary) must be there; `key` (string or binary),
`topic` (string), `partition` (int) and `headers` (array of struct of key and value) may be; others are not looked at.
Source: ``KafkaWriter.scala``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
)

from barnabas_pipeline.options import Given
from barnabas_pipeline.settings import Settings

Headers = tuple[tuple[str, bytes | None], ...]


class Row(NamedTuple):
    """A record to be written; `partition` is None where its key, or chance, is to decide."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


_TEXT_OR_BYTES: Final = "a string or binary"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A sink's options.

    Attributes:
        settings: how brokers are reached.
        topic: where all records go, whatever their column says; None if that decides.
        exactly_once: stage the records of a micro-batch and write them when it is committed.
        checkpoint: the query's checkpoint location, None if it was not given as an option of the sink.
    """

    settings: Settings
    topic: str | None
    exactly_once: bool
    checkpoint: str | None

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, streaming: bool) -> Self:
        """Read and check options, and the schema that goes with them.

        Raises:
            ValueError: an option or column is missing or cannot be; the message names it.
        """
        given = Given(options)
        settings = Settings.of(options)
        topic = given.get("topic") or None
        _check_columns(schema, topic)
        exactly_once = given.boolean("exactlyOnce", default=False)
        checkpoint = given.get("checkpointLocation") or None
        if exactly_once and not streaming:
            raise ValueError(
                "option 'exactlyOnce' is only for streaming queries: a batch has no id by which it would be known "
                "again. To do: write with df.writeStream, or leave it out"
            )
        if exactly_once and checkpoint is None:
            raise ValueError(
                "option 'exactlyOnce' needs the option 'checkpointLocation' on the same writeStream: what was staged "
                "is kept there, beside what Spark knows of the query"
            )
        if exactly_once and settings.acks != -1:
            raise ValueError("option 'exactlyOnce' needs kafka.acks=all, the default: leave kafka.acks out")
        return cls(settings, topic, exactly_once, checkpoint)


def _check_columns(schema: StructType, topic: str | None) -> None:
    types = {field.name.lower(): field.dataType for field in schema}
    if topic is None and "topic" not in types:
        raise ValueError(
            "topic option required when no 'topic' column is present. Use the topic option for setting a topic"
        )
    if "value" not in types:
        raise ValueError(f"required column 'value' not found: there are {', '.join(types)}")
    _check_type(types, "topic", (StringType,), "a string")
    _check_type(types, "key", (StringType, BinaryType), _TEXT_OR_BYTES)
    _check_type(types, "value", (StringType, BinaryType), _TEXT_OR_BYTES)
    _check_type(types, "partition", (IntegerType,), "an int")
    headers = types.get("headers")
    if headers is not None and not _is_headers(headers):
        raise ValueError(
            "headers column type must be array<struct<key:string,value:binary>>, but it is " + headers.simpleString()
        )


def _check_type(types: Mapping[str, DataType], name: str, allowed: tuple[type[DataType], ...], what: str) -> None:
    found = types.get(name)
    if found is not None and not isinstance(found, allowed):
        raise ValueError(
            f"{name} column type must be {what}, but it is {found.simpleString()}. To do: cast the column, for example "
            f"with to_json(struct(*)) or CAST({name} AS STRING)"
        )


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    return [(one.name, type(one.dataType)) for one in fields] == [("key", StringType), ("value", BinaryType)]


def rows_of(batch: Any, topic: str | None) -> Iterator[Row]:
    """The rows of an Arrow record batch.

    Raises:
        ValueError: a topic is null and none is set, or a header has no name.
    """
    columns = {field.name.lower(): batch.column(number) for number, field in enumerate(batch.schema)}
    count = batch.num_rows
    nothing: list[Any] = [None] * count
    topics = [topic] * count if topic is not None else columns["topic"].to_pylist()
    if None in topics:
        raise ValueError("null topic present in the data. Use the topic option for setting a topic")
    partitions = columns["partition"].to_pylist() if "partition" in columns else nothing
    keys = _bytes(columns["key"]) if "key" in columns else nothing
    headers = map(_headers, columns["headers"].to_pylist()) if "headers" in columns else [()] * count
    rows = zip(topics, partitions, keys, _bytes(columns["value"]), headers, strict=True)
    return map(Row._make, rows)


def _bytes(column: Any) -> list[bytes | None]:
    values: list[bytes | None] = (
        column if pa.types.is_binary(column.type) else column.cast(pa.large_binary())
    ).to_pylist()
    return values


def _headers(told: list[dict[str, Any] | None] | None) -> Headers:
    found: list[tuple[str, bytes | None]] = []
    for one in told or ():
        if one is None or one["key"] is None:
            raise ValueError("a header without a name is present in the column 'headers': give each a key")
        found.append((one["key"], one["value"]))
    return tuple(found)
