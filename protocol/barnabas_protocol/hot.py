"""The few messages that carry records, by hand: a Produce request in, a Fetch response out, and a Fetch response in.

Records are never copied: what is decoded holds views of the frame, what is encoded is a list of buffers for one
`writelines`. All else about these messages is small, and here it is read and written without a construct, several
times faster. Each function has its twin in :mod:`barnabas_protocol.codec` and refuses what the twin refuses; tests
compare them over all versions. Tagged fields that are not empty are left to the twin's own code: they are rare.
"""

import struct
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

from construct import ConstructError

from barnabas_protocol.codec import response_body
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from barnabas_protocol.schema import Struct
from barnabas_protocol.structures import build_tags, parse_tags, tagged_fields
from barnabas_protocol.wire import MAX_ELEMENTS, Buffer, Reader, WireError, uvarint

R = TypeVar("R")

_BROKEN: Final = (WireError, struct.error, UnicodeError, IndexError, ConstructError)
_UNBUILDABLE: Final = (*_BROKEN, TypeError, AttributeError, ValueError, OverflowError)
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT32X2: Final = struct.Struct(">ii")
_INT64X2: Final = struct.Struct(">qq")
_ACKS_TIMEOUT: Final = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT: Final = struct.Struct(">hii")
_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
#: Index, error, high watermark, last stable offset, and from version 5 on log start offset.
_PARTITION_4: Final = struct.Struct(">ihqq")
_PARTITION: Final = struct.Struct(">ihqqq")

#: A topic of a Produce request, by name or from version 13 on by id, and what is to be appended to its partitions.
ProduceTopic = tuple[str | bytes, list[tuple[int, memoryview | None]]]


class ProduceHead(NamedTuple):
    """A Produce request without its records; the timeout is in milliseconds."""

    transactional_id: str | None
    acks: int
    timeout_ms: int


def decode_produce_request(version: int, body: Buffer) -> tuple[ProduceHead, list[ProduceTopic]]:
    """Decode the body of a Produce request of version 3 to 13, as :func:`barnabas_protocol.codec.body` cuts it out.

    Returns:
        What is asked, and for each topic its name (from version 13 on its id) and the partitions with their batches:
        views of `body`, None where no records were sent.

    Raises:
        DecodeError: the body is no Produce request of that version, or something follows it.
    """
    if not 3 <= version <= 13:
        raise DecodeError(f"ProduceRequest v{version}: only 3 to 13 are read here")
    view = memoryview(body)
    try:
        if version < 9:
            head, topics, at = _produce_plain(view)
        else:
            head, topics, at = _produce_flexible(view, version >= 13)
        if at != len(view):
            raise WireError(f"{len(view) - at} bytes follow")
    except _BROKEN as error:
        raise DecodeError(f"ProduceRequest v{version}: {error}") from error
    return head, topics


def _produce_plain(view: memoryview) -> tuple[ProduceHead, list[ProduceTopic], int]:
    size = len(view)
    transactional_id, at = _string(view, 0, nullable=True)
    acks, timeout, count = _ACKS_TIMEOUT_COUNT.unpack_from(view, at)
    at += 10
    budget = _spend(MAX_ELEMENTS, count, 6, size - at)
    int32, int32x2 = _INT32.unpack_from, _INT32X2.unpack_from
    topics: list[ProduceTopic] = []
    for _ in range(count):
        name, at = _string(view, at, nullable=False)
        (count,) = int32(view, at)
        at += 4
        budget = _spend(budget, count, 8, size - at)
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
        topics.append((cast(str, name), partitions))
    return ProduceHead(transactional_id, acks, timeout), topics, at


