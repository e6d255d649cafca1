"""What a broker that shall be one of several does not start with."""

from pathlib import Path

import pytest

from barnabas_broker.broker import Broker, BrokerError
from barnabas_broker.config.config import Config
from barnabas_broker.config.keys import BROKER_KEYS
from barnabas_broker.supervisor import free_port
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tests.broker.conftest import StartBroker
from tests.cluster.harness import Etcd, new_prefix
from tests.wire import Wire


def broker(directory: Path, url: str, **settings: str) -> Broker:
    given = {"log.dir": str(directory / "data"), "node.id": "1", "cluster.url": url}
    return Broker(Config(BROKER_KEYS, {**given, **{key.replace("_", "."): v for key, v in settings.items()}}), port=0)


@pytest.mark.parametrize(
    ("url", "why"),
    [("redis://a:1", "must be etcd://HOST:PORT"), ("etcd://nowhere", "is not HOST:PORT")],
)
async def test_a_place_that_cannot_be(tmp_path: Path, url: str, why: str) -> None:
    with pytest.raises(BrokerError, match=why):
        await broker(tmp_path, url).start()


async def test_certificates_that_are_not_there(tmp_path: Path) -> None:
    one = broker(tmp_path, "etcd://127.0.0.1:1", etcd_ssl_cafile=str(tmp_path / "nothing.pem"))
    with pytest.raises(BrokerError, match=r"nothing\.pem"):
        await one.start()


async def test_an_etcd_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas_broker.cluster.member.START_SECONDS", 1.0)
    url = f"etcd://127.0.0.1:{free_port()}"
    with pytest.raises(BrokerError, match=r"cannot reach the cluster: etcd at 127.0.0.1:.*check that etcd runs and"):
        await broker(tmp_path, url).start()
    # Nothing was made that would keep it from starting later.
    assert not (tmp_path / "data").exists()


async def test_the_directory_of_a_single_broker(tmp_path: Path, start_broker: StartBroker) -> None:
    await (await start_broker()).stop()
    with pytest.raises(BrokerError, match="belongs to a single broker: start it without --cluster"):
        await broker(tmp_path, "etcd://127.0.0.1:1").start()


@pytest.mark.cluster
async def test_the_directory_of_a_cluster_is_not_for_a_single_broker(
    tmp_path: Path, etcd: Etcd, start_broker: StartBroker
) -> None:
    url = f"etcd://127.0.0.1:{etcd.port}/{new_prefix()}"
    one = broker(tmp_path, url, offsets_topic_num_partitions="2")
    await one.start()
    async with await Wire.connect(one.port) as wire:
        request = FindCoordinatorRequest(key="group", key_type=0)
        answer = await wire.ask(request, 3, FindCoordinatorResponse)
        assert answer.node_id == 1
    await one.stop()
    with pytest.raises(BrokerError, match=r"belongs to a broker of cluster .*: start it with --cluster"):
        await start_broker()
    with pytest.raises(BrokerError, match="there is no cluster at etcd://"):
        await broker(tmp_path, f"{url}-other").start()
    again = broker(tmp_path, url)
    await again.start()
    await again.stop()
