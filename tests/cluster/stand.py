"""Three etcd members and three brokers, each on its own host: they can be killed, frozen and disconnected."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.supervisor import free_port
from tests.cluster.harness import PATIENCE, need_etcd
from tests.cluster.hosts import Hosts
from tests.interop.process import end, spawn

BROKERS: Final = (1, 2, 3)
SETTINGS: Final = (
    "broker.session.timeout.ms=3000",
    "replica.lag.time.max.ms=3000",
    "replica.fetch.backoff.ms=200",
    "replica.socket.timeout.ms=3000",
    "default.replication.factor=3",
    "offsets.topic.replication.factor=3",
    "offsets.topic.num.partitions=6",
    "min.insync.replicas=2",
    "group.initial.rebalance.delay.ms=200",
)


class Machine:
    """A process on a host: can be started, killed, frozen and disconnected."""

    def __init__(self, hosts: Hosts, name: str, command: Sequence[str], output: Path) -> None:
        self.hosts = hosts
        self.name = name
        self.command = hosts.on(name, command)
        self.output = output
        self.process: subprocess.Popen[str] | None = None

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        assert self.process is None
        with self.output.open("a") as log:
            self.process = spawn(self.command, subprocess.DEVNULL, log.fileno(), log.fileno())

    def kill(self) -> None:
        if self.process is not None:
            process, self.process = self.process, None
            process.send_signal(signal.SIGCONT)
            end(process, 0)

    def stop(self) -> None:
        """Stop it (SIGTERM)."""
        if self.process is not None:
            process, self.process = self.process, None
            end(process, PATIENCE)

    def freeze(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        self.hosts.cut(self.name)

    def mend(self) -> None:
        self.hosts.mend(self.name)


class Stand:
    """All machines. Ports stay the same over restarts."""

    def __init__(self, directory: Path, *, cuttable: bool, settings: Sequence[str] = ()) -> None:
        program = need_etcd()
        etcds = [f"etcd{n}" for n in BROKERS]
        self.hosts = Hosts([*etcds, *(f"broker{n}" for n in BROKERS)], cuttable=cuttable)
        at = self.hosts.address
        clients = {name: f"{at(name)}:{free_port()}" for name in etcds}
        peers = {name: f"http://{at(name)}:{free_port()}" for name in etcds}
        members = ",".join(f"{name}={peer}" for name, peer in peers.items())
        self.etcds = [
            Machine(
                self.hosts,
                name,
                [
                    *(str(program), "--name", name, "--data-dir", str(directory / name), "--log-level", "error"),
                    *("--listen-client-urls", f"http://{clients[name]}"),
                    *("--advertise-client-urls", f"http://{clients[name]}"),
                    *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
                    *("--initial-cluster", members, "--heartbeat-interval", "50", "--election-timeout", "500"),
                    "--pre-vote",
                ],
                directory / f"{name}.log",
            )
            for name in etcds
        ]
        url = f"etcd://{','.join(clients.values())}/nemesis"
        ports = {n: free_port() for n in BROKERS}
        self.addresses = {n: f"{at(f'broker{n}')}:{ports[n]}" for n in BROKERS}
        self.brokers = [
            Machine(
                self.hosts,
                f"broker{n}",
                [
                    *(sys.executable, "-m", "barnabas_broker", "--cluster", url, "--node-id", str(n)),
                    *("--host", at(f"broker{n}"), "--port", str(ports[n]), "--data-dir", str(directory / f"data{n}")),
                    *(word for setting in (*SETTINGS, *settings) for word in ("--set", setting)),
                ],
                directory / f"broker{n}.log",
            )
            for n in BROKERS
        ]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses.values())

    @property
    def machines(self) -> list[Machine]:
        return [*self.etcds, *self.brokers]

    async def start(self) -> None:
        for machine in self.machines:
            machine.start()
        for address in self.addresses.values():
            await self._answers(address)

    async def _answers(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, int(port))
                except OSError:
                    await asyncio.sleep(0.1)
                else:
                    writer.close()
                    return

    def heal(self) -> None:
        """Start, thaw and connect everything."""
        for machine in self.machines:
            machine.mend()
            machine.thaw()
            if machine.process is not None and not machine.runs:
                machine.kill()
            if machine.process is None:
                machine.start()

    def close(self) -> None:
        for machine in reversed(self.machines):
            machine.kill()
        self.hosts.close()
