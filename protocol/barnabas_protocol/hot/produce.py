"""Produce by hand: the records of a request stay views of the frame.

The twins are the schemas of :class:`~barnabas_protocol.messages.produce.ProduceRequest`, which refuses what is refused
here, and of its response. Of responses only the ordinary form is written here: a flexible version, and no more than an
error code in each partition.
"""

import struct
from typing import Final, NamedTuple

from barnabas_protocol import codec
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.hot.primitives import (
    BROKEN,
    INT32,
    INT32X2,
    TooManyElements,
    read_compact_nullable_string,
    read_compact_string,
    read_nullable_string,
    read_string,
    read_uvarint,
    skip_tags,
    spend,
)
from barnabas_protocol.messages.produce import ProduceResponse
from barnabas_protocol.wire import MAX_REQUEST_ELEMENTS, Buffer, WireError, uvarint

_FLEXIBLE: Final = 9
#: From this version on topics are named by their ids.
_TOPIC_IDS: Final = 13
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_SIZE: Final = struct.Struct(">I")
#: The correlation id, and the header's empty tag section.
_HEAD: Final = struct.Struct(">ix")
#: Index, error code, base offset, append time and log start offset of a partition.
_OUTCOME: Final = struct.Struct(">ihqqq")
#: What follows: no record errors, no error message, no tagged fields.
_NO_ERRORS: Final = b"\x01\x00\x00"
#: The throttle time, and no tagged fields.
_END: Final = struct.Struct(">ix")

#: A topic, by name or from version 13 on by id, and its partitions: the index and the batches to append.
ProduceTopic = tuple[str | bytes, list[tuple[int, memoryview | None]]]


class ProduceHead(NamedTuple):
    """A Produce request without its records; the timeout is in milliseconds."""

    transactional_id: str | None
    acks: int
    timeout_ms: int


class LongRequest(DecodeError):
    """The request has more array elements than were to be decoded at once."""


def decode_produce_request(
    version: int, body: Buffer, most: int = MAX_REQUEST_ELEMENTS
) -> tuple[ProduceHead, list[ProduceTopic]]:
    """Decode the body of a Produce request of version 3 to 13; :func:`barnabas_protocol.codec.body` cuts it out.

    Args:
        version: of the request.
        body: its bytes.
        most: array elements that it may have.

    Returns:
        The request without its records, and its topics. Batches are views of `body`, None where the client sent null.

    Raises:
        LongRequest: the request has more than `most` array elements.
        DecodeError: the body is no Produce request of that version, or something follows it.
    """
    if not 3 <= version <= 13:
        raise DecodeError(f"ProduceRequest v{version}: only 3 to 13 are read here")
    view = memoryview(body)
    try:
        if version < _FLEXIBLE:
            head, topics, at = _produce_plain(view, most)
        else:
            head, topics, at = _produce_flexible(view, version >= _TOPIC_IDS, most)
        if at != len(view):
            raise WireError(f"{len(view) - at} bytes follow")
    except TooManyElements as error:
        raise LongRequest(f"ProduceRequest v{version}: {error}") from error
    except BROKEN as error:
        raise DecodeError(f"ProduceRequest v{version}: {error}") from error
    return head, topics


def encode_produce_response(response: ProduceResponse, version: int, correlation_id: int) -> list[Buffer]:
    """Encode the whole frame of a Produce response.

    Raises:
        EncodeError: a value does not fit its field.
    """
    if version < _FLEXIBLE or response.node_endpoints:
        return [codec.encode_response(response, version, correlation_id)]
    try:
        parts = [_HEAD.pack(correlation_id), uvarint(len(response.responses) + 1)]
        for topic in response.responses:
            if version < _TOPIC_IDS:
                name = topic.name.encode()
                parts += (uvarint(len(name) + 1), name)
            elif len(topic.topic_id) == 16:
                parts.append(topic.topic_id)
            else:
                return [codec.encode_response(response, version, correlation_id)]
            parts.append(uvarint(len(topic.partition_responses) + 1))
            for p in topic.partition_responses:
                if p.record_errors or p.error_message is not None or p.current_leader is not None:
                    return [codec.encode_response(response, version, correlation_id)]
                parts += (
                    _OUTCOME.pack(p.index, p.error_code, p.base_offset, p.log_append_time_ms, p.log_start_offset),
                    _NO_ERRORS,
                )
            parts.append(b"\0")
        parts.append(_END.pack(response.throttle_time_ms))
    except (struct.error, UnicodeError, TypeError, AttributeError):
        return [codec.encode_response(response, version, correlation_id)]
    body = b"".join(parts)
    return [_SIZE.pack(len(body)) + body]


def _produce_plain(view: memoryview, most: int) -> tuple[ProduceHead, list[ProduceTopic], int]:
    size = len(view)
    transactional_id, at = read_nullable_string(view, 0)
    acks, timeout, count = _ACKS_TIMEOUT_COUNT.unpack_from(view, at)
    at += 10
    budget = spend(most, count, 6, size - at)
    int32, int32x2 = INT32.unpack_from, INT32X2.unpack_from
    topics: list[ProduceTopic] = []
    for _ in range(count):
        name, at = read_string(view, at)
        (count,) = int32(view, at)
        at += 4
        budget = spend(budget, count, 8, size - at)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            index, length = int32x2(view, at)
            at += 8
            if length < 0:
                if length != -1:
                    raise WireError(f"bytes length {length}")
                partitions.append((index, None))
                continue
            end = at + length
            if end > size:
                raise WireError(f"{length} bytes announced, {size - at} left")
            partitions.append((index, view[at:end]))
            at = end
        topics.append((name, partitions))
    return ProduceHead(transactional_id, acks, timeout), topics, at


def _produce_flexible(view: memoryview, by_id: bool, most: int) -> tuple[ProduceHead, list[ProduceTopic], int]:
    size = len(view)
    transactional_id, at = read_compact_nullable_string(view, 0)
    acks, timeout = _ACKS_TIMEOUT.unpack_from(view, at)
    count, at = read_uvarint(view, at + 6)
    count -= 1
    budget = spend(most, count, 18 if by_id else 3, size - at)
    int32 = INT32.unpack_from
    topics: list[ProduceTopic] = []
    topic: str | bytes
    for _ in range(count):
        if by_id:
            topic = bytes(view[at : at + 16])  # a short one fails at the count that follows
            at += 16
        else:
            topic, at = read_compact_string(view, at)
        count, at = read_uvarint(view, at)
        count -= 1
        budget = spend(budget, count, 6, size - at)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            (index,) = int32(view, at)
            length, at = read_uvarint(view, at + 4)
            if length == 0:
                partitions.append((index, None))
            else:
                end = at + length - 1
                if end > size:
                    raise WireError(f"{length - 1} bytes announced, {size - at} left")
                partitions.append((index, view[at:end]))
                at = end
            at = at + 1 if view[at] == 0 else skip_tags(view, at)
        at = at + 1 if view[at] == 0 else skip_tags(view, at)
        topics.append((topic, partitions))
    at = at + 1 if view[at] == 0 else skip_tags(view, at)
    return ProduceHead(transactional_id, acks, timeout), topics, at
