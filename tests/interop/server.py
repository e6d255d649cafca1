"""A broker in its own process: the common base of Apache Kafka and Barnabas, with start, stop and kill."""

import abc
import contextlib
import random
import re
import shutil
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Self

from tests.interop import process
from tests.interop.process import OURS

# Below the range that Linux takes ports of outgoing connections from: while a killed broker is down, a client that
# keeps trying must neither be given its port nor, by a simultaneous open, connect to itself.
PORTS: Final = range(15000, 32000)


class ServerFailed(Exception):
    """The server did not start, or has ended; the text contains its error output."""


def free_port() -> int:
    """Return an unused port. Another process may bind it first: be ready to retry."""
    # Not the shared generator: processes that are forked from one another would draw the same ports.
    for port in random.SystemRandom().sample(PORTS, 200):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise ServerFailed("no free port")


def _ask(port: int, api_key: int, version: int, body: bytes, timeout: float) -> bytes | None:
    """Send one request with header v1, without our codecs: the reference must not depend on the tested code."""
    request = struct.pack(">hhih", api_key, version, 1, -1) + body
    try:
        with socket.create_connection(("127.0.0.1", port), timeout) as link:
            link.settimeout(timeout)
            link.sendall(struct.pack(">i", len(request)) + request)
            with link.makefile("rb") as answers:
                head = answers.read(8)
                if len(head) < 8:
                    return None
                size, correlation = struct.unpack(">ii", head)
                answer = answers.read(size - 4)
    except OSError:
        return None
    return answer if correlation == 1 and len(answer) == size - 4 else None


def answers(port: int, timeout: float = 2) -> bool:
    """Return whether ApiVersions succeeds and Metadata lists a broker: Kafka listens a moment before it does."""
    versions = _ask(port, 18, 0, b"", timeout)
    if versions is None or len(versions) < 2 or versions[:2] != b"\0\0":
        return False
    metadata = _ask(port, 3, 1, struct.pack(">i", 0), timeout)  # version 1 with an empty list: brokers, no topics
    return metadata is not None and len(metadata) >= 4 and struct.unpack(">i", metadata[:4])[0] > 0


class Server(abc.ABC):
    """One node on 127.0.0.1; it lives as long as the `with` block and keeps its port when it is started again.

    `overrides` are configuration keys and win over everything set here. `folder` keeps the data; without it, a
    temporary one is removed at the end. It has started when `ready`, called every `pause` seconds with its port,
    returns True; `started_at` is the start of its process, by time.perf_counter().
    """

    NAME: ClassVar[str]

    def __init__(
        self,
        overrides: Mapping[str, str | int | bool] | None = None,
        *,
        port: int | None = None,
        folder: Path | None = None,
        start_timeout: float = 60,
        ready: Callable[[int], bool] = answers,
        pause: float = 0.02,
    ) -> None:
        self._overrides = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in (overrides or {}).items()
        }
        self._asked_port = port
        self._given_folder = folder
        self._start_timeout = start_timeout
        self._ready = ready
        self._pause = pause
        self._folder: Path | None = None
        self._process: subprocess.Popen[str] | None = None
        self.port = 0
        self.started_at = 0.0

    @abc.abstractmethod
    def _prepare(self) -> None:
        """Prepare the first start, for instance write files; the folder exists, and the port is chosen."""

    @abc.abstractmethod
    def _command(self) -> Sequence[str]:
        """Return its command line; `_prepare` has been called."""

    @property
    @abc.abstractmethod
    def log_dir(self) -> Path:
        """The data directory, with one folder for each partition."""

    @property
    @abc.abstractmethod
    def server_log(self) -> Path:
        """Its log file, with the decisions of the group coordinator."""

    @property
    def bootstrap_servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError(f"{self.NAME} is not running: use it in a with block")
        return self._folder

    @property
    def console(self) -> Path:
        """The file with its standard output and standard error."""
        return self.folder / "console.log"

    @property
    def pid(self) -> int:
        return self._running().pid

    def rss(self) -> int:
        """Resident memory in bytes, now (Linux)."""
        return self._memory("VmRSS")

    def peak_rss(self) -> int:
        """Peak resident memory in bytes (Linux)."""
        return self._memory("VmHWM")

    def _memory(self, line: str) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        found = re.search(rf"^{line}:\s+(\d+) kB", status, re.MULTILINE)
        if found is None:
            raise ServerFailed(f"{self.NAME} has ended")
        return int(found[1]) * 1024

    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it again after stop() or kill(), on the same ports and data."""
        if self._process is not None:
            raise RuntimeError(f"{self.NAME} is running already")
        self._launch()

    def stop(self, grace: float = 30) -> None:
        """Shut it down; kill it if that takes longer than `grace` seconds."""
        running, self._process = self._process, None
        if running is not None:
            process.end(running, grace)

    def kill(self) -> None:
        """Kill it (SIGKILL) as in a crash; start() recovers from it."""
        self.stop(grace=0)

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait(self) -> int:
        return self._running().wait()

    def __enter__(self) -> Self:
        try:
            self._first_start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError(f"{self.NAME} is not running")
        return self._process

    def _first_start(self) -> None:
        for attempt in range(3):
            if self._given_folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="barnabas-server-"))
                OURS.owns("folder", str(self._folder))
            else:
                self._folder = self._given_folder
                self._folder.mkdir(parents=True, exist_ok=True)
            self.port = self._asked_port if self._asked_port is not None else free_port()
            try:
                self._prepare()
                self._launch()
            except ServerFailed as error:
                # Another process may have bound the port between our check and the server's bind.
                final = attempt == 2 or self._asked_port is not None or self._given_folder is not None
                if final or "in use" not in str(error):
                    raise
                self._close()
            else:
                return

    def _launch(self) -> None:
        with self.console.open("a") as console:
            self.started_at = time.perf_counter()
            started = process.spawn(
                self._command(), stdin=subprocess.DEVNULL, stdout=console.fileno(), stderr=subprocess.STDOUT
            )
        self._process = started
        deadline = time.monotonic() + self._start_timeout
        while not self._ready(self.port):
            # The pause between two checks ends early if the process ends.
            with contextlib.suppress(subprocess.TimeoutExpired):
                started.wait(self._pause)
            if started.poll() is not None or time.monotonic() > deadline:
                code = started.poll()
                self.kill()
                what = f"has not answered in {self._start_timeout:.0f} s" if code is None else f"ended with code {code}"
                raise ServerFailed(f"{self.NAME} {what}:\n{self._complaints()}")

    def _complaints(self) -> str:
        logs = [path.read_text(errors="replace") for path in {self.console, self.server_log} if path.exists()]
        lines = [
            line
            for text in logs
            for line in text.splitlines()
            if re.search(r"error|fatal|exception|in use", line, re.IGNORECASE)
        ]
        return "\n".join(lines[:15])

    def _close(self) -> None:
        # A temporary folder is removed anyway: a clean shutdown is not needed.
        self.stop(grace=0 if self._given_folder is None else 30)
        if self._folder is not None and self._given_folder is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            OURS.disowns("folder", str(self._folder))
        self._folder = None
