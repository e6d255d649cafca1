"""OffsetCommit by hand, in the flexible versions that clients speak: consumers may send one for every poll.

The ordinary form is read and written here: no tagged fields, lengths of one or two bytes, a frame of moderate size. The
twin, the schema of :class:`~barnabas_protocol.messages.offset_commit.OffsetCommitRequest`, decides all other cases,
broken frames included.
"""

import struct
from typing import Final

from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.hot.primitives import INT32, Rare, read_short_length, read_short_string
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer, uvarint

_FLEXIBLE: Final = 8
#: From this version on topics are named by their ids.
_TOPIC_IDS: Final = 10
_NO_ID: Final = bytes(16)
_ID: Final = struct.Struct(">16s")
#: The schema reads larger requests, because it limits the number of array elements.
_MODERATE: Final = 64 * 1024
_SIZE: Final = struct.Struct(">I")
#: Index, committed offset, committed leader epoch.
_PARTITION: Final = struct.Struct(">iqi")
#: Correlation id, the header's empty tag section, throttle time.
_HEAD: Final = struct.Struct(">ixi")
#: Index, error, empty tag section.
_OUTCOME: Final = struct.Struct(">ihx")
#: Lengths of compact strings and arrays, of one byte.
_SHORT: Final = 0x7F
_LENGTHS: Final = tuple(uvarint(length + 1) for length in range(_SHORT))


def decode_offset_commit(cls: type[Request], header: RequestHeader, frame: Buffer) -> OffsetCommitRequest:
    """Decode an OffsetCommit request.

    Raises:
        DecodeError: the frame is not an OffsetCommit request of the header's version.
    """
    if header.api_version >= _FLEXIBLE and len(frame) <= _MODERATE:
        try:
            return _request(bytes(frame), header.end, header.api_version >= _TOPIC_IDS)
        except (Rare, IndexError, struct.error, UnicodeError):
            pass
    return codec.decode_request(OffsetCommitRequest, header, frame)


def _request(data: bytes, at: int, by_id: bool) -> OffsetCommitRequest:
    """Read the request from `at` on, where the header's tag section starts.

    A length that is too large leads beyond the data, where the next byte is missing: one check at the end is enough.
    """
    if data[at]:
        raise Rare
    group_id, at = read_short_string(data, at + 1)
    (generation,) = INT32.unpack_from(data, at)
    member_id, at = read_short_string(data, at + 4)
    instance_id: str | None = None
    if data[at]:
        instance_id, at = read_short_string(data, at)
    else:
        at += 1
    topics: list[OffsetCommitRequestTopic] = []
    count, at = read_short_length(data, at)
    for _ in range(count):
        name, topic_id = "", _NO_ID
        if by_id:
            topic_id, at = data[at : at + 16], at + 16
        else:
            name, at = read_short_string(data, at)
        partitions: list[OffsetCommitRequestPartition] = []
        inner = data[at] - 1
        if 0 <= inner < 0x7F:  # read_short_length, written out for what nearly all requests have
            at += 1
        else:
            inner, at = read_short_length(data, at)
        for _ in range(inner):
            index, offset, epoch = _PARTITION.unpack_from(data, at)
            at += 16
            metadata: str | None = None
            size = data[at]
            if size == 1:
                metadata, at = "", at + 1
            elif size:
                metadata, at = read_short_string(data, at)
            else:
                at += 1
            if data[at]:
                raise Rare
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
            raise Rare
        at += 1
        topics.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions))
    if data[at] or at + 1 != len(data):
        raise Rare
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=topics,
    )


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
            if version >= _TOPIC_IDS:
                parts += (_ID.pack(topic.topic_id), uvarint(len(topic.partitions) + 1))
            else:
                name, count = topic.name.encode(), len(topic.partitions)
                size = len(name)
                # uvarint, written out for what nearly all responses have
                parts.append(_LENGTHS[size] if size < _SHORT else uvarint(size + 1))
                parts += (name, _LENGTHS[count] if count < _SHORT else uvarint(count + 1))
            parts += [_OUTCOME.pack(each.partition_index, each.error_code) for each in topic.partitions]
            parts.append(b"\0")
        parts.append(b"\0")
    except (struct.error, UnicodeError, TypeError, AttributeError):
        return [codec.encode_response(response, version, correlation_id)]
    body = b"".join(parts)
    return [_SIZE.pack(len(body)) + body]
