"""A host in a process of its own."""

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Final, cast

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.link import STOP_SECONDS, Command, Reply

#: Lines of the process's stderr that an error shows.
_MOST_LINES: Final = 15


class ProcessLink:
    """Starts a process and talks to it by its stdin and stdout.

    Args:
        log: the file for its stderr.
        folder: a folder that it removes if this process ends before it; None for no folder.

    Raises:
        BrokerError: the process cannot be started.
    """

    def __init__(self, log: Path, folder: Path | None) -> None:
        self._log = log
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Reply]] = {}
        self._ended = False
        environment = {
            key: value for key, value in os.environ.items() if key not in ("PYTHONWARNINGS", "PYTHONSTARTUP")
        }
        try:
            with log.open("ab") as stderr:
                # A session of its own: Ctrl-C must not end the broker while a test still uses it.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "barnabas_broker.testing.child", str(self._owner), str(folder or "")],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    start_new_session=True,
                    env=environment,
                )
        except OSError as error:
            raise BrokerError(f"no process can be started for the broker: {error}") from error
        # Pipes, as asked for above: Popen's types only say that they may be missing.
        self._commands, self._replies = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._reader = threading.Thread(target=self._read, name=f"broker-{self._process.pid}", daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        """Whether the process runs and reads commands."""
        return not self._ended and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Its process id."""
        return self._process.pid

    def submit(self, command: Command) -> "Future[Reply]":
        """Send a command.

        Raises:
            BrokerError: the process has ended.
        """
        future: Future[Reply] = Future()
        with self._lock:
            if self._ended:
                raise self._gone()
            number = next(self._numbers)
            self._waiting[number] = future
            try:
                self._write({"id": number, **command})
            except OSError:
                del self._waiting[number]
                raise self._gone() from None
        return future

    def _write(self, command: Command) -> None:
        self._commands.write(json.dumps(command).encode() + b"\n")
        self._commands.flush()

    def _read(self) -> None:
        for line in self._replies:
            reply = json.loads(line)
            with self._lock:
                future = self._waiting.pop(reply["id"], None)
            if future is not None:
                future.set_result(reply)
        with self._lock:
            self._ended = True
            waiting = list(self._waiting.values())
            self._waiting.clear()
        if waiting:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_SECONDS)
            gone = self._gone()
            for future in waiting:
                future.set_exception(gone)

    def _gone(self) -> BrokerError:
        status = self._process.poll()
        how = (
            "is ending" if status is None else f"was killed by {_signal(-status)}" if status < 0 else f"exited {status}"
        )
        said = "".join(f"\n  {line}" for line in tail(self._log, _MOST_LINES))
        return BrokerError(f"the broker's process {how}{f'; it said:{said}' if said else ''}")

    def close(self) -> None:
        """End the process, by force if it does not end by itself. May be called twice."""
        if os.getpid() != self._owner:
            return  # in a fork: the process belongs to the parent
        with self._lock, contextlib.suppress(OSError):
            if not self._ended:
                self._ended = True
                self._write({"id": 0, "do": "end"})
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._reap()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()
        self._reap()

    def _reap(self) -> None:
        self._process.wait(STOP_SECONDS)
        self._reader.join(STOP_SECONDS)
        for pipe in (self._commands, self._replies):
            with contextlib.suppress(OSError):
                pipe.close()


def tail(log: Path, lines: int, start: int = 0) -> list[str]:
    """The last lines of a file, from a byte on; none if it cannot be read."""
    try:
        return log.read_bytes()[start:].decode("utf-8", "replace").splitlines()[-lines:]
    except OSError:
        return []


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
