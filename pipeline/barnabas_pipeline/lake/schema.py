"""The columns of the lake's tables, and the check of records against them.

A table has the columns of Spark's Kafka connector (key, value, partition, offset, timestamp, timestampType, headers)
and the date of the event. With the format "json" the value is a struct, parsed with the schema of the table; with "raw"
it is the bytes. A record that does not fit is neither converted nor dropped: it goes to the quarantine unchanged, with
the reason as text. A field that the schema does not have, at any depth, is such a reason.
"""

import json
from collections.abc import Collection, Iterable, Sequence
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

from barnabas_pipeline.errors import LakeError
from barnabas_pipeline.lake.log import DATE

RAW: Final = "raw"
JSON: Final = "json"
REASON: Final = "reason"
#: The columns of the source without the topic.
RECORD: Final = (
    "key binary, value binary, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)
#: The maximum of records that a schema is inferred from.
SAMPLE: Final = 10_000
#: The column of Spark's JSON parser that tells whether a record fits; longer if a field has this name.
_CORRUPT: Final = "_barnabas_corrupt"
#: The column with the bytes of the value, beside the parsed one.
_BYTES: Final = "_barnabas_bytes"
_MILLISECONDS_A_DAY: Final = 86_400_000
_MICROSECONDS_A_DAY: Final = 86_400_000_000
#: Days since 1970 of 9999-12-31, the last day of a year with four digits.
_LAST_DAY: Final = 2_932_896


def parse_schema(text: str) -> StructType:
    """Parse a schema in Spark's JSON, or in DDL such as ``carrier STRING, dep_delay DOUBLE``.

    DDL needs an active Spark session.

    Raises:
        LakeError: the text is neither, or not a list of fields.
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
    """Infer the schema of JSON objects; fields of unknown type are strings.

    Raises:
        LakeError: there is no object among the values.
    """
    corrupt = _free_name("".join(values))
    reader = spark.read.options(allowSingleQuotes="false", columnNameOfCorruptRecord=corrupt)
    found = reader.json(spark.sparkContext.parallelize(list(values), 1)).schema
    fields = _distinct([field for field in found.fields if field.name != corrupt])
    if not fields:
        raise LakeError(
            f"no schema can be inferred: none of the first {len(values)} records is a JSON object. To do: give "
            "--schema, or --format raw"
        )
    return StructType(fields)


def _free_name(taken: Collection[str]) -> str:
    """Return a name for the column of corrupt records that none of `taken`, or no part of a text, is."""
    name = _CORRUPT
    while name in taken:
        name += "_"
    return name


def _distinct(fields: Iterable[StructField]) -> list[StructField]:
    """Leave out fields whose names differ from an earlier one only in case, at any depth: Spark cannot write both."""
    chosen: dict[str, StructField] = {}
    for field in fields:
        chosen.setdefault(field.name.lower(), StructField(field.name, _distinct_within(field.dataType)))
    return list(chosen.values())


def _distinct_within(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(_distinct(kind.fields))
    return ArrayType(_distinct_within(kind.elementType)) if isinstance(kind, ArrayType) else kind


def columns(value: DataType | None) -> StructType:
    """Return all columns of a table.

    Args:
        value: the type of the value; None for bytes.
    """
    fields = [
        StructField(field.name, value if field.name == "value" and value is not None else field.dataType)
        for field in _struct(RECORD).fields
    ]
    return StructType([*fields, StructField(DATE, DateType())])


def quarantine_columns() -> StructType:
    """Return all columns of a quarantine: those of the record, and the reason."""
    fields = _struct(RECORD).fields
    return StructType([*fields, StructField(REASON, StringType()), StructField(DATE, DateType())])


def check_wider(old: DataType, new: DataType, path: str = "value") -> None:
    """Check that data written with the old type can be read with the new one: only new fields are allowed.

    Raises:
        LakeError: it cannot; the text names the field.
    """
    if isinstance(old, StructType) and isinstance(new, StructType):
        fields = {field.name: field.dataType for field in new.fields}
        for field in old.fields:
            if field.name not in fields:
                raise LakeError(
                    f"the lake's schema has {path}.{field.name}, the given one does not. To do: keep all fields (only "
                    "new ones can be added), or archive to another path"
                )
            check_wider(field.dataType, fields[field.name], f"{path}.{field.name}")
    elif isinstance(old, ArrayType) and isinstance(new, ArrayType):
        check_wider(old.elementType, new.elementType, f"{path}[]")
    elif isinstance(old, MapType) and isinstance(new, MapType):
        check_wider(old.keyType, new.keyType, f"{path}.keys")
        check_wider(old.valueType, new.valueType, f"{path}.values")
    elif old != new:
        raise LakeError(
            f"the lake's schema has {path} as {old.simpleString()}, the given one as {new.simpleString()}. To do: keep "
            "the type, or archive to another path"
        )


def checked(records: DataFrame, value: StructType | None, event_time: str | None) -> DataFrame:
    """Add a table's columns to records, and :data:`REASON`, which is null if the record fits.

    Args:
        records: the rows of the source.
        value: the schema of the value; None for bytes.
        event_time: the field of the value with the time of the event; None for the record's timestamp.
    """
    reason: Column = sf.lit(None).cast("string")
    rows = records.withColumn(_BYTES, sf.col("value"))
    if value is not None:
        rows, reason = _parsed(rows, value)
    day = _event_day(value, event_time)
    if event_time:
        # A tombstone has no value: its date is that of its timestamp.
        day = sf.when(sf.col(_BYTES).isNull(), _event_day(None, None)).otherwise(day)
    no_day = (
        f"value.{event_time} has no day from 1970 to 9999"
        if event_time
        else "the timestamp is before 1970 or after 9999"
    )
    rows = rows.withColumn(DATE, day)
    return rows.withColumn(REASON, sf.coalesce(reason, sf.when(sf.col(DATE).isNull(), sf.lit(no_day))))


def good(rows: DataFrame, table: StructType) -> DataFrame:
    """Return the :func:`checked` rows that fit."""
    return rows.where(sf.col(REASON).isNull()).select(*table.names)


def bad(rows: DataFrame) -> DataFrame:
    """Return the :func:`checked` rows that do not fit, with a quarantine's columns."""
    day = sf.coalesce(_event_day(None, None), sf.lit("1970-01-01").cast("date"))
    wrong = rows.where(sf.col(REASON).isNotNull()).withColumn("value", sf.col(_BYTES)).withColumn(DATE, day)
    return wrong.select(*quarantine_columns().names)


def check_event_time(value: StructType | None, event_time: str | None) -> None:
    """Check that a field can hold the time of the event.

    Raises:
        LakeError: the value has no such field, or its type cannot be a time.
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
        raise ValueError(f"{ddl!r} is not a list of fields")
    return parsed


def _parsed(rows: DataFrame, value: StructType) -> tuple[DataFrame, Column]:
    """Parse the value as a struct; return the rows, and the column with the reason why a row does not fit."""
    text = sf.col("_barnabas_text")
    rows = rows.withColumn("_barnabas_text", sf.col("value").cast("string"))
    corrupt = _free_name(value.names)
    reading = StructType([*value.fields, StructField(corrupt, StringType())])
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": corrupt,
        "allowSingleQuotes": "false",
        "timeZone": "UTC",
    }
    rows = rows.withColumn("_barnabas_parsed", sf.from_json(text, reading, options))
    rows = rows.withColumn("_barnabas_keys", sf.json_object_keys(text))
    parsed, keys = sf.col("_barnabas_parsed"), sf.col("_barnabas_keys")
    unknown = _unknown(text, value, "")
    reason = (
        sf.when(sf.col(_BYTES).isNull(), sf.lit(None))
        .when(~sf.is_valid_utf8(text), "the value is not UTF-8")
        # Spark parses one document and ignores what follows; inside brackets the rest makes the JSON invalid.
        .when(sf.coalesce(_length(text), sf.lit(-1)) != 1, "the value is not one JSON document")
        .when(keys.isNull(), "the value is JSON, but not an object")
        .when(sf.size(sf.array_distinct(keys)) < sf.size(keys), "the value has a field twice")
        .when(
            parsed[corrupt].isNotNull(), sf.concat(sf.lit("does not fit the schema: "), _misfits(text, parsed, value))
        )
        .when(sf.size(unknown) > 0, sf.concat(sf.lit("the schema lacks: "), sf.concat_ws(", ", unknown)))
    )
    struct = sf.struct(*(parsed.getField(field.name).alias(field.name) for field in value.fields))
    rows = rows.withColumn(REASON, reason)
    return rows.withColumn("value", sf.when(sf.col(_BYTES).isNotNull(), struct)), sf.col(REASON)


def _length(text: Column) -> Column:
    return sf.json_array_length(sf.concat(sf.lit("["), text, sf.lit("]")))


def _misfits(text: Column, parsed: Column, value: StructType) -> Column:
    """Name the fields that are in the text but could not be parsed, with their type."""
    there = sf.from_json(text, "map<string,string>")
    names = [
        sf.when(
            parsed.getField(field.name).isNull() & there[field.name].isNotNull(),
            sf.lit(f"{field.name} is not {field.dataType.simpleString()}"),
        )
        for field in value.fields
    ]
    named = sf.concat_ws(", ", *names)
    return sf.when(named == "", "a field within another one").otherwise(named)


def _unknown(text: Column, schema: StructType, path: str) -> Column:
    """Return the paths of the fields of an object that its schema does not have, as an array."""
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
    """Return the struct inside lists and maps; None if there is none."""
    while isinstance(kind, ArrayType | MapType):
        kind = kind.elementType if isinstance(kind, ArrayType) else kind.valueType
    return kind if isinstance(kind, StructType) else None


def _event_day(value: StructType | None, event_time: str | None) -> Column:
    """Return the day of the event; null if it has none, whatever the value of its field."""
    if event_time is None or value is None:
        return _day(sf.unix_micros("timestamp"), _MICROSECONDS_A_DAY)
    field = sf.col("value")
    kind: DataType = value
    for name in event_time.split("."):
        assert isinstance(kind, StructType)
        field, kind = field.getField(name), kind[name].dataType
    if isinstance(kind, IntegralType):
        # Not as a timestamp: the conversion of a number that does not fit into 64 bits as microseconds is an error.
        return _day(field, _MILLISECONDS_A_DAY)
    time = field if isinstance(kind, TimestampType) else sf.try_to_timestamp(field)
    return _day(sf.unix_micros(time), _MICROSECONDS_A_DAY)


def _day(time: Column, units_a_day: int) -> Column:
    """Return the UTC day of a time since 1970, whatever the session's time zone; null before 1970 and after 9999."""
    known = time.between(0, (_LAST_DAY + 1) * units_a_day - 1)
    day = sf.call_function("div", time, sf.lit(units_a_day)).cast("int")
    return sf.when(known, sf.date_from_unix_date(day))
