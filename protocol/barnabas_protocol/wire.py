"""Kafka's wire primitives as construct classes that keep their bounds checks when compiled.

The types of construct that have a length return short data when they are compiled and the input is truncated. So every
such type is declared here, with an ``_emitparse`` and ``_emitbuild`` of its own. Fixed-width numbers are construct's:
their compiled form unpacks exactly the bytes it needs, and `struct` refuses fewer.

A :class:`Reader` knows how many bytes are left: a count or a length is compared with that before memory is reserved.
Errors are `WireError`, `struct.error` or `UnicodeError`; :mod:`barnabas_protocol.codec` makes `DecodeError` of them.

Sources: Kafka's protocol guide and KIP-482 (flexible versions).
"""

import io
import struct
from collections.abc import Callable
from typing import Any, Final, TypeVar

from construct import Construct, Float64b, FormatField, Int8sb, Int16sb, Int16ub, Int32sb, Int32ub, Int64sb

from barnabas_protocol.codegen import Source

T = TypeVar("T")

#: Array elements that a message may have in all. Kafka has no such limit; without it, a 100 MB frame of empty elements
#: becomes gigabytes of objects.
MAX_ELEMENTS: Final = 2_000_000
#: The same for a request, which a broker decodes and answers between other clients' requests.
MAX_REQUEST_ELEMENTS: Final = 100_000
#: The longest string in bytes. Compact strings could be longer, but what a client sends in them is answered to others
#: in versions with int16 lengths as well. Kafka has the same limit.
MAX_STRING: Final = 32767

INT8 = Int8sb
INT16 = Int16sb
UINT16 = Int16ub
INT32 = Int32sb
UINT32 = Int32ub
INT64 = Int64sb
FLOAT64 = Float64b


#: Bytes from this size on are kept beside a :class:`Writer`.
_LARGE: Final = 4096
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")

#: The types of bytes: records are passed on as they are, not copied.
Buffer = bytes | bytearray | memoryview


class WireError(Exception):
    """The bytes are not a Kafka message: truncated, a negative length, an impossible count."""


class Writer(io.BytesIO):
    """A `BytesIO` beside which large bytes are kept, because a copy would take longer than everything else.

    Attributes:
        large: those bytes, and the position before which they belong.
    """

    def __init__(self) -> None:
        super().__init__()
        self.large: list[tuple[int, Buffer]] = []


class Reader(io.BytesIO):
    """A `BytesIO` that knows its size and the number of array elements that may still be read.

    Set `size` after making one: an ``__init__`` here would be a sixth of the time that decoding a heartbeat takes.
    """

    size = 0
    budget = MAX_ELEMENTS


def read_exactly(io: Reader, size: int) -> bytes:
    """Read `size` bytes; raise :class:`WireError` if fewer are left."""
    data = io.read(size)
    if len(data) != size:
        raise WireError(f"{size} bytes announced, {len(data)} left")
    return data


def read_text(io: Reader, size: int) -> str:
    """Read `size` bytes of UTF-8.

    Raises:
        WireError: fewer are left, or a string may not be so long.
        UnicodeError: they are not UTF-8.
    """
    if size > MAX_STRING:
        raise WireError(f"string of {size} bytes, over {MAX_STRING}")
    data = io.read(size)
    if len(data) != size:
        raise WireError(f"{size} bytes announced, {len(data)} left")
    return data.decode()


def read_boolean(io: Reader) -> bool:
    """A byte; every value but zero is true, as in Kafka."""
    return read_exactly(io, 1) != b"\x00"


def read_uvarint(io: Reader) -> int:
    """An unsigned varint of at most 32 bits (5 bytes)."""
    data = io.read(1)
    if not data:
        raise WireError("varint announced, nothing left")
    byte = data[0]
    if byte < 0x80:
        return byte
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        byte = read_exactly(io, 1)[0]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                raise WireError("varint over 32 bits")
            return value
    raise WireError("varint over 5 bytes")


def write_uvarint(io: io.BytesIO, value: int) -> None:
    """Write `value` as an unsigned varint."""
    io.write(uvarint(value))


#: The varints of one byte.
_SMALL: Final = tuple(bytes((value,)) for value in range(0x80))


