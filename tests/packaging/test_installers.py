"""docs/install.md: from a folder with the wheel, uv and pipx run a broker for development without an installation."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.interop.process import HEAR_CTRL_C, end, spawn

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "install.md").read_text("utf-8")
COMMANDS: Final = re.findall(r"^(?:uvx|pipx run) .*$", PAGE, re.MULTILINE)
#: Ctrl-C must reach the program, also if the tests run in the background.
_RUN: Final = f"{HEAR_CTRL_C}; import os, sys; os.execv(sys.argv[1], sys.argv[1:])"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wheels")
    list(WheelBuilder(str(ROOT)).build(directory=str(made), versions=["standard"]))
    return made


def test_the_page_has_both_installers() -> None:
    assert [command.split()[0] for command in COMMANDS] == ["uvx", "pipx"]


@pytest.mark.programs
@pytest.mark.slow  # they download what the wheel needs
@pytest.mark.parametrize("command", COMMANDS, ids=[command.split()[0] for command in COMMANDS])
def test_a_broker_for_development_runs(command: str, folder: Path, tmp_path: Path) -> None:
    program, *words = shlex.split(command.replace("--find-links dist", f"--find-links {folder}"))
    line = [str(Path(sys.executable).with_name(program)), *words, "--port", "0", "--http-port", "0"]
    own = {"PIPX_HOME": str(tmp_path / "pipx"), "UV_CACHE_DIR": str(tmp_path / "uv"), "UV_PYTHON": sys.executable}
    broker = spawn(
        [sys.executable, "-c", _RUN, *line], subprocess.DEVNULL, subprocess.PIPE, subprocess.STDOUT, os.environ | own
    )
    assert broker.stdout is not None
    printed = ""
    try:
        while "Ctrl-C ends it." not in printed and (text := broker.stdout.readline()):
            printed += text
        assert "Barnabas " in printed, printed
        assert "Page: http://" in printed, printed
        os.killpg(broker.pid, signal.SIGINT)
        rest, _ = broker.communicate(timeout=60)
        assert "0 topics, 0 records and 0 groups are gone." in rest
    finally:
        end(broker, 10.0)
        broker.stdout.close()


def test_a_page_that_installs_by_name_says_how_before_the_release() -> None:
    """Until the package is on PyPI, `pip install barnabas` works after the installation of install.md only."""
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    naming = {page.name: re.split(r"(pip install .*barnabas.*)", page.read_text("utf-8"), maxsplit=1) for page in pages}
    naming = {name: parts for name, parts in naming.items() if len(parts) > 1 and name != "install.md"}
    assert len(naming) > 5
    assert [name for name, (before, line, _) in naming.items() if "install.md" not in before + line] == []
