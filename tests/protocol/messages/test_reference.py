"""Every declaration is Kafka's: versions, fields, types, nullability, tags, defaults and headers, in every version.

The data and where it comes from: `tests/protocol/reference/README.md`.
"""

import json
import random
from typing import Any, Final

import pytest

from barnabas_protocol import codec
from barnabas_protocol.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas_protocol.coordinator_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
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
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.headers import RequestHeaderData, ResponseHeaderData
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Message, Request, Response, Versions
from tests.lots import in_lots
from tests.protocol.other_clients import kafka_python
from tests.protocol.reference import (
    ERRORS,
    EXACT,
    SNAPSHOT,
    Row,
    exact_defaults,
    exact_places,
    exact_schema,
    load,
    our_places,
    our_rows,
    printed_default,
    snapshot_rows,
    structs_of,
)
from tests.protocol.support import API_MESSAGES, DATA, MESSAGES, name_of, some

#: Versions of Kafka 4.4.0 that are not declared, and why.
NOT_DECLARED: Final = {
    ApiKey.INIT_PRODUCER_ID: {6: "not stable in 4.4.0: two-phase commit (KIP-939)"},
}
#: Fields of those versions, as Kafka's ``toString`` has them in every version.
OF_VERSIONS_NOT_DECLARED: Final = {
    "InitProducerIdRequest": {"enable2_pc", "keep_prepared_txn"},
    "InitProducerIdResponse": {"ongoing_txn_producer_id", "ongoing_txn_producer_epoch"},
    "ShareFetchPartition": {"partition_max_bytes"},
}
#: Fields of versions that Kafka 4.0 removed (KIP-896).
OF_REMOVED_VERSIONS: Final = {
    "ListOffsetsPartition": {"max_num_offsets"},
    "ListOffsetsPartitionResponse": {"old_style_offsets"},
    "OffsetCommitRequestPartition": {"commit_timestamp"},
    "DescribeConfigsResourceResult": {"is_default"},
}
#: Kafka nests structures in their message; two of one name get the name of their API here.
RENAMED: Final = {
    "AcknowledgedPartition": "PartitionData",
    "AlterEntryData": "EntryData",
    "AlteredEntryData": "EntryData",
    "ConsumerProtocolAssignmentTopicPartition": "TopicPartition",
    "CurrentShareTopicPartitions": "TopicPartitions",
    "CurrentTopicPartitions": "TopicPartitions",
    "DeleteStatePartitionData": "PartitionData",
    "DeleteStatePartitionResult": "PartitionResult",
    "DescribeProducersTopicRequest": "TopicRequest",
    "DescribeQuorumRequestPartition": "PartitionData",
    "DescribeQuorumRequestTopic": "TopicData",
    "DescribeQuorumResponsePartition": "PartitionData",
    "DescribeQuorumResponseTopic": "TopicData",
    "DescribedAssignment": "Assignment",
    "DescribedConsumerGroup": "DescribedGroup",
    "DescribedShareAssignment": "Assignment",
    "DescribedShareGroup": "DescribedGroup",
    "DescribedShareTopicPartitions": "TopicPartitions",
    "DescribedTopicPartitions": "TopicPartitions",
    "FetchAcknowledgementBatch": "AcknowledgementBatch",
    "FetchEpochEndOffset": "EpochEndOffset",
    "FetchLeaderIdAndEpoch": "LeaderIdAndEpoch",
    "FetchNodeEndpoint": "NodeEndpoint",
    "HeartbeatAssignment": "Assignment",
    "HeartbeatTopicPartitions": "TopicPartitions",
    "IncrementalAlterConfigsResource": "AlterConfigsResource",
    "IncrementalAlterConfigsResourceResponse": "AlterConfigsResourceResponse",
    "IncrementalAlterableConfig": "AlterableConfig",
    "InitializeStatePartitionData": "PartitionData",
    "InitializeStatePartitionResult": "PartitionResult",
    "QuorumListener": "Listener",
    "QuorumNode": "Node",
    "QuorumReplicaState": "ReplicaState",
    "ReadStateBatch": "StateBatch",
    "ReadStatePartitionData": "PartitionData",
    "ReadStatePartitionResult": "PartitionResult",
    "ReadStateSummaryPartitionData": "PartitionData",
    "ReadStateSummaryPartitionResult": "PartitionResult",
    "ResponseCursor": "Cursor",
    "ShareAcknowledgeLeader": "LeaderIdAndEpoch",
    "ShareAcknowledgeNode": "NodeEndpoint",
    "ShareAssignment": "Assignment",
    "ShareFetchLeader": "LeaderIdAndEpoch",
    "ShareFetchNode": "NodeEndpoint",
    "ShareFetchPartition": "FetchPartition",
    "ShareFetchTopic": "FetchTopic",
    "ShareForgottenTopic": "ForgottenTopic",
    "ShareMember": "Member",
    "SharePartitionData": "PartitionData",
    "ShareTopicPartitions": "TopicPartitions",
    "StateTopicInfo": "TopicInfo",
    "TargetTopicPartition": "TopicPartition",
    "TransactionListing": "TransactionState",
    "WriteStateBatch": "StateBatch",
    "WriteStatePartitionData": "PartitionData",
    "WriteStatePartitionResult": "PartitionResult",
}