def _produce_flexible(view: memoryview, by_id: bool) -> tuple[ProduceHead, list[ProduceTopic], int]:
    size = len(view)
    transactional_id, at = _compact_string(view, 0, nullable=True)
    acks, timeout = _ACKS_TIMEOUT.unpack_from(view, at)
    count, at = _uvarint(view, at + 6)
    count -= 1
    budget = _spend(MAX_ELEMENTS, count, 18 if by_id else 3, size - at)
    int32 = _INT32.unpack_from
    topics: list[ProduceTopic] = []
    topic: Any
    for _ in range(count):
        if by_id:
            topic = bytes(view[at : at + 16])  # a short one fails at the count that follows
            at += 16
        else:
            topic, at = _compact_string(view, at, nullable=False)
        count, at = _uvarint(view, at)
        count -= 1
        budget = _spend(budget, count, 6, size - at)
        partitions: list[tuple[int, memoryview | None]] = []
        for _ in range(count):
            (index,) = int32(view, at)
            length, at = _uvarint(view, at + 4)
            if length == 0:
                partitions.append((index, None))
            else:
                end = at + length - 1
                if end > size:
                    raise WireError(f"{length - 1} bytes announced, {size - at} left")
                partitions.append((index, view[at:end]))
                at = end
            at = at + 1 if view[at] == 0 else _skip_tags(view, at)
        at = at + 1 if view[at] == 0 else _skip_tags(view, at)
        topics.append((topic, partitions))
    at = at + 1 if view[at] == 0 else _skip_tags(view, at)
    return ProduceHead(transactional_id, acks, timeout), topics, at


class Unread(Protocol):
    """Records that are still in a file: whoever writes the frame reads them, `len` bytes of them in all."""

    def __len__(self) -> int:
        """How many bytes have not been read yet."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, or what is left.

        Raises:
            OSError: they are not to be had, and the frame cannot be completed.
        """

    def send(self, socket: int, size: int, /) -> int:
        """Send up to `size` of the next bytes to a socket's descriptor, and tell how many.

        Raises:
            BlockingIOError: the socket takes none at the moment.
            OSError: as `read`.
        """


def chain(parts: Sequence[Buffer | Unread]) -> Buffer:
    """Let `parts` stand where one buffer of records is declared.

    Only :func:`encode_fetch_response` knows what to do with it.
    """
    return cast(Buffer, parts)


def encode_fetch_response(response: FetchResponse, version: int, correlation_id: int) -> list[Buffer | Unread]:
    """Encode a whole Fetch response frame, size included, of version 4 to 18.

    Args:
        response: its partitions' `records` may be the result of :func:`chain`.
        version: of the request.
        correlation_id: of the request.

    Returns:
        Buffers that make up the frame; the records are the response's own parts, not copies.

    Raises:
        EncodeError: a value does not fit its field, or the version cannot express it.
    """
    if not 4 <= version <= 18:
        raise EncodeError(f"FetchResponse v{version}: only 4 to 18 are written here")
    try:
        buffers = _fetch_buffers(response, version, correlation_id)
        _INT32.pack_into(cast(bytearray, buffers[0]), 0, sum(map(len, buffers)) - 4)
    except _UNBUILDABLE as error:
        raise EncodeError(f"FetchResponse v{version}: {error}") from error
    return buffers


def _fetch_buffers(response: FetchResponse, version: int, correlation_id: int) -> list[Buffer | Unread]:
    flexible = version >= 12
    int32 = _INT32.pack
    count_of: Callable[[int], bytes] = _compact_count if flexible else int32
    null, empty = count_of(-1), count_of(0)
    out = bytearray(_INT32X2.pack(0, correlation_id))
    buffers: list[Buffer | Unread] = [out]
    if flexible:
        out += b"\x00"
    if version >= 7:
        out += _THROTTLE_ERROR_SESSION.pack(response.throttle_time_ms, response.error_code, response.session_id)
    else:
        out += int32(response.throttle_time_ms)
        if response.session_id != 0:
            raise WireError("session_id cannot be expressed in this version")
    if version < 16 and response.node_endpoints != []:
        raise WireError("node_endpoints cannot be expressed in this version")
    out += count_of(len(response.responses))
    for topic in response.responses:
        if version >= 13:
            if len(topic.topic_id) != 16:
                raise WireError(f"a uuid of {len(topic.topic_id)} bytes")
            out += topic.topic_id
        else:
            name = topic.topic.encode()
            out += uvarint(len(name) + 1) if flexible else _INT16.pack(len(name))
            out += name
        out += count_of(len(topic.partitions))
        for p in topic.partitions:
            if version >= 5:
                out += _PARTITION.pack(
                    p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset
                )
            else:
                out += _PARTITION_4.pack(p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset)
            aborted = p.aborted_transactions
            if not aborted:
                out += null if aborted is None else empty
            else:
                out += count_of(len(aborted))
                for transaction in aborted:
                    out += _INT64X2.pack(transaction.producer_id, transaction.first_offset)
                    if flexible:
                        out += b"\x00"
            if version >= 11:
                out += int32(p.preferred_read_replica)
            elif p.preferred_read_replica != -1:
                raise WireError("preferred_read_replica cannot be expressed in this version")
            records: Any = p.records
            if records is None:
                out += null
            else:
                chunks = records if type(records) is list else [records]
                size = sum(map(len, chunks))
                out += count_of(size)
                if size:
                    buffers += chunks
                    out = bytearray()
                    buffers.append(out)
            has_tags = p.diverging_epoch is not None or p.current_leader is not None or p.snapshot_id is not None
            if flexible:
                out += _tags(p, version) if has_tags else b"\x00"
            elif has_tags:
                raise WireError("tagged fields cannot be expressed in this version")
        if flexible:
            out += b"\x00"
    if flexible:
        out += _tags(response, version) if response.node_endpoints else b"\x00"
    elif not out:
        buffers.pop()
    return buffers


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


