"""etcd and three brokers as processes on free local ports."""

import asyncio
import re
import sys
from pathlib import Path
from typing import Final

from barnabas_broker.local_etcd import etcd_command, find_etcd, free_port
from barnabas_broker.supervisor import SupervisorError

NODES: Final = (1, 2, 3)
#: Milliseconds without a heartbeat after which a broker is replaced.
SESSION_MS: Final = 2000
SETTINGS: Final = (
    f"broker.session.timeout.ms={SESSION_MS}",
    "min.insync.replicas=2",
    "offsets.topic.replication.factor=3",
    "offsets.topic.num.partitions=6",
    "group.initial.rebalance.delay.ms=0",
    "replica.fetch.backoff.ms=100",
)
#: Timeout in seconds for the start or the end of a process.
_TIMEOUT: Final = 30.0


class Machines:
    """The processes. A broker keeps its port and its data when it restarts.

    Args:
        folder: the folder for data and logs.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._etcd: asyncio.subprocess.Process | None = None
        self._etcd_port = free_port()
        self._ports = {node: free_port() for node in NODES}
        self._brokers: dict[int, asyncio.subprocess.Process] = {}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers."""
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    async def start(self) -> None:
        """Start everything.

        Raises:
            BrokerError: etcd is not installed, or a process does not start.
        """
        await self._start_etcd(find_etcd("the demo"))
        await asyncio.gather(*map(self.start_broker, NODES))

    async def _start_etcd(self, program: str) -> None:
        with (self._folder / "etcd.log").open("ab") as log:
            self._etcd = await asyncio.create_subprocess_exec(
                *etcd_command(program, self._folder / "etcd", self._etcd_port),
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C must reach the demo only
            )
        try:
            async with asyncio.timeout(_TIMEOUT):
                while self._etcd.returncode is None:
                    try:
                        _, writer = await asyncio.open_connection("127.0.0.1", self._etcd_port)
                    except OSError:
                        await asyncio.sleep(0.05)
                    else:
                        writer.close()
                        return
        except TimeoutError:
            pass
        raise SupervisorError(f"etcd: {(self._folder / 'etcd.log').read_text()}")

    async def start_broker(self, node: int) -> None:
        """Start a broker, and wait until it listens.

        Raises:
            SupervisorError: it does not start.
        """
        path = self._folder / f"broker-{node}.log"
        with path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "barnabas_broker", "--node-id", str(node), "--port", str(self._ports[node])),
                *("--cluster", f"etcd://127.0.0.1:{self._etcd_port}/demo"),
                *("--data-dir", str(self._folder / f"broker-{node}")),
                *(word for setting in SETTINGS for word in ("--set", setting)),
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        self._brokers[node] = process
        assert process.stdout is not None
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), _TIMEOUT)).decode()
        except TimeoutError:
            line = ""
        if not re.search(r"listening on \S+", line):
            raise SupervisorError(f"broker {node}: {path.read_text()[-2000:]}")

    async def kill(self, node: int) -> None:
        """Kill a broker with SIGKILL."""
        self._brokers[node].kill()
        await self._brokers.pop(node).wait()

    async def close(self) -> None:
        """Kill all processes; their data is temporary, so a clean shutdown is not needed."""
        for process in [*self._brokers.values(), *([] if self._etcd is None else [self._etcd])]:
            if process.returncode is None:
                process.kill()
            await asyncio.wait_for(process.wait(), _TIMEOUT)
