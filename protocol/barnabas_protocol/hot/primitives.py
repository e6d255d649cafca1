"""Reads and writes of Kafka's primitives in a whole buffer, for the hand-written messages of this package.

A reader gets the buffer and a position, and returns the value and the position after it. Positions that lead beyond the
buffer raise one of :data:`BROKEN`, as does everything that the schemas refuse.
"""

import struct
from io import BytesIO
from typing import Final

from construct import ConstructError

from barnabas_protocol.schema import Message, Struct
from barnabas_protocol.structures import build_tags, parse_tags, tagged_fields
from barnabas_protocol.wire import MAX_STRING, Reader, WireError

#: What reading a broken message may raise.
BROKEN: Final = (WireError, struct.error, UnicodeError, IndexError, ConstructError)
#: What writing a value that does not fit its field may raise.
UNBUILDABLE: Final = (*BROKEN, TypeError, AttributeError, ValueError, OverflowError)

INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT32X2: Final = struct.Struct(">ii")
INT64X2: Final = struct.Struct(">qq")


class Rare(Exception):
    """Valid or not, the bytes are left to the schema: a short form was expected."""


class TooManyElements(WireError):
    """A message has more array elements than it may have here."""


def spend(budget: int, count: int, least: int, left: int) -> int:
    """Check an array's count, as :func:`barnabas_protocol.wire.take_elements` does.

    Args:
        budget: array elements that the message may still have.
        count: elements that the array announces.
        least: bytes that an element takes at least.
        left: bytes left in the message.

    Returns:
        The budget that remains.

    Raises:
        WireError: the array cannot be as long as it announces.
        TooManyElements: it is longer than the budget.
    """
    if count < 0 or count * least > left:
        raise WireError(f"array of {count} elements, {left} bytes left")
    if count > budget:
        raise TooManyElements("more array elements than a message may have")
    return budget - count


def read_slice(view: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    """A view of `length` bytes."""
    end = at + length
    if length < 0 or end > len(view):
        raise WireError(f"{length} bytes announced, {len(view) - at} left")
    return view[at:end], end


def _read_text(view: memoryview, at: int, length: int) -> tuple[str, int]:
    """`length` bytes of UTF-8."""
    end = at + length
    if length < 0 or end > len(view):
        raise WireError(f"{length} bytes announced, {len(view) - at} left")
    if length > MAX_STRING:
        raise WireError(f"string of {length} bytes, over {MAX_STRING}")
    return str(view[at:end], "utf-8"), end


def read_string(view: memoryview, at: int) -> tuple[str, int]:
    """A string with an int16 length, not null."""
    (length,) = INT16.unpack_from(view, at)
    return _read_text(view, at + 2, length)


def read_nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null."""
    if INT16.unpack_from(view, at)[0] == -1:
        return None, at + 2
    return read_string(view, at)


def read_compact_string(view: memoryview, at: int) -> tuple[str, int]:
    """A string with an unsigned varint length, not null."""
    length, at = read_uvarint(view, at)
    return _read_text(view, at, length - 1)


def read_compact_nullable_string(view: memoryview, at: int) -> tuple[str | None, int]:
    """A string with an unsigned varint length, 0 for null."""
    length, at = read_uvarint(view, at)
    if length == 0:
        return None, at
    return _read_text(view, at, length - 1)


def read_uvarint(view: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    byte = view[at]
    if byte < 0x80:
        return byte, at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = view[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise WireError("varint over 32 bits")
            return value, at + 1
        shift += 7
        if shift > 28:
            raise WireError("varint over 5 bytes")


def skip_tags(view: memoryview, at: int) -> int:
    """The position after the tag section at `at`."""
    count, at = read_uvarint(view, at)
    previous = -1
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        if tag <= previous:
            raise WireError(f"tag {tag} after tag {previous}")
        previous = tag
        size, at = read_uvarint(view, at)
        at += size
        if at > len(view):
            raise WireError(f"tag {tag} of {size} bytes, {len(view) - at + size} left")
    return at


def read_tags(view: memoryview, at: int, made: Struct, version: int, message: type[Message]) -> int:
    """Read the tag section at `at` into `made`, a part of `message`, with the schema's code; return the end."""
    end = skip_tags(view, at)
    if end - at > 1:
        reader = Reader(view[at:end])
        reader.size = end - at
        parse_tags(reader, None, made, tagged_fields(type(made), version, message))
    return end


def encode_tags(part: Struct, version: int, message: type[Message]) -> bytes:
    """The tag section of `part`, a part of `message`, written with the schema's code."""
    out = BytesIO()
    build_tags(out, None, part, tagged_fields(type(part), version, message))
    return out.getvalue()


def read_short_length(data: bytes, at: int) -> tuple[int, int]:
    """The length of a compact string or array, of one or two bytes.

    Raises:
        Rare: the length is null or longer.
        IndexError: the data ends before.
    """
    value = data[at]
    at += 1
    if value >= 0x80:
        high = data[at]
        if high >= 0x80:
            raise Rare
        value = value & 0x7F | high << 7
        at += 1
    if not value:
        raise Rare
    return value - 1, at


def read_short_string(data: bytes, at: int) -> tuple[str, int]:
    """A compact string with a length of one or two bytes. Its end may be beyond the data: check the last position."""
    size = data[at]
    if 0 < size < 0x80:  # read_short_length, written out for what nearly all strings are
        end = at + size
        return data[at + 1 : end].decode(), end
    size, at = read_short_length(data, at)
    end = at + size
    return data[at:end].decode(), end
