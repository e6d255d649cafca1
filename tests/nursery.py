"""Starts programs of this project quickly: a process that has imported them forks.

A start of the broker takes 0.7 s of processor time, nearly all of it for imports. A fork of a process that has done
them takes a fraction of that. What is started is a child of the tests' process, as after `subprocess.Popen`: with a
process id, an exit status, and pipes. Where it asks for what a fork cannot do, a new Python starts.

    python -m tests.nursery DESCRIPTOR

serves one test process, which asks over a socket of this descriptor.
"""

import ctypes
import gc
import importlib
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any, Final

import pytest

#: Modules that ``python -m`` runs, and what is imported before the first fork of each.
PROGRAMS: Final[dict[str, tuple[str, ...]]] = {
    "barnabas_broker": ("barnabas_broker.__main__",),
    "barnabas_broker.testing.child": ("barnabas_broker.testing.child",),
    "barnabas_client.cli": ("barnabas_client.cli.__main__",),
    "barnabas_pipeline.cli": ("barnabas",),
    "examples.exactly_once_topics": ("barnabas",),
    "tests.clinic.patient": ("aiokafka", "barnabas", "confluent_kafka", "kafka"),
    "tests.interop.explained_member": ("aiokafka", "barnabas", "confluent_kafka", "kafka"),
    "tests.interop.member": ("aiokafka", "barnabas", "confluent_kafka", "kafka"),
}
ROOT: Final = Path(__file__).parents[1]
#: Variables that Python reads when it starts, and those that begin with PYTHON.
LOCALE: Final = ("LANG", "LC_ALL", "LC_CTYPE")
#: Arguments of `Popen` that only a new process can follow, with the values that ask for nothing.
NOTHING: Final[dict[str, tuple[object, ...]]] = {
    "preexec_fn": (None,),
    "pass_fds": ((),),
    "shell": (False,),
    "gid": (None, -1),
    "gids": (None,),
    "uid": (None, -1),
    "umask": (-1,),
    "process_group": (None, -1),
}
#: The number of the system call `clone`, and its flag for a child of the caller's parent.
CLONE: Final = {"x86_64": 56, "aarch64": 220}
CLONE_PARENT: Final = 0x8000

_MOST_BYTES: Final = 1 << 17
#: Seconds in which it imports a program and forks, on a machine that is busy.
_SECONDS: Final = 120
_START: Final[Callable[..., None]] = vars(subprocess.Popen)["_execute_child"]
_PARAMETERS: Final = signature(_START)


