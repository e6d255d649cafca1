"""Barnabas answers as Apache Kafka does, field by field, except where a difference is declared: a sample of scenarios.

The responses are compared with the recorded ones (golden/), which needs no Java. The other scenarios are in
`test_all_scenarios.py`; `test_apache_kafka.py` checks that Apache Kafka still returns what is recorded.
"""

import pytest

from tests.interop.behaviour.compare import declared_for_nothing
from tests.interop.behaviour.families import golden
from tests.interop.behaviour.language import Family, Rule, Scenario
from tests.interop.behaviour.playing import CASES, FAMILIES, REST, SAMPLE, Running, check_barnabas, parametrized
from tests.lots import in_lots

pytestmark = [pytest.mark.interop, pytest.mark.together]


@parametrized(SAMPLE)
def test_barnabas_answers_as_apache_kafka(name: str, family: Family, scenario: Scenario, ours: Running) -> None:
    check_barnabas(name, family, scenario, ours)


def test_the_sample_has_each_family_each_rule_and_each_setting() -> None:
    assert {name for name, _, _ in SAMPLE} == set(FAMILIES)
    assert {scenario.rule for _, _, scenario in SAMPLE} == {None, *Rule}
    assert {scenario.server for _, _, scenario in SAMPLE} == {scenario.server for _, _, scenario in CASES}
    assert len(SAMPLE) + len(REST) == len(CASES) == sum(len(family.scenarios) for family in FAMILIES.values())


@in_lots("name", FAMILIES)
def test_golden_files_match_the_scenarios(name: str) -> None:
    assert list(golden(name)) == [scenario.name for scenario in FAMILIES[name].scenarios]
    assert [scenario for scenario, transcript in golden(name).items() if not transcript] == []


@in_lots("name", FAMILIES)
def test_differences_match_the_scenarios(name: str) -> None:
    assert declared_for_nothing(FAMILIES[name]) == []


def test_every_rule_of_groups_has_a_scenario() -> None:
    rules = {scenario.rule for family in FAMILIES.values() for scenario in family.scenarios}
    assert rules - {None} == set(Rule)
