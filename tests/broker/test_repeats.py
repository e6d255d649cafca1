"""Names that come again are answered again, until the answer is long."""

from barnabas_broker.repeats import Repeats


def test_a_name_that_comes_again_is_refused_when_the_answer_is_long() -> None:
    repeats = Repeats(most=10)
    assert not repeats.refuses("a")
    repeats.answered("a", 6)
    assert not repeats.refuses("a")
    repeats.answered("a", 6)
    assert repeats.refuses("a")


def test_a_name_that_comes_for_the_first_time_is_never_refused() -> None:
    repeats = Repeats(most=10)
    repeats.answered("a", 1_000)
    assert not repeats.refuses("b")
    repeats.answered("b", 1)
    assert repeats.refuses("b")
