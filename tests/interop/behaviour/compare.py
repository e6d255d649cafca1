"""Compare two transcripts of a scenario, and check whether each difference is declared."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from tests.interop.behaviour.language import Difference, Family, Scenario
from tests.interop.behaviour.normal import TEXTS
from tests.interop.behaviour.runner import Transcript

MISSING: Final = "(missing)"


class Found(NamedTuple):
    """A path in the responses at which Apache Kafka and Barnabas differ."""

    path: str
    kafka: Any
    ours: Any

    def __str__(self) -> str:
        return f"{self.path}: Kafka {self.kafka!r}, Barnabas {self.ours!r}"


def differences(kafka: Transcript, ours: Transcript) -> list[Found]:
    """Return every difference of two transcripts. A path begins with the number of the step and its API.

    An error that has no text in Apache Kafka may have one in Barnabas.
    """
    theirs = {one["step"]: one["answer"] for one in kafka}
    mine = {one["step"]: one["answer"] for one in ours}
    return list(_differ("", theirs, mine))


def _differ(path: str, kafka: Any, ours: Any) -> Iterator[Found]:
    if kafka == ours:
        return
    if isinstance(kafka, dict) and isinstance(ours, dict):
        for key in [*kafka, *(key for key in ours if key not in kafka)]:
            below = f"{path}.{key}" if path else key
            yield from _differ(below, kafka.get(key, MISSING), ours.get(key, MISSING))
    elif kafka is None and isinstance(ours, str) and ours and path.rpartition(".")[2] in TEXTS:
        return
    else:
        yield Found(path, kafka, ours)


def judge(family: Family, scenario: Scenario, found: list[Found]) -> tuple[list[Found], list[str]]:
    """Return the differences that are not declared, and the declared ones that do not occur."""
    declared = [
        (difference, path)
        for difference in family.differences
        for name, path in difference.where
        if fnmatchcase(scenario.name, name)
    ]
    undeclared = [one for one in found if not any(fnmatchcase(one.path, path) for _, path in declared)]
    gone = [
        f"{difference.title}: nothing differs at {path!r}"
        for difference, path in declared
        if not any(fnmatchcase(one.path, path) for one in found)
    ]
    return undeclared, gone


def declared_for_nothing(family: Family) -> list[str]:
    """Return the declared differences that match no scenario of their family."""
    return [
        f"{difference.title}: no scenario {name!r}"
        for difference in family.differences
        for name, _ in difference.where
        if not any(fnmatchcase(scenario.name, name) for scenario in family.scenarios)
    ]


def declaring(family: Family, difference: Difference) -> list[str]:
    """Return the names of the scenarios to which a difference applies."""
    return [
        scenario.name
        for scenario in family.scenarios
        if any(fnmatchcase(scenario.name, name) for name, _ in difference.where)
    ]
