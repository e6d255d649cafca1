"""Fetch responses by hand: records are not copied, neither on the way out nor on the way in.

The twin is the schema of :class:`~barnabas_protocol.messages.fetch.FetchResponse`: what it refuses is refused here.
Tagged fields that are not empty are read and written with the schema's code.
"""

import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

from barnabas_protocol.codec import response_body
from barnabas_protocol.errors import DecodeError, EncodeError
from barnabas_protocol.hot.primitives import (
    BROKEN,
    INT16,
    INT32,
    INT32X2,
    INT64X2,
    UNBUILDABLE,
    encode_tags,
    read_compact_string,
    read_slice,
    read_string,
    read_tags,
    read_uvarint,
    skip_tags,
    spend,
)
from barnabas_protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from barnabas_protocol.wire import MAX_ELEMENTS, Buffer, Encoded, WireError, uvarint

_THROTTLE_ERROR_SESSION: Final = struct.Struct(">ihi")
#: Index, error, high watermark, last stable offset, and from version 5 on log start offset.
_PARTITION_4: Final = struct.Struct(">ihqq")
_PARTITION: Final = struct.Struct(">ihqqq")
#: An aborted transaction in flexible versions: without tagged fields.
_ABORTED_TAGGED: Final = struct.Struct(">qqx")


class Unread(Protocol):
    """Records that are still in a file, `len` bytes of them. The server reads them when it writes the frame."""

    def __len__(self) -> int:
        """How many bytes have not been read yet."""

    def read(self, size: int, /) -> bytes:
        """The next `size` bytes, or what is left.

        Raises:
            OSError: the file cannot be read, so the frame cannot be completed.
        """

    def send(self, socket: int, size: int, /) -> int:
        """Send up to `size` of the next bytes to a socket's descriptor; return how many.

        Raises:
            BlockingIOError: the socket's buffer is full.
            OSError: as `read`.
        """


def chain(parts: Sequence[Buffer | Unread]) -> Buffer:
    """Records in several parts, for a field that is declared as one buffer.

    Only :func:`encode_fetch_response` writes them; the schema refuses them.
    """
    return cast(Buffer, parts)


def encode_aborted(transactions: Iterable[tuple[int, int]], version: int) -> bytes:
    """Encode some aborted transactions of a partition, for :class:`barnabas_protocol.wire.Encoded`.

    A fetch may overlap hundreds of thousands, which are encoded a few at a time.

    Args:
        transactions: producer ids and first offsets.
        version: of the response.
    """
    pack = (_ABORTED_TAGGED if version >= 12 else INT64X2).pack
    return b"".join([pack(producer_id, first) for producer_id, first in transactions])


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
        INT32.pack_into(cast(bytearray, buffers[0]), 0, sum(map(len, buffers)) - 4)
    except UNBUILDABLE as error:
        raise EncodeError(f"FetchResponse v{version}: {error}") from error
    return buffers


def _fetch_buffers(response: FetchResponse, version: int, correlation_id: int) -> list[Buffer | Unread]:
    flexible = version >= 12
    int32 = INT32.pack
    count_of: Callable[[int], bytes] = _compact_count if flexible else int32
    null, empty = count_of(-1), count_of(0)
    out = bytearray(INT32X2.pack(0, correlation_id))
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
            out += uvarint(len(name) + 1) if flexible else INT16.pack(len(name))
            out += name
        out += count_of(len(topic.partitions))
        for p in topic.partitions:
            if version >= 5:
                out += _PARTITION.pack(
                    p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset, p.log_start_offset
                )
            else:
                out += _PARTITION_4.pack(p.partition_index, p.error_code, p.high_watermark, p.last_stable_offset)
            aborted: Any = p.aborted_transactions
            if type(aborted) is Encoded:
                out += count_of(aborted.size)
                out += aborted.content
            elif not aborted:
                out += null if aborted is None else empty
            else:
                out += count_of(len(aborted))
                for transaction in aborted:
                    out += INT64X2.pack(transaction.producer_id, transaction.first_offset)
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
                out += encode_tags(p, version, FetchResponse) if has_tags else b"\x00"
            elif has_tags:
                raise WireError("tagged fields cannot be expressed in this version")
        if flexible:
            out += b"\x00"
    if flexible:
        out += encode_tags(response, version, FetchResponse) if response.node_endpoints else b"\x00"
    elif not out:
        buffers.pop()
    return buffers


