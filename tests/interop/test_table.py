"""The README's table has the rows and columns of the tests that it is made from."""

from tests.interop.clients.registry import MODULES
from tests.interop.table import README, labels, rows, split


def test_the_table_is_of_these_tests() -> None:
    _, table, _ = split(README.read_text())
    assert labels(table) == (list(MODULES), list(rows().values())), "stale: run python -m tests.interop.table"


def test_titles_say_which_is_which() -> None:
    titles = list(rows().values())
    assert all(titles)
    assert len(set(titles)) == len(titles)
