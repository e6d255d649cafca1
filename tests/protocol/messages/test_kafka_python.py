"""Our bytes and kafka-python's for the same content, for every message and version that both have."""

import random
import uuid
from typing import Any, Final

from barnabas_protocol import codec
from barnabas_protocol.messages.api_versions import ApiVersionsResponse
from barnabas_protocol.schema import Data, Message, Request, Response, Struct
from tests.lots import in_lots
from tests.protocol.other_clients import kafka_python
from tests.protocol.support import MESSAGES, some

NAMES: Final = (
    *("admin.acl", "admin.client_quotas", "admin.cluster", "admin.configs", "admin.groups", "admin.topics"),
    *("admin.transactions", "admin.users", "consumer.fetch", "consumer.group", "consumer.metadata"),
    *("consumer.offsets", "metadata.api_versions", "metadata.metadata", "metadata.find_coordinator"),
    *("producer.produce", "producer.transaction", "sasl"),
)
MODULES: Final = [kafka_python(f"protocol.{name}") for name in NAMES]
#: Messages that kafka-python does not have.
MISSING: Final = {"RequestHeaderData", "ResponseHeaderData"} | {
    *("GetTelemetrySubscriptionsRequest", "GetTelemetrySubscriptionsResponse"),
    *("PushTelemetryRequest", "PushTelemetryResponse"),
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "ConsumerGroupCurrentMemberAssignmentKey",
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ConsumerGroupMemberMetadataKey",
    "ConsumerGroupMemberMetadataValue",
    "ConsumerGroupMetadataKey",
    "ConsumerGroupMetadataValue",
    "ConsumerGroupPartitionMetadataKey",
    "ConsumerGroupPartitionMetadataValue",
    "ConsumerGroupRegularExpressionKey",
    "ConsumerGroupRegularExpressionValue",
    "ConsumerGroupTargetAssignmentMemberKey",
    "ConsumerGroupTargetAssignmentMemberValue",
    "ConsumerGroupTargetAssignmentMetadataKey",
    "ConsumerGroupTargetAssignmentMetadataValue",
    "ShareGroupCurrentMemberAssignmentKey",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupMemberMetadataKey",
    "ShareGroupMemberMetadataValue",
    "ShareGroupMetadataKey",
    "ShareGroupMetadataValue",
    "ShareGroupStatePartitionMetadataKey",
    "ShareGroupStatePartitionMetadataValue",
    "ShareGroupTargetAssignmentMemberKey",
    "ShareGroupTargetAssignmentMemberValue",
    "ShareGroupTargetAssignmentMetadataKey",
    "ShareGroupTargetAssignmentMetadataValue",
    "ShareSnapshotKey",
    "ShareSnapshotValue",
    "ShareUpdateKey",
    "ShareUpdateValue",
    "DeleteShareGroupStateRequest",
    "DeleteShareGroupStateResponse",
    "InitializeShareGroupStateRequest",
    "InitializeShareGroupStateResponse",
    "ReadShareGroupStateRequest",
    "ReadShareGroupStateResponse",
    "ReadShareGroupStateSummaryRequest",
    "ReadShareGroupStateSummaryResponse",
    "WriteShareGroupStateRequest",
    "WriteShareGroupStateResponse",
    *("AlterShareGroupOffsetsRequest", "AlterShareGroupOffsetsResponse"),
    *("DeleteShareGroupOffsetsRequest", "DeleteShareGroupOffsetsResponse"),
    *("DescribeShareGroupOffsetsRequest", "DescribeShareGroupOffsetsResponse"),
    *("ShareGroupDescribeRequest", "ShareGroupDescribeResponse"),
    *("ShareGroupHeartbeatRequest", "ShareGroupHeartbeatResponse"),
    *("EnvelopeRequest", "EnvelopeResponse"),
    "TransactionLogKey",
    "TransactionLogValue",
    *("ShareFetchRequest", "ShareFetchResponse", "ShareAcknowledgeRequest", "ShareAcknowledgeResponse"),
}

#: Messages whose newest version, of Kafka 4.4, kafka-python does not have.
NEWER: Final = {
    *("ApiVersionsRequest", "ApiVersionsResponse", "DeleteGroupsRequest", "DeleteGroupsResponse"),
    *("TxnOffsetCommitRequest", "TxnOffsetCommitResponse"),
}


def _theirs(cls: type[Message]) -> Any:
    for module in MODULES:
        if hasattr(module, cls.__name__):
            return getattr(module, cls.__name__)
    return None


COMMON: Final = [(cls, _theirs(cls)) for cls in MESSAGES if _theirs(cls) is not None]