def at_start(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that Python reads when it starts."""
    return {
        name: value
        for name, value in environment.items()
        if (name.startswith("PYTHON") and name != "PYTHONSTARTUP") or name in LOCALE
    }


class Nursery:
    """The test process's end. The other one starts with the first program."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._link: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._ended = False

    def execute(self, popen: "subprocess.Popen[Any]", *arguments: Any) -> None:
        """Start a program, in the place of the method of `subprocess.Popen` that does so."""
        given = _PARAMETERS.bind(popen, *arguments).arguments
        environment = dict(os.environ if given["env"] is None else given["env"])
        words = self._words(given, environment)
        if words is None:
            _START(popen, *arguments)
            return
        pipes = [given[name] for name in ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")]
        ends = [end if end != -1 else number for number, end in enumerate((pipes[0], pipes[3], pipes[5]))]
        message = json.dumps(
            [words, environment, os.fspath(given["cwd"] or os.getcwd()), bool(given["start_new_session"])]
        ).encode()
        if len(message) > _MOST_BYTES:
            _START(popen, *arguments)
            return
        with self._lock:
            child = self._fork(message, ends)
        if child is None:
            _START(popen, *arguments)
            return
        own: Any = popen
        own.pid = child
        own._child_created = True
        own._close_pipe_fds(*pipes)

    def _fork(self, message: bytes, ends: list[int]) -> int | None:
        """The process id of the program; None if the other end has ended."""
        link = self._link or self._open()
        with suppress(OSError):
            socket.send_fds(link, [message], ends)
            if answer := link.recv(100):
                return int(answer)
        self._ended = True
        if self._process is not None:
            self._process.kill()
        print("The nursery has ended: programs are started anew, which takes longer", file=sys.__stderr__)
        return None

    def _words(self, given: Mapping[str, Any], environment: Mapping[str, str]) -> list[str] | None:
        """The arguments of Python if a fork can do the same as a new process, else None."""
        command = given["args"]
        if (
            self._ended
            or not isinstance(command, Sequence)
            or isinstance(command, str | bytes)
            or platform.machine() not in CLONE
            or sys.platform != "linux"
            # A process ends with the thread that started it if it asks for that (``PR_SET_PDEATHSIG``).
            or threading.current_thread() is not threading.main_thread()
            or any(given.get(name, values[0]) not in values for name, values in NOTHING.items())
            or given["executable"] not in (None, command[0])
        ):
            return None
        program, *words = map(os.fspath, command)
        python = words[1:] if words[:1] == ["-P"] else words
        if program != sys.executable or python[:1] != ["-m"] or python[1] not in PROGRAMS:
            return None
        started = self._environment if self._link is not None else at_start(os.environ)
        return words if at_start(environment) == started else None

    def _open(self) -> socket.socket:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.nursery", str(theirs.fileno())]
            # Some tests run in other folders, where Python does not find this module.
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, cwd=ROOT, pass_fds=[theirs.fileno()])
        self._environment = at_start(os.environ)
        self._link = ours
        ours.settimeout(_SECONDS)
        return ours

    def close(self) -> None:
        """End it. What it has started runs on."""
        if self._link is not None and self._process is not None:
            self._link.close()
            self._process.wait(60)


def fork() -> int:
    """Fork as :func:`os.fork` does, except that the child's parent is that of this process."""
    python = ctypes.pythonapi
    system = ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    child: int = system.syscall(CLONE[platform.machine()], CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return child


def become(words: list[str], environment: dict[str, str], folder: str, own_session: bool, *, ends: list[int]) -> None:
    """Let this process be the one that was asked for."""
    for number, end in enumerate(ends):
        os.dup2(end, number)
        os.close(end)
    if own_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = os.fdopen(0, "r", closefd=False)
    sys.stdout = os.fdopen(1, "w", 1 if os.isatty(1) else -1, closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
    # ``python -m tests.nursery`` has put its folder first.
    sys.path[:1] = [] if words[0] == "-P" else [folder]
    sys.argv = words[words.index("-m") + 1 :]
    if retries := sys.modules.get("barnabas_client.network.retries"):
        retries.RANDOM.seed()


def serve(link: socket.socket) -> str | None:
    """Fork for each request; return the module to run, in a child, or None when the tests have ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, ends, _, _ = socket.recv_fds(link, _MOST_BYTES, 3)
        if not message:
            return None
        words, *rest = json.loads(message)
        program: str = words[words.index("-m") + 1]
        _import(program)
        child = fork()
        if child == 0:
            link.close()
            become(words, *rest, ends=ends)
            return program
        for end in ends:
            os.close(end)
        link.send(str(child).encode())


def _import(program: str) -> None:
    for name in PROGRAMS[program]:
        if name not in sys.modules:
            importlib.import_module(name)
            gc.freeze()
    assert threading.active_count() == 1  # others would be missing in the child


@pytest.fixture(scope="session", autouse=True)
def nursery() -> Iterator[None]:
    """Start programs of this project by forks of one process."""
    one = Nursery()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "_execute_child", lambda popen, *arguments: one.execute(popen, *arguments))
        yield
    one.close()


if __name__ == "__main__" and (program := serve(socket.socket(fileno=int(sys.argv[1])))) is not None:
    sys.modules.pop(f"{program}.__main__", None)
    if not hasattr(sys.modules.get(program), "__path__"):
        sys.modules.pop(program, None)  # runpy warns of a module that has been imported under its own name
    runpy.run_module(program, run_name="__main__", alter_sys=True)
