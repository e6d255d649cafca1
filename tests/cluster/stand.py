"""Three etcd members and three brokers, each on its own host: they can be killed, frozen and disconnected, and their
disks replaced, damaged and restored."""

import asyncio
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas_broker.local_etcd import free_port
from tests.cluster.harness import PATIENCE, eventually, need_etcd
from tests.cluster.hosts import Hosts
from tests.interop.process import end, spawn

BROKERS: Final = (1, 2, 3)
#: A host on which threads of the load may run, to be cut off from the brokers, unlike the others.
ELSEWHERE: Final = "elsewhere"
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


class Member(Machine):
    """A member of etcd, with its data directory."""

    def __init__(self, hosts: Hosts, name: str, command: Sequence[str], output: Path, data: Path) -> None:
        super().__init__(hosts, name, [*command, "--data-dir", str(data)], output)
        self.data = data

    def back_up(self) -> None:
        """Copy the data; it must not run."""
        shutil.rmtree(self._backup, ignore_errors=True)
        shutil.copytree(self.data, self._backup)

    def go_back(self) -> None:
        """Put the copy in the place of the data; it must not run."""
        shutil.rmtree(self.data)
        shutil.copytree(self._backup, self.data)

    @property
    def _backup(self) -> Path:
        return self.data.with_name(f"{self.data.name}-backup")