def _stable(exact: dict[str, Any]) -> range:
    low, high = exact["versions"]
    return range(low, high + 1)


@pytest.fixture(scope="module")
def exact() -> dict[int, dict[str, Any]]:
    """Kafka 4.4.0's APIs by key."""
    return {message["key"]: {"name": name, **message} for name, message in load(EXACT)["messages"].items()}


def _api(cls: type[Message], exact: dict[int, dict[str, Any]]) -> dict[str, Any]:
    key = getattr(cls, "API_KEY", None)
    assert isinstance(key, int)
    return exact[key]


@in_lots("cls", API_MESSAGES)
def test_names_and_keys(cls: type[Message], exact: dict[int, dict[str, Any]]) -> None:
    name = _api(cls, exact)["name"]
    assert cls.__name__ == f"{name}Request" if issubclass(cls, Request) else f"{name}Response"


@in_lots("cls", API_MESSAGES)
def test_versions(cls: type[Message], exact: dict[int, dict[str, Any]]) -> None:
    api = _api(cls, exact)
    left_out = NOT_DECLARED.get(api["key"], {})
    stable = _stable(api)
    newest = range(stable.start, api["newestUnstable"] + 1)
    assert set(newest) - set(cls.VERSIONS) == set(left_out)
    removed = set(cls.VERSIONS) - set(newest)
    known = Versions.of(_snapshot(cls)["validVersions"]) if removed else ()
    assert all(version < stable.start and version in known for version in removed)


@in_lots("cls", API_MESSAGES)
def test_headers(cls: type[Message], exact: dict[int, dict[str, Any]]) -> None:
    """The frames that the codec writes begin with the header that Kafka gives to that version."""
    headers = _api(cls, exact)["headers"]
    rng = random.Random(cls.__name__)
    for version in cls.VERSIONS:
        of_request, of_response = headers.get(str(version), (1, 0))
        message = some(rng, cls, version)
        body = codec.encode(message, version)
        if isinstance(message, Request):
            frame = codec.encode_request(message, version, 77, "client")
            header = RequestHeaderData(
                request_api_key=message.API_KEY, request_api_version=version, correlation_id=77, client_id="client"
            )
            assert frame[4:] == codec.encode(header, of_request) + body
        else:
            assert isinstance(message, Response)
            frame = codec.encode_response(message, version, 77)
            assert frame[4:] == codec.encode(ResponseHeaderData(correlation_id=77), of_response) + body


@in_lots("cls", API_MESSAGES)
def test_fields(cls: type[Message], exact: dict[int, dict[str, Any]]) -> None:
    by_range = _api(cls, exact)["request" if issubclass(cls, Request) else "response"]
    compared = 0
    for version in cls.VERSIONS:
        schema = exact_schema(by_range, version)
        if schema is not None:
            compared += 1
            assert our_places(cls, version) == exact_places(schema), f"v{version}"
    assert compared == len(set(cls.VERSIONS) & set(_stable(_api(cls, exact))))


