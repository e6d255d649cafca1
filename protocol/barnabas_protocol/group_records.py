"""Records of ``__consumer_offsets``: keys and values to and from bytes, as Kafka's own tools read them.

Offset records are encoded and decoded by hand, because there is one for every commit. So are, one way, targets and
current assignments of members, and what regular expressions match: thousands of members or topics are not rare. The
tests compare the result with the schemas in :mod:`barnabas_protocol.coordinator_records`. Values are written in version
3, offsets with an expiry of their own in version 1, as in Kafka 4.x.
"""

from struct import Struct, pack
from struct import error as struct_error
from typing import Final, NamedTuple

from barnabas_protocol.codec import decode, encode
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    CoordinatorRecord,
    CorruptRecord,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitValue,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.schema import Data
from barnabas_protocol.wire import MAX_STRING, Buffer

#: Record types: the versions of the key's schema.
OFFSET_KEYS: Final = (0, 1)
GROUP_KEY: Final = 2
_VERSION: Final = 3

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_INT64: Final = Struct(">q")
_VALUE_V3: Final = Struct(">hqih")
_VALUE_V1: Final = Struct(">hqh")
_TIMES_V1: Final = Struct(">qq")
#: The version, and the first fields of a current assignment.
_CURRENT: Final = Struct(">hiib")
_BYTES: Final = tuple(bytes((number,)) for number in range(0x80))
#: Compact arrays of few INT32, by the number of elements: a byte for that number plus one, and the elements.
_FEW: Final = tuple(Struct(f">B{count}i") for count in range(33))

#: The keys of a member's records and of a regular expression: the group, and the name of what the record is of.
_NamedKey = (
    ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
)
_NAMED_KEYS: Final = (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)

#: The keys of the records of share groups.
ShareGroupKey = (
    ShareGroupMemberMetadataKey
    | ShareGroupMetadataKey
    | ShareGroupTargetAssignmentMetadataKey
    | ShareGroupTargetAssignmentMemberKey
    | ShareGroupCurrentMemberAssignmentKey
    | ShareGroupStatePartitionMetadataKey
)