def _tags(obj: Struct, version: int) -> bytes:
    out = BytesIO()
    build_tags(out, None, obj, tagged_fields(type(obj), version, FetchResponse))
    return out.getvalue()


def decode_fetch_response(version: int, frame: Buffer) -> FetchResponse:
    """Decode a Fetch response frame, header included and size not, of version 4 to 18.

    Returns:
        The response; its partitions' `records` are views of `frame`.

    Raises:
        DecodeError: the frame is no Fetch response of that version, or something follows it.
    """
    if not 4 <= version <= 18:
        raise DecodeError(f"FetchResponse v{version}: only 4 to 18 are read here")
    view = response_body(FetchResponse, version, frame)
    try:
        response, at = _fetch_flexible(view, version) if version >= 12 else _fetch_plain(view, version)
        if at != len(view):
            raise WireError(f"{len(view) - at} bytes follow")
    except _BROKEN as error:
        raise DecodeError(f"FetchResponse v{version}: {error}") from error
    return response


def _fetch_plain(view: memoryview, version: int) -> tuple[FetchResponse, int]:
    size = len(view)
    int32, new = _INT32.unpack_from, object.__new__
    throttle, error, session, at = _fetch_head(view, version)
    topics: list[FetchableTopicResponse] = []
    (count,) = int32(view, at)
    at += 4
    with_start, with_replica = version >= 5, version >= 11
    partition_least = 30 + 8 * with_start + 4 * with_replica
    budget = _spend(MAX_ELEMENTS, count, 6, size - at)
    for _ in range(count):
        topic = new(FetchableTopicResponse)
        topics.append(topic)
        name, at = _string(view, at, nullable=False)
        topic.topic, topic.topic_id = cast(str, name), bytes(16)
        topic.partitions = partitions = []
        (count,) = int32(view, at)
        at += 4
        budget = _spend(budget, count, partition_least, size - at)
        for _ in range(count):
            p = new(PartitionData)
            partitions.append(p)
            at = _fetch_partition_head(view, at, p, with_start)
            (count,) = int32(view, at)
            at += 4
            p.aborted_transactions = None
            if count != -1:
                budget = _spend(budget, count, 16, size - at)
                p.aborted_transactions = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first)
                    for producer_id, first in _INT64X2.iter_unpack(view[at : at + 16 * count])
                ]
                at += 16 * count
            p.preferred_read_replica = -1
            if with_replica:
                (p.preferred_read_replica,) = int32(view, at)
                at += 4
            (length,) = int32(view, at)
            at += 4
            p.records = None
            if length != -1:
                p.records, at = _slice(view, at, length)
    return _fetch_made(throttle, error, session, topics), at


