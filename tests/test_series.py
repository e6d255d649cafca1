"""What `sampling.py` and `lots.py` make of a series of cases."""

import pytest

from tests.lots import in_lots
from tests.sampling import slow, slow_but_each, slow_except


def test_all_other_cases_are_slow() -> None:
    assert slow_except("abc", "b") == [slow("a"), "b", slow("c")]
    assert slow_but_each(2, "abcd") == ["a", slow("b"), "c", slow("d")]
    assert slow((1, 2)).values == (1, 2)
    assert [mark.name for mark in slow(1).marks] == ["slow"]
    with pytest.raises(ValueError, match="no such cases: \\['d'\\]"):
        slow_except("abc", "d")


@in_lots(("number", "letter"), zip(range(7), "abcdefg", strict=True), size=3)
def test_a_lot_is_a_test_of_pytest(number: int, letter: str, request: pytest.FixtureRequest) -> None:
    assert request.node.name == f"test_a_lot_is_a_test_of_pytest[from {number // 3 * 3}]"
    assert letter == "abcdefg"[number]


def test_every_case_runs_once() -> None:
    seen = []

    @in_lots("number", range(7), size=3)
    def each(number: int) -> None:
        seen.append(number)

    (mark,) = vars(each)["pytestmark"]
    for lot in mark.args[1]:
        each(number=lot)
    assert seen == [*range(7)]


def test_a_failure_names_its_case() -> None:
    @in_lots("number", range(5))
    def fails_at_three(number: int) -> None:
        assert number < 3

    with pytest.raises(AssertionError) as raised:
        fails_at_three(number=[2, 3, 4])
    assert raised.value.__notes__ == ["in the case {'number': 3}"]