#: The key and the value of each record type of the consumer protocol.
CONSUMER_KEYS: Final[dict[int, tuple[type[Data], type[Data]]]] = {
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
}
#: The same of share groups.
SHARE_KEYS: Final[dict[int, tuple[type[Data], type[Data]]]] = {
    10: (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
    11: (ShareGroupMetadataKey, ShareGroupMetadataValue),
    12: (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
    13: (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
    14: (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
    15: (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
}
_KEYS: Final = CONSUMER_KEYS | SHARE_KEYS


class OffsetKey(NamedTuple):
    """The key of an offset record."""

    group_id: str
    topic: str
    partition: int


class Committed(NamedTuple):
    """A committed offset.

    Attributes:
        offset: the committed offset.
        leader_epoch: of the last consumed record, -1 if unknown.
        metadata: a text of the client.
        commit_ms: when it was committed, in ms since 1970.
        expire_ms: when it expires, if the client said so (OffsetCommit 2 to 4); -1 for the broker's retention.
        sequence: its position in the order of appends; an older commit never replaces a newer one.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1
    sequence: int = -1


def group_key(group_id: str) -> bytes:
    """The key of a group's record.

    Raises:
        EncodeError: the group id is longer than a record allows.
    """
    return _INT16.pack(GROUP_KEY) + encode(GroupMetadataKey(group=group_id), GROUP_KEY)


def group_value(value: GroupMetadataValue) -> bytes:
    """The value of a group's record.

    Raises:
        EncodeError: a field is longer than a record allows.
    """
    return _INT16.pack(_VERSION) + encode(value, _VERSION)


def group_record(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """The key and the value of a record of a group.

    Raises:
        EncodeError: a field is longer than a record allows.
    """
    key, value = record
    if isinstance(key, _NAMED_KEYS):
        try:
            return _key_of(key), None if value is None else _value_of(value)
        except (ValueError, struct_error):
            pass  # The schema says what is wrong.
    if isinstance(key, GroupMetadataKey):
        return group_key(key.group), group_value(value) if isinstance(value, GroupMetadataValue) else None
    (record_type,) = type(key).VERSIONS
    head = _INT16.pack(record_type) + encode(key, record_type)
    return head, None if value is None else _INT16.pack(0) + encode(value, 0)


def _key_of(key: _NamedKey) -> bytes:
    (record_type,) = key.VERSIONS
    name = key.regular_expression if isinstance(key, ConsumerGroupRegularExpressionKey) else key.member_id
    return _INT16.pack(record_type) + _string(key.group_id) + _string(name)


def _value_of(value: Data) -> bytes:
    if isinstance(value, ConsumerGroupTargetAssignmentMemberValue):
        parts = [b"\x00\x00", _count(len(value.topic_partitions))]
        for target in value.topic_partitions:
            parts += (_topic_id(target.topic_id), _ints(target.partitions), b"\x00")
    elif isinstance(value, ConsumerGroupCurrentMemberAssignmentValue):
        parts = [_CURRENT.pack(0, value.member_epoch, value.previous_member_epoch, value.state)]
        for owned in (value.assigned_partitions, value.partitions_pending_revocation):
            parts.append(_count(len(owned)))
            for each in owned:
                parts += (_topic_id(each.topic_id), _ints(each.partitions))
                if each.assignment_epochs is None:
                    raise ValueError("no epochs")
                if each.assignment_epochs:
                    # The one tagged field: number of fields, its tag, its size.
                    epochs = _ints(each.assignment_epochs)
                    parts += (b"\x01\x00", _varint(len(epochs)), epochs)
                else:
                    parts.append(b"\x00")
    elif isinstance(value, ConsumerGroupRegularExpressionValue):
        parts = [b"\x00\x00", _count(len(value.topics))]
        for name in value.topics:
            encoded = name.encode()
            parts += (_count(len(encoded)), encoded)
        parts.append(_TIMES_V1.pack(value.version, value.timestamp))
    else:
        return _INT16.pack(0) + encode(value, 0)
    parts.append(b"\x00")
    return b"".join(parts)


def _topic_id(topic_id: bytes) -> bytes:
    if len(topic_id) != 16:
        raise ValueError(f"topic id of {len(topic_id)} bytes")
    return topic_id


def _ints(numbers: list[int]) -> bytes:
    """A compact array of INT32."""
    count = len(numbers)
    if count < len(_FEW):
        return _FEW[count].pack(count + 1, *numbers)
    return _count(count) + pack(f">{count}i", *numbers)


def _count(elements: int) -> bytes:
    """The number of elements of a compact array that is not null."""
    return _varint(elements + 1)


def _varint(number: int) -> bytes:
    if number < 0x80:
        return _BYTES[number]
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_consumer_record(record_type: int, key: bytes, value: bytes | None) -> CoordinatorRecord:
    """Read a record of a consumer or share group; the type is in :data:`CONSUMER_KEYS` or :data:`SHARE_KEYS`.

    Raises:
        CorruptRecord: it is not such a record, or of an unknown version.
    """
    key_class, value_class = _KEYS[record_type]
    try:
        read_key = decode(key_class, record_type, key[2:])
        if value is None:
            return read_key, None
        return read_key, decode(value_class, int(_INT16.unpack_from(value)[0]), value[2:])
    except (struct_error, DecodeError) as error:
        raise CorruptRecord(f"record {key!r}: {error}") from error


def offset_key_head(group_id: str, topic: str) -> bytes:
    """The first part of the keys of all offsets of a group in a topic.

    Raises:
        ValueError: a name is longer than a record allows.
    """
    return b"\x00\x01" + _string(group_id) + _string(topic)


def offset_key(head: bytes, partition: int) -> bytes:
    """The key of an offset's record; `head` is the :func:`offset_key_head` of its group and topic."""
    return head + _INT32.pack(partition)


def offset_value(committed: Committed) -> bytes:
    """The value of an offset's record.

    Raises:
        ValueError: the metadata is longer than a record allows, or a number is out of range.
    """
    metadata = committed.metadata.encode() if committed.metadata else b""
    try:
        if committed.expire_ms < 0:
            head = _VALUE_V3.pack(_VERSION, committed.offset, committed.leader_epoch, len(metadata))
            return head + metadata + _INT64.pack(committed.commit_ms)
        head = _VALUE_V1.pack(1, committed.offset, len(metadata))
        return head + metadata + _TIMES_V1.pack(committed.commit_ms, committed.expire_ms)
    except struct_error as error:
        raise ValueError(str(error)) from error


def key_type(key: Buffer | None) -> int:
    """The type of a record; callers skip unknown types.

    Raises:
        CorruptRecord: the key is missing or shorter than its type.
    """
    if key is None or len(key) < 2:
        raise CorruptRecord(f"key {key!r}")
    return int(_INT16.unpack_from(key)[0])


def read_offset_key(key: bytes) -> OffsetKey:
    """Read the key of an offset's record.

    Raises:
        CorruptRecord: it is not such a key.
    """
    try:
        (size,) = _INT16.unpack_from(key, 2)
        group_end = 4 + size
        (topic_size,) = _INT16.unpack_from(key, group_end)
        topic_end = group_end + 2 + topic_size
        if size < 0 or topic_size < 0 or topic_end + 4 != len(key):
            raise CorruptRecord(f"offset key {key!r}")
        partition = _INT32.unpack_from(key, topic_end)[0]
        return OffsetKey(str(key[4:group_end], "utf-8"), str(key[group_end + 2 : topic_end], "utf-8"), partition)
    except (struct_error, UnicodeError) as error:
        raise CorruptRecord(f"offset key {key!r}") from error


def read_group_key(key: bytes) -> str:
    """Read the key of a group's record: the group id.

    Raises:
        CorruptRecord: it is not such a key.
    """
    try:
        return decode(GroupMetadataKey, GROUP_KEY, key[2:]).group
    except DecodeError as error:
        raise CorruptRecord(f"group key {key!r}") from error


def read_offset_value(value: bytes, sequence: int) -> Committed:
    """Read the value of an offset's record.

    Raises:
        CorruptRecord: it is not such a value, or of an unknown version.
    """
    try:
        if value[:2] == b"\x00\x03":
            _, offset, epoch, size = _VALUE_V3.unpack_from(value)
            end = 16 + size
            if size < 0 or end + 8 != len(value):
                raise CorruptRecord(f"offset value {value!r}")
            metadata = str(value[16:end], "utf-8") if size else ""
            return tuple.__new__(Committed, (offset, epoch, metadata, _INT64.unpack_from(value, end)[0], -1, sequence))
        version = int(_INT16.unpack_from(value)[0])
        read = decode(OffsetCommitValue, version, value[2:])
    except (struct_error, UnicodeError, DecodeError) as error:
        raise CorruptRecord(f"offset value {value!r}: {error}") from error
    return Committed(
        read.offset, read.leader_epoch, read.metadata, read.commit_timestamp, read.expire_timestamp, sequence
    )


def read_group_value(value: bytes) -> GroupMetadataValue:
    """Read the value of a group's record.

    Raises:
        CorruptRecord: it is not such a value, or of an unknown version.
    """
    try:
        return decode(GroupMetadataValue, int(_INT16.unpack_from(value)[0]), value[2:])
    except (struct_error, DecodeError) as error:
        raise CorruptRecord(f"group value: {error}") from error


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"string of {len(data)} bytes is longer than a record allows ({MAX_STRING})")
    return _INT16.pack(len(data)) + data
