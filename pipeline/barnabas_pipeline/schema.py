"""What the lake's columns are, and which records do not fit them.

A table has the columns of Spark's Kafka connector (key, value, partition, offset, timestamp, timestampType, headers)
and the day of the event. With the format "json" the value is a struct, read by a schema that is pinned in the lake;
with "raw" it is the bytes. A record that does not fit is neither bent to fit nor dropped: it goes to the quarantine as
it is, with the reason in words. A field that the schema does not know is such a reason, at any depth.
"""

import json
from collections.abc import Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from barnabas_pipeline.lake import DATE, LakeError

RAW: Final = "raw"
JSON: Final = "json"
REASON: Final = "reason"
#: The columns of a record as the source has them, without the topic.
RECORD: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
#: Records that a schema is inferred from, at most.
SAMPLE: Final = 10_000
_CORRUPT: Final = "_barnabas_corrupt"
#: The bytes of the value, beside the column that holds what they mean.
_BYTES: Final = "_barnabas_bytes"
_MICROSECONDS_A_DAY: Final = 86_400_000_000
#: Days since 1970 of 9999-12-31, the last one that four digits can write.
_LAST_DAY: Final = 2_932_896


def parse_schema(text: str) -> StructType:
    """A schema as a person gives it: Spark's JSON, or DDL such as ``carrier STRING, dep_delay DOUBLE``.

    There must be a session, which parses DDL.

    Raises:
        LakeError: it is neither, or no list of fields.
    """
    try:
        if text.lstrip().startswith("{"):
            return StructType.fromJson(json.loads(text))
        return _struct(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        why = str(error).strip().partition("\n")[0]
        raise LakeError(
            f"the schema cannot be read: {why}. To do: write it as `carrier STRING, dep_delay DOUBLE`, or as "
            "Spark's JSON"
        ) from None


def infer(spark: SparkSession, values: Sequence[str]) -> StructType:
    """The schema of JSON objects; fields whose type cannot be told are strings.

    Raises:
        LakeError: there is no object among them.
    """
    found = spark.read.option("allowSingleQuotes", "false").json(spark.sparkContext.parallelize(list(values), 1)).schema
    fields = [field for field in found.fields if field.name != "_corrupt_record"]
    if not fields:
        raise LakeError(
            f"no schema can be inferred: of {len(values)} records looked at none is a JSON object. To do: give "
            "--schema, or "
            "--format raw"
        )
    return StructType(fields)


def columns(value: DataType | None) -> StructType:
    """All columns of a table.

    Args:
        value: the type of the value; None for bytes.
    """
    fields = [
        StructField(field.name, value if field.name == "value" and value is not None else field.dataType)
        for field in _struct(RECORD).fields
    ]
    return StructType([*fields, StructField(DATE, DateType())])


def quarantine_columns() -> StructType:
    """All columns of a quarantine: records as they are, and the reason."""
    fields = _struct(RECORD).fields
    return StructType([*fields, StructField(REASON, StringType()), StructField(DATE, DateType())])


def check_wider(old: DataType, new: DataType, path: str = "value") -> None:
    """Whether what was written with one type can be read with another: only new fields may come.

    Raises:
        LakeError: it cannot; the text names the field.
    """
    if isinstance(old, StructType) and isinstance(new, StructType):
        fields = {field.name: field.dataType for field in new.fields}
        for field in old.fields:
            if field.name not in fields:
                raise LakeError(
                    f"the lake's schema has {path}.{field.name}, the given one has not. To do: fields can be "
                    "added, not taken "
                    "away; archive to another path for a new start"
                )
            check_wider(field.dataType, fields[field.name], f"{path}.{field.name}")
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        check_wider(old.elementType, new.elementType, f"{path}[]")
    elif isinstance(old, MapType) and isinstance(new, MapType):
        check_wider(old.keyType, new.keyType, f"{path}.keys")
        check_wider(old.valueType, new.valueType, f"{path}.values")
    elif old != new:
        raise LakeError(
            f"the lake's schema has {path} as {old.simpleString()}, the given one as {new.simpleString()}. To "
            "do: leave types as "
            "they are, or archive to another path"
        )


def judged(records: DataFrame, value: StructType | None, event_time: str | None) -> DataFrame:
    """Records with a table's columns, and beside them :data:`REASON`, null where the record fits.

    Args:
        records: as the source has them.
        value: the schema of the value; None for bytes.
        event_time: the field of the value that tells the time of the event; None for the record's own.
    """
    reason: Column = sf.lit(None).cast("string")
    rows = records.withColumn(_BYTES, sf.col("value"))
    if value is not None:
        rows, reason = _parsed(rows, value)
    day = _day(_event(value, event_time))
    if event_time:
        # A tombstone has no value to look at: it happened when it was written.
        day = sf.when(sf.col(_BYTES).isNull(), _day(sf.col("timestamp"))).otherwise(day)
    untold = (
        f"value.{event_time} tells no day from 1970 to 9999"
        if event_time
        else "the timestamp is before 1970 or after 9999"
    )
    rows = rows.withColumn(DATE, day)
    return rows.withColumn(REASON, sf.coalesce(reason, sf.when(sf.col(DATE).isNull(), sf.lit(untold))))


def good(rows: DataFrame, table: StructType) -> DataFrame:
    """Of :func:`judged` rows those that fit."""
    return rows.where(sf.col(REASON).isNull()).select(*table.names)


def bad(rows: DataFrame) -> DataFrame:
    """Of :func:`judged` rows those that do not, with a quarantine's columns."""
    day = sf.coalesce(_day(sf.col("timestamp")), sf.lit("1970-01-01").cast("date"))
    wrong = rows.where(sf.col(REASON).isNotNull()).withColumn("value", sf.col(_BYTES)).withColumn(DATE, day)
    return wrong.select(*quarantine_columns().names)


def check_event_time(value: StructType | None, event_time: str | None) -> None:
    """Whether a field can tell the time.

    Raises:
        LakeError: there is no such field, or it is of no type that tells a time.
    """
    if event_time is None:
        return
    kind: DataType | None = value
    for name in event_time.split("."):
        names = {field.name: field.dataType for field in kind.fields} if isinstance(kind, StructType) else {}
        kind = names.get(name)
    if not isinstance(kind, StringType | TimestampType | IntegralType):
        what = "there is no such field in the value" if kind is None else f"it is of type {kind.simpleString()}"
        raise LakeError(
            f"--event-time {event_time}: {what}. To do: name a field that is a timestamp, a string such as "
            "2013-01-01T10:00:00Z, or milliseconds since 1970"
        )


def _struct(ddl: str) -> StructType:
    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise ValueError(f"{ddl!r} is no list of fields")
    return parsed


def _parsed(rows: DataFrame, value: StructType) -> tuple[DataFrame, Column]:
    """The rows with the value as a struct, and what is wrong with each."""
    text = sf.col("_barnabas_text")
    rows = rows.withColumn("_barnabas_text", sf.col("value").cast("string"))
    reading = StructType([*value.fields, StructField(_CORRUPT, StringType())])
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _CORRUPT,
        "allowSingleQuotes": "false",
        "timeZone": "UTC",
    }
    rows = rows.withColumn("_barnabas_parsed", sf.from_json(text, reading, options))
    rows = rows.withColumn("_barnabas_keys", sf.json_object_keys(text))
    parsed, keys = sf.col("_barnabas_parsed"), sf.col("_barnabas_keys")
    unknown = _unknown(text, value, "")
    reason = (
        sf.when(sf.col(_BYTES).isNull(), sf.lit(None))
        .when(~sf.is_valid_utf8(text), "the value is no UTF-8")
        # Spark reads a document and ignores what stands behind it: within brackets it cannot.
        .when(sf.coalesce(_length(text), sf.lit(-1)) != 1, "the value is not one JSON document")
        .when(keys.isNull(), "the value is JSON, but no object")
        .when(sf.size(sf.array_distinct(keys)) < sf.size(keys), "a field stands there twice")
        .when(
            parsed[_CORRUPT].isNotNull(), sf.concat(sf.lit("does not fit the schema: "), _misfits(text, parsed, value))
        )
        .when(sf.size(unknown) > 0, sf.concat(sf.lit("the schema lacks: "), sf.concat_ws(", ", unknown)))
    )
    struct = sf.struct(*(parsed.getField(field.name).alias(field.name) for field in value.fields))
    rows = rows.withColumn(REASON, reason)
    return rows.withColumn("value", sf.when(sf.col(_BYTES).isNotNull(), struct)), sf.col(REASON)