#: Our embedded messages, the versions of each that Kafka 4.4.0 has, and the name and version of its schema. The version
#: of a key is the id of its record type, and Kafka's schema of it has the version 0 alone.
EMBEDDED: Final = {
    RequestHeaderData: {1: ("RequestHeaderData", 1), 2: ("RequestHeaderData", 2)},
    ResponseHeaderData: {0: ("ResponseHeaderData", 0), 1: ("ResponseHeaderData", 1)},
    ConsumerProtocolSubscription: {version: ("ConsumerProtocolSubscription", version) for version in range(4)},
    ConsumerProtocolAssignment: {version: ("ConsumerProtocolAssignment", version) for version in range(4)},
    OffsetCommitKey: {0: ("LegacyOffsetCommitKey", 0), 1: ("OffsetCommitKey", 0)},
    OffsetCommitValue: {version: ("OffsetCommitValue", version) for version in range(5)},
    GroupMetadataKey: {2: ("GroupMetadataKey", 0)},
    GroupMetadataValue: {version: ("GroupMetadataValue", version) for version in range(5)},
    ConsumerGroupMetadataKey: {3: ("ConsumerGroupMetadataKey", 0)},
    ConsumerGroupMetadataValue: {0: ("ConsumerGroupMetadataValue", 0)},
    ConsumerGroupPartitionMetadataKey: {4: ("ConsumerGroupPartitionMetadataKey", 0)},
    ConsumerGroupPartitionMetadataValue: {0: ("ConsumerGroupPartitionMetadataValue", 0)},
    ConsumerGroupMemberMetadataKey: {5: ("ConsumerGroupMemberMetadataKey", 0)},
    ConsumerGroupMemberMetadataValue: {0: ("ConsumerGroupMemberMetadataValue", 0)},
    ConsumerGroupTargetAssignmentMetadataKey: {6: ("ConsumerGroupTargetAssignmentMetadataKey", 0)},
    ConsumerGroupTargetAssignmentMetadataValue: {0: ("ConsumerGroupTargetAssignmentMetadataValue", 0)},
    ConsumerGroupTargetAssignmentMemberKey: {7: ("ConsumerGroupTargetAssignmentMemberKey", 0)},
    ConsumerGroupTargetAssignmentMemberValue: {0: ("ConsumerGroupTargetAssignmentMemberValue", 0)},
    ConsumerGroupCurrentMemberAssignmentKey: {8: ("ConsumerGroupCurrentMemberAssignmentKey", 0)},
    ConsumerGroupCurrentMemberAssignmentValue: {0: ("ConsumerGroupCurrentMemberAssignmentValue", 0)},
    ConsumerGroupRegularExpressionKey: {16: ("ConsumerGroupRegularExpressionKey", 0)},
    ConsumerGroupRegularExpressionValue: {0: ("ConsumerGroupRegularExpressionValue", 0)},
    ShareGroupMemberMetadataKey: {10: ("ShareGroupMemberMetadataKey", 0)},
    ShareGroupMemberMetadataValue: {0: ("ShareGroupMemberMetadataValue", 0)},
    ShareGroupMetadataKey: {11: ("ShareGroupMetadataKey", 0)},
    ShareGroupMetadataValue: {0: ("ShareGroupMetadataValue", 0)},
    ShareGroupTargetAssignmentMetadataKey: {12: ("ShareGroupTargetAssignmentMetadataKey", 0)},
    ShareGroupTargetAssignmentMetadataValue: {0: ("ShareGroupTargetAssignmentMetadataValue", 0)},
    ShareGroupTargetAssignmentMemberKey: {13: ("ShareGroupTargetAssignmentMemberKey", 0)},
    ShareGroupTargetAssignmentMemberValue: {0: ("ShareGroupTargetAssignmentMemberValue", 0)},
    ShareGroupCurrentMemberAssignmentKey: {14: ("ShareGroupCurrentMemberAssignmentKey", 0)},
    ShareGroupCurrentMemberAssignmentValue: {0: ("ShareGroupCurrentMemberAssignmentValue", 0)},
    ShareGroupStatePartitionMetadataKey: {15: ("ShareGroupStatePartitionMetadataKey", 0)},
    ShareGroupStatePartitionMetadataValue: {0: ("ShareGroupStatePartitionMetadataValue", 0)},
    ShareSnapshotKey: {0: ("ShareSnapshotKey", 0)},
    ShareSnapshotValue: {0: ("ShareSnapshotValue", 0)},
    ShareUpdateKey: {1: ("ShareUpdateKey", 0)},
    ShareUpdateValue: {0: ("ShareUpdateValue", 0)},
    TransactionLogKey: {0: ("TransactionLogKey", 0)},
    TransactionLogValue: {version: ("TransactionLogValue", version) for version in range(2)},
}
#: The coordinator and the name of each record type.
RECORD_TYPES: Final = {
    "LegacyOffsetCommitKey": ("group", "LEGACY_OFFSET_COMMIT"),
    "OffsetCommitKey": ("group", "OFFSET_COMMIT"),
    "GroupMetadataKey": ("group", "GROUP_METADATA"),
    "ConsumerGroupMetadataKey": ("group", "CONSUMER_GROUP_METADATA"),
    "ConsumerGroupPartitionMetadataKey": ("group", "CONSUMER_GROUP_PARTITION_METADATA"),
    "ConsumerGroupMemberMetadataKey": ("group", "CONSUMER_GROUP_MEMBER_METADATA"),
    "ConsumerGroupTargetAssignmentMetadataKey": ("group", "CONSUMER_GROUP_TARGET_ASSIGNMENT_METADATA"),
    "ConsumerGroupTargetAssignmentMemberKey": ("group", "CONSUMER_GROUP_TARGET_ASSIGNMENT_MEMBER"),
    "ConsumerGroupCurrentMemberAssignmentKey": ("group", "CONSUMER_GROUP_CURRENT_MEMBER_ASSIGNMENT"),
    "ConsumerGroupRegularExpressionKey": ("group", "CONSUMER_GROUP_REGULAR_EXPRESSION"),
    "ShareGroupMemberMetadataKey": ("group", "SHARE_GROUP_MEMBER_METADATA"),
    "ShareGroupMetadataKey": ("group", "SHARE_GROUP_METADATA"),
    "ShareGroupTargetAssignmentMetadataKey": ("group", "SHARE_GROUP_TARGET_ASSIGNMENT_METADATA"),
    "ShareGroupTargetAssignmentMemberKey": ("group", "SHARE_GROUP_TARGET_ASSIGNMENT_MEMBER"),
    "ShareGroupCurrentMemberAssignmentKey": ("group", "SHARE_GROUP_CURRENT_MEMBER_ASSIGNMENT"),
    "ShareGroupStatePartitionMetadataKey": ("group", "SHARE_GROUP_STATE_PARTITION_METADATA"),
    "TransactionLogKey": ("transaction", "TRANSACTION_LOG"),
    "ShareSnapshotKey": ("share", "SHARE_SNAPSHOT"),
    "ShareUpdateKey": ("share", "SHARE_UPDATE"),
}


