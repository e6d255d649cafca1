"""Regular expressions of consumer groups: when they are matched again, and what their members may see."""

from math import inf

from barnabas_broker.groups.consumer.regex import MIN_REFRESH_INTERVAL, authorized, refresh_due
from barnabas_broker.steps import finish


def due(*subscribed: str, resolved: tuple[str, ...] = (), newest: int = 5, passed: float = 0) -> bool:
    return refresh_due(
        subscribed,
        resolved,
        refreshed_at=1000.0,
        version=5,
        newest_topics_version=newest,
        interval=600.0,
        now=1000.0 + passed,
    )


LATER = MIN_REFRESH_INTERVAL + 0.001


def test_the_first_regex_of_a_group_is_resolved_at_once() -> None:
    for subscribed in (["a"], []):
        first = refresh_due(
            subscribed, (), refreshed_at=-inf, version=-1, newest_topics_version=0, interval=600.0, now=0.0
        )
        assert first == bool(subscribed)


def test_a_group_without_regexes_is_left_alone() -> None:
    assert not due(passed=LATER, newest=9)


def test_nothing_is_refreshed_within_ten_seconds_of_the_last_refresh() -> None:
    assert not due("a", "b", resolved=("a",), newest=9, passed=MIN_REFRESH_INTERVAL)
    assert due("a", "b", resolved=("a",), passed=LATER)


def test_regexes_are_refreshed_for_new_topics_for_unresolved_ones_and_after_the_interval() -> None:
    assert not due("a", resolved=("a",), passed=LATER)
    assert due("a", resolved=("a",), newest=6, passed=LATER)
    assert due("a", "b", resolved=("a",), passed=LATER)
    assert not due("a", resolved=("a",), passed=600.0)
    assert due("a", resolved=("a",), passed=600.001)


def test_topics_that_a_client_may_not_describe_are_left_out_in_steps_and_each_is_decided_once() -> None:
    names = frozenset(f"t{number}" for number in range(1_000))
    asked: list[str] = []

    def may_describe(topic: str) -> bool:
        asked.append(topic)
        return topic != "t7"

    steps = authorized({"t.*": names, "t7": frozenset({"t7"}), "none": frozenset()}, may_describe)
    assert sum(1 for _ in authorized({"t.*": names}, lambda topic: True)) == 11
    assert finish(steps) == {"t.*": names - {"t7"}, "t7": frozenset(), "none": frozenset()}
    assert sorted(asked) == sorted(names)


def test_equal_matches_are_authorized_once_and_stay_one_object() -> None:
    asked: list[str] = []

    def may_describe(topic: str) -> bool:
        asked.append(topic)
        return topic != "t7"

    names = frozenset(f"t{number}" for number in range(10))
    found = finish(authorized({"t.*": names, ".*": names, "t[0-6]": names - {"t7"}}, may_describe))
    assert found["t.*"] is found[".*"] and found["t.*"] == names - {"t7"}
    whole = finish(authorized({"t.*": names, ".*": names}, lambda topic: True))
    assert whole["t.*"] is whole[".*"] is names
    assert len(asked) == 10
