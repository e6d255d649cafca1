"""What all tests share: settings of hypothesis, Ctrl-C for programs, and one Apache Kafka for tests marked `kafka`."""

import signal
from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools, resolve
from tests.interop.waiting import ask_until
from tests.needs import missing

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: Keeps records of 1970, which some tests write: the first retention check, otherwise after 30 s, never comes.
NO_RETENTION: Final = {"log.initial.task.delay.ms": 86_400_000}

#: The tests that share one Spark session.
PIPELINE: Final = "tests/pipeline/"

#: Seconds. Kafka creates `__consumer_offsets`, with 50 partitions, at the first request for a group's coordinator.
FIRST_GROUP: Final = 60


def pytest_configure() -> None:
    """Let programs that tests start react to Ctrl-C.

    A shell starts background jobs (``make test &``) with SIGINT ignored. An ignored signal stays ignored in every child
    process, so that a test which interrupts a program would wait for its timeout. A signal with a handler is reset to
    its default in a child process.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class OneSpark(LoadScopeScheduling):
    """Gives each test to the next free worker, but all tests of the pipeline to the same one.

    They share one Spark session, which takes 20 s of processor time until it is warm. As the longest chain of tests,
    they begin first.
    """

    def _split_scope(self, nodeid: str) -> str:
        return PIPELINE if nodeid.startswith(PIPELINE) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Schedule by `OneSpark` with ``--dist loadgroup``.

    Groups of pytest-xdist itself are not used: with pytest 9, its version 3.8 ignores the marker ``xdist_group``.
    """
    return OneSpark(config, log) if config.getoption("dist") == "loadgroup" else None


@pytest.fixture(scope="session")
def needs_jars() -> None:
    """Require Java and Kafka's jars, so that its servers and programs can run."""
    try:
        resolve()
    except KafkaUnavailable as error:
        missing(f"Apache Kafka cannot run here: {error.reason}", on_this_machine=has_tools())


@pytest.fixture(scope="session")
def apache_kafka(needs_jars: None) -> Iterator[ApacheKafka]:
    """One Apache Kafka for all tests of a session, whose group coordinator is ready."""
    with ApacheKafka(NO_RETENTION) as kafka:
        ask_until(lambda: _has_coordinator(kafka), "a group coordinator", FIRST_GROUP)
        yield kafka


def _has_coordinator(kafka: ApacheKafka) -> bool:
    member = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "first"})
    try:
        member.committed([TopicPartition("none", 0)], FIRST_GROUP)
    except KafkaException:
        return False
    finally:
        member.close()
    return True