def test_every_embedded_message_is_compared() -> None:
    assert set(EMBEDDED) == set(DATA)


@in_lots("cls", EMBEDDED)
def test_embedded_messages(cls: type[Message]) -> None:
    records = load(EXACT)["records"]
    for version, (name, theirs) in EMBEDDED[cls].items():
        schema = exact_schema(records[name]["schema"], theirs)
        assert schema is not None
        assert our_places(cls, version) == exact_places(schema), f"v{version}"
        assert list(records[name]["versions"]) == [
            min(known for other, known in EMBEDDED[cls].values() if other == name),
            max(known for other, known in EMBEDDED[cls].values() if other == name),
        ]
        if name in RECORD_TYPES:
            coordinator, record_type = RECORD_TYPES[name]
            assert load(EXACT)["recordTypes"][coordinator][record_type] == version
    # Version 0 of the request header was ControlledShutdown's, which Kafka 4.0 removed.
    assert set(cls.VERSIONS) - set(EMBEDDED[cls]) == ({0} if cls is RequestHeaderData else set())


@in_lots("cls", MESSAGES)
def test_defaults(cls: type[Message]) -> None:
    whole = f"{cls.__name__}Data" if cls in API_MESSAGES else cls.__name__
    for struct in structs_of(cls):
        name = struct.__name__
        theirs = exact_defaults(whole if struct is cls else f"{whole}${RENAMED.get(name, name)}")
        ours = {f.name: printed_default(f) for f in struct.FIELDS}
        removed, left_out = OF_REMOVED_VERSIONS.get(name, set()), OF_VERSIONS_NOT_DECLARED.get(name, set())
        assert {key: value for key, value in ours.items() if key not in removed} == {
            key: value for key, value in theirs.items() if key not in left_out
        }
        assert removed <= set(ours)
        assert left_out <= set(theirs)


