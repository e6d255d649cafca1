"""Members that are replaced one by one, and those that come and go."""

from typing import Any

import pytest

from barnabas_explain.catalog import JoinPhaseOver, MemberExpired, MemberJoined, MemberLeft
from barnabas_explain.doctor import OF_EVENTS, SEVERITIES, Present, examine
from barnabas_explain.explain import DEPLOYMENT
from barnabas_explain.records import EventRecord
from tests.explain.reading import read
from tests.explain.test_explain import only, rebalance


def came_and_went(*steps: int, **about: Any) -> list[EventRecord]:
    """Members that join (their numbers), or leave by themselves (their negative numbers)."""
    seen: dict[str, Any] = {"connection": "closed", "joined_ago_ms": 4_000, "closed_by": "client", "closed_ago_ms": 3}
    told = []
    for at, step in enumerate(steps):
        cause = rebalance(MemberLeft, by=-step, **{**seen, **about}) if step < 0 else rebalance(MemberJoined, by=step)
        told += [{**each, "time": at * 5_000} for each in cause]
    return told


@pytest.mark.parametrize(
    "steps",
    [(1, 2, 3, 4, -1, 5, -2, 6, -3), (-1, 4, -2, 5, -3, 6), (4, -1, 5, -2, 6, -3, 7), (1, 2, 11, -1, 12, -2)],
    ids=["since its start", "the old one first", "and one more", "not over yet"],
)
def test_a_deployment_replaces_members_one_by_one(steps: tuple[int, ...]) -> None:
    found = only(came_and_went(*steps))
    replaced = sum(step < 0 for step in steps)
    assert found.text.startswith(f"Probably a deployment: {replaced} members were replaced one by one, with ")
    assert "went once each" in found.text and "joined once each" in found.text
    assert found.remedy is not None
    assert found.remedy.startswith("Nothing, if it was a deployment. With the assignor cooperative-sticky")


@pytest.mark.parametrize(
    "steps",
    [
        (1, -1, 2, -2, 3, -3),
        (1, 2, 3, -1, -2, -3, 4, 5, 6),
        (4, 5, 6, -1, -2, -3),
        (4, -1, 5, -2, 6, -5),
        (1, 2, 3, 4, 5, -1),
        (4, -1, 5, -2, 6, -3, 1),
    ],
    ids=["up and down", "up, down and up", "all at once", "a new one goes", "only one goes", "one comes back"],
)
def test_an_autoscaler_that_flaps_is_no_deployment(steps: tuple[int, ...]) -> None:
    assert only(came_and_went(*steps)).text.startswith("Rebalance storm")


def test_the_remedy_of_a_deployment_is_what_it_lacks() -> None:
    killed: dict[str, Any] = {"heard_ago_ms": 6_000, "session_ms": 6_000, "closed_ago_ms": 5_900}
    steps = came_and_went(4, -1, 5, -2, 6, -3, **killed)
    for each in steps:
        if each["type"] == MemberLeft.type:
            each["type"] = MemberExpired.type
        elif each["type"] == JoinPhaseOver.type:
            each["protocol"] = "cooperative-sticky"
    found = only(steps)
    assert found.text.startswith("Probably a deployment: 3 members were replaced")
    assert found.remedy is not None
    assert "Close the consumer" in found.remedy and "cooperative-sticky" not in found.remedy


def test_the_doctor_calls_a_deployment_odd() -> None:
    events = read(came_and_went(4, -1, 5, -2, 6, -3))
    (found,) = examine(Present("g", "Stable"), events, 60_000, 0)
    assert (found.kind, SEVERITIES[found.severity], found.sure) == (DEPLOYMENT, "odd", "probable")
    assert DEPLOYMENT in OF_EVENTS
