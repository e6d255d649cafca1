"""Records of __consumer_offsets as columns; corrupt ones are reported."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_pipeline.lag.commits import OffsetCommit, commits, read_commit
from barnabas_protocol.codec import encode
from barnabas_protocol.coordinator_records import GroupMetadataKey, OffsetCommitKey, OffsetCommitValue
from barnabas_protocol.errors import DecodeError


def key(group: str = "g", topic: str = "t", partition: int = 3) -> bytes:
    return b"\x00\x01" + encode(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)


def value(offset: int, version: int = 3) -> bytes:
    body = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=77)
    return version.to_bytes(2, "big") + encode(body, version)


@pytest.mark.parametrize("version", range(5))
def test_commits_of_every_version_are_decoded(version: int) -> None:
    assert read_commit(key(), value(9, version), 1) == OffsetCommit("g", "t", 3, 9, 77)


def test_a_tombstone_is_a_deletion_at_the_time_of_its_record() -> None:
    assert read_commit(key(), None, 123) == OffsetCommit("g", "t", 3, None, 123)


def test_other_records_are_skipped() -> None:
    group = b"\x00\x02" + encode(GroupMetadataKey(group="g"), 2)
    assert read_commit(group, b"whatever", 1) is None
    assert read_commit(None, value(1), 1) is None
    assert read_commit(b"\x00", value(1), 1) is None


def test_corrupt_records_are_errors() -> None:
    for broken in (b"", b"\x00", b"\x00\x09" + value(1)[2:], value(1)[:-1]):
        with pytest.raises(DecodeError):
            read_commit(key(), broken, 1)
    with pytest.raises(DecodeError):
        read_commit(key()[:-1], value(1), 1)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_arbitrary_bytes_raise_decode_errors_only(key: bytes, value: bytes) -> None:
    try:
        read_commit(b"\x00\x01" + key, value, 0)
    except DecodeError:
        pass


def test_batches_are_converted_and_corrupt_records_counted() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "key": [key(), key(), b"\x00\x02x", key(partition=4)],
            "value": [value(5), b"x", b"", None],
            "offset": [10, 11, 12, 13],
            "timestamp": pa.array([1_000_000, 2_000_000, 3_000_000, 4_000_000], pa.timestamp("us", tz="UTC")),
        }
    )
    (made,) = commits([batch])
    assert made.to_pylist() == [
        {"group": "g", "topic": "t", "partition": 3, "committed": 5, "time": 77, "at": 10},
        {"group": None, "topic": None, "partition": None, "committed": None, "time": 2000, "at": 11},
        {"group": "g", "topic": "t", "partition": 4, "committed": None, "time": 4000, "at": 13},
    ]
