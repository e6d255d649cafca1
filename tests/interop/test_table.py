"""The README's table has the rows and columns of the tests that it is made from."""

from tests.interop.clients.registry import MODULES
from tests.interop.table import README, labels, rows, split


def test_the_table_matches_the_tests() -> None:
    _, table, _ = split(README.read_text())
    assert labels(table) == (list(MODULES), list(rows().values())), "stale: run python -m tests.interop.table"


def test_titles_are_unique() -> None:
    titles = list(rows().values())
    assert all(titles)
    assert len(set(titles)) == len(titles)
