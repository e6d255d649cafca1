"""The columns of Spark's Kafka connector, of records that :mod:`barnabas_client.columns` has decoded."""

from typing import Any, Final

import numpy as np
import pyarrow as pa

from barnabas_client.columns import HEADERS_TYPE, Columns, numbers, repeated

#: The maximum of milliseconds that fit into 64 bits as microseconds.
_MOST_MILLISECONDS: Final = (2**63 - 1) // 1000


def arrow_schema(*, headers: bool) -> Any:
    """Return the columns of Spark's Kafka connector as Arrow's types.

    Args:
        headers: with the column `headers` (option ``includeHeaders``).
    """
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if headers:
        fields.append(pa.field("headers", HEADERS_TYPE))
    return pa.schema(fields)


def to_arrow(topic: str, partition: int, columns: Columns) -> Any:
    """Return records of a partition as one Arrow record batch.

    Args:
        topic: of all records.
        partition: of all records.
        columns: the records; with a column of headers if they have one.
    """
    count = len(columns.offsets)
    milliseconds = np.clip(columns.timestamps, -_MOST_MILLISECONDS, _MOST_MILLISECONDS)
    arrays = [
        columns.keys,
        columns.values,
        repeated(topic, count),
        numbers(np.full(count, partition, dtype=np.int32), pa.int32()),
        numbers(columns.offsets, pa.int64()),
        numbers(milliseconds * 1000, pa.timestamp("us", tz="UTC")),
        numbers(columns.timestamp_types, pa.int32()),
    ]
    headers = columns.headers is not None
    if headers:
        arrays.append(columns.headers)
    return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(headers=headers))