def _compact_count(count: int) -> bytes:
    return uvarint(count + 1)


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
    except BROKEN as error:
        raise DecodeError(f"FetchResponse v{version}: {error}") from error
    return response


def _fetch_plain(view: memoryview, version: int) -> tuple[FetchResponse, int]:
    size = len(view)
    int32, new = INT32.unpack_from, object.__new__
    throttle, error, session, at = _fetch_head(view, version)
    topics: list[FetchableTopicResponse] = []
    (count,) = int32(view, at)
    at += 4
    with_start, with_replica = version >= 5, version >= 11
    partition_least = 30 + 8 * with_start + 4 * with_replica
    budget = spend(MAX_ELEMENTS, count, 6, size - at)
    for _ in range(count):
        topic = new(FetchableTopicResponse)
        topics.append(topic)
        name, at = read_string(view, at)
        topic.topic, topic.topic_id = name, bytes(16)
        topic.partitions = partitions = []
        (count,) = int32(view, at)
        at += 4
        budget = spend(budget, count, partition_least, size - at)
        for _ in range(count):
            p = new(PartitionData)
            partitions.append(p)
            at = _fetch_partition_head(view, at, p, with_start)
            (count,) = int32(view, at)
            at += 4
            p.aborted_transactions = None
            if count != -1:
                budget = spend(budget, count, 16, size - at)
                p.aborted_transactions = [
                    AbortedTransaction(producer_id=producer_id, first_offset=first)
                    for producer_id, first in INT64X2.iter_unpack(view[at : at + 16 * count])
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
                p.records, at = read_slice(view, at, length)
    return _fetch_made(throttle, error, session, topics), at


def _fetch_flexible(view: memoryview, version: int) -> tuple[FetchResponse, int]:
    size = len(view)
    new = object.__new__
    throttle, error, session, at = _fetch_head(view, version)
    topics: list[FetchableTopicResponse] = []
    count, at = read_uvarint(view, at)
    by_id = version >= 13
    budget = spend(MAX_ELEMENTS, count - 1, 18 if by_id else 3, size - at)
    for _ in range(count - 1):
        topic = new(FetchableTopicResponse)
        topics.append(topic)
        topic.topic, topic.topic_id = "", bytes(16)
        if by_id:
            topic.topic_id = bytes(view[at : at + 16])  # a short one fails at the count that follows
            at += 16
        else:
            name, at = read_compact_string(view, at)
            topic.topic = name
        topic.partitions = partitions = []
        count, at = read_uvarint(view, at)
        budget = spend(budget, count - 1, 37, size - at)
        for _ in range(count - 1):
            p = new(PartitionData)
            partitions.append(p)
            at = _fetch_partition_head(view, at, p, True)
            count, at = read_uvarint(view, at)
            p.aborted_transactions = None
            if count != 0:
                budget = spend(budget, count - 1, 17, size - at)
                p.aborted_transactions = aborted = []
                for _ in range(count - 1):
                    producer_id, first = INT64X2.unpack_from(view, at)
                    aborted.append(AbortedTransaction(producer_id=producer_id, first_offset=first))
                    at = skip_tags(view, at + 16)
            (p.preferred_read_replica,) = INT32.unpack_from(view, at)
            length, at = read_uvarint(view, at + 4)
            p.records = None
            if length != 0:
                p.records, at = read_slice(view, at, length - 1)
            at = at + 1 if view[at] == 0 else read_tags(view, at, p, version, FetchResponse)
        at = skip_tags(view, at)
    made = _fetch_made(throttle, error, session, topics)
    return made, read_tags(view, at, made, version, FetchResponse)


def _fetch_head(view: memoryview, version: int) -> tuple[int, int, int, int]:
    if version >= 7:
        return *_THROTTLE_ERROR_SESSION.unpack_from(view), 10
    return INT32.unpack_from(view)[0], 0, 0, 4


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
