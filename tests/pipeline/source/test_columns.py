"""The columns that Spark gets."""

import pyarrow as pa
import pytest

from barnabas_client.columns import iter_columns
from barnabas_pipeline.source.columns import arrow_schema, to_arrow
from barnabas_protocol.records import build_batch


@pytest.mark.parametrize("headers", [False, True])
def test_columns_are_those_of_the_kafka_connector(headers: bool) -> None:
    batch = build_batch([(b"key", b"value", (("h", b"x"),), 5), (None, None, (), 6)], base_offset=7, timestamp_type=1)
    (part,) = iter_columns([batch], headers=headers)
    found = to_arrow("flights", 4, part)
    found.validate(full=True)
    assert found.schema == arrow_schema(headers=headers)
    assert found.column("offset").to_pylist() == [7, 8]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [6000, 6000]
    assert found.column("timestampType").to_pylist() == [1, 1]
    assert found.column("key").to_pylist() == [b"key", None]
    if headers:
        assert found.column("headers").to_pylist() == [[{"key": "h", "value": b"x"}], None]


def test_a_timestamp_out_of_range_is_clipped() -> None:
    (part,) = iter_columns([build_batch([(None, b"x", (), 2**62)])])
    timestamps = to_arrow("flights", 4, part).column("timestamp").cast(pa.int64())
    assert timestamps.to_pylist() == [(2**63 - 1) // 1000 * 1000]
