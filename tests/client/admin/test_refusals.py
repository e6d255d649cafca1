"""The errors in responses to admin requests: what they say, and which of several is raised."""

import pytest

from barnabas_client import KafkaError, TopicPartition
from barnabas_client.admin.messages import partition_results
from barnabas_client.admin.refusals import failure, label, raise_first, results_of
from barnabas_client.admin.types import GroupResult, PartitionResult
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_acls import AclCreationResult
from barnabas_protocol.messages.offset_delete import OffsetDeleteResponsePartition

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)


def row(code: ErrorCode) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(partition_index=0, error_code=code)


def test_a_failure_has_the_message_of_the_broker_and_a_remedy() -> None:
    refused = AclCreationResult(error_code=ErrorCode.INVALID_CONFIG, error_message="no such key")
    assert str(failure(refused, "change it")) == (
        "change it: INVALID_CONFIG, no such key. To do: check key and value against Kafka's documentation"
    )
    assert str(failure(row(ErrorCode.NON_EMPTY_GROUP), "delete group 'g'")) == (
        "delete group 'g': NON_EMPTY_GROUP. To do: stop its members first"
    )
    assert failure(row(ErrorCode.NONE), "delete group 'g'") is None


def test_an_item_follows_what_is_done() -> None:
    assert label("delete group", "g") == "delete group 'g'"
    assert label("delete records of", ONE) == "delete records of t-1"
    assert label("ask broker", 3) == "ask broker 3"
    assert label("create topics", None) == "create topics"


def test_an_item_that_failed_gets_a_result_with_its_error() -> None:
    error = KafkaError(ErrorCode.NON_EMPTY_GROUP, "busy")
    found = results_of({"a": GroupResult("a"), "b": error}, GroupResult, raise_errors=False)
    assert found == {"a": GroupResult("a"), "b": GroupResult("b", error)}
    with pytest.raises(KafkaError, match="busy"):
        results_of({"a": GroupResult("a"), "b": error}, GroupResult, raise_errors=True)


def test_the_first_error_has_the_others_as_notes() -> None:
    first, second = (KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) for text in ("one", "two"))
    raise_first([None, None])
    with pytest.raises(KafkaError, match="one") as raised:
        raise_first([None, first, second])
    assert raised.value.__notes__ == [f"and: {second}"]


def test_each_partition_has_a_result_in_order() -> None:
    found = partition_results("change", [TWO, ONE], [(TWO, row(ErrorCode.NONE))])
    assert isinstance(found, dict)
    assert list(found) == [ONE, TWO]
    assert found[TWO] == PartitionResult()
    assert "change t-1: the broker's answer does not mention it" in str(found[ONE].error)


def test_a_moved_coordinator_is_one_error() -> None:
    found = partition_results("change", [ONE], [(ONE, row(ErrorCode.NOT_COORDINATOR))])
    assert isinstance(found, KafkaError)
    assert found.code == ErrorCode.NOT_COORDINATOR