# The snapshot: versions that Kafka 4.0 removed, `ignorable`, structures that may be null.

#: Tagged fields that a version got later, which needs no new version.
TAGGED_SINCE: Final = {
    ("OffsetCommitValue", "topic_id"),
    ("TransactionLogValue", "next_producer_epoch"),
    ("ConsumerGroupMetadataValue", "metadata_hash"),
    ("ConsumerGroupTargetAssignmentMetadataValue", "assignment_timestamp"),
    ("ConsumerGroupCurrentMemberAssignmentValue", "assigned_partitions.assignment_epochs"),
    ("ConsumerGroupCurrentMemberAssignmentValue", "partitions_pending_revocation.assignment_epochs"),
}
#: Messages that are newer than the snapshot.
SINCE_THE_SNAPSHOT: Final = {
    *("ConsumerGroupRegularExpressionKey", "ConsumerGroupRegularExpressionValue"),
    # Messages of share groups were not stable yet.
    *("ShareGroupMetadataValue", "ShareGroupStatePartitionMetadataKey", "ShareGroupStatePartitionMetadataValue"),
    "ReadShareGroupStateSummaryResponse",
    *("ShareGroupHeartbeatRequest", "ShareGroupHeartbeatResponse"),
    *("ShareGroupDescribeRequest", "ShareGroupDescribeResponse"),
    *("DescribeShareGroupOffsetsRequest", "DescribeShareGroupOffsetsResponse"),
    *("AlterShareGroupOffsetsRequest", "AlterShareGroupOffsetsResponse"),
    *("DeleteShareGroupOffsetsRequest", "DeleteShareGroupOffsetsResponse"),
    *("ShareSnapshotValue", "ShareUpdateValue", "ShareGroupTargetAssignmentMetadataValue"),
    *("ShareFetchRequest", "ShareFetchResponse", "ShareAcknowledgeRequest", "ShareAcknowledgeResponse"),
}
#: Requests and responses that kafka-python does not have.
NOT_IN_KAFKA_PYTHON: Final = {
    *("EnvelopeRequest", "EnvelopeResponse"),
    *("GetTelemetrySubscriptionsRequest", "GetTelemetrySubscriptionsResponse"),
    *("PushTelemetryRequest", "PushTelemetryResponse"),
    "ConsumerGroupHeartbeatRequest",
    "ConsumerGroupHeartbeatResponse",
    "ConsumerGroupDescribeRequest",
    "ConsumerGroupDescribeResponse",
    *("ShareFetchRequest", "ShareFetchResponse", "ShareAcknowledgeRequest", "ShareAcknowledgeResponse"),
    *("AlterShareGroupOffsetsRequest", "AlterShareGroupOffsetsResponse"),
    *("DeleteShareGroupOffsetsRequest", "DeleteShareGroupOffsetsResponse"),
    *("DescribeShareGroupOffsetsRequest", "DescribeShareGroupOffsetsResponse"),
    *("ShareGroupDescribeRequest", "ShareGroupDescribeResponse"),
    *("ShareGroupHeartbeatRequest", "ShareGroupHeartbeatResponse"),
    *("DeleteShareGroupStateRequest", "DeleteShareGroupStateResponse"),
    *("InitializeShareGroupStateRequest", "InitializeShareGroupStateResponse"),
    *("ReadShareGroupStateRequest", "ReadShareGroupStateResponse"),
    *("ReadShareGroupStateSummaryRequest", "ReadShareGroupStateSummaryResponse"),
    *("WriteShareGroupStateRequest", "WriteShareGroupStateResponse"),
}
#: Names that Kafka has changed since, in the messages of this name.
RENAMED_SINCE: Final = {
    "ListClientMetricsResources": {
        "ListClientMetricsResources": "ListConfigResources",
        "ClientMetricsResource": "ConfigResource",
        '"Name"': '"ResourceName"',
    },
    "TxnOffsetCommit": {'"GenerationId"': '"GenerationIdOrMemberEpoch"'},
}
#: Kafka changed these since: a topic that is named by id needs no name.
IGNORABLE_NOW: Final = {
    ("ProduceRequest", "topic_data.name"),
    ("ProduceResponse", "responses.name"),
    ("OffsetCommitRequest", "topics.name"),
    ("TxnOffsetCommitRequest", "topics.name"),
    ("TxnOffsetCommitResponse", "topics.name"),
    ("OffsetCommitResponse", "topics.name"),
    ("OffsetFetchRequest", "groups.topics.name"),
    ("OffsetFetchResponse", "groups.topics.name"),
}


