"""Error codes, and whether they are retriable."""

import struct

from barnabas_protocol.errors import ErrorCode, KafkaError


def test_a_code_is_its_number() -> None:
    assert ErrorCode.REBALANCE_IN_PROGRESS.value == int(ErrorCode.REBALANCE_IN_PROGRESS) == 27
    assert struct.pack(">h", ErrorCode.REBALANCE_IN_PROGRESS) == b"\0\x1b"
    assert ErrorCode(27) is ErrorCode.of(27) is ErrorCode.REBALANCE_IN_PROGRESS


def test_unknown_codes() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_retriable_codes() -> None:
    assert ErrorCode.NOT_COORDINATOR.retriable
    assert not ErrorCode.NOT_COORDINATOR.refreshes_metadata
    assert ErrorCode.NOT_LEADER_OR_FOLLOWER.refreshes_metadata
    assert not ErrorCode.NONE.retriable
    assert all(code.retriable for code in ErrorCode if code.refreshes_metadata)


def test_kafka_error() -> None:
    error = KafkaError(ErrorCode.NOT_COORDINATOR)
    assert (str(error), error.message, error.retriable) == ("NOT_COORDINATOR", "", True)
    assert str(KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "no such member")) == "no such member"
