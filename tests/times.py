"""A plugin that measures the processor time of each test, with the programs that it starts. `make times` uses it.

The first test that uses a server which many share pays for its start.
"""

import os
import time
from collections import Counter
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Final

import pytest

#: Tests in the table.
MOST: Final = 40
#: Of the property of a report that has the seconds.
PROPERTY: Final = "processor time"

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_BEGAN: Final = pytest.StashKey[float]()


def processor_time() -> float:
    """Seconds that this process and all programs below it have used, those that have ended included."""
    times = os.times()
    waiting = list(_children("self"))
    seconds = time.process_time() + times.children_user + times.children_system
    while waiting:
        program = waiting.pop()
        try:
            fields = Path(f"/proc/{program}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # It has just ended.
        seconds += sum(map(int, fields[11:15])) / _TICKS
        waiting.extend(_children(program))
    return seconds


def _children(program: str) -> Iterable[str]:
    for each in Path(f"/proc/{program}/task").glob("*/children"):
        try:
            yield from each.read_text().split()
        except OSError:
            continue


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    item.stash[_BEGAN] = processor_time()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":
        report.user_properties.append((PROPERTY, processor_time() - item.stash[_BEGAN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the time of each folder, and of the tests that took most."""
    tests: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, seconds in getattr(report, "user_properties", ()):
                if name == PROPERTY and getattr(report, "when", None) == "teardown":
                    tests[report.nodeid] += seconds
                    folders["/".join(report.nodeid.partition("::")[0].split("/")[:3])] += seconds
    terminalreporter.section(f"processor time: {sum(tests.values()):.0f} s")
    for counted in (folders, tests):
        for what, seconds in counted.most_common(MOST):
            terminalreporter.write_line(f"{seconds:8.1f} s  {what}")
        terminalreporter.write_line("")
