"""The targets: Barnabas, and the programs it is compared with."""

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.interop import process
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import SERVER_JVM, ApacheKafka, kafka_cluster, kafka_version, resolve
from tests.interop.server import Server

ROOT: Final = Path(__file__).parents[2]
LIMIT: Final = 600.0
#: Deleted data of one measurement must not be written to the disk during the next one.
SHORT_LIVED: Final = {"log.segment.delete.delay.ms": 1000}
#: The settings of kafka-server-start.sh.
HEAP: Final = "1g"
_JVM: Final = (*SERVER_JVM, f"-Xms{HEAP}")


@dataclass(frozen=True)
class Target:
    """A program to measure. `run` yields its address; `server`, if any, creates a process that can be restarted;
    `cluster`, if any, runs some nodes and yields their addresses; `python`, if any, has Barnabas installed."""

    name: str
    run: Callable[[], AbstractContextManager[str]]
    server: Callable[..., Server] | None = None
    cluster: Callable[[int], AbstractContextManager[str]] | None = None
    python: str | None = None

    @property
    def keeps_topics(self) -> bool:
        """Whether topics can be created and deleted, and produced records can be consumed later."""
        return self.server is not None


@contextmanager
def _address(make: Callable[..., Server]) -> Iterator[str]:
    with make() as server:
        yield server.bootstrap_servers


def _served(
    name: str,
    make: Callable[..., Server],
    cluster: Callable[[int], AbstractContextManager[str]] | None = None,
    python: str | None = None,
) -> Target:
    return Target(name, lambda: _address(functools.partial(make, SHORT_LIVED)), make, cluster, python)


@contextmanager
def _mock() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.loads.mock"]
    mock = process.spawn(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert mock.stdout is not None
        yield mock.stdout.readline().rpartition(" ")[2].strip()
    finally:
        process.end(mock, 5)
        for stream in (mock.stdin, mock.stdout):
            if stream is not None:
                stream.close()


BARNABAS: Final = _served("Barnabas", BarnabasBroker, python=sys.executable)
MOCK: Final = Target("librdkafka's mock", _mock)


def version(checkout: Path) -> Target:
    """Return the broker of another checkout that `make install` was run in: the version before a change."""
    python = str(checkout.absolute() / ".venv/bin/python")
    return _served(f"before ({checkout.name})", functools.partial(BarnabasBroker, python=python), python=python)


def apache_kafka() -> Target:
    """Return Apache Kafka as a target. Raises KafkaUnavailable if Java or the jars are not available."""
    resolve()
    make = functools.partial(ApacheKafka, heap=HEAP, jvm=_JVM)
    return _served(f"Apache Kafka {kafka_version()}", make, _kafka_cluster)


@contextmanager
def _kafka_cluster(nodes: int) -> Iterator[str]:
    with kafka_cluster(nodes, {**SHORT_LIVED, "min.insync.replicas": 2}, heap=HEAP, jvm=_JVM) as servers:
        yield ",".join(server.bootstrap_servers for server in servers)


#: Targets by their names on the command line.
TARGETS: Final[Mapping[str, Callable[[], Target]]] = {
    "barnabas": lambda: BARNABAS,
    "mock": lambda: MOCK,
    "kafka": apache_kafka,
}


def load(program: str, *args: str | int | float, path: Path | None = None) -> dict[str, Any]:
    """Run one of the loads in a new process; return its measurements.

    Args:
        program: its name.
        args: its arguments.
        path: a folder of modules that it imports in place of those that are installed.
    """
    command = [sys.executable, "-m", f"tests.bench.loads.{program}", *map(str, args)]
    done = process.run(command, LIMIT, environment=None if path is None else os.environ | {"PYTHONPATH": str(path)})
    if done.returncode != 0:
        raise RuntimeError(f"{program} {' '.join(map(str, args))}:\n{done.stderr[-2000:]}")
    measured: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return measured
