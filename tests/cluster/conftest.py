"""Fixtures: etcd for the session, a cluster of broker processes for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness import Brokers, Etcd, new_prefix


@pytest.fixture(scope="session")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    """A real etcd; each test has its own prefix."""
    server = Etcd(tmp_path_factory.mktemp("etcd"))
    yield server
    server.kill()


@pytest.fixture
def cluster_url(etcd: Etcd) -> str:
    """An unused prefix in etcd."""
    return f"etcd://127.0.0.1:{etcd.port}/{new_prefix()}"


@pytest.fixture
def cluster(cluster_url: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Brokers]:
    """Brokers, not started. `@pytest.mark.parametrize("cluster", [["KEY=VALUE"]], indirect=True)` configures
    them."""
    brokers = Brokers(cluster_url, tmp_path, getattr(request, "param", ()))
    yield brokers
    brokers.close()
    print(brokers.logs())
