"""The clinic: programs that have a disease, and what `barnabas groups explain` says about their group."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import AlterConfigOp, ConfigResource, NewTopic, ResourceType
from barnabas.explain import GroupStory
from barnabas.sync import Admin
from tests.clinic.diseases import CLIENTS, DISEASES, RIGHT, SHORT_SESSION_MS, SILENT, VAGUE, Case, Disease
from tests.clinic.ward import JAVA, JAVA_PROGRAM, Ward
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka, compiled

pytestmark = [pytest.mark.programs]

_HEARTBEATS = {
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": SHORT_SESSION_MS,
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
                    if library == JAVA:
                        marks = [pytest.mark.kafka]
                    yield pytest.param(disease, case, id=f"{disease.name}-{library}-{protocol}", marks=marks)


@pytest.fixture(scope="module")
def broker() -> Iterator[BarnabasBroker]:
    with BarnabasBroker(_HEARTBEATS) as broker:
        yield broker


@pytest.fixture(scope="module")
def java_classes(needs_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(JAVA_PROGRAM, tmp_path_factory.mktemp("classes"))


def grade_of(disease: Disease, story: GroupStory) -> str:
    """The grade of what was said.

    Raises:
        AssertionError: it is wrong.
    """
    said = [line for one in story for line in (one.text, *one.details, one.remedy or "")]
    for wrong in disease.never:
        assert not any(wrong in line for line in said), f"wrong: {wrong}\n{story}"
    for one in story:
        if disease.hints and all(part in one.text for part in disease.hints):
            return VAGUE
        if all(part in one.text for part in disease.says) and all(
            part in (one.remedy or "") for part in disease.remedy
        ):
            return RIGHT
    return SILENT


@pytest.mark.parametrize(("disease", "case"), list(cases()))
def test_what_is_said_about_a_disease(
    request: pytest.FixtureRequest, broker: BarnabasBroker, fresh: str, disease: Disease, case: Case
) -> None:
    classes = request.getfixturevalue("java_classes") if case[0] == JAVA else None
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(fresh, num_partitions=2)])
        session = AlterConfigOp("consumer.session.timeout.ms", str(disease.session_ms))
        admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, fresh): [session]})

    def restart() -> None:
        broker.stop()
        broker.start()

    ward = Ward(
        broker.bootstrap_servers,
        fresh,
        fresh,
        *case,
        disease.poll_ms,
        disease.session_ms,
        classes=classes,
        restart=restart,
    )
    try:
        disease.strikes(ward)
        expected = disease.grade(case)
        best = _GRADES.index(expected)
        ward.wait_for(f"the explanation is {expected}", lambda story: _GRADES.index(grade_of(disease, story)) <= best)
    finally:
        ward.close()


#: Diseases of which records of ``__consumer_offsets`` show that a member is gone, and nothing of why.
_HISTORIES = [each for each in DISEASES if each.name in ("kill -9", "restart", DISEASES[0].name)]


@pytest.mark.kafka
@pytest.mark.parametrize("disease", _HISTORIES, ids=lambda disease: disease.name)
def test_what_is_said_from_the_records_of_apache_kafka(apache_kafka: ApacheKafka, fresh: str, disease: Disease) -> None:
    """The member that is gone is named, and nothing is said that the records do not show."""
    bootstrap = apache_kafka.bootstrap_servers
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(fresh, num_partitions=2)])
    ward = Ward(bootstrap, fresh, fresh, "confluent-kafka", "classic", disease.poll_ms, disease.session_ms)
    said: list[str] = []

    def names_it(story: GroupStory) -> bool:
        said[:] = [line for one in story for line in (one.text, *one.details, one.remedy or "")]
        return any("sick" in one.text and any(word in one.text for word in ("is gone", "left", "was")) for one in story)

    try:
        disease.strikes(ward)
        ward.wait_for("the member that is gone is named", names_it)
    finally:
        ward.close()
    assert not [line for line in said if any(wrong in line for wrong in disease.never)]
    assert not [line for line in said if "crashed or was killed" in line or "probably polled too slowly" in line]
