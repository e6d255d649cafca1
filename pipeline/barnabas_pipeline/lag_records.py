"""Records of ``__consumer_offsets`` as columns: who committed what, and when. Pure."""

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pyarrow as pa

from barnabas_protocol.codec import decode
from barnabas_protocol.coordinator_records import OffsetCommitKey, OffsetCommitValue
from barnabas_protocol.errors import DecodeError

_INT16: Final = struct.Struct(">h")
#: Versions of a key that belong to a committed offset; 2 is a group's metadata.
_COMMITS: Final = (0, 1)

#: A commit, for Spark. `committed` is null where the offset was deleted; `group` is null where the record is broken.
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


class Commit(NamedTuple):
    """A commit: the next offset that a group wants of a partition, None if it forgot it; `time` in ms since 1970."""

    group: str
    topic: str
    partition: int
    committed: int | None
    time: int


def read_commit(key: bytes | None, value: bytes | None, timestamp: int) -> Commit | None:
    """A record as a commit; None if it is about something else.

    Args:
        key: of the record.
        value: of the record; None deletes the offset.
        timestamp: of the record, ms since 1970, for a deletion has no time of its own.

    Raises:
        DecodeError: it is broken.
    """
    if key is None or len(key) < _INT16.size:
        return None
    (kind,) = _INT16.unpack_from(key)
    if kind not in _COMMITS:
        return None
    about = decode(OffsetCommitKey, kind, memoryview(key)[_INT16.size :])
    if value is None:
        return Commit(about.group, about.topic, about.partition, None, timestamp)
    if len(value) < _INT16.size:
        raise DecodeError(f"a value of {len(value)} bytes")
    (version,) = _INT16.unpack_from(value)
    if version not in OffsetCommitValue.VERSIONS:
        raise DecodeError(f"a value of version {version}")
    what = decode(OffsetCommitValue, version, memoryview(value)[_INT16.size :])
    return Commit(about.group, about.topic, about.partition, what.offset, what.commit_timestamp)


def commits(batches: Iterable[Any]) -> Iterator[Any]:
    """For Spark's `mapInArrow`: batches of records (key, value, offset, timestamp) to batches of :data:`COMMITS`."""
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
