"""Rows of a DataFrame as records for topics."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

Headers = tuple[tuple[str, bytes | None], ...]


class SinkRecord(NamedTuple):
    """A record to write; `partition` is None if the partitioner chooses it."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers


def to_records(batch: Any, topic: str | None) -> Iterator[SinkRecord]:
    """Convert the rows of an Arrow record batch.

    Args:
        batch: with the columns that :mod:`barnabas_pipeline.sink.options` has checked.
        topic: the topic of all records; None if the column `topic` decides.

    Raises:
        ValueError: a topic is null although `topic` is None, or a header has no key.
    """
    columns = {field.name.lower(): batch.column(number) for number, field in enumerate(batch.schema)}
    count = batch.num_rows
    nulls: list[Any] = [None] * count
    topics = [topic] * count if topic is not None else columns["topic"].to_pylist()
    if None in topics:
        raise ValueError("null topic present in the data. Use the topic option for setting a topic")
    partitions = columns["partition"].to_pylist() if "partition" in columns else nulls
    keys = _bytes(columns["key"]) if "key" in columns else nulls
    headers = map(_headers, columns["headers"].to_pylist()) if "headers" in columns else [()] * count
    rows = zip(topics, partitions, keys, _bytes(columns["value"]), headers, strict=True)
    return map(SinkRecord._make, rows)


def _bytes(column: Any) -> list[bytes | None]:
    values: list[bytes | None] = (
        column if pa.types.is_binary(column.type) else column.cast(pa.large_binary())
    ).to_pylist()
    return values


def _headers(given: list[dict[str, Any] | None] | None) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for one in given or ():
        if one is None or one["key"] is None:
            raise ValueError("a header without a name is present in the column 'headers': give each a key")
        headers.append((one["key"], one["value"]))
    return tuple(headers)