def _length(text: Column) -> Column:
    return sf.json_array_length(sf.concat(sf.lit("["), text, sf.lit("]")))


def _misfits(text: Column, parsed: Column, value: StructType) -> Column:
    """The fields that are in the text and came to nothing, with the type they should have."""
    there = sf.from_json(text, "map<string,string>")
    names = [
        sf.when(
            parsed.getField(field.name).isNull() & there[field.name].isNotNull(),
            sf.lit(f"{field.name} is no {field.dataType.simpleString()}"),
        )
        for field in value.fields
    ]
    named = sf.concat_ws(", ", *names)
    return sf.when(named == "", "a field within another one").otherwise(named)


def _unknown(text: Column, schema: StructType, path: str) -> Column:
    """The paths of fields that are in the text of an object and not in its schema, as an array."""
    keys = sf.coalesce(sf.json_object_keys(text), sf.array().cast("array<string>"))
    known = sf.array(*(sf.lit(field.name) for field in schema.fields))
    found = sf.transform(sf.array_except(keys, known), lambda key: sf.concat(sf.lit(path), key))
    parts = [found]
    for field in schema.fields:
        inner = _inner(field.dataType)
        if inner is not None:
            there = sf.from_json(text, "map<string,string>")[field.name]
            parts.append(_unknown_in(there, field.dataType, inner, f"{path}{field.name}"))
    return found if len(parts) == 1 else sf.concat(*parts)


