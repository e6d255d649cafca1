"""The clinic: programs that have a disease, and what `barnabas groups explain` says about their group."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import NewTopic
from barnabas.sync import Admin
from tests.clinic.diseases import CLIENTS, DISEASES, RIGHT, SILENT, VAGUE, Case, Disease
from tests.clinic.ward import SESSION_MS, Ward
from tests.interop.barnabas_server import BarnabasBroker

pytestmark = [pytest.mark.programs]

_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": SESSION_MS,
    "group.consumer.session.timeout.ms": SESSION_MS,
}
_GRADES = (RIGHT, VAGUE, SILENT)
#: The cases that `make test` runs: each disease once, and the commonest one with each library.
_QUICK = {
    (DISEASES[0].name, ("confluent-kafka", "classic")),
    (DISEASES[0].name, ("aiokafka", "classic")),
    (DISEASES[2].name, ("confluent-kafka", "consumer")),
    (DISEASES[4].name, ("barnabas", "classic")),
    (DISEASES[7].name, ("kafka-python", "classic")),
}


def cases() -> Iterator[Any]:
    for disease in DISEASES:
        for library, protocols in CLIENTS.items():
            for protocol in protocols:
                case = library, protocol
                if case not in disease.without:
                    marks = [] if (disease.name, case) in _QUICK else [pytest.mark.slow]
                    yield pytest.param(disease, case, id=f"{disease.name}-{library}-{protocol}", marks=marks)


@pytest.fixture(scope="module")
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker(_HEARTBEATS) as broker:
        yield broker


def grade_of(disease: Disease, explanations: list[dict[str, Any]]) -> str:
    """The grade of what was said.

    Raises:
        AssertionError: it is wrong.
    """
    texts = [str(one["text"]) for one in explanations]
    said = [line for one in explanations for line in (one["text"], *one["details"], one["remedy"] or "")]
    for wrong in disease.never:
        assert not any(wrong in line for line in said), f"wrong: {wrong}"
    for one, text in zip(explanations, texts, strict=True):
        if disease.hints and all(part in text for part in disease.hints):
            return VAGUE
        if all(part in text for part in disease.says) and all(part in (one["remedy"] or "") for part in disease.remedy):
            return RIGHT
    return SILENT


@pytest.mark.parametrize(("disease", "case"), list(cases()))
def test_what_is_said_about_a_disease(broker: BarnabasBroker, fresh: str, disease: Disease, case: Case) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(fresh, num_partitions=2)])

    def restart() -> None:
        broker.stop()
        broker.start()

    ward = Ward(broker.bootstrap_servers, fresh, fresh, *case, disease.poll_ms, restart=restart)
    try:
        disease.strikes(ward)
        expected = disease.grade(case)
        best = _GRADES.index(expected)
        ward.wait_for(
            f"the explanation is {expected}", lambda: _GRADES.index(grade_of(disease, ward.explanations())) <= best
        )
    finally:
        ward.close()
