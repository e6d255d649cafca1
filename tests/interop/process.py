"""Start programs that do not outlive the test run, whatever happens to it."""

import atexit
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

# Runs in a session of its own and reads which processes and folders the tests start and end. When the test run is
# killed, its end of the pipe closes: the program then kills the processes that are left and removes the folders. The
# parent-death signal of Linux needs no second process, but is sent when the starting *thread* ends.
_PROGRAM: Final = """
import os, shutil, signal, sys
owned = {"process": set(), "folder": set()}
for line in sys.stdin:
    kind, sign, what = line.rstrip("\\n").split(" ", 2)
    if sign == "+":
        owned[kind].add(what)
    else:
        owned[kind].discard(what)
for pid in owned["process"]:
    try:
        os.killpg(int(pid), signal.SIGKILL)
    except OSError:
        pass
for folder in owned["folder"]:
    shutil.rmtree(folder, ignore_errors=True)
"""


class Watchdog:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._owner = 0

    def owns(self, kind: Literal["process", "folder"], what: str | int) -> None:
        self._tell(f"{kind} + {what}\n")

    def disowns(self, kind: Literal["process", "folder"], what: str | int) -> None:
        self._tell(f"{kind} - {what}\n")

    def close(self) -> None:
        if self._process is not None and self._owner == os.getpid():
            self._process.communicate(timeout=60)
            self._process = None

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._process is None or self._owner != os.getpid():  # a forked child needs one of its own
                self._owner = os.getpid()
                self._process = subprocess.Popen(
                    [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, text=True, start_new_session=True
                )
            assert self._process.stdin is not None
            self._process.stdin.write(line)
            self._process.stdin.flush()


#: For the start of a program that a test interrupts: tests that run in the background ignore Ctrl-C, and so do the
#: programs that they start.
HEAR_CTRL_C: Final = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)"

OURS: Final = Watchdog()
atexit.register(OURS.close)


@contextlib.contextmanager
def owned_folder(prefix: str) -> Iterator[Path]:
    """A folder that is removed at the end. `TMPDIR` selects the disk."""
    folder = tempfile.mkdtemp(prefix=prefix)
    OURS.owns("folder", folder)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        OURS.disowns("folder", folder)


def spawn(
    command: Sequence[str],
    stdin: int,
    stdout: int,
    stderr: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    # A session of its own: Ctrl-C in pytest must not end a broker that a test still uses.
    process = subprocess.Popen(
        command, stdin=stdin, stdout=stdout, stderr=stderr, text=True, start_new_session=True, env=environment
    )
    OURS.owns("process", process.pid)
    return process


def end(process: subprocess.Popen[str], grace: float) -> int:
    """Terminate a process; kill it and its children after `grace` seconds. Return its exit code."""
    if process.poll() is None and grace > 0:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    code = process.wait(30)
    OURS.disowns("process", process.pid)
    return code


def run(
    command: Sequence[str], timeout: float, stdin: str | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    source = subprocess.DEVNULL if stdin is None else subprocess.PIPE
    process = spawn(command, source, subprocess.PIPE, subprocess.PIPE, environment)
    try:
        out, err = process.communicate(stdin, timeout=timeout)
    finally:
        end(process, 0)
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()
    return subprocess.CompletedProcess(list(command), process.returncode, out, err)
