"""What all tests share: settings of hypothesis, signals of programs, one Apache Kafka."""

import gc
import logging
import math
import os
import re
import signal
import time
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hypothesis import HealthCheck, settings

from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools, resolve
from tests.interop.waiting import ask_until
from tests.needs import missing
from tests.nursery import nursery
from tests.workers import NICER, NUMBER, SPARK

__all__ = ["nursery"]

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: Keeps records of 1970, which some tests write: the first retention check, otherwise after 30 s, never comes.
NO_RETENTION: Final = {"log.initial.task.delay.ms": 86_400_000}

#: Seconds. Kafka creates `__consumer_offsets`, with 50 partitions, at the first request for a group's coordinator.
FIRST_GROUP: Final = 60

#: When the timeout of a test expires, on the monotonic clock.
EXPIRES: Final = pytest.StashKey[float]()


def pytest_configure() -> None:
    """Let programs that tests start react to Ctrl-C.

    A shell starts background jobs (``make test &``) with SIGINT ignored. An ignored signal stays ignored in every child
    process, so that a test which interrupts a program would wait for its timeout. A signal with a handler is reset to
    its default in a child process.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests, which stay, out of the garbage collector's sight: a fifth of all processor time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let collections during a test, of which many tests make one, examine only what this test has made.

    The objects of a worker that has run thousands of tests take half a second, and are pages that it shares with the
    other workers until then. Cycles that the last test has left take a millisecond.
    """
    if NUMBER in item.config.stash and not item.nodeid.startswith(SPARK):
        _give_way()
    gc.collect()
    gc.freeze()


@cache
def _give_way() -> None:
    """Be nicer, once: this worker has no tests with Spark, or has run them."""
    os.nice(NICER)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import files of which ``-m "not ..."`` leaves out all tests: collecting them would take seconds."""
    return True if collection_path.suffix == ".py" and _left_out(collection_path, config) else None


def _left_out(file: Path, config: pytest.Config) -> bool:
    """Whether the `pytestmark` of a file has a marker that ``-m "not a and not b"`` excludes."""
    terms = str(config.option.markexpr).split(" and ")
    if not all(re.fullmatch(r"not \w+", term) for term in terms):
        return False
    given = re.search(r"^pytestmark = (\[.*?\]$|.*?$)", file.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return given is not None and any(f"mark.{term.removeprefix('not ')}" in given[1] for term in terms)


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Remember when the timeout of a test expires."""
    item.stash[EXPIRES] = time.monotonic() + settings.timeout
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test that ends without an error after its timeout.

    pytest-timeout raises its error in the code that runs at that moment. In a task that the test does not await, for
    example a handler that never ends, asyncio keeps the error, and the test would pass after minutes.
    """
    result = yield
    if time.monotonic() > item.stash.get(EXPIRES, math.inf):
        pytest.fail("ended only after its timeout: a task of the test never waits. Let it wait, or end it")
    return result


@pytest.fixture(scope="session", autouse=True)
def signals_leave_the_exit_status() -> Iterator[None]:
    """Send signals to programs as Python 3.13 does, without asking for their exit status first.

    `subprocess.Popen.send_signal` calls `poll`, which takes the status of a program that has just ended. asyncio's
    child watcher then finds none and reports 255 (https://github.com/python/cpython/issues/127049).
    """

    def send(transport: BaseSubprocessTransport, number: int) -> None:
        if transport.get_returncode() is not None:
            raise ProcessLookupError
        if (pid := transport.get_pid()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseSubprocessTransport, "send_signal", send)
        patch.setattr(BaseSubprocessTransport, "terminate", lambda transport: send(transport, signal.SIGTERM))
        patch.setattr(BaseSubprocessTransport, "kill", lambda transport: send(transport, signal.SIGKILL))
        yield


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


@pytest.fixture
def quiet() -> Iterator[None]:
    """Turn off the broker's log lines, of which simulations write thousands, and which a command would print."""
    logger = logging.getLogger("barnabas_broker")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
