"""The Spark block of README.md, by an interpreter whose virtual environment is not activated."""

import os
import sys
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from tests.docs.reader import blocks, comparable
from tests.interop import process
from tests.needs import java_problem, missing

PAGE = Path(__file__).parents[2] / "README.md"


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.programs
@pytest.mark.timeout(300)
def test_the_block_works_without_an_activated_environment(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = java_problem()
    if problem is not None:
        missing(f"Spark needs Java: {problem}")
    page = PAGE.read_text("utf-8")
    (block,) = blocks(page[page.index("## Spark") :])
    install, _, program = block.text.partition("\n\n")
    assert install.startswith(".venv/bin/python -m pip install ")
    produce = blocks(page)[1].text.partition("python ")[2]
    # The first python3 of the PATH is one that has no package of ours.
    stranger = tmp_path / "bin" / "python3"
    stranger.parent.mkdir()
    stranger.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    stranger.chmod(0o755)
    monkeypatch.setenv("PATH", f"{stranger.parent}{os.pathsep}/usr/local/bin{os.pathsep}/usr/bin{os.pathsep}/bin")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    for text in (f".venv/bin/python {produce}", program):
        pasted = text.replace(".venv/bin/python", sys.executable).replace("localhost:9092", broker.bootstrap_servers)
        done = process.run(["bash", "-c", pasted], 240)
        assert done.returncode == 0, done.stderr
    assert comparable(done.stdout) == comparable(block.prints)
    broker.delete_topic("orders")