def test_every_other_message_is_compared() -> None:
    assert {cls.__name__ for cls in MESSAGES} - {cls.__name__ for cls, _ in COMMON} == MISSING


def _common_versions(cls: type[Message], theirs: Any) -> range:
    """The versions of a message that both have: all of ours, but those of Kafka 4.4."""
    newest = theirs.max_version
    newer = [version for version in cls.VERSIONS if version > newest]
    assert newer == ([cls.VERSIONS.high] if cls.__name__ in NEWER else [])
    return range(cls.VERSIONS.low, min(cls.VERSIONS.high, newest) + 1)


def _pairs(ours: type[Struct], theirs: Any, version: int) -> list[tuple[Any, Any]]:
    """Our fields and theirs in the order of the schema. The order is the same, a few names differ."""
    mine = [f for f in ours.FIELDS if version in f.versions]
    others = [f for f in theirs.fields.values() if f.for_version_q(version)]
    assert len(mine) == len(others), (mine, others)
    return list(zip(mine, others, strict=True))


def _to_theirs(value: Any, theirs: Any, version: int) -> Any:
    match value:
        case Struct():
            arguments = {}
            for mine, other in _pairs(type(value), theirs, version):
                held = getattr(value, mine.name)
                if mine.tag is None or held != mine.default:
                    arguments[other.name] = _to_theirs(held, other, version)
            return theirs.data_class(version=version, **arguments)
        case list():
            element = theirs if theirs.is_struct_array() else getattr(theirs, "array_of", theirs)
            return [_to_theirs(each, element, version) for each in value]
        case bytes() if theirs.type_str.endswith("uuid"):
            return uuid.UUID(bytes=value)
        case int() if theirs.type_str == "bitfield":
            return {bit for bit in range(32) if value >> bit & 1}
    return value


def _to_ours(value: Any, ours: Any, theirs: Any, version: int) -> Any:
    if value is None:
        if theirs is not None and theirs.type_str == "bitfield":
            return -(2**31)
        return bytes(16) if ours.name == "uuid" else None
    if ours.element is not None:
        return [_to_ours(each, ours.element, theirs, version) for each in value]
    if ours.struct is not None:
        return _struct_to_ours(value, ours.struct, theirs, version)
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, set):
        number = sum(1 << bit for bit in value)
        return number - (1 << 32) if number >> 31 else number
    return value


def _struct_to_ours(value: Any, cls: type[Struct], theirs: Any, version: int) -> Any:
    arguments = {}
    for mine, other in _pairs(cls, theirs, version):
        if mine.tag is not None and (value.tags is None or other.name not in value.tags):
            continue
        arguments[mine.name] = _to_ours(getattr(value, other.name), mine.type, other, version)
    return cls(**{f.name: f.absent() for f in cls.FIELDS} | arguments)


@in_lots(("cls", "theirs"), COMMON)
def test_same_bytes(cls: type[Message], theirs: Any) -> None:
    rng = random.Random(cls.__name__)
    for version in _common_versions(cls, theirs):
        for _ in range(6):
            message = some(rng, cls, version)
            if isinstance(message, ApiVersionsResponse):
                message.error_code = 0  # kafka-python reads every other as version 0
            other = _to_theirs(message, theirs._struct, version)
            extra = {"header": False} if issubclass(cls, Data) else {}
            ours, bytes_of_theirs = codec.encode(message, version), other.encode(version=version, **extra)
            assert ours == bytes_of_theirs, f"v{version} {message}"
            read = theirs.decode(ours, version=version, **extra)
            assert _struct_to_ours(read, cls, theirs._struct, version) == message, f"v{version}"
            assert codec.decode(cls, version, bytes_of_theirs) == message


@in_lots(("cls", "theirs"), COMMON)
def test_same_frames(cls: type[Message], theirs: Any) -> None:
    rng = random.Random(cls.__name__)
    if issubclass(cls, Data):
        return
    for version in _common_versions(cls, theirs):
        message = some(rng, cls, version)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0
        other = _to_theirs(message, theirs._struct, version)
        other.API_VERSION = version
        if isinstance(message, Request):
            other.with_header(correlation_id=77, client_id="Größe")
            frame = codec.encode_request(message, version, 77, "Größe")
            header = codec.decode_request_header(frame[4:])
            assert header[:4] == (message.API_KEY, version, 77, "Größe")
            assert codec.decode_request(type(message), header, frame[4:]) == message
        else:
            assert isinstance(message, Response)
            other.with_header(correlation_id=77)
            frame = codec.encode_response(message, version, 77)
            assert codec.decode_response(type(message), version, frame[4:]) == message
        assert frame == other.encode(header=True, framed=True)
