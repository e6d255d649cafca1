"""Regular expressions of consumer groups: what matches, what is refused, and when a group's are matched again."""

import random
from math import inf

import pytest

from barnabas_broker.groups.consumer.regex import (
    MAX_COUNTS,
    MAX_INSTRUCTIONS,
    MAX_LENGTH,
    MAX_UNICODE_CLASSES,
    MIN_REFRESH_INTERVAL,
    InvalidRegexError,
    TopicRegex,
    authorized,
    refresh_due,
)
from barnabas_broker.steps import finish


@pytest.mark.parametrize(
    ("regex", "matched"),
    [
        ("orders", {"orders"}),
        ("order", set()),
        ("orders.*", {"orders", "orders-eu"}),
        ("(?i)ORDERS", {"orders"}),
        ("orders|pay.+", {"orders", "payments"}),
        ("", set()),
        ("\\Qorders-eu\\E", {"orders-eu"}),
        ("Zażółć|orders", {"orders"}),
    ],
)
def test_a_regex_matches_whole_names(regex: str, matched: set[str]) -> None:
    topics = ["orders", "orders-eu", "payments", "my-orders"]
    assert finish(TopicRegex(regex).matching(topics)) == matched
    assert {topic for topic in topics if TopicRegex(regex).matches(topic)} == matched


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(orders", "missing closing )"),
        ("[a", "missing closing ]"),
        ("*", "missing argument to repetition operator"),
        ("a**", "invalid nested repetition operator"),
        ("a{1001}", "invalid repeat count"),
        ("(?=a)", "invalid or unsupported Perl syntax"),
        ("(a)\\1", "invalid escape sequence"),
        ("(?P<>a)", "invalid named capture"),
        ("a\\", "trailing backslash at end of expression"),
        ("[[:alpha:]]{1000}\\pL{900}", f"it compiles to more than {MAX_INSTRUCTIONS} instructions"),
        ("(\\W)?" * 1500, f"it compiles to more than {MAX_INSTRUCTIONS} instructions"),
        ("[a-z0-9]{1,999}a{,3}b{4}" * 2, f"its counts add up to more than {MAX_COUNTS}"),
        ("\\pL" * 40 + "\\PN" * 25, f"it has more than {MAX_UNICODE_CLASSES} Unicode classes"),
    ],
)
def test_a_regex_that_cannot_be_used_is_refused_in_the_words_of_kafka(regex: str, reason: str) -> None:
    with pytest.raises(InvalidRegexError) as refused:
        TopicRegex(regex)
    shown = regex if len(regex) <= 200 else regex[:200] + "..."
    assert str(refused.value) == f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}."


def test_a_regex_longer_than_10_kb_is_refused_without_its_text() -> None:
    TopicRegex("a|" * (MAX_LENGTH // 2))
    with pytest.raises(InvalidRegexError, match=r"it has 10242 bytes, more than 10240\.$") as refused:
        TopicRegex("\u00e9" * (MAX_LENGTH // 2 + 1))
    assert len(str(refused.value)) < 400


def test_a_regex_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRegexError, match="invalid UTF-8"):
        TopicRegex("a\ud800")


def test_a_list_of_names_of_10_kb_compiles() -> None:
    dice = random.Random(1)
    names = ["".join(dice.choices("abcdefghij-_", k=31)) for _ in range(MAX_LENGTH // 32)]
    assert finish(TopicRegex("|".join(names)).matching([*names, "a"])) == set(names)


@pytest.mark.parametrize(
    "regex",
    [
        "(a*)*b",
        "(a|aa)+b",
        "(a?){500}b",
        "(.*)(.*)(.*)(.*)(.*)b",
        "(" * 4000 + "a*" + ")" * 4000 + "b",
        ".*" * 5000 + "b",
    ],
)
def test_a_regex_never_backtracks(regex: str) -> None:
    # Takes milliseconds; an engine that backtracks needs years.
    assert not TopicRegex(regex).matches("a" * 249)


def test_matching_may_be_interrupted_after_some_topics() -> None:
    steps = TopicRegex(".*").matching(f"topic-{number}" for number in range(1_010))
    assert sum(1 for _ in steps) == 50


# ------------------------------------------------------------------------------------------------ refreshes


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
