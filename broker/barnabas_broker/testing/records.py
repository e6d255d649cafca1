"""Records of a topic as a test gives and gets them. Imports nothing of the broker."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

#: A key or a value: text is sent as UTF-8.
Given = bytes | str | None


class StoredRecord(NamedTuple):
    """A record that is in a topic.

    Attributes:
        partition: its partition.
        offset: its offset.
        timestamp: in ms since 1970.
        key: its key; None without one.
        value: its value; None for a tombstone.
        headers: names and values.
    """

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


def given_records(records: Iterable[Given | tuple[Given, Given]]) -> list[list[str | None]]:
    """Keys and values in base64, for a command to the broker's host.

    Args:
        records: values, or pairs of key and value.

    Raises:
        TypeError: a key or a value is not bytes, text or None.
    """
    out = []
    for number, record in enumerate(records):
        pair = record if isinstance(record, tuple) else (None, record)
        if len(pair) != 2 or not all(each is None or isinstance(each, bytes | str) for each in pair):
            raise TypeError(f"record {number} is {record!r}: it must be a value, or (key, value), of bytes or text")
        out.append([_encoded(each) for each in pair])
    return out


def stored_records(rows: Iterable[Sequence[Any]]) -> list[StoredRecord]:
    """The records that the broker's host has returned."""
    return [
        StoredRecord(
            partition,
            offset,
            timestamp,
            decoded(key),
            decoded(value),
            tuple((name, decoded(content)) for name, content in headers),
        )
        for partition, offset, timestamp, key, value, headers in rows
    ]


def _encoded(data: Given) -> str | None:
    if data is None:
        return None
    return b64encode(data.encode() if isinstance(data, str) else data).decode("ascii")


def decoded(text: str | None) -> bytes | None:
    """The bytes of base64."""
    return None if text is None else b64decode(text)
