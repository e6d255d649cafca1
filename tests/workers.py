"""Runs tests in several processes, which fork after one collection: a plugin, with the option ``--workers``.

Importing and collecting all tests takes 8 s of processor time and 300 MB. Each process of pytest-xdist would take
that.
A worker asks for the next tests when it has run its last ones, so that none waits behind a long test.
"""

import atexit
import io
import os
import random
import re
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Final

import pytest

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
#: By how much other workers are nicer than the one with Spark: its tests, which only one worker can run, end last.
NICER: Final = 3
#: The number of the worker, in its configuration.
NUMBER: Final = pytest.StashKey[int]()
#: Seconds in which interrupted workers tear down their fixtures.
_SECONDS: Final = 30


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--workers", type=int, default=0, metavar="NUMBER", help="run tests in so many processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in workers."""
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:
        return None
    Run(session, options.workers).run()
    return True


def units(root: Path, files: Sequence[str]) -> deque[list[int]]:
    """Groups of tests that one worker runs one after the other, the long ones first.

    1. The tests of each folder of `SHARED`: one Spark session takes 20 s of processor time until it is warm, one
       browser 2 s. A file without the marker is not one of them. Then the files of `ONE_PORT` and `NEMESIS`.
    2. The tests of each file with a marker of `LONG`: one by one, or as a whole with the marker `together`.
    3. The other files, each as a whole: its tests share what the module sets up. They are short, so that the workers
       finish at the same time.

    Args:
        root: the folder to which the names of files are relative.
        files: of each test.

    Returns:
        the positions of the tests in `files`.
    """
    found: dict[tuple[int, str, int], list[int]] = {}
    for position, file in enumerate(files):
        markers = _markers(root / file)
        folders = (folder for folder, marker in SHARED.items() if file.startswith(folder) and marker in markers)
        whole = file if file in (ONE_PORT, NEMESIS) else next(folders, None)
        if whole is not None:
            key = (0, whole, 0)
        elif markers & LONG:
            key = (1, file, 0 if "together" in markers else position)
        else:
            key = (2, file, 0)
        found.setdefault(key, []).append(position)
    return deque(found[key] for key in sorted(found, key=lambda key: key[0]))


@cache
def _markers(file: Path) -> frozenset[str]:
    """The names of the markers in a file of tests."""
    text = file.read_text("utf-8")
    return frozenset(re.findall(r"\bmark\.(\w+)", text)) | ({"slow"} if "tests.sampling import" in text else set())


class Worker:
    """A process that runs tests, as the main process sees it."""

    def __init__(self, number: int, process: int) -> None:
        self.number = number
        self.process = process
        self.unit: list[int] = []
        self.test: int | None = None

    @property
    def left(self) -> list[int]:
        """The tests that it was given and has not begun."""
        return self.unit[self.unit.index(self.test) + 1 :] if self.test in self.unit else self.unit


class Run:
    """The main process: gives tests to workers, and reports what they say."""

    def __init__(self, session: pytest.Session, workers: int) -> None:
        root = session.config.rootpath
        self._session = session
        self._units = units(root, [item.nodeid.partition("::")[0] for item in session.items])
        self._most = workers
        self._workers: dict[Connection, Worker] = {}
        # The folders of tmp_path: pytest has no public name for them outside of fixtures.
        self._folder: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def run(self) -> None:
        """Run all tests.

        Raises:
            pytest.Session.Failed: after as many failures as ``--maxfail`` allows.
            pytest.Session.Interrupted: a plugin has asked to stop.
        """
        try:
            for number in range(min(self._most, len(self._units))):
                self._fork(number)
            while self._workers:
                for link in wait([*self._workers]):
                    assert isinstance(link, Connection)
                    self._receive(link)
        finally:
            self._end()
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _fork(self, number: int) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            for link in (ours, *self._workers):
                link.close()
            work(self._session, theirs, number, self._folder / f"worker{number}")
        theirs.close()
        self._workers[ours] = Worker(number, process)

    def _receive(self, link: Connection) -> None:
        worker = self._workers[link]
        kind, *values = _received(link)
        hook = self._session.config.hook
        match kind:
            case "end":
                self._ended(link)
            case "unit":
                worker.unit = self._next(worker)
                link.send(worker.unit)
            case "test":
                (worker.test,) = values
            case "report":
                report = hook.pytest_report_from_serializable(config=self._session.config, data=values[0])
                hook.pytest_runtest_logreport(report=report)
            case "finish":
                worker.test = None
            case "warning":
                message, category, file, line, when, nodeid, location = values
                recorded = warnings.WarningMessage(message, category, file, line)
                known = {"warning_message": recorded, "when": when, "nodeid": nodeid, "location": location}
                hook.pytest_warning_recorded.call_historic(kwargs=known)

    def _next(self, worker: Worker) -> list[int]:
        """The next tests of a worker; none if all are given.

        Those of `LONG` wait for programs, the others compute: one worker in four begins with the last ones, so that
        there is always something to compute.
        """
        if not self._units or self._session.shouldfail or self._session.shouldstop:
            return []
        return self._units.pop() if worker.number % 4 == 1 else self._units.popleft()

    def _ended(self, link: Connection) -> None:
        """Report the test in which a worker has ended, and let another one run those after it."""
        worker = self._workers.pop(link)
        link.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        if status == 0:
            return
        if worker.test is None:
            raise RuntimeError(f"a process has ended between two tests, with the status {status}")
        item = self._session.items[worker.test]
        why = f"the process of this test has ended with the status {status}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        item.ihook.pytest_runtest_logreport(report=report)
        if worker.left:
            self._units.appendleft(worker.left)
        if self._units:
            self._fork(worker.number)

    def _end(self) -> None:
        """End the workers that still run, for example after Ctrl-C."""
        for worker in self._workers.values():
            os.kill(worker.process, signal.SIGINT)
        if self._workers:
            wait([*self._workers], _SECONDS)
        for link, worker in self._workers.items():
            link.close()
            os.kill(worker.process, signal.SIGKILL)
            os.waitpid(worker.process, 0)


def work(session: pytest.Session, link: Connection, number: int, folder: Path) -> None:
    """Run tests in this process, which has just been forked, until none is left; then end it."""
    status = 1
    try:
        _settle(session.config, link, number, folder)
        _run_tests(session, link)
        status = 0
    finally:
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
            atexit._run_exitfuncs()
            if status == 0:
                link.close()
        os._exit(status)


def _settle(config: pytest.Config, link: Connection, number: int, folder: Path) -> None:
    """Leave what belongs to the main process."""
    atexit._clear()
    random.seed()
    config.stash[NUMBER] = number
    config.option.maxfail = 0
    folder.mkdir(exist_ok=True)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw._file = io.StringIO()
    history: Any = config.hook.pytest_warning_recorded
    history._call_history.clear()  # a new plugin gets them all
    config.pluginmanager.register(Reporter(config, link))


def _run_tests(session: pytest.Session, link: Connection) -> None:
    unit = deque[int]()

    def following() -> pytest.Item | None:
        """The test after this one. Where it is in the next unit, the worker asks for that one."""
        if not unit:
            link.send(("unit",))
            unit.extend(link.recv())
        return session.items[unit[0]] if unit else None

    while item := following():
        link.send(("test", unit.popleft()))
        item.ihook.pytest_runtest_protocol(item=item, nextitem=Next(following))


def _received(link: Connection) -> tuple[Any, ...]:
    """The next message of a worker; that of its end if it has ended."""
    try:
        message: tuple[Any, ...] = link.recv()
    except (EOFError, OSError):
        return ("end",)
    return message


class Next:
    """The next test, in the place of one, for pytest, which asks it after this test which fixtures it needs."""

    def __init__(self, following: Callable[[], pytest.Item | None]) -> None:
        self._following = following

    def listchain(self) -> list[Any]:
        item = self._following()
        return [] if item is None else item.listchain()


class Reporter:
    """The plugin of a worker that sends reports to the main process."""

    def __init__(self, config: pytest.Config, link: Connection) -> None:
        self._config = config
        self._link = link

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._link.send(("report", data))

    def pytest_runtest_logfinish(self) -> None:
        self._link.send(("finish",))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        said = (
            str(warning_message.message),
            warning_message.category,
            warning_message.filename,
            warning_message.lineno,
        )
        self._link.send(("warning", *said, when, nodeid, location))
