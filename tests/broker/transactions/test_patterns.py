"""Patterns of transactional ids: the same results as Python's matcher, and in linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.steps import finish
from barnabas_broker.transactions.patterns import InvalidPattern, Pattern
from tests.lots import in_lots


@pytest.mark.parametrize(
    ("pattern", "fits", "others"),
    [
        ("", [""], ["a"]),
        ("orders-.*", ["orders-", "orders-7"], ["orders", "my-orders-7"]),
        ("^app-[0-9]+$", ["app-0", "app-12"], ["app-", "app-x"]),
        ("(a|bc)*d?", ["", "a", "bcabcd"], ["b", "dd"]),
        ("(?:x-)?id", ["id", "x-id"], ["x-"]),
        (r"a\.b\\c\$", ["a.b\\c$"], ["axb\\c$"]),
        (r"\d{2,3}-\w+?", ["12-a", "123-ab_1"], ["1-a", "1234-a", "12-"]),
        (r"[^a-c\s]{2}", ["xy"], ["ax", "x "]),
        ("[]a-]+", ["]a-"], ["b"]),
        ("a{2}|b{1,}", ["aa", "b", "bbb"], ["a", ""]),
        ("(a*)*b", ["b", "aaab"], ["a"]),
        (r"\S\D\W", ["ab-"], ["a1-"]),
    ],
)
def test_patterns(pattern: str, fits: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [finish(compiled.matches(text)) for text in fits] == [True] * len(fits)
    assert [finish(compiled.matches(text)) for text in others] == [False] * len(others)


@in_lots(
    "pattern",
    [
        *("(", ")", "(a", "a)", "[a", "*a", "a**", "a*+", "a{", "a{x}", "a{2,1}", "a{99999}", "a{400}{2}", "\\", "\\1"),
        *("(?=a)", "(?i)a", "(?P<n>a)", "[b-a]", "[[:alpha:]]", "[a&&b]", "a^b", "a$b", "\\bx", "(" * 60 + ")" * 60),
        *("(" * 20 + "a{9}" + "){9}" * 20, "a" * 1000),
    ],
)
def test_what_is_no_pattern_or_too_much_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


def test_hostile_patterns_do_not_take_long() -> None:
    for pattern in ("(a+)+b", "(a|a)*b", "a?" * 100 + "a" * 100, "(((a*)*)*)*b"):
        matcher = Pattern(pattern).matches("a" * 1000)
        steps = sum(1 for _ in matcher)
        assert steps <= 10, "one step for each hundred characters"


atoms = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w"])
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{1,2}"])).map(lambda pair: f"({pair[0]}){pair[1]}"),
    ),
    max_leaves=6,
)


@given(patterns, st.text("abc-", max_size=8))
def test_the_result_is_that_of_pythons_matcher(pattern: str, text: str) -> None:
    assert finish(Pattern(pattern).matches(text)) is (re.fullmatch(pattern, text) is not None)