#: Kafka changed these since the definitions of kafka-python.
IGNORABLE_SINCE_KAFKA_PYTHON: Final = {
    ("TxnOffsetCommitRequest", "topics.name"),
    ("TxnOffsetCommitResponse", "topics.name"),
}


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """A message with the names that it has in Kafka 4.4.0."""
    short = message["name"].removesuffix("Request").removesuffix("Response")
    text = json.dumps(message)
    for old, new in RENAMED_SINCE.get(short, {}).items():
        # The name of a structure and that of the message: the longer one first.
        text = text.replace(old, new)
    renamed: dict[str, Any] = json.loads(text)
    return renamed


def _snapshot(cls: type[Message]) -> dict[str, Any]:
    """A message of the snapshot under the names that it has in Kafka 4.4.0."""
    data = load(SNAPSHOT)
    for message in (*data["messages"], *data["schemas"]):
        renamed = _renamed(message)
        if renamed["name"] == cls.__name__.removesuffix("Data"):
            return renamed
    raise KeyError(cls.__name__)


def _our_rows(cls: type[Message], version: int) -> list[Row]:
    def name(of: str) -> str:
        array = "[]" if of.startswith("[]") else ""
        return array + RENAMED.get(of.removeprefix("[]"), of.removeprefix("[]"))

    return [
        row._replace(type=name(row.type))
        for row in our_rows(cls, version)
        if (cls.__name__, row.path) not in TAGGED_SINCE
    ]


@in_lots("cls", [each for each in MESSAGES if name_of(each) not in SINCE_THE_SNAPSHOT])
def test_fields_of_the_snapshot(cls: type[Message]) -> None:
    theirs = _snapshot(cls)
    assert str(cls.FLEXIBLE) == theirs["flexibleVersions"]
    for version in Versions.of(theirs["validVersions"]):
        expected = [
            row._replace(ignorable=True) if (cls.__name__, row.path) in IGNORABLE_NOW else row
            for row in snapshot_rows(theirs, version)
        ]
        assert _our_rows(cls, version) == expected, f"v{version}"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of importlib.resources, on Python 3.11
@in_lots("cls", [each for each in API_MESSAGES if name_of(each) not in NOT_IN_KAFKA_PYTHON])
def test_fields_of_the_newest_versions(cls: type[Message]) -> None:
    """Against the definitions that kafka-python carries: of Kafka 4.1 and later, `ignorable` included."""
    theirs = _renamed(kafka_python("protocol.schemas").load_json(cls.__name__))
    for version in cls.VERSIONS:
        if version in Versions.of(theirs["validVersions"]):
            expected = [
                row._replace(ignorable=True) if (cls.__name__, row.path) in IGNORABLE_SINCE_KAFKA_PYTHON else row
                for row in snapshot_rows(theirs, version)
            ]
            assert _our_rows(cls, version) == expected, f"v{version}"


def test_error_codes() -> None:
    theirs = {
        error["name"]: (error["code"], error["retriable"], error["refreshesMetadata"])
        for error in load(ERRORS)["errors"]
    }
    ours = {error.name: (error.value, error.retriable, error.refreshes_metadata) for error in ErrorCode}
    assert ours == theirs
