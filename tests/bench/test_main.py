"""The benchmarks' command: a family that fails does not keep the others from being measured."""

import compileall
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.bench import main as command
from tests.bench.results import Table, count
from tests.bench.targets import ROOT, Target


def test_a_family_that_fails_is_named_and_the_next_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def measure(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
        table = Table([target.name for target in targets])
        table.add("at rest", targets[0].name, 1.0, count)
        return table

    def fail(targets: Sequence[Target], rounds: int, quick: bool) -> Table:
        raise OSError("no space is left")

    families = {
        "tests.bench.families.startup": SimpleNamespace(TITLE="Start", ABOUT="About.", ROUNDS=1, measure=fail),
        "tests.bench.families.memory": SimpleNamespace(TITLE="Memory", ABOUT="About.", ROUNDS=1, measure=measure),
    }
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(command, "import_module", families.__getitem__)
    monkeypatch.setattr(compileall, "compile_dir", lambda *args, **rest: True)
    page = tmp_path / "benchmarks.md"
    assert command.main(["--only", "startup", "--only", "memory", "--report", str(page)]) == 1
    error = capsys.readouterr().err
    assert "no space is left" in error
    assert "not measured, see above: startup" in error
    assert "## Memory" in page.read_text()
    assert "## Start" not in page.read_text()
