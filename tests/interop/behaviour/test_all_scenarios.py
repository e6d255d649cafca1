"""Barnabas answers as Apache Kafka does: the scenarios that are not in the sample of `test_behaviour.py`."""

import pytest

from tests.interop.behaviour.language import Family, Scenario
from tests.interop.behaviour.playing import REST, Running, check_barnabas, parametrized

pytestmark = [pytest.mark.interop, pytest.mark.slow]


@parametrized(REST)
def test_barnabas_answers_as_apache_kafka(name: str, family: Family, scenario: Scenario, ours: Running) -> None:
    check_barnabas(name, family, scenario, ours)
