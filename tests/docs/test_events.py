"""docs/observing.md lists the types and the fields of events that the catalogue has."""

from barnabas_explain.catalog import EVENTS, FIELDS
from tests.docs.events import PAGE, recorded, render


def test_the_page_is_generated() -> None:
    assert PAGE.read_text("utf-8") == render(), "run `make pages`"


def test_each_field_is_described_once() -> None:
    assert {name for cls in EVENTS.values() for name in recorded(cls)} == set(FIELDS)


def test_each_type_says_when_it_happens_in_a_line() -> None:
    for cls in EVENTS.values():
        assert cls.__doc__ is not None
        assert "\n" not in cls.__doc__
        assert cls.__doc__.endswith(".")
