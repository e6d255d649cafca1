"""docs/security.md says what the rows of the handlers say."""

from barnabas_broker.handlers.table import join
from tests.docs.security import PAGE, changes, render, table


def test_the_page_is_current() -> None:
    assert PAGE.read_text("utf-8") == render(), "run: make pages"


def test_the_table_has_each_api() -> None:
    assert len(table().splitlines()) == len(join()) + 2
    assert "| Produce | WRITE on TOPIC; WRITE on TRANSACTIONAL_ID, if a batch is transactional |" in table()


def test_each_line_of_the_audit_log_has_an_api() -> None:
    assert "| `topic created` | CreateTopics, FindCoordinator, Metadata |" in changes()
    assert "|  |" not in changes()
