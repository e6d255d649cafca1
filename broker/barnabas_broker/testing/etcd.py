"""The etcd of a test's cluster, in processes of its own that end with this one."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from pathlib import Path
from typing import Final

from barnabas_broker.errors import BrokerError
from barnabas_broker.local_etcd import etcd_command, find_etcd, free_port
from barnabas_broker.testing.link import START_SECONDS, STOP_SECONDS
from barnabas_broker.testing.process import tail

#: Seconds between two attempts to connect while it starts.
_LOOK_SECONDS: Final = 0.02
_MOST_LINES: Final = 15


class EtcdProcess:
    """Starts an etcd, and waits until it listens. Its data are temporary.

    Raises:
        BrokerError: it is not installed, or does not start.
    """

    def __init__(self) -> None:
        program = find_etcd("a cluster")
        folder = Path(tempfile.mkdtemp(prefix="barnabas-etcd-"))
        self._remover = weakref.finalize(self, _remove, folder, os.getpid())
        self._log = folder / "etcd.log"
        self.port = free_port()
        command = [*etcd_command(program, folder / "data", self.port), "--unsafe-no-fsync"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "barnabas_broker.testing.etcd_child", str(os.getpid()), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C must not end it while brokers still use it
            )
        self._closer = weakref.finalize(self, _end, self._process, os.getpid())
        try:
            self._wait()
        except BaseException:
            self.close()
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                said = "".join(f"\n  {line}" for line in tail(self._log, _MOST_LINES))
                if self._process.poll() is not None:
                    raise BrokerError(f"etcd exited {self._process.returncode}; it said:{said}") from None
                if time.monotonic() >= deadline:
                    raise BrokerError(f"etcd did not start within {START_SECONDS:g} s; it said:{said}") from None
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End it and remove its data. May be called twice."""
        self._closer()
        self._remover()


def _end(process: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() != owner:
        return  # in a fork: the process belongs to the parent
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
