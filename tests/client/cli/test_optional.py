"""Optional dependencies of commands."""

import io
import json

import pytest

from barnabas_client.cli import progress
from barnabas_client.cli.optional import NotInstalledError, optional
from barnabas_client.cli.output import Output


def test_an_installed_module_is_imported() -> None:
    assert optional("json", extra="cli", purpose="a test") is json


def test_a_missing_module_is_named_with_its_remedy() -> None:
    with pytest.raises(NotInstalledError) as caught:
        optional("barnabas_missing.part", extra="cli", purpose="a test", instead="use cat")
    assert str(caught.value) == (
        "a test needs barnabas_missing, which is not installed. To do: pip install 'barnabas[cli]', or use cat"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_without_rich_is_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress, "_MODULES", ("barnabas_missing.console", "barnabas_missing.progress"))
    monkeypatch.setattr(progress, "monotonic", lambda: now)
    output = Output()
    output.err = Terminal()
    with progress.bar(output, "produce", 5_000, unit="records") as advance:
        advance(1_000)
        now = 6.0
        advance(500)
        advance(500)
    assert output.err.getvalue() == "produce: 1,500 of 5,000 records\n"
