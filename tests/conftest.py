"""What all tests share: settings of hypothesis, signals of programs, the order of tests, one Apache Kafka."""

import gc
import os
import re
import signal
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools, resolve
from tests.interop.waiting import ask_until
from tests.needs import missing

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: Keeps records of 1970, which some tests write: the first retention check, otherwise after 30 s, never comes.
NO_RETENTION: Final = {"log.initial.task.delay.ms": 86_400_000}

#: Where the tests are that share one Spark session.
PIPELINE: Final = "tests/pipeline/"

#: Whose tests use the port of README.md, one after the other.
ONE_PORT: Final = "tests/docs/test_readme.py"

#: Markers of tests that may take seconds.
LONG: Final = frozenset({"broad", "interop", "programs", "slow", "spark"})

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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and tests, which stay, out of the garbage collector's sight: a fifth of all processor time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


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


class Schedule(LoadScopeScheduling):
    """Gives the next tests to the next free worker, the long ones first.

    1. All tests that need Spark, to one worker: they share one session, which takes 20 s of processor time until it is
       warm. A file without the marker `spark` is not one of them. Then the file of `ONE_PORT`.
    2. The tests of each file with a marker of `LONG`, one by one.
    3. The other files, each as a whole: its tests share what the module sets up. They are short, so that the workers
       finish at the same time.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._sorted = False

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file == ONE_PORT:
            return file
        markers = _markers(self.config.rootpath / file)
        if file.startswith(PIPELINE) and "spark" in markers:
            return PIPELINE
        return nodeid if markers & LONG else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._sorted:
            for scope in sorted(self.workqueue, key=self._rank):
                self.workqueue.move_to_end(scope)
            self._sorted = True
        super()._assign_work_unit(node)

    @staticmethod
    def _rank(scope: str) -> int:
        return 0 if scope in (PIPELINE, ONE_PORT) else 1 if "::" in scope else 2

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Forget what is complete: pytest-xdist counts all tests that it ever gave to a worker, after each test."""
        super().mark_test_complete(node, item_index, duration)
        units = self.assigned_work[node]
        scope = self._split_scope(self.registered_collections[node][item_index])
        if all(units[scope].values()):
            del units[scope]


@cache
def _markers(file: Path) -> frozenset[str]:
    """The names of the markers in a file of tests."""
    return frozenset(re.findall(r"\bmark\.(\w+)", file.read_text("utf-8")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """Schedule by `Schedule` with ``--dist loadgroup``.

    Groups of pytest-xdist itself are not used: with pytest 9, its version 3.8 ignores the marker ``xdist_group``.
    """
    return Schedule(config, log) if config.getoption("dist") == "loadgroup" else None


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
