"""Rows of JSON that a broker and the console of a cluster make alike: partitions, topics, ACLs and records. Pure."""

from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from typing import Any, Final

from barnabas_protocol.errors import DecodeError
from barnabas_protocol.records import decode_records, iter_batches
from barnabas_protocol.records.batches import CONTROL, TRANSACTIONAL, BatchHeader
from barnabas_protocol.records.iteration import Record, control_record_type
from barnabas_protocol.wire import Buffer

#: ACLs that a page shows.
MOST_ACLS: Final = 10_000
#: Records of a response, and how many there are unless the request says so.
MOST_RECORDS: Final = 200
USUAL_RECORDS: Final = 50
#: Partitions of a response.
MOST_PARTITIONS: Final = 16
#: Bytes of a partition that are read for a response, and at once.
MOST_BYTES: Final = 1024 * 1024
CHUNK: Final = 256 * 1024
#: Bytes of a batch when it is decompressed.
_MOST_DECOMPRESSED: Final = 16 * 1024 * 1024
#: Bytes of a key or a header, and of a value that are shown; headers of a record that are shown.
_MOST_KEY: Final = 512
_MOST_VALUE: Final = 4096
_MOST_HEADERS: Final = 20
Row = dict[str, Any]


def partition_row(
    number: int,
    leader: int,
    leader_epoch: int,
    replicas: Sequence[int],
    isr: Sequence[int],
    *,
    start: int | None = None,
    stable: int | None = None,
    end: int | None = None,
    size: int | None = None,
) -> dict[str, Any]:
    """A partition; its offsets and its size in bytes are None where they are not known."""
    return {
        "partition": number,
        "leader": leader,
        "leader_epoch": leader_epoch,
        "replicas": list(replicas),
        "isr": list(isr),
        "start": start,
        "stable": stable,
        "end": end,
        "size": size,
    }


def topic_row(
    name: str, partitions: Sequence[dict[str, Any]], *, internal: bool, configs: int | None
) -> dict[str, Any]:
    """A topic in one row.

    Args:
        name: of the topic.
        partitions: its rows of :func:`partition_row`.
        internal: whether it belongs to the brokers.
        configs: the number of its own configuration values; None if it is not known.
    """
    known = [each for each in partitions if each["end"] is not None and each["start"] is not None]
    sizes = [each["size"] for each in partitions if each["size"] is not None]
    return {
        "topic": name,
        "internal": internal,
        "partitions": len(partitions),
        "known": len(known),
        "replicas": max((len(each["replicas"]) for each in partitions), default=0),
        "under_replicated": sum(len(each["isr"]) < len(each["replicas"]) for each in partitions),
        "offline": sum(each["leader"] < 0 for each in partitions),
        "records": sum(each["end"] - each["start"] for each in known) if known else None,
        "end": sum(each["end"] for each in known) if known else None,
        "size": sum(sizes) if sizes else None,
        "configs": configs,
    }


def acl_row(
    permission: str, principal: str, host: str, operation: str, resource_type: str, resource: str, *, prefixed: bool
) -> dict[str, Any]:
    """An ACL: a principal is allowed or denied an operation on a resource, or on all whose names begin so."""
    return {
        "permission": permission,
        "principal": principal,
        "host": host,
        "operation": operation,
        "resource_type": resource_type,
        "resource": resource,
        "prefixed": prefixed,
    }


def by_time(partitions: Iterable[tuple[int, Iterable[Row]]]) -> list[Row]:
    """The rows of partitions by time, but never against the order of a partition, whose times may go backwards.

    Args:
        partitions: the number of each, and its rows in order.
    """
    placed: list[tuple[int, int, int, Row]] = []
    for number, rows in partitions:
        latest = 0
        for row in rows:
            latest = max(latest, row["timestamp"])
            placed.append((latest, number, row["offset"], row))
    placed.sort(key=itemgetter(0, 1, 2))
    return [row for *_, row in placed]


def rows_of(
    data: Buffer, number: int, start: int, count: int, stopped: Callable[[], bool] = lambda: False
) -> tuple[int, list[Row]]:
    """The records of batches, from an offset on, and the offset after the last of them. Pure.

    A batch that cannot be read is a row with its `error`.
    """
    rows: list[Row] = []
    following = start
    for header, batch in iter_batches(data, partial_ok=True):
        if stopped():
            break
        following = max(following, header.next_offset)
        if header.next_offset <= start:
            continue
        try:
            records = decode_records(batch, max_bytes=_MOST_DECOMPRESSED)
        except DecodeError as error:
            row = {"partition": number, "offset": header.base_offset, "timestamp": header.max_timestamp}
            records = []
            rows.append({**row, "kind": "error", "error": f"the batch cannot be read: {error}"})
        for record in records:
            if record.offset >= start:
                if len(rows) >= count:
                    return record.offset, rows
                rows.append(_row(number, header, record))
        if len(rows) >= count:
            break
    return following, rows


def _row(number: int, header: BatchHeader, record: Record) -> Row:
    row = {"partition": number, "offset": record.offset, "timestamp": record.timestamp, "kind": "record"}
    if header.attributes & CONTROL:
        try:
            return {**row, "kind": "marker", "marker": control_record_type(record).name}
        except DecodeError as error:
            return {**row, "kind": "error", "error": f"the marker cannot be read: {error}"}
    return {
        **row,
        "key": _shown(record.key, _MOST_KEY),
        "value": _shown(record.value, _MOST_VALUE),
        "headers": [[name[:_MOST_KEY], _shown(value, _MOST_KEY)] for name, value in record.headers[:_MOST_HEADERS]],
        "header_count": len(record.headers),
        "transactional": bool(header.attributes & TRANSACTIONAL),
    }


def _shown(data: bytes | None, most: int) -> dict[str, Any] | None:
    """Bytes for JSON: in base64 as far as they are shown, and their number."""
    return None if data is None else {"size": len(data), "base64": b64encode(data[:most]).decode("ascii")}
