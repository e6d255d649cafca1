"""Every declaration is Kafka's, field by field and version by version, as far as the data beside the checkout goes."""

import json
from typing import Any, Final

import pytest

from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Message, Request, Response, Versions
from tests.protocol.elsewhere import kafka_python
from tests.protocol.reference import Row, fields_of, kafkas_rows, load, our_rows
from tests.protocol.support import API_MESSAGES, DATA, MESSAGES, name_of

#: Versions of Kafka 4.0 to 4.2 that the data, of October 2024, does not have yet: what was the newest there.
NEWER: Final = {
    ApiKey.PRODUCE: (11, 13),
    ApiKey.FETCH: (17, 18),
    ApiKey.LIST_OFFSETS: (10, 11),
    ApiKey.METADATA: (12, 13),
    ApiKey.DESCRIBE_GROUPS: (5, 6),
    ApiKey.DESCRIBE_CLUSTER: (1, 2),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
}
#: Tagged fields that came to a version later, which needs no new version.
TAGGED_SINCE: Final = {("OffsetCommitValue", "topic_id")}
#: Names that are others in Kafka 4.1 and later, in the messages of this name.
SINCE: Final = {"ListClientMetricsResources": {"ClientMetricsResource": "ConfigResource", '"Name"': '"ResourceName"'}}
#: Changed in Kafka itself since: a topic that is named by id needs no name.
IGNORABLE_NOW: Final = {("ProduceRequest", "topic_data.name"), ("ProduceResponse", "responses.name")}
#: Version 10 of these, which names topics by id, is not served here.
NOT_YET_IGNORABLE: Final = {
    ("OffsetCommitRequest", "topics.name"),
    ("OffsetCommitResponse", "topics.name"),
    ("OffsetFetchRequest", "groups.topics.name"),
    ("OffsetFetchResponse", "groups.topics.name"),
}
#: Two structures of one name cannot stand in one module.
RENAMED: Final = {
    "ResponseCursor": "Cursor",
    "[]ConsumerProtocolAssignmentTopicPartition": "[]TopicPartition",
}


def _ours(cls: type[Message], version: int) -> list[Row]:
    return [
        row._replace(type=RENAMED.get(row.type, row.type))
        for row in our_rows(cls, version)
        if (cls.__name__, row.path) not in TAGGED_SINCE
    ]


@pytest.fixture(scope="module")
def kafkas() -> dict[str, dict[str, Any]]:
    data = load("messages.json")
    return {message["name"]: message for message in map(_renamed, (*data["messages"], *data["schemas"]))}


def _renamed(message: dict[str, Any]) -> dict[str, Any]:
    """A message under the names that it has now."""
    text = json.dumps(message)
    for old, new in SINCE.get(message["name"].removesuffix("Request").removesuffix("Response"), {}).items():
        text = text.replace(old, new)
    renamed: dict[str, Any] = json.loads(text)
    return renamed


@pytest.mark.parametrize("cls", MESSAGES, ids=name_of)
def test_versions(cls: type[Message], kafkas: dict[str, dict[str, Any]]) -> None:
    theirs = kafkas[cls.__name__]
    key = getattr(cls, "API_KEY", None)
    newest = theirs["validVersions"].rpartition("-")[2]
    if key in NEWER:
        known, ours = NEWER[ApiKey(key)]
        assert int(newest) <= known
        newest = str(ours)
    assert cls.VERSIONS.high == int(newest)
    assert cls.VERSIONS.low == int(theirs["validVersions"].partition("-")[0])
    assert str(cls.FLEXIBLE) == theirs["flexibleVersions"]


@pytest.mark.parametrize("cls", MESSAGES, ids=name_of)
def test_fields(cls: type[Message], kafkas: dict[str, dict[str, Any]]) -> None:
    theirs = kafkas[cls.__name__]
    low, _, high = theirs["validVersions"].partition("-")
    for version in range(int(low), int(high or low) + 1):
        expected = [
            row._replace(ignorable=True) if (cls.__name__, row.path) in IGNORABLE_NOW else row
            for row in kafkas_rows(theirs, version)
        ]
        assert _ours(cls, version) == expected, f"v{version}"


@pytest.mark.parametrize("cls", API_MESSAGES, ids=name_of)
def test_what_the_data_does_not_have_is_newer(cls: type[Message], kafkas: dict[str, dict[str, Any]]) -> None:
    theirs = kafkas[cls.__name__]
    low, _, high = theirs["validVersions"].partition("-")
    versions = range(int(low), int(high or low) + 1)
    known = {row.path for version in versions for row in kafkas_rows(theirs, version)}
    for path, field in fields_of(cls):
        assert path in known or field.versions.low > versions[-1], path


@pytest.mark.parametrize("cls", API_MESSAGES, ids=name_of)
def test_keys(cls: type[Message], kafkas: dict[str, dict[str, Any]]) -> None:
    theirs = kafkas[cls.__name__]
    assert issubclass(cls, Request if theirs["type"] == "request" else Response)
    assert getattr(cls, "API_KEY", None) == theirs["apiKey"]


def test_the_coordinators_records_are_all_there(kafkas: dict[str, dict[str, Any]]) -> None:
    names = {cls.__name__ for cls in DATA}
    assert names >= {"OffsetCommitKey", "OffsetCommitValue", "GroupMetadataKey", "GroupMetadataValue"}
    assert names <= set(kafkas)


def test_error_codes() -> None:
    theirs = {
        error["name"]: (error["code"], error["retriable"], error["refreshesMetadata"])
        for error in load("errors.json")["errors"]
    }
    ours = {error.name: (error.value, error.retriable, error.refreshes_metadata) for error in ErrorCode}
    assert ours == theirs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of importlib.resources, on Python 3.11
@pytest.mark.parametrize("cls", API_MESSAGES, ids=name_of)
def test_fields_of_the_newest_versions(cls: type[Message]) -> None:
    """Against the schemas that kafka-python carries, which are of Kafka 4.1 and later."""
    theirs = kafka_python("protocol.schemas").load_json(cls.__name__)
    for version in cls.VERSIONS:
        if version in Versions.of(theirs["validVersions"]):
            expected = [
                row._replace(ignorable=False) if (cls.__name__, row.path) in NOT_YET_IGNORABLE else row
                for row in kafkas_rows(theirs, version)
            ]
            assert _ours(cls, version) == expected, f"v{version}"
