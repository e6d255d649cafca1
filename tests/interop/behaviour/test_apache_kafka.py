"""Apache Kafka still answers as recorded in golden/, in all scenarios."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.interop.behaviour.compare import differences
from tests.interop.behaviour.families import golden
from tests.interop.behaviour.language import Family, Scenario
from tests.interop.behaviour.playing import CASES, Running, parametrized
from tests.interop.behaviour.runner import Player
from tests.interop.kafka_server import ApacheKafka

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafkas(needs_jars: None) -> Iterator[Running]:
    running = Running(ApacheKafka)
    yield running
    running.close()


@parametrized(CASES)
def test_apache_kafka_answers_as_recorded(name: str, family: Family, scenario: Scenario, kafkas: Running) -> None:
    transcript = asyncio.run(Player(kafkas.port(scenario)).play(scenario))
    found = [str(one) for one in differences(golden(name)[scenario.name], transcript)]
    assert found == [], f"run: python -m tests.interop.behaviour.record {name}"
