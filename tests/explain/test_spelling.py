"""Remedies name settings as the library of the members does."""

from typing import Any

import pytest

from barnabas_explain.catalog import MemberJoined
from barnabas_explain.spelling import TOGETHER, speller
from tests.explain.reading import read
from tests.explain.test_findings import event


def joined(client: str = "c", software: str | None = None) -> Any:
    return event(MemberJoined, 100_000, client=client, software=software)


@pytest.mark.parametrize(
    ("software", "said"),
    [
        ("kafka-python 3.0.12", "[RoundRobinPartitionAssignor], or [CooperativeStickyAssignor]: max_poll_records"),
        ("barnabas 0.1", "[RoundRobinAssignor()], or [CooperativeStickyAssignor()]: max_poll_records"),
    ],
)
def test_libraries_in_python_have_arguments(software: str, said: str) -> None:
    spelled = speller(read([joined(software=software)]))
    assert spelled(f"{TOGETHER}: max.poll.records.") == f"partition_assignment_strategy={said}."


@pytest.mark.parametrize(
    ("software", "said"),
    [
        ("confluent-kafka-python 2.16.1-rdkafka-2.16.0", f"{TOGETHER}: num_messages of consume()"),
        ("librdkafka 2.16.0", f"{TOGETHER}: max.poll.records"),
        (
            "apache-kafka-java 4.4.0",
            "partition.assignment.strategy=org.apache.kafka.clients.consumer.RoundRobinAssignor, or"
            " CooperativeStickyAssignor: max.poll.records",
        ),
    ],
)
def test_libraries_with_settings_as_those_of_kafka(software: str, said: str) -> None:
    assert speller(read([joined(software=software)]))(f"{TOGETHER}: max.poll.records") == said


def test_aiokafka_says_its_name_in_the_client_ids_that_it_chooses() -> None:
    spelled = speller(read([joined("aiokafka-0.14.0")]))
    assert spelled("Set session.timeout.ms above 9 s.") == "Set session_timeout_ms above 9 s."


@pytest.mark.parametrize(
    "records",
    [
        [joined(software="kafka-python 3.0"), joined(software="apache-kafka-java 4.4")],
        [joined(software="kafka-python 3.0"), joined()],
        [],
    ],
    ids=["several libraries", "one is not known", "none"],
)
def test_what_is_not_known_is_not_guessed(records: list[Any]) -> None:
    assert speller(read(records))("Set max.poll.records.") == "Set max.poll.records."


def test_settings_of_brokers_and_commands_stay_as_they_are() -> None:
    spelled = speller(read([joined(software="kafka-python 3.0")]))
    text = "group.max.session.timeout.ms, group.consumer.session.timeout.ms: `barnabas groups explain group.id`"
    assert spelled(f"{text} group.id.") == f"{text} group_id."
    assert spelled(None) is None