def _unknown_in(text: Column, kind: DataType, inner: StructType, path: str) -> Column:
    nothing = sf.array().cast("array<string>")
    if isinstance(kind, StructType):
        return _unknown(text, inner, f"{path}.")
    each: DataType
    if isinstance(kind, ArrayType):
        texts, each, path = sf.from_json(text, "array<string>"), kind.elementType, f"{path}[]"
    else:
        assert isinstance(kind, MapType)
        texts, each, path = sf.map_values(sf.from_json(text, "map<string,string>")), kind.valueType, f"{path}.*"
    found = sf.flatten(sf.transform(texts, lambda one: _unknown_in(one, each, inner, path)))
    return sf.coalesce(sf.array_distinct(found), nothing)


def _inner(kind: DataType) -> StructType | None:
    """The struct within lists and maps; None if there is none."""
    while isinstance(kind, ArrayType | MapType):
        kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
    return kind if isinstance(kind, StructType) else None


def _event(value: StructType | None, event_time: str | None) -> Column:
    if event_time is None or value is None:
        return sf.col("timestamp")
    field = sf.col("value")
    kind: DataType = value
    for name in event_time.split("."):
        assert isinstance(kind, StructType)
        field, kind = field.getField(name), kind[name].dataType
    if isinstance(kind, IntegralType):
        return sf.timestamp_millis(field)
    return field if isinstance(kind, TimestampType) else sf.try_to_timestamp(field)


def _day(time: Column) -> Column:
    """The day in UTC, whatever the session's zone; null before 1970 and after 9999."""
    day = sf.floor(sf.unix_micros(time) / sf.lit(_MICROSECONDS_A_DAY)).cast("int")
    return sf.when(day.between(0, _LAST_DAY), sf.date_from_unix_date(day))
