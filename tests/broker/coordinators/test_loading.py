"""What is logged when a partition of a coordinator's topic cannot be replayed."""

import pytest

from barnabas_broker.coordinators.loading import report_failure
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    ("error", "level", "text"),
    [
        (KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER), "INFO", "groups are not loaded: another broker leads"),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), "ERROR", "groups cannot be loaded"),
        (RuntimeError("a bug"), "ERROR", "groups cannot be loaded"),
    ],
)
def test_only_what_is_a_fault_has_a_trace(
    caplog: pytest.LogCaptureFixture, error: Exception, level: str, text: str
) -> None:
    with caplog.at_level("INFO"):
        report_failure(logger("groups"), "groups", 3, error)
    (line,) = caplog.records
    assert line.levelname == level
    assert text in line.getMessage() and "3" in line.getMessage()
    assert (line.exc_info is not None) == (level == "ERROR")
