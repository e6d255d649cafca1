"""docs/compatibility.md matches the declared differences."""

from tests.interop.behaviour.page import PAGE, render


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run: python -m tests.interop.behaviour.page"
