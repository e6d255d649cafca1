"""The composition root: what a start opens, a stop or a failed start closes, in reverse."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.errors import BrokerError
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.http.endpoint import Endpoint
from barnabas_broker.optional import require
from barnabas_broker.periodic import PeriodicTimer
from barnabas_broker.replication.connection import BrokerConnections
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.server.server import SocketServer
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.storage import LogDirectory, LogDirectoryError
from barnabas_broker.transactions.service import TransactionCoordinator

#: What closes a single broker, in this order.
CLOSING = [
    (PeriodicTimer, "cancel"),
    (CoordinatorPartitions, "close"),
    (CoordinatorPartitions, "close"),
    (CoordinatorPartitions, "close"),
    (ReplicaManager, "wake_fetches"),
    (SocketServer, "stop"),
    (GroupCoordinator, "close"),
    (TransactionCoordinator, "close"),
    (ShareCoordinator, "close"),
    (BrokerConnections, "close"),
    (BrokerConnections, "close"),
    (Endpoint, "stop"),
    (LocalStore, "close"),
    (LogDirectory, "close"),
]


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was closed, in order."""
    names: list[str] = []

    def watch(cls: type, method: str) -> None:
        original: Callable[..., Any] = getattr(cls, method)

        def close(self: Any, *arguments: Any) -> Any:
            names.append(cls.__name__)
            return original(self, *arguments)

        monkeypatch.setattr(cls, method, close)

    for cls, method in dict.fromkeys(CLOSING):
        watch(cls, method)
    return names


def config(tmp_path: Path) -> Config:
    return Config(BROKER_KEYS, {"log.dir": str(tmp_path / "data")})


async def test_a_stop_closes_everything_in_reverse_and_once(tmp_path: Path, closed: list[str]) -> None:
    broker = await BrokerServer.start(config(tmp_path), port=0, http_port=0)
    assert closed == []
    await broker.stop()
    assert closed == [cls.__name__ for cls, _ in CLOSING]
    await broker.stop()
    assert closed == [cls.__name__ for cls, _ in CLOSING]
    again = await BrokerServer.start(config(tmp_path), port=broker.port)
    await again.stop()


@pytest.mark.parametrize(
    ("cls", "method", "left"),
    [
        (LogDirectory, "open", 0),
        (LocalStore, "load", 2),
        (ReplicaManager, "start", 10),
        (Endpoint, "start", 13),
        (SocketServer, "listen", 14),
    ],
)
async def test_a_start_that_fails_closes_what_it_has_opened(
    tmp_path: Path, closed: list[str], monkeypatch: pytest.MonkeyPatch, cls: type, method: str, left: int
) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise LogDirectoryError("it fails here")

    with monkeypatch.context() as patch, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        patch.setattr(cls, method, fail)
        with pytest.raises(BrokerError, match=r"^it fails here$"):
            await BrokerServer.start(config(tmp_path), port=port, http_port=0)
    assert closed == [each.__name__ for each, _ in CLOSING][len(CLOSING) - left :]
    broker = await BrokerServer.start(config(tmp_path), port=port)
    await broker.stop()


def test_an_optional_package_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    with pytest.raises(BrokerError) as error:
        require("no_such_package.of_ours", wanted_by="--no-such-flag", extra="http")
    assert str(error.value) == "--no-such-flag needs no_such_package: pip install 'barnabas[http]'"
