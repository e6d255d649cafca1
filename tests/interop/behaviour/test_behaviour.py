"""Barnabas answers as Apache Kafka does, field by field, except where a difference is declared.

Without Java the responses are compared with the recorded ones (golden/); the tests marked `kafka` check that Apache
Kafka still returns them.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.compare import declared_for_nothing, differences, judge
from tests.interop.behaviour.families import families, golden
from tests.interop.behaviour.language import Family, Rule, Scenario
from tests.interop.behaviour.runner import Player, warm_up
from tests.interop.behaviour.servers import SETTINGS
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

pytestmark = pytest.mark.interop

FAMILIES = families()
CASES = [
    pytest.param(name, family, scenario, id=f"{name}: {scenario.name}")
    for name, family in FAMILIES.items()
    # One setting after the other, so that few servers run at a time.
    for scenario in sorted(family.scenarios, key=lambda scenario: list(SETTINGS).index(scenario.server))
]


def _started(server: Server) -> Server:
    asyncio.run(warm_up(server.port))
    return server


class Running:
    """One server of a kind for each setting, started on first use."""

    def __init__(self, kind: type[ApacheKafka] | type[BarnabasBroker]) -> None:
        self._kind = kind
        self._servers: dict[str, Server] = {}

    def port(self, scenario: Scenario) -> int:
        if scenario.server not in self._servers:
            server = self._kind(SETTINGS[scenario.server])
            server.__enter__()
            self._servers[scenario.server] = _started(server)
        return self._servers[scenario.server].port

    def close(self) -> None:
        for server in self._servers.values():
            server.__exit__(None, None, None)


@pytest.fixture(scope="module")
def ours() -> Iterator[Running]:
    running = Running(BarnabasBroker)
    yield running
    running.close()


@pytest.fixture(scope="module")
def kafkas(needs_jars: None) -> Iterator[Running]:
    running = Running(ApacheKafka)
    yield running
    running.close()


@pytest.mark.parametrize(("name", "family", "scenario"), CASES)
def test_barnabas_answers_as_apache_kafka(name: str, family: Family, scenario: Scenario, ours: Running) -> None:
    transcript = asyncio.run(Player(ours.port(scenario)).play(scenario))
    found = differences(golden(name)[scenario.name], transcript)
    undeclared, gone = judge(family, scenario, found)
    assert [str(one) for one in undeclared] == [], "differs from Apache Kafka, and is not declared"
    assert gone == [], "declared as a difference, but the answers are equal: remove the declaration"


@pytest.mark.kafka
@pytest.mark.parametrize(("name", "family", "scenario"), CASES)
def test_apache_kafka_answers_as_recorded(name: str, family: Family, scenario: Scenario, kafkas: Running) -> None:
    transcript = asyncio.run(Player(kafkas.port(scenario)).play(scenario))
    found = [str(one) for one in differences(golden(name)[scenario.name], transcript)]
    assert found == [], f"run: python -m tests.interop.behaviour.record {name}"


@pytest.mark.parametrize("name", FAMILIES)
def test_golden_files_match_the_scenarios(name: str) -> None:
    assert list(golden(name)) == [scenario.name for scenario in FAMILIES[name].scenarios]
    assert [scenario for scenario, transcript in golden(name).items() if not transcript] == []


@pytest.mark.parametrize("name", FAMILIES)
def test_differences_match_the_scenarios(name: str) -> None:
    assert declared_for_nothing(FAMILIES[name]) == []


def test_every_rule_of_groups_has_a_scenario() -> None:
    rules = {scenario.rule for family in FAMILIES.values() for scenario in family.scenarios}
    assert rules - {None} == set(Rule)
