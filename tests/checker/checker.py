"""Check a history for anomalies."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.checker.anomalies import ANOMALIES, Case
from tests.checker.facts import Facts
from tests.checker.history import History

#: Cases of one anomaly that are collected: a log that is broken everywhere has one for each record.
LIMIT: Final = 1000


@dataclass(frozen=True)
class Report:
    """What was found.

    Attributes:
        cases: per anomaly that occurred, its cases.
        operations: the size of the history.
    """

    cases: Mapping[str, Sequence[Case]]
    operations: int

    @property
    def bad(self) -> Mapping[str, Sequence[Case]]:
        """The anomalies that a correct broker never shows."""
        allowed = {anomaly.name for anomaly in ANOMALIES if anomaly.allowed}
        return {name: cases for name, cases in self.cases.items() if name not in allowed}

    def lines(self, count: int = 10) -> list[str]:
        """Return a line for each of the first `count` cases of each bad anomaly."""
        return [f"{name}: {case}" for name, cases in self.bad.items() for case in cases[:count]]


def check(history: History) -> Report:
    """Find all anomalies of a history, in time proportional to its size.

    Raises:
        ValueError: the workload sent a value twice to a key.
    """
    facts = Facts(history)
    found = {anomaly.name: list(itertools.islice(anomaly.find(facts), LIMIT)) for anomaly in ANOMALIES}
    return Report({name: cases for name, cases in found.items() if cases}, len(facts.operations))
