"""Records and batches byte by byte, sound or not."""

import struct
from collections.abc import Mapping
from typing import Final

from crc32c import crc32c


def varint(number: int) -> bytes:
    """A zigzag varint, as in records."""
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def raw_record(
    delta: int = 0,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    time: int = 0,
    tail: bytes = b"\0",
    key_size: int | None = None,
    value_size: int | None = None,
    more: int = 0,
) -> bytes:
    """A record, sound or not: `tail` has the headers, the sizes may be other than those of key and value, and the
    length of the record is wrong by `more`.
    """
    body = b"\0" + varint(time) + varint(delta)
    for data, size in ((key, key_size), (value, value_size)):
        body += varint((-1 if data is None else len(data)) if size is None else size) + (data or b"")
    body += tail
    return varint(len(body) + more) + body


def raw_batch(
    data: bytes,
    count: int,
    *,
    codec: int = 0,
    attributes: int = 0,
    timestamp: int = 0,
    max_timestamp: int | None = None,
) -> bytes:
    """A batch with a valid CRC that holds `data`; its records begin at `timestamp`."""
    latest = timestamp if max_timestamp is None else max_timestamp
    body = struct.pack(">hiqqqhii", attributes | codec, count - 1, timestamp, latest, -1, -1, -1, count) + data
    return struct.pack(">qiibI", 0, len(body) + 9, -1, 2, crc32c(body)) + body


#: Records that no consumer can read: bytes, and the number in the header of their batch.
UNREADABLE: Final[Mapping[str, tuple[bytes, int]]] = {
    "garbage": (b"\x99" * 50, 2),
    "zeros": (bytes(50), 2),
    "fewer records than announced": (raw_record(0) + raw_record(1), 3),
    "more records than announced": (raw_record(0) + raw_record(1), 1),
    "2^31 - 1 records": (raw_record(0) + raw_record(1), 2**31 - 1),
    "an offset is missing": (raw_record(0) + raw_record(2), 2),
    "an offset twice": (raw_record(0) + raw_record(0), 2),
    "offsets from 1 on": (raw_record(1) + raw_record(2), 2),
    "a negative offset delta": (raw_record(-1), 1),
    "a length too large": (raw_record(0, more=1) + raw_record(1), 2),
    "a length too small": (raw_record(0, more=-1) + raw_record(1), 2),
    "a length beyond the batch": (raw_record(0) + raw_record(1, more=10_000), 2),
    "a key beyond the record": (raw_record(0, key_size=100) + raw_record(1), 2),
    "a value beyond the record": (raw_record(0, value_size=100) + raw_record(1), 2),
    "-1 headers": (raw_record(tail=varint(-1)), 1),
    "a header without a name": (raw_record(tail=varint(1) + varint(-1) + varint(0)), 1),
    "a header beyond the batch": (raw_record(tail=varint(1) + varint(2000) + b"h"), 1),
    "a billion headers": (raw_record(tail=varint(2**30)), 1),
    "a varint without an end": (b"\xff" * 10 + b"\x01" + bytes(20), 1),
    "the last of many is broken": (b"".join(map(raw_record, range(300))) + raw_record(300, key_size=2), 301),
    "one of many is broken": (
        b"".join(raw_record(n, more=1 if n == 150 else 0) for n in range(300)),
        300,
    ),
}
