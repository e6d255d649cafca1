"""The records of regular expressions are those of Apache Kafka: their bytes, their contents, and their order."""

from typing import Any

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.language import Scenario, Step, flat
from tests.interop.behaviour.scenarios.consumer_groups import A, B, beat, join
from tests.interop.behaviour.scenarios.regular_expressions import known, known_b, own, reaches, subscribe
from tests.interop.behaviour.servers import SETTINGS
from tests.interop.group_records import played
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

pytestmark = [pytest.mark.interop, pytest.mark.kafka, pytest.mark.timeout(300)]

#: The type of the records of regular expressions.
REGEX = 16

STORIES: dict[str, tuple[list[Step], ...]] = {
    "found, changed and dropped": (
        known(),
        known_b(),
        subscribe(),
        [
            beat(A, 2, subscribed_topic_regex="$topic-b"),
            reaches(3, topic_partitions=[]),
            beat(A, 3, subscribed_topic_regex="", topic_partitions=own(b=(0, 1))),
            beat(A, 3, topic_partitions=[]),
        ],
    ),
    "of two members that leave": (
        known(),
        subscribe("$topic|$topic-b"),
        [
            join(B, on="b", subscribed_topic_names=None, subscribed_topic_regex="$topic|$topic-b"),
            beat(A, -1),
            beat(B, -1, on="b"),
        ],
    ),
    "that matches nothing": ([join(subscribed_topic_names=None, subscribed_topic_regex="$topic"), beat(A, -1)],),
}


@pytest.fixture(scope="module")
def both(needs_jars: None) -> Any:
    settings = SETTINGS["plain"]
    with ApacheKafka(settings) as kafka, BarnabasBroker(settings) as ours:
        yield kafka, ours


@pytest.mark.parametrize("story", STORIES)
def test_records_are_kafkas(both: tuple[Server, Server], story: str) -> None:
    kafka, ours = both
    scenario = Scenario(story, flat(*STORIES[story]))

    def of_expressions(server: Server) -> list[tuple[int, Any, Any]]:
        # When an expression is resolved varies, and with it the epochs of the other records.
        return [record for record in played(server, scenario) if record[0] == REGEX]

    expected = of_expressions(kafka)
    assert expected != []
    assert of_expressions(ours) == expected
