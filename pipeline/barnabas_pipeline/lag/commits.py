"""Records of ``__consumer_offsets`` as columns: which group committed which offset, and when. Pure."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from barnabas_protocol.codec import decode
from barnabas_protocol.coordinator_records import OffsetCommitKey, OffsetCommitValue
from barnabas_protocol.errors import DecodeError

_INT16: Final = struct.Struct(">h")
#: Versions of the keys of committed offsets; version 2 is the metadata of a group.
_COMMITS: Final = (0, 1)

#: The columns of commits, for Spark. `committed` is null if the offset was deleted, `group` if the record is corrupt.
COMMITS: Final = "group string, topic string, partition int, committed bigint, time bigint, at bigint"
_ARROW: Final = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("time", pa.int64()),
        ("at", pa.int64()),
    ]
)


class OffsetCommit(NamedTuple):
    """A commit: the next offset that a group reads, None if its offset was deleted; `time` in ms since 1970."""

    group: str
    topic: str
    partition: int
    committed: int | None
    time: int


def read_commit(key: bytes | None, value: bytes | None, timestamp: int) -> OffsetCommit | None:
    """Decode a record; return None if it is not a commit.

    Args:
        key: the key of the record.
        value: the value of the record; None deletes the offset.
        timestamp: the timestamp of the record in ms since 1970, used for a deletion, which has no time of its own.

    Raises:
        DecodeError: the record is corrupt.
    """
    if key is None or len(key) < _INT16.size:
        return None
    (key_version,) = _INT16.unpack_from(key)
    if key_version not in _COMMITS:
        return None
    subject = decode(OffsetCommitKey, key_version, memoryview(key)[_INT16.size :])
    if value is None:
        return OffsetCommit(subject.group, subject.topic, subject.partition, None, timestamp)
    if len(value) < _INT16.size:
        raise DecodeError(f"a value of {len(value)} bytes")
    (version,) = _INT16.unpack_from(value)
    if version not in OffsetCommitValue.VERSIONS:
        raise DecodeError(f"a value of version {version}")
    commit = decode(OffsetCommitValue, version, memoryview(value)[_INT16.size :])
    return OffsetCommit(subject.group, subject.topic, subject.partition, commit.offset, commit.commit_timestamp)


def commits(batches: Iterable[Any]) -> Iterator[Any]:
    """Convert batches of records (key, value, offset, timestamp) to batches of :data:`COMMITS`, for `mapInArrow`."""
    for batch in batches:
        rows: list[tuple[Any, ...]] = []
        milliseconds = batch.column("timestamp").cast(pa.int64()).to_pylist()
        columns = (batch.column(name).to_pylist() for name in ("key", "value", "offset"))
        for key, value, offset, micros in zip(*columns, milliseconds, strict=True):
            timestamp = (micros or 0) // 1000
            try:
                commit = read_commit(key, value, timestamp)
            except DecodeError:
                rows.append((None, None, None, None, timestamp, offset))
                continue
            if commit is not None:
                rows.append((*commit, offset))
        arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(_ARROW)]
        yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
