"""Messages to bytes and back by their schemas. Broken bytes raise `DecodeError`, and nothing else.

A request frame is an int32 size, a request header and a body; a response frame is an int32 size, a response header and
a body. Functions that decode take the frame without its size, as :mod:`barnabas_protocol.framing` yields it; functions
that encode a frame write the size. A few messages have a faster way: see :mod:`barnabas_protocol.hot`.
"""

import struct
from collections.abc import Sequence
from io import BytesIO
from typing import Final, NamedTuple, TypeVar, cast

from construct import ConstructError

from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Message, Request, Response, Struct
from barnabas_protocol.structures import codec_for, element_builder, parse_tags
from barnabas_protocol.wire import Buffer, Reader, WireError, Writer

M = TypeVar("M", bound=Message)

_BROKEN: Final = (WireError, struct.error, UnicodeError, ConstructError)
_UNBUILDABLE: Final = (*_BROKEN, TypeError, AttributeError, ValueError, OverflowError)
_HEADER: Final = struct.Struct(">hhih")
_INT32: Final = struct.Struct(">i")
_FRAME_HEAD: Final = struct.Struct(">ii")


class RequestHeader(NamedTuple):
    """The header of a request. `end` is its end in the frame, before the tag section of a flexible header."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


def decode_request_header(frame: Buffer) -> RequestHeader:
    """Read the header of a request, without the tag section that flexible versions have.

    Raises:
        DecodeError: the frame is too short, or the client id is not UTF-8.
    """
    try:
        key, version, correlation_id, size = _HEADER.unpack_from(frame)
        if size < 0:
            if size != -1:
                raise WireError(f"client id length {size}")
            return RequestHeader(key, version, correlation_id, None, 10)
        end = 10 + size
        if end > len(frame):
            raise WireError(f"client id of {size} bytes, {len(frame) - 10} left")
        return RequestHeader(key, version, correlation_id, str(frame[10:end], "utf-8"), end)
    except _BROKEN as error:
        raise DecodeError(f"request header: {error}") from error


def decode_request(cls: type[M], header: RequestHeader, frame: Buffer) -> M:
    """Decode the body of a request.

    Raises:
        DecodeError: the body is not a `cls` of the header's version, or bytes follow it.
    """
    return decode(cls, header.api_version, body(cls, header, frame))


def body(cls: type[Message], header: RequestHeader, frame: Buffer) -> memoryview:
    """The body of a request: the bytes after the header and, in a flexible version, after its tag section.

    Raises:
        DecodeError: the tag section is broken.
    """
    view = memoryview(frame)
    if header.api_version < cls.FLEXIBLE.low:
        return view[header.end :]
    return view[_skip_tags(view, header.end) :]


def _skip_tags(frame: memoryview, at: int) -> int:
    """The end of the tag section at `at`, which is nearly always a single zero."""
    if at < len(frame) and frame[at] == 0:
        return at + 1
    reader = Reader(frame[at:])
    reader.size = len(frame) - at
    try:
        parse_tags(reader, None, None, {})
    except _BROKEN as error:
        raise DecodeError(f"header tags: {error}") from error
    return at + reader.tell()


def decode(cls: type[M], version: int, data: Buffer, *, trailing: bool = False) -> M:
    """Decode a message that fills `data`.

    Args:
        cls: the message.
        version: its version.
        data: the bytes.
        trailing: ignore bytes after the message, as Kafka does. For known deviations of clients.

    Raises:
        DecodeError: `data` is not a `cls` of that version, or bytes follow it.
    """
    reader = Reader(data)
    reader.size = len(data)
    reader.budget = cls.MAX_ELEMENTS
    try:
        message = codec_for(cls, version).parsefunc(reader, None)
        if reader.tell() != reader.size and not trailing:
            raise WireError(f"{reader.size - reader.tell()} bytes follow")
    except _BROKEN as error:
        raise DecodeError(f"{cls.__name__} v{version}: {error}") from error
    return cast(M, message)


def encode(message: Message, version: int) -> bytes:
    """Encode a message without a header.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    return _encode(message, version, b"", BytesIO()).getvalue()


def encode_elements(elements: Sequence[Struct], message: type[Message], version: int) -> bytes:
    """Encode some elements of an array, without their number, for :class:`barnabas_protocol.wire.Encoded`.

    Args:
        elements: of one class; at least one.
        message: the message that has the array.
        version: of the message.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    out = BytesIO()
    build = element_builder(type(elements[0]), version, message)
    try:
        for element in elements:
            build(element, out, None)
    except _UNBUILDABLE as error:
        raise EncodeError(f"{message.__name__} v{version}: {error}") from error
    return out.getvalue()


def encode_request(message: Request, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """Encode a whole request frame, size included.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    return b"".join(encode_request_parts(message, version, correlation_id, client_id))


def encode_request_parts(message: Request, version: int, correlation_id: int, client_id: str | None) -> list[Buffer]:
    """Encode a whole request frame, size included, without a copy of large fields.

    Returns:
        What to send, in this order. The first part has the size and the header.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    name = b"" if client_id is None else client_id.encode()
    head = b"\x00\x00\x00\x00" + _HEADER.pack(
        message.API_KEY, version, correlation_id, -1 if client_id is None else len(name)
    )
    tags = b"\x00" if version >= message.FLEXIBLE.low else b""
    out = Writer()
    _encode(message, version, head + name + tags, out)
    content = _sized(out, sum(len(value) for _, value in out.large))
    if not out.large:
        return [content]
    parts: list[Buffer] = []
    begin = 0
    for end, value in out.large:
        parts += (content[begin:end], value)
        begin = end
    return [*parts, content[begin:]]


def encode_response(message: Response, version: int, correlation_id: int) -> bytes:
    """Encode a whole response frame, size included.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    head = _FRAME_HEAD.pack(0, correlation_id)
    if version >= message.FLEXIBLE.low and message.API_KEY != ApiKey.API_VERSIONS:
        head += b"\x00"
    return _sized(_encode(message, version, head, BytesIO()))


def decode_correlation_id(frame: Buffer) -> int:
    """The correlation id at the start of a response frame.

    Raises:
        DecodeError: the frame is shorter.
    """
    if len(frame) < 4:
        raise DecodeError(f"response of {len(frame)} bytes")
    return int(_INT32.unpack_from(frame)[0])


def decode_response(cls: type[M], version: int, frame: Buffer) -> M:
    """Decode a response frame, header included.

    Raises:
        DecodeError: the frame is not a `cls` of that version, or bytes follow it.
    """
    return decode(cls, version, response_body(cls, version, frame))


def response_body(cls: type[Message], version: int, frame: Buffer) -> memoryview:
    """The body of a response frame: the bytes after the correlation id and, in a flexible version, after the tags.

    Raises:
        DecodeError: the header is broken.
    """
    decode_correlation_id(frame)
    view = memoryview(frame)
    if version >= cls.FLEXIBLE.low and getattr(cls, "API_KEY", None) != ApiKey.API_VERSIONS:
        return view[_skip_tags(view, 4) :]
    return view[4:]


def _encode(message: Message, version: int, head: bytes, out: BytesIO) -> BytesIO:
    out.write(head)
    try:
        codec_for(type(message), version).buildfunc(message, out, None)
    except _UNBUILDABLE as error:
        raise EncodeError(f"{type(message).__name__} v{version}: {error}") from error
    return out


def _sized(out: BytesIO, beside: int = 0) -> bytes:
    size = out.tell() + beside
    out.seek(0)
    out.write(_INT32.pack(size - 4))
    return out.getvalue()
