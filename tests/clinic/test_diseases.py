"""The clinic: programs that have a disease, and what `barnabas groups explain` says about their group."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from barnabas import AlterConfigOp, ConfigResource, NewTopic, ResourceType
from barnabas.explain import GroupStory
from barnabas.sync import Admin
from barnabas_client.loop_thread import loop_thread
from tests.clinic.diseases import CLIENTS, DISEASES, RIGHT, SHORT_SESSION_MS, SILENT, VAGUE, Case, Disease
from tests.clinic.ward import JAVA, JAVA_PROGRAM, Ward
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import ApacheKafka, compiled
from tests.interop.server import free_port
from tests.link import Link

pytestmark = [pytest.mark.programs]

SETTINGS = {
    "offsets.retention.check.interval.ms": 500,
    "group.stuck.offset.ms": 6_000,
    "group.consumer.min.heartbeat.interval.ms": 500,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": SHORT_SESSION_MS,
}
_GRADES = (RIGHT, VAGUE, SILENT)
#: The cases that `make test` runs: each disease once, and the commonest one with each library.
_QUICK = {
    (DISEASES[0].name, ("confluent-kafka", "classic")),
    (DISEASES[0].name, ("aiokafka", "classic")),
    ("kill -9", ("confluent-kafka", "consumer")),
    ("event loop or interpreter lock blocked for longer than the session", ("barnabas", "classic")),
    ("restart", ("kafka-python", "classic")),
}
#: The libraries of diseases that are much the same with all.
_TWO = ("confluent-kafka", "aiokafka")


def cases() -> Iterator[Any]:
    for disease in DISEASES:
        for library, protocols in CLIENTS.items():
            for protocol in protocols:
                case = library, protocol
                if case not in disease.without:
                    marks = [] if (disease.name, case) in _QUICK else [pytest.mark.slow]
                    if library == JAVA or (disease.alike and library not in _TWO):
                        marks = [pytest.mark.kafka]
                    yield pytest.param(disease, case, id=f"{disease.name}-{library}-{protocol}", marks=marks)


@pytest.fixture(scope="module")
def link() -> Iterator[Link]:
    link = Link(free_port())
    loop_thread().run(link.start())
    yield link
    loop_thread().run(link.close())


@pytest.fixture(scope="module")
def lost() -> int:
    return free_port()


@pytest.fixture(scope="module")
def broker(link: Link, lost: int) -> Iterator[BarnabasBroker]:
    with ward_broker(link, lost) as broker:
        yield broker


def ward_broker(link: Link, lost: int) -> BarnabasBroker:
    """A broker for wards: members that are behind the link reach it by a listener of their own; the address that
    another one advertises is that of no listener."""
    port = free_port()
    listeners = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port},BEHIND://127.0.0.1:{link.target},LOST://127.0.0.1:{lost}",
        "advertised.listeners": f"BEHIND://127.0.0.1:{link.port},LOST://127.0.0.1:1",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BEHIND:PLAINTEXT,LOST:PLAINTEXT",
    }
    return BarnabasBroker({**SETTINGS, **listeners}, port=port)


@pytest.fixture(scope="module")
def java_classes(needs_jars: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(JAVA_PROGRAM, tmp_path_factory.mktemp("classes"))


def grade_of(disease: Disease, story: GroupStory, ward: Ward) -> str:
    """The grade of what was said.

    Raises:
        AssertionError: it is wrong.
    """
    said = [line for one in story for line in (one.text, *one.details, one.remedy or "")]
    for wrong in disease.never:
        assert not any(_says(line, wrong) for line in said), f"wrong: {wrong}\n{story}"

    def has(text: str | None, parts: tuple[str, ...]) -> bool:
        return all(_says(text or "", ward.told(part)) for part in parts)

    for one in story:
        if disease.hints and has(one.text, disease.hints):
            return VAGUE
        if has(one.text, disease.says) and has(one.remedy, disease.remedy):
            return RIGHT
    return SILENT


def _says(text: str, part: str) -> bool:
    """Whether a text has a part. Remedies for libraries in Python spell settings with underscores."""
    return part in text or part in text.replace("_", ".")


@dataclass(frozen=True)
class Clinic:
    """A broker with wards.

    Attributes:
        bootstrap: of the broker.
        link: the network of members that can be cut off; None without any.
        fresh: a name for a topic and a group.
        restart: restarts the broker; None if it is not restarted.
        replicas: the node ids of the replicas of both partitions, the leader first; none if the broker chooses them.
        lost: the port of a listener whose advertised address cannot be reached; None without one.
    """

    bootstrap: str
    link: Link | None
    fresh: str
    restart: Callable[[], None] | None = None
    replicas: Mapping[int, Sequence[int]] = field(default_factory=dict)
    lost: int | None = None

    def treat(self, disease: Disease, case: Case, classes: Path | None = None, *, own_names: bool = True) -> None:
        """Make a group ill, and look whether what is said about it is as good as expected."""
        bootstrap, fresh = self.bootstrap, self.fresh
        with Admin(bootstrap_servers=bootstrap) as admin:
            count = -1 if self.replicas else 2
            admin.create_topics([NewTopic(fresh, num_partitions=count, replica_assignments=self.replicas)])
            session = AlterConfigOp("consumer.session.timeout.ms", str(disease.session_ms))
            admin.incremental_alter_configs({ConfigResource(ResourceType.GROUP, fresh): [session]})

        times = disease.poll_ms, disease.session_ms
        more: dict[str, Any] = {"classes": classes, "own_names": own_names}
        more |= {"restart": self.restart, "link": self.link, "lost": self.lost}
        ward = Ward(bootstrap, fresh, fresh, *case, *times, **more)
        expected = disease.grade(case)
        best = _GRADES.index(expected)
        try:
            disease.strikes(ward)
            ward.wait_for(
                f"the explanation is {expected}", lambda story: _GRADES.index(grade_of(disease, story, ward)) <= best
            )
        finally:
            ward.close()


@pytest.fixture
def clinic(broker: BarnabasBroker, link: Link, lost: int, fresh: str) -> Clinic:
    def restart() -> None:
        broker.stop()
        broker.start()

    return Clinic(broker.bootstrap_servers, link, fresh, restart, lost=lost)


@pytest.mark.parametrize(("disease", "case"), list(cases()))
def test_what_is_said_about_a_disease(
    request: pytest.FixtureRequest, clinic: Clinic, disease: Disease, case: Case
) -> None:
    clinic.treat(disease, case, request.getfixturevalue("java_classes") if case[0] == JAVA else None)


#: Diseases of which several events have to be found to be of one program, which its name helps with.
_FOLDED = [
    each
    for each in DISEASES
    if each.name
    in (
        "each batch takes longer than max.poll.interval.ms",
        "kill -9",
        "process paused for longer than the session, and thawed",
        "restart",
        "a program that crashes at each start",
        "a record at which a program ends each time, while it reads other partitions",
        "a new version with another assignor, without the old one",
    )
]


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(("confluent-kafka", "classic"), marks=pytest.mark.slow, id="confluent-kafka"),
        pytest.param(("aiokafka", "classic"), marks=pytest.mark.kafka, id="aiokafka"),
    ],
)
@pytest.mark.parametrize("disease", _FOLDED, ids=lambda disease: disease.name)
def test_what_is_said_about_members_without_client_ids(clinic: Clinic, disease: Disease, case: Case) -> None:
    clinic.treat(disease, case, own_names=False)


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
