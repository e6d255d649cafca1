"""The texts of errors: what happened, why, and what to do."""

from barnabas_client import errors
from barnabas_client.errors import KafkaError, TopicAlreadyExistsError, error_for
from barnabas_protocol.errors import ErrorCode
from tests.lots import in_lots

#: Kafka's exceptions are not retriable; a commit that ended with one of them may succeed later.
MAY_COMMIT_LATER = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.STALE_MEMBER_EPOCH)


@in_lots("code", [code for code in ErrorCode if code != ErrorCode.NONE])
def test_every_code_has_an_exception_that_names_it(code: ErrorCode) -> None:
    error = error_for(code, "do something")
    assert isinstance(error, KafkaError)
    assert error.code is code
    assert error.retriable == (code.retriable or code in MAY_COMMIT_LATER)
    assert str(error).startswith(f"do something: {code.name}")


def test_an_exception_with_a_class_of_its_own() -> None:
    error = error_for(36, "create topic 't'", "Topic 't' already exists.")
    assert type(error) is TopicAlreadyExistsError
    assert str(error) == (
        "create topic 't': TOPIC_ALREADY_EXISTS, Topic 't' already exists. To do: use it as it is, or delete it first"
    )


def test_a_remedy_of_its_own() -> None:
    assert str(error_for(31, "get a producer id", remedy="grant WRITE")).endswith("FAILED. To do: grant WRITE")
    assert str(error_for(31, "describe users")).endswith("FAILED. To do: grant this client access to the cluster")


def test_a_code_newer_than_this_client() -> None:
    error = error_for(9999, "do something")
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert str(error) == "do something: UNKNOWN_SERVER_ERROR (code 9999)"


def test_every_exception_is_a_kafka_error_and_can_be_imported_by_name() -> None:
    for name in errors.__all__:
        found = getattr(errors, name)
        if isinstance(found, type) and issubclass(found, Exception):
            assert issubclass(found, KafkaError)
