"""Regular expressions of clients: what matches, and what is refused."""

import random

import pytest

from barnabas_broker.regexes.regex import (
    MAX_COUNTS,
    MAX_INSTRUCTIONS,
    MAX_LENGTH,
    MAX_UNICODE_CLASSES,
    InvalidRegexError,
    Regex,
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
    assert finish(Regex(regex).matching(topics)) == matched
    assert {topic for topic in topics if Regex(regex).matches(topic)} == matched


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
        ("a?" * MAX_COUNTS + "a{1}", f"its counts add up to more than {MAX_COUNTS}"),
        ("\\pL" * 40 + "\\PN" * 25, f"it has more than {MAX_UNICODE_CLASSES} Unicode classes"),
    ],
)
def test_a_regex_that_cannot_be_used_is_refused_in_the_words_of_kafka(regex: str, reason: str) -> None:
    with pytest.raises(InvalidRegexError) as refused:
        Regex(regex)
    shown = regex if len(regex) <= 200 else regex[:200] + "..."
    assert str(refused.value) == f"`{shown}` is not a valid regular expression: {reason}."


def test_a_regex_longer_than_10_kb_is_refused_without_its_text() -> None:
    Regex("a|" * (MAX_LENGTH // 2))
    with pytest.raises(InvalidRegexError, match=r"it has 10242 bytes, more than 10240\.$") as refused:
        Regex("\u00e9" * (MAX_LENGTH // 2 + 1))
    assert len(str(refused.value)) < 400


def test_a_regex_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(InvalidRegexError, match="invalid UTF-8"):
        Regex("a\ud800")


def test_a_list_of_names_of_10_kb_compiles() -> None:
    dice = random.Random(1)
    names = ["".join(dice.choices("abcdefghij-_", k=31)) for _ in range(MAX_LENGTH // 32)]
    assert finish(Regex("|".join(names)).matching([*names, "a"])) == set(names)


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
    assert not Regex(regex).matches("a" * 249)


def test_matching_may_be_interrupted_after_each_name() -> None:
    steps = Regex(".*").matching(f"topic-{number}" for number in range(1_010))
    assert sum(1 for _ in steps) == 1_010
