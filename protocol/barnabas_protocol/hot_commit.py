"""OffsetCommit by hand, in the flexible versions that clients speak: there are as many of them as polls.

Only what is ordinary is read and written here: no tagged fields, lengths of one or two bytes, a frame of moderate size.
All else, and everything that is broken, is left to the twin in :mod:`barnabas_protocol.codec`, which decides; tests
compare the two over all versions.
"""

import struct
from typing import Final

from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer, uvarint

_FLEXIBLE: Final = 8
#: Larger requests are the twin's, which counts array elements.
_MODERATE: Final = 64 * 1024
_INT32: Final = struct.Struct(">i")
_SIZE: Final = struct.Struct(">I")
#: Index, committed offset, committed leader epoch.
_PARTITION: Final = struct.Struct(">iqi")
#: Correlation id, the header's empty tag section, throttle time.
_HEAD: Final = struct.Struct(">ixi")
#: Index, error, empty tag section.
_OUTCOME: Final = struct.Struct(">ihx")


class _Rare(Exception):
    """Nothing for this module."""


def decode_offset_commit(cls: type[Request], header: RequestHeader, frame: Buffer) -> OffsetCommitRequest:
    """Decode an OffsetCommit request.

    Raises:
        DecodeError: it is none.
    """
    if header.api_version >= _FLEXIBLE and len(frame) <= _MODERATE:
        try:
            return _request(bytes(frame), header.end)
        except (_Rare, IndexError, struct.error, UnicodeError):
            pass
    return codec.decode_request(OffsetCommitRequest, header, frame)


def _request(data: bytes, at: int) -> OffsetCommitRequest:
    """The request whose header, but for its tags, ends at `at`.

    A length that goes too far leads beyond the end, where the next byte is missed; so it is enough to look at the end
    when all is read.
    """
    if data[at]:
        raise _Rare
    group_id, at = _string(data, at + 1)
    (generation,) = _INT32.unpack_from(data, at)
    member_id, at = _string(data, at + 4)
    instance_id: str | None = None
    if data[at]:
        instance_id, at = _string(data, at)
    else:
        at += 1
    topics: list[OffsetCommitRequestTopic] = []
    count, at = _length(data, at)
    for _ in range(count):
        name, at = _string(data, at)
        partitions: list[OffsetCommitRequestPartition] = []
        inner, at = _length(data, at)
        for _ in range(inner):
            index, offset, epoch = _PARTITION.unpack_from(data, at)
            at += 16
            metadata: str | None = None
            size = data[at]
            if size == 1:
                metadata, at = "", at + 1
            elif size:
                metadata, at = _string(data, at)
            else:
                at += 1
            if data[at]:
                raise _Rare
            at += 1
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    committed_metadata=metadata,
                )
            )
        if data[at]:
            raise _Rare
        at += 1
        topics.append(OffsetCommitRequestTopic(name=name, partitions=partitions))
    if data[at] or at + 1 != len(data):
        raise _Rare
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


def _length(data: bytes, at: int) -> tuple[int, int]:
    """A length that is not null, and where it ends."""
    value = data[at]
    at += 1
    if value >= 0x80:
        high = data[at]
        if high >= 0x80:
            raise _Rare
        value = value & 0x7F | high << 7
        at += 1
    if not value:
        raise _Rare
    return value - 1, at


def _string(data: bytes, at: int) -> tuple[str, int]:
    size, at = _length(data, at)
    end = at + size
    return data[at:end].decode(), end


def encode_offset_commit(response: OffsetCommitResponse, version: int, correlation_id: int) -> list[Buffer]:
    """Encode the whole frame of an OffsetCommit response.

    Raises:
        EncodeError: a value does not fit its field.
    """
    if version < _FLEXIBLE:
        return [codec.encode_response(response, version, correlation_id)]
    try:
        parts = [_HEAD.pack(correlation_id, response.throttle_time_ms), uvarint(len(response.topics) + 1)]
        for topic in response.topics:
            name = topic.name.encode()
            parts += (uvarint(len(name) + 1), name, uvarint(len(topic.partitions) + 1))
            parts += [_OUTCOME.pack(each.partition_index, each.error_code) for each in topic.partitions]
            parts.append(b"\0")
        parts.append(b"\0")
    except (struct.error, UnicodeError, TypeError, AttributeError):
        return [codec.encode_response(response, version, correlation_id)]
    body = b"".join(parts)
    return [_SIZE.pack(len(body)) + body]
