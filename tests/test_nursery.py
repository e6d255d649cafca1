"""Programs that the nursery forks do what a new Python does."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.process import end, spawn
from tests.nursery import Nursery

pytestmark = pytest.mark.programs


def ran(*words: str, of: Path, prepare: Callable[[], object] | None = None) -> tuple[int, str, str]:
    environment = {**os.environ, "BARNABAS_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        cwd=of,
        env=environment,
        timeout=60,
        check=False,
        preexec_fn=prepare,  # With one, a new Python starts.
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("barnabas_client.cli", "--version"),
        ("barnabas_client.cli", "topics", "list", "--timeout", "0.1"),
        ("barnabas_broker", "--config", "here.properties"),
    ],
    ids=" ".join,
)
def test_outputs_and_exit_status_are_those_of_a_new_process(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "here.properties").write_text("num.partitions=none\n")
    assert ran(*words, of=tmp_path) == ran(*words, of=tmp_path, prepare=lambda: None)


def test_a_program_is_a_child_in_a_session_of_its_own_which_ends_by_a_signal(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "barnabas_broker", "--port", "0", "--data-dir", str(tmp_path / "data")]
    program = spawn(command, subprocess.DEVNULL, subprocess.PIPE, subprocess.DEVNULL)
    try:
        assert program.stdout is not None
        assert program.stdout.readline().startswith("barnabas: listening on ")
        assert b"tests.nursery" in Path(f"/proc/{program.pid}/cmdline").read_bytes()
        assert f"\nPPid:\t{os.getpid()}\n" in Path(f"/proc/{program.pid}/status").read_text()
        assert os.getsid(program.pid) == program.pid
        program.send_signal(signal.SIGKILL)
        assert program.wait(60) == -signal.SIGKILL
    finally:
        end(program, 0)
        assert program.stdout is not None
        program.stdout.close()


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    """A nursery of this test only."""
    one = Nursery()
    monkeypatch.setattr(subprocess.Popen, "_execute_child", lambda popen, *arguments: one.execute(popen, *arguments))
    yield one
    one.close()


def test_the_first_program_may_start_in_any_folder(
    own: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert ran("barnabas_client.cli", "--version", of=tmp_path)[0] == 0


def test_programs_start_without_it_when_it_has_ended(own: Nursery, tmp_path: Path) -> None:
    assert ran("barnabas_client.cli", "--version", of=tmp_path)[0] == 0
    assert own._process is not None
    own._process.kill()
    own._process.wait(60)
    assert [ran("barnabas_client.cli", "--version", of=tmp_path)[0] for _ in range(2)] == [0, 0]
