"""docs/observing.md has the grades of the clinic."""

from tests.docs.clinic import PAGE, render


def test_the_table_of_diseases_is_generated() -> None:
    assert PAGE.read_text("utf-8") == render(), "run `make pages`"
