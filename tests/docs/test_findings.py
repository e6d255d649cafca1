"""docs/observing.md lists the kinds of findings that the doctor has."""

from tests.docs.findings import KINDS, MEANING, PAGE, render


def test_the_page_is_generated() -> None:
    assert PAGE.read_text("utf-8") == render(), "run `make pages`"


def test_each_kind_has_a_line() -> None:
    assert sorted(KINDS) == sorted(MEANING), "each kind is described, once"
