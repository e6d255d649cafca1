"""The options of the sink, and the columns that a DataFrame needs to be written.

Columns are those of Spark's Kafka connector: `value` (string or binary) is required; `key` (string or binary), `topic`
(string), `partition` (int) and `headers` (array of struct of key and value) are optional; others are ignored. Source:
``KafkaWriter.scala``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from barnabas_pipeline.brokers.settings import Settings
from barnabas_pipeline.options import OptionMap

_PREFIX: Final = "barnabas-spark"
_TEXT_OR_BYTES: Final = "a string or binary"


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """A sink's options.

    Attributes:
        settings: how to connect to brokers.
        topic: the topic of all records, whatever their column `topic` says; None if the column decides.
        checkpoint: the query's checkpoint location, where an exactly-once sink keeps its state; None for at least once.
        transactional: whether the exactly-once sink writes in transactions, instead of staging records in files.
        transactional_id_prefix: what the transactional ids, and the groups with the same names, begin with.
    """

    settings: Settings
    topic: str | None
    checkpoint: str | None
    transactional: bool = False
    transactional_id_prefix: str = _PREFIX

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, streaming: bool) -> Self:
        """Read and check options and the columns of the DataFrame.

        Raises:
            ValueError: an option or column is missing or invalid; the message names it.
        """
        given = OptionMap(options)
        settings = Settings.of(options)
        topic = given.get("topic") or None
        _check_columns(schema, topic)
        way = given.read("exactlyOnce", _exactly_once, "false")
        exactly_once = way != "false"
        prefix = given.get("transactionalIdPrefix")
        checkpoint = given.get("checkpointLocation") or None
        if exactly_once and not streaming:
            raise ValueError(
                "option 'exactlyOnce' is only for streaming queries: Spark gives a batch no id that a second attempt "
                "could be recognized by. To do: write with df.writeStream, or leave it out"
            )
        if exactly_once and checkpoint is None:
            raise ValueError(
                "option 'exactlyOnce' needs the option 'checkpointLocation' on the same writeStream: the sink keeps "
                "its state there, beside Spark's own checkpoint"
            )
        if exactly_once and settings.acks != -1:
            raise ValueError("option 'exactlyOnce' needs kafka.acks=all, the default: leave kafka.acks out")
        if prefix and way != "transactional":
            raise ValueError(
                "option 'transactionalIdPrefix' needs exactlyOnce=transactional: leave it out, or give both"
            )
        return cls(
            settings,
            topic,
            checkpoint if exactly_once else None,
            way == "transactional",
            prefix or _PREFIX,
        )


def _exactly_once(name: str, value: str) -> str:
    if value.lower() not in ("true", "false", "transactional"):
        raise ValueError(f"option '{name}' is {value!r}: give true, transactional or false")
    return value.lower()


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
