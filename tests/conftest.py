"""What all tests share: settings of hypothesis, signals of programs, the order of tests, one Apache Kafka."""

import gc
import itertools
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
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from tests.interop.kafka_server import ApacheKafka, KafkaUnavailable, has_tools, resolve
from tests.interop.waiting import ask_until
from tests.needs import missing
from tests.nursery import nursery

__all__ = ["nursery"]

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

#: Keeps records of 1970, which some tests write: the first retention check, otherwise after 30 s, never comes.
NO_RETENTION: Final = {"log.initial.task.delay.ms": 86_400_000}

#: The folder of the tests with Spark.
SPARK: Final = "tests/pipeline/"
#: Folders whose tests share what takes seconds to start (a Spark session, a browser), and the marker of the files with
#: such tests.
SHARED: Final = {SPARK: "spark", "tests/browser/": "programs"}

#: Whose tests use the port of README.md, one after the other.
ONE_PORT: Final = "tests/docs/test_readme.py"

#: Takes a third of the time of `make test-cluster`.
NEMESIS: Final = "tests/cluster/test_nemesis.py"

#: Markers of tests that may take seconds.
LONG: Final = frozenset({"broad", "interop", "programs", "slow", "spark"})

#: Seconds. Kafka creates `__consumer_offsets`, with 50 partitions, at the first request for a group's coordinator.
FIRST_GROUP: Final = 60


#: After so many tests of a worker, all objects are examined for garbage.
ALL_OBJECTS: Final = 200

#: Numbers the tests of this process.
TESTS: Final = itertools.count(1)

#: By how much other workers are nicer than the one with Spark: its tests, which only one worker can run, end last.
NICER: Final = 3

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
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Keep modules and tests, which stay, out of the garbage collector's sight: a fifth of all processor time."""
    gc.disable()
    try:
        _import_in_turn(session.config)
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let collections during a test, of which many tests make one, examine only what this test has made.

    The objects of a worker that has run thousands of tests take half a second. Cycles among them are found later.
    """
    if hasattr(item.config, "workerinput") and not item.nodeid.startswith(SPARK):
        _give_way()
    if next(TESTS) % ALL_OBJECTS == 0:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        gc.collect()  # CPython puts off collections of the oldest objects by how many the last one has left
    gc.freeze()


@cache
def _give_way() -> None:
    """Be nicer, once: this worker has no tests with Spark, or has run them."""
    os.nice(NICER)


def _import_in_turn(config: pytest.Config) -> None:
    """Import the modules of all tests, beginning with another one in each worker.

    In a fresh clone, pytest compiles them, which takes longer than all other work before the first test. Workers that
    import in the same order compile the same modules at the same time. This way each module is compiled once.
    """
    given = getattr(config, "workerinput", None)
    if given is None or config.args_source is not pytest.Config.ArgsSource.TESTPATHS:
        return
    found = sorted(path for path in (config.rootpath / "tests").rglob("test_*.py") if not _left_out(path, config))
    # In a package, pytest gives modules other names.
    modules = [path.relative_to(config.rootpath) for path in found if not (path.parent / "__init__.py").exists()]
    first = len(modules) * int(given["workerid"].removeprefix("gw")) // given["workercount"]
    for path in (*modules[first:], *modules[:first]):
        # What fails or is skipped is imported again, and reported, when its tests are collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.with_suffix("").parts))


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


class Schedule(LoadScopeScheduling):
    """Gives the next tests to the next free worker, the long ones first.

    1. The tests of each folder of `SHARED`, to one worker: one Spark session takes 20 s of processor time until it is
       warm, one browser 2 s. A file without the marker is not one of them. Then the files of `ONE_PORT` and `NEMESIS`.
    2. The tests of each file with a marker of `LONG`: one by one, or as a whole with the marker `together`.
    3. The other files, each as a whole: its tests share what the module sets up. They are short, so that the workers
       finish at the same time.

    The tests of 2 wait for programs, those of 3 compute: one worker in four begins with the last ones, so that there is
    always something to compute.
    """

    def __init__(self, config: pytest.Config, log: Producer) -> None:
        super().__init__(config, log)
        self._positions: dict[str, int] = {}

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file == ONE_PORT:
            return file
        markers = _markers(self.config.rootpath / file)
        for folder, marker in SHARED.items():
            if file.startswith(folder) and marker in markers:
                return folder
        return nodeid if markers & LONG and "together" not in markers else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Give the next tests to a worker. pytest-xdist itself searches the list of all tests for each of them."""
        if not self._positions:
            self._positions = {nodeid: at for at, nodeid in enumerate(self.registered_collections[node])}
            for scope in sorted(self.workqueue, key=self._rank):
                self.workqueue.move_to_end(scope)
        scope, unit = self.workqueue.popitem(last=int(node.gateway.id.removeprefix("gw")) % 4 == 1)
        self.assigned_work.setdefault(node, {})[scope] = unit
        node.send_runtest_some([self._positions[nodeid] for nodeid, done in unit.items() if not done])

    def _rank(self, scope: str) -> int:
        if scope in SHARED or scope in (ONE_PORT, NEMESIS):
            return 0
        return 1 if _markers(self.config.rootpath / scope.partition("::")[0]) & LONG else 2

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
    text = file.read_text("utf-8")
    return frozenset(re.findall(r"\bmark\.(\w+)", text)) | ({"slow"} if "tests.sampling import" in text else set())


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


@pytest.fixture
def quiet() -> Iterator[None]:
    """Turn off the broker's log lines, of which simulations write thousands, and which a command would print."""
    logger = logging.getLogger("barnabas_broker")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)