def uvarint(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if 0 <= value < 0x80:
        return _SMALL[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def take_elements(io: Reader, count: int, least: int) -> int:
    """Check an array's count against the bytes that are left. An element takes at least `least` bytes."""
    if count < 0:
        raise WireError(f"array count {count}")
    if count * least > io.size - io.tell():
        raise WireError(f"array of {count} elements, {io.size - io.tell()} bytes left")
    io.budget -= count
    if io.budget < 0:
        raise WireError("more array elements than a message may have")
    return count


def read_string(io: Reader) -> str:
    """int16 length, UTF-8."""
    (size,) = _INT16.unpack(io.read(2))
    if size < 0:
        raise WireError("a string must not be null")
    return read_text(io, size)


def read_nullable_string(io: Reader) -> str | None:
    """int16 length with -1 for null, UTF-8."""
    (size,) = _INT16.unpack(io.read(2))
    if size < 0:
        if size != -1:
            raise WireError(f"string length {size}")
        return None
    return read_text(io, size)


def read_compact_string(io: Reader) -> str:
    """Unsigned varint length + 1, UTF-8."""
    size = read_uvarint(io)
    if size == 0:
        raise WireError("a string must not be null")
    return read_text(io, size - 1)


def read_compact_nullable_string(io: Reader) -> str | None:
    """Unsigned varint length + 1 with 0 for null, UTF-8."""
    size = read_uvarint(io)
    return None if size == 0 else read_text(io, size - 1)


def read_bytes(io: Reader) -> bytes:
    """int32 length, bytes."""
    (size,) = _INT32.unpack(io.read(4))
    if size < 0:
        raise WireError("bytes must not be null")
    return read_exactly(io, size)


def read_nullable_bytes(io: Reader) -> bytes | None:
    """int32 length with -1 for null, bytes."""
    (size,) = _INT32.unpack(io.read(4))
    if size < 0:
        if size != -1:
            raise WireError(f"bytes length {size}")
        return None
    return read_exactly(io, size)


def read_compact_bytes(io: Reader) -> bytes:
    """Unsigned varint length + 1, bytes."""
    size = read_uvarint(io)
    if size == 0:
        raise WireError("bytes must not be null")
    return read_exactly(io, size - 1)


def read_compact_nullable_bytes(io: Reader) -> bytes | None:
    """Unsigned varint length + 1 with 0 for null, bytes."""
    size = read_uvarint(io)
    return None if size == 0 else read_exactly(io, size - 1)


def read_uuid(io: Reader) -> bytes:
    """16 bytes."""
    return read_exactly(io, 16)


def read_count(io: Reader) -> int:
    """An array's int32 count; -1 for null."""
    return int(_INT32.unpack(io.read(4))[0])


def read_compact_count(io: Reader) -> int:
    """An array's unsigned varint count + 1, as the count; -1 for null."""
    return read_uvarint(io) - 1


def write_boolean(io: io.BytesIO, value: bool) -> None:
    """One byte, 0 or 1."""
    io.write(b"\x01" if value else b"\x00")


def write_string(io: io.BytesIO, value: str) -> None:
    """int16 length, UTF-8."""
    data = value.encode()
    io.write(_INT16.pack(len(data)))
    io.write(data)


def write_nullable_string(io: io.BytesIO, value: str | None) -> None:
    """int16 length with -1 for null, UTF-8."""
    if value is None:
        io.write(b"\xff\xff")
    else:
        write_string(io, value)


def write_compact_string(io: io.BytesIO, value: str) -> None:
    """Unsigned varint length + 1, UTF-8."""
    data = value.encode()
    io.write(uvarint(len(data) + 1))
    io.write(data)


def write_compact_nullable_string(io: io.BytesIO, value: str | None) -> None:
    """Unsigned varint length + 1 with 0 for null, UTF-8."""
    if value is None:
        io.write(b"\x00")
    else:
        write_compact_string(io, value)


def write_bytes(io: io.BytesIO, value: Buffer) -> None:
    """int32 length, bytes."""
    io.write(_INT32.pack(len(value)))
    _write_content(io, value)


def write_nullable_bytes(io: io.BytesIO, value: Buffer | None) -> None:
    """int32 length with -1 for null, bytes."""
    if value is None:
        io.write(b"\xff\xff\xff\xff")
    else:
        write_bytes(io, value)


def write_compact_bytes(io: io.BytesIO, value: Buffer) -> None:
    """Unsigned varint length + 1, bytes."""
    io.write(uvarint(len(value) + 1))
    _write_content(io, value)


def _write_content(io: io.BytesIO, value: Buffer) -> None:
    if len(value) >= _LARGE and isinstance(io, Writer):
        io.large.append((io.tell(), value))
    else:
        io.write(value)


def write_compact_nullable_bytes(io: io.BytesIO, value: Buffer | None) -> None:
    """Unsigned varint length + 1 with 0 for null, bytes."""
    if value is None:
        io.write(b"\x00")
    else:
        write_compact_bytes(io, value)


def write_uuid(io: io.BytesIO, value: bytes) -> None:
    """16 bytes."""
    if len(value) != 16:
        raise WireError(f"a uuid of {len(value)} bytes")
    io.write(value)


def write_count(io: io.BytesIO, count: int) -> None:
    """An array's int32 count; -1 for null."""
    io.write(_INT32.pack(count))


def write_compact_count(io: io.BytesIO, count: int) -> None:
    """An array's count (-1 for null) as an unsigned varint of count + 1."""
    io.write(uvarint(count + 1))


class Primitive(Construct):
    """A construct made of two functions. Interpreted and compiled form call the same ones, so they agree."""

    def __init__(self, parser: Callable[[Reader], Any], builder: Callable[..., None], least: int) -> None:
        super().__init__()
        self.parser, self.builder, self.least = parser, builder, least

    def _parse(self, stream: Reader, context: Any, path: str) -> Any:
        return self.parser(stream)

    def _build(self, obj: Any, stream: io.BytesIO, context: Any, path: str) -> Any:
        self.builder(stream, obj)
        return obj

    def _emitparse(self, source: Source) -> str:
        return f"{source.bind(self.parser.__name__, self.parser)}(io)"

    def _emitbuild(self, source: Source) -> str:
        return f"{source.bind(self.builder.__name__, self.builder)}(io, obj)"


BOOLEAN = Primitive(read_boolean, write_boolean, 1)
UVARINT = Primitive(read_uvarint, write_uvarint, 1)
UUID = Primitive(read_uuid, write_uuid, 16)
STRING = Primitive(read_string, write_string, 2)
NULLABLE_STRING = Primitive(read_nullable_string, write_nullable_string, 2)
COMPACT_STRING = Primitive(read_compact_string, write_compact_string, 1)
COMPACT_NULLABLE_STRING = Primitive(read_compact_nullable_string, write_compact_nullable_string, 1)
BYTES = Primitive(read_bytes, write_bytes, 4)
NULLABLE_BYTES = Primitive(read_nullable_bytes, write_nullable_bytes, 4)
COMPACT_BYTES = Primitive(read_compact_bytes, write_compact_bytes, 1)
COMPACT_NULLABLE_BYTES = Primitive(read_compact_nullable_bytes, write_compact_nullable_bytes, 1)


class Encoded(list[T]):
    """Elements of an array that are encoded already, for a field that is declared as their list.

    As a list it is empty. A message that has it can be encoded in the version of its content only.

    Args:
        size: number of elements.
        content: results of :func:`barnabas_protocol.codec.encode_elements`, one after another.
    """

    __slots__ = ("content", "size")

    def __init__(self, size: int, content: Buffer) -> None:
        super().__init__()
        self.size = size
        self.content = content


class Array(Construct):
    """A counted array, compact or not, nullable or not: it parses to a list, None for null."""

    def __init__(self, subcon: Construct, *, compact: bool, nullable: bool) -> None:
        super().__init__()
        self.subcon, self.compact, self.nullable = subcon, compact, nullable
        self.least = 1 if compact else 4

    def _parse(self, stream: Reader, context: Any, path: str) -> list[Any] | None:
        count = read_compact_count(stream) if self.compact else read_count(stream)
        if count == -1 and self.nullable:
            return None
        take_elements(stream, count, least_size(self.subcon))
        return [self.subcon._parse(stream, context, path) for _ in range(count)]

    def _build(self, obj: list[Any] | None, stream: io.BytesIO, context: Any, path: str) -> Any:
        write = write_compact_count if self.compact else write_count
        if obj is None:
            if not self.nullable:
                raise WireError("an array must not be null")
            write(stream, -1)
            return obj
        if type(obj) is Encoded:
            write(stream, obj.size)
            stream.write(obj.content)
            return obj
        write(stream, len(obj))
        for element in obj:
            self.subcon._build(element, stream, context, path)
        return obj

    def _emitparse(self, source: Source) -> str:
        name = f"parse_array_{source.allocateId()}"
        read: Callable[[Reader], int] = read_compact_count if self.compact else read_count
        count, take = source.bind(read.__name__, read), source.bind("take_elements", take_elements)
        null = "if count == -1: return None" if self.nullable else ""
        source.append(
            f"""
            def {name}(io, this):
                count = {count}(io)
                {null}
                {take}(io, count, {least_size(self.subcon)})
                return [{self.subcon._compileparse(source)} for _ in range(count)]
            """
        )
        return f"{name}(io, this)"

    def _emitbuild(self, source: Source) -> str:
        name = f"build_array_{source.allocateId()}"
        write: Callable[[io.BytesIO, int], None] = write_compact_count if self.compact else write_count
        count, error = source.bind(write.__name__, write), source.bind("WireError", WireError)
        encoded = source.bind("Encoded", Encoded)
        null = f"return {count}(io, -1)" if self.nullable else f"raise {error}('an array must not be null')"
        source.append(
            f"""
            def {name}(array, io, this):
                if array:
                    {count}(io, len(array))
                    for obj in array: {self.subcon._compilebuild(source)}
                elif array is None: {null}
                elif type(array) is {encoded}: {count}(io, array.size); io.write(array.content)
                else: {count}(io, 0)
            """
        )
        return f"{name}(obj, io, this)"


def least_size(con: Construct) -> int:
    """The least number of bytes that a value of `con` takes."""
    # `sizeof` would make a context each time.
    return int(con.length if isinstance(con, FormatField) else con.least)
