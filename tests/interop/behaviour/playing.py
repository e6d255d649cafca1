"""The scenarios as cases of tests, and the servers that they run against.

`make test` plays a sample: of scenarios that differ in the versions of requests only, one with the newest.
"""

import asyncio
import re
from typing import Any, Final

import pytest

from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.behaviour.compare import differences, judge
from tests.interop.behaviour.families import families, golden
from tests.interop.behaviour.language import Family, Scenario
from tests.interop.behaviour.language import Server as Setting
from tests.interop.behaviour.runner import Player, warm_up
from tests.interop.behaviour.servers import SETTINGS, launch
from tests.interop.kafka_server import ApacheKafka
from tests.interop.server import Server

FAMILIES: Final = families()
#: The version of a request in the name of a scenario.
VERSION: Final = re.compile(r"\bv\d+\b")

Case = tuple[str, Family, Scenario]


def _all() -> list[Case]:
    return [
        (name, family, scenario)
        for name, family in FAMILIES.items()
        # One setting after the other, so that few servers run at a time.
        for scenario in sorted(family.scenarios, key=lambda scenario: list(SETTINGS).index(scenario.server))
    ]


def _sample() -> list[Case]:
    newest = {(case[0], VERSION.sub("v", case[2].name)): case for case in CASES}
    return list(newest.values())


CASES: Final = _all()
SAMPLE: Final = _sample()
_SAMPLED: Final = {scenario.name for _, _, scenario in SAMPLE}
REST: Final = [case for case in CASES if case[2].name not in _SAMPLED]


def parametrized(cases: list[Case]) -> pytest.MarkDecorator:
    """A test with the arguments `name`, `family` and `scenario`, for these cases."""
    named: list[Any] = [pytest.param(*case, id=f"{case[0]}: {case[2].name}") for case in cases]
    return pytest.mark.parametrize(("name", "family", "scenario"), named)


class Running:
    """One server of a kind for each setting, started on first use."""

    def __init__(self, kind: type[ApacheKafka] | type[BarnabasBroker]) -> None:
        self._kind = kind
        self._servers: dict[Setting, Server] = {}

    def port(self, scenario: Scenario) -> int:
        if scenario.server not in self._servers:
            server = launch(self._kind, scenario.server)
            server.__enter__()
            self._servers[scenario.server] = server
            asyncio.run(warm_up(server.port, scenario.server))
        return self._servers[scenario.server].port

    def close(self) -> None:
        for server in self._servers.values():
            server.__exit__(None, None, None)


def check_barnabas(name: str, family: Family, scenario: Scenario, ours: Running) -> None:
    """Play a scenario against Barnabas, and compare its answers with the recorded ones of Apache Kafka."""
    transcript = asyncio.run(Player(ours.port(scenario)).play(scenario))
    found = differences(golden(name)[scenario.name], transcript)
    undeclared, gone = judge(family, scenario, found)
    assert [str(one) for one in undeclared] == [], "differs from Apache Kafka, and is not declared"
    assert gone == [], "declared as a difference, but the answers are equal: remove the declaration"