def _fetch_flexible(view: memoryview, version: int) -> tuple[FetchResponse, int]:
    size = len(view)
    new = object.__new__
    throttle, error, session, at = _fetch_head(view, version)
    topics: list[FetchableTopicResponse] = []
    count, at = _uvarint(view, at)
    by_id = version >= 13
    budget = _spend(MAX_ELEMENTS, count - 1, 18 if by_id else 3, size - at)
    for _ in range(count - 1):
        topic = new(FetchableTopicResponse)
        topics.append(topic)
        topic.topic, topic.topic_id = "", bytes(16)
        if by_id:
            topic.topic_id = bytes(view[at : at + 16])  # a short one fails at the count that follows
            at += 16
        else:
            name, at = _compact_string(view, at, nullable=False)
            topic.topic = cast(str, name)
        topic.partitions = partitions = []
        count, at = _uvarint(view, at)
        budget = _spend(budget, count - 1, 37, size - at)
        for _ in range(count - 1):
            p = new(PartitionData)
            partitions.append(p)
            at = _fetch_partition_head(view, at, p, True)
            count, at = _uvarint(view, at)
            p.aborted_transactions = None
            if count != 0:
                budget = _spend(budget, count - 1, 17, size - at)
                p.aborted_transactions = aborted = []
                for _ in range(count - 1):
                    producer_id, first = _INT64X2.unpack_from(view, at)
                    aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=first))
                    at = _skip_tags(view, at + 16)
            (p.preferred_read_replica,) = _INT32.unpack_from(view, at)
            length, at = _uvarint(view, at + 4)
            p.records = None
            if length != 0:
                p.records, at = _slice(view, at, length - 1)
            at = at + 1 if view[at] == 0 else _read_tags(view, at, p, version)
        at = _skip_tags(view, at)
    made = _fetch_made(throttle, error, session, topics)
    return made, _read_tags(view, at, made, version)


def _fetch_head(view: memoryview, version: int) -> tuple[int, int, int, int]:
    if version >= 7:
        return *_THROTTLE_ERROR_SESSION.unpack_from(view), 10
    return _INT32.unpack_from(view)[0], 0, 0, 4


def _fetch_partition_head(view: memoryview, at: int, p: PartitionData, with_start: bool) -> int:
    p.diverging_epoch = p.current_leader = p.snapshot_id = None
    if with_start:
        (p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset) = (
            _PARTITION.unpack_from(view, at)
        )
        return at + 30
    p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset = _PARTITION_4.unpack_from(view, at)
    p.log_start_offset = -1
    return at + 22


def _fetch_made(throttle: int, error: int, session: int, topics: list[FetchableTopicResponse]) -> FetchResponse:
    return FetchResponse(throttle_time_ms=throttle, error_code=error, session_id=session, responses=topics)


def _spend(budget: int, count: int, least: int, left: int) -> int:
    """Check an array count as :func:`barnabas_protocol.wire.take_elements` does; return the elements still allowed."""
    if count < 0 or count * least > left:
        raise WireError(f"array of {count} elements, {left} bytes left")
    if count > budget:
        raise WireError(f"more than {MAX_ELEMENTS} array elements in one message")
    return budget - count


def _slice(view: memoryview, at: int, length: int) -> tuple[memoryview, int]:
    end = at + length
    if length < 0 or end > len(view):
        raise WireError(f"{length} bytes announced, {len(view) - at} left")
    return view[at:end], end


def _string(view: memoryview, at: int, *, nullable: bool) -> tuple[str | None, int]:
    (length,) = _INT16.unpack_from(view, at)
    at += 2
    if length == -1 and nullable:
        return None, at
    data, at = _slice(view, at, length)
    return str(data, "utf-8"), at


def _compact_string(view: memoryview, at: int, *, nullable: bool) -> tuple[str | None, int]:
    length, at = _uvarint(view, at)
    if length == 0 and nullable:
        return None, at
    data, at = _slice(view, at, length - 1)
    return str(data, "utf-8"), at


def _uvarint(view: memoryview, at: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and where it ends."""
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


def _skip_tags(view: memoryview, at: int) -> int:
    """Where the tag section at `at` ends."""
    count, at = _uvarint(view, at)
    previous = -1
    for _ in range(count):
        tag, at = _uvarint(view, at)
        if tag <= previous:
            raise WireError(f"tag {tag} after tag {previous}")
        previous = tag
        size, at = _uvarint(view, at)
        at += size
        if at > len(view):
            raise WireError(f"tag {tag} of {size} bytes, {len(view) - at + size} left")
    return at


def _read_tags(view: memoryview, at: int, made: Struct, version: int) -> int:
    """Read the tag section at `at` into `made`; return where it ends."""
    end = _skip_tags(view, at)
    if end - at > 1:
        reader = Reader(view[at:end])
        reader.size = end - at
        parse_tags(reader, None, made, tagged_fields(type(made), version, FetchResponse))
    return end
