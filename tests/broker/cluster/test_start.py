"""Errors at the start of a broker of a cluster."""

from pathlib import Path

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.errors import BrokerError
from barnabas_broker.local_etcd import free_port
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.conftest import StartBroker
from tests.cluster.harness import Etcd, new_prefix
from tests.wire import Wire


async def start(directory: Path, url: str, **settings: str) -> BrokerServer:
    given = {"log.dir": str(directory / "data"), "node.id": "1", "cluster.url": url}
    config = Config(BROKER_KEYS, {**given, **{key.replace("_", "."): v for key, v in settings.items()}})
    return await BrokerServer.start(config, port=0)


@pytest.mark.parametrize(
    ("url", "why"),
    [("redis://a:1", "must be etcd://HOST:PORT"), ("etcd://nowhere", "is not HOST:PORT")],
)
async def test_an_invalid_url(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(BrokerError, match=why):
        await start(tmp_path, url)


async def test_missing_certificates(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"nothing\.pem"):
        await start(tmp_path, "etcd://127.0.0.1:1", etcd_ssl_cafile=str(tmp_path / "nothing.pem"))


async def test_an_etcd_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.cluster.member.START_SECONDS", 1.0)
    url = f"etcd://127.0.0.1:{free_port()}"
    with pytest.raises(BrokerError, match=r"cannot reach the cluster: etcd at 127.0.0.1:.*check that etcd runs and"):
        await start(tmp_path, url)
    # Nothing was created that would prevent a later start.
    assert not (tmp_path / "data").exists()


async def test_the_directory_of_a_single_broker(tmp_path: Path, start_broker: StartBroker) -> None:
    await (await start_broker()).stop()
    with pytest.raises(BrokerError, match="belongs to a single broker: start it without --cluster"):
        await start(tmp_path, "etcd://127.0.0.1:1")


@pytest.mark.cluster
async def test_a_single_broker_rejects_the_directory_of_a_cluster(
    tmp_path: Path, etcd: Etcd, start_broker: StartBroker
) -> None:
    url = f"etcd://127.0.0.1:{etcd.port}/{new_prefix()}"
    one = await start(tmp_path, url, offsets_topic_num_partitions="2")
    async with await Wire.connect(one.port) as wire:
        request = FindCoordinatorRequest(key="group", key_type=0)
        answer = await wire.ask(request, 3, FindCoordinatorResponse)
        assert answer.node_id == 1
    await one.stop()
    with pytest.raises(BrokerError, match=r"belongs to a broker of cluster .*: start it with --cluster"):
        await start_broker()
    with pytest.raises(BrokerError, match="there is no cluster at etcd://"):
        await start(tmp_path, f"{url}-other")
    again = await start(tmp_path, url)
    await again.stop()
    other = await start(tmp_path / "other", f"{url}-other", offsets_topic_num_partitions="2")
    await other.stop()
    with pytest.raises(ConfigError, match=r"belongs to cluster .*, but etcd://.* is cluster"):
        await start(tmp_path, f"{url}-other")