class Broker(Machine):
    """A broker with its data directory.

    Args:
        ports: its own, and that of its next `replacement`.
        disk: how many disks this node id had before.
    """

    def __init__(
        self, hosts: Hosts, number: int, command: Sequence[str], directory: Path, ports: tuple[int, int], disk: int = 0
    ) -> None:
        self.number = number
        self.data = directory / f"data{number}-{disk}"
        name = f"broker{number}"
        where = ["--node-id", str(number), "--host", hosts.address(name), "--port", str(ports[0])]
        super().__init__(
            hosts, name, [*command, *where, "--data-dir", str(self.data)], directory / f"broker{number}.log"
        )
        self._made = (command, directory, ports, disk)
        self._started_at = 0

    def start(self) -> None:
        self._started_at = self.output.stat().st_size if self.output.exists() else 0
        super().start()

    def is_halted(self) -> bool:
        """Return whether its log says, since its start, that etcd has lost metadata."""
        return self._has_logged(b"this broker serves nothing until it is restarted")

    async def has_begun(self) -> bool:
        """Return whether it serves clients, or did since its start, or has ended."""
        return not self.runs or self._has_logged(f"listening on {self.address}\n".encode())

    def _has_logged(self, line: bytes) -> bool:
        with self.output.open("rb") as log:
            log.seek(self._started_at)
            return line in log.read()

    @property
    def address(self) -> str:
        return f"{self.hosts.address(self.name)}:{self._made[2][0]}"

    def replacement(self) -> "Broker":
        """Return another broker with this node id, on the same host, with an empty disk. It is not started."""
        command, directory, (port, other), disk = self._made
        return Broker(self.hosts, self.number, command, directory, (other, port), disk + 1)

    def wipe(self) -> None:
        """Empty its disk; it must not run."""
        shutil.rmtree(self.data)

    def lose_ends(self, chance: random.Random) -> None:
        """Cut the logs of half of its partitions, and remove checkpoints. It must have been killed."""
        for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
            (self.data / name).unlink(missing_ok=True)
        for folder in sorted(path for path in self.data.iterdir() if path.is_dir()):
            logs = sorted(folder.glob("*.log"))
            if logs and chance.random() < 0.5:
                with logs[-1].open("r+b") as file:
                    file.truncate(int(chance.random() * logs[-1].stat().st_size))

    def lose_files(self, chance: random.Random) -> str:
        """Remove folders or files of some partitions, or cut files. It must have been stopped cleanly.

        Returns:
            What was done.
        """
        folders = sorted(path for path in self.data.iterdir() if path.is_dir() and any(path.glob("*.log")))
        done = []
        for folder in chance.sample(folders, min(len(folders), chance.randint(1, 4))):
            logs = sorted(folder.glob("*.log"))
            log = chance.choice(logs)
            kind = chance.choice(("folder", "file", "file without its index", "half a file", "half of the files"))
            done.append(f"{kind} of {folder.name}")
            match kind:
                case "folder":
                    shutil.rmtree(folder)
                case "file without its index":
                    log.unlink()
                case "half a file":
                    with log.open("r+b") as file:
                        file.truncate(log.stat().st_size // 2)
                case _:
                    for each in [log] if kind == "file" else logs[: (len(logs) + 1) // 2]:
                        for path in folder.glob(f"{each.stem}.*"):
                            path.unlink()
        return ", ".join(done)


class Stand:
    """All machines. Addresses stay the same over restarts."""

    def __init__(self, directory: Path, *, cuttable: bool, settings: Sequence[str] = ()) -> None:
        program = need_etcd()
        etcds = [f"etcd{n}" for n in BROKERS]
        self.hosts = Hosts([*etcds, *(f"broker{n}" for n in BROKERS), ELSEWHERE], cuttable=cuttable)
        at = self.hosts.address
        clients = {name: f"{at(name)}:{free_port()}" for name in etcds}
        peers = {name: f"http://{at(name)}:{free_port()}" for name in etcds}
        members = ",".join(f"{name}={peer}" for name, peer in peers.items())
        self.etcds = [
            Member(
                self.hosts,
                name,
                [
                    *(str(program), "--name", name, "--log-level", "error"),
                    *("--listen-client-urls", f"http://{clients[name]}"),
                    *("--advertise-client-urls", f"http://{clients[name]}"),
                    *("--listen-peer-urls", peers[name], "--initial-advertise-peer-urls", peers[name]),
                    *("--initial-cluster", members, "--heartbeat-interval", "50", "--election-timeout", "500"),
                    "--pre-vote",
                ],
                directory / f"{name}.log",
                directory / name,
            )
            for name in etcds
        ]
        self.url = f"etcd://{','.join(clients.values())}/nemesis"
        command = [sys.executable, "-m", "barnabas_broker", "--cluster", self.url]
        command += [word for setting in (*SETTINGS, *settings) for word in ("--set", setting)]
        self.brokers = [Broker(self.hosts, n, command, directory, (free_port(), free_port())) for n in BROKERS]
        #: Of all brokers, and of their replacements.
        self.bootstrap = ",".join(each.address for n in self.brokers for each in (n, n.replacement()))
        #: Brokers that were replaced, and may still run.
        self.zombies: list[Broker] = []

    @property
    def machines(self) -> list[Machine]:
        return [*self.etcds, *self.brokers]

    def replace(self, broker: Broker) -> Broker:
        """Start a replacement of a broker, with an empty disk; return it. The broker is a zombie from now on."""
        other = broker.replacement()
        shutil.rmtree(other.data, ignore_errors=True)
        self.zombies.append(broker)
        self.brokers[self.brokers.index(broker)] = other
        other.start()
        return other

    async def start(self) -> None:
        for machine in self.machines:
            machine.start()
        for broker in self.brokers:
            await self._answers(broker.address)

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

    def deafen(self, broker: Machine) -> None:
        """Drop what etcd sends to a broker, not what the broker sends."""
        for member in self.etcds:
            self.hosts.drop(member.name, broker.name)

    def separate(self, broker: Machine) -> None:
        """Disconnect a broker from the other brokers; etcd and clients reach it."""
        for other in self.brokers:
            if other.name != broker.name:
                self.hosts.drop(other.name, broker.name)
                self.hosts.drop(broker.name, other.name)

    def cut_from_etcd(self, broker: Machine) -> None:
        """Disconnect a broker from etcd; the other brokers and clients reach it."""
        self.deafen(broker)
        for member in self.etcds:
            self.hosts.drop(broker.name, member.name)

    def isolate(self, broker: Machine) -> None:
        """Disconnect a broker from etcd and the other brokers; clients reach it."""
        self.cut_from_etcd(broker)
        self.separate(broker)

    async def halted(self, seconds: float) -> None:
        """Wait until each broker serves nothing, because etcd has lost metadata, or has ended."""

        async def all_are() -> bool:
            return all(not broker.runs or broker.is_halted() for broker in self.brokers)

        await eventually("the brokers stop serving", all_are, seconds)

    async def restore(self) -> None:
        """Store the metadata of the brokers in etcd, when their leases have ended there; no broker may run."""
        directories = [str(broker.data) for broker in self.brokers]
        command = [sys.executable, "-m", "barnabas_client.cli", "cluster", "restore", *directories]
        pipe = asyncio.subprocess.PIPE
        while True:
            process = await asyncio.create_subprocess_exec(
                *(*command, "--cluster", self.url, "--execute"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=pipe,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                out, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
            if process.returncode == 0:
                return
            # Leases of the backup have not expired, or etcd has just been started.
            assert b"registered in etcd" in out or b"not reach" in out or b"answer" in out, out.decode()
            await asyncio.sleep(0.5)

    def heal(self) -> None:
        """Start, thaw and connect everything. End what was replaced."""
        while self.zombies:
            self.zombies.pop().kill()
        self.hosts.mend(ELSEWHERE)
        for machine in self.machines:
            machine.mend()
            machine.thaw()
            if machine.process is not None and not machine.runs:
                machine.kill()
            if machine.process is None:
                machine.start()

    def close(self) -> None:
        for machine in reversed([*self.machines, *self.zombies]):
            machine.kill()
        self.hosts.close()
