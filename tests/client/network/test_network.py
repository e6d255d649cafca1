"""Connections by purpose, back-off, and metadata that concurrent callers request once."""

import asyncio
import socket

import pytest

from barnabas_client.config import ClientConfig
from barnabas_client.errors import KafkaConnectionError, KafkaTimeoutError
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.world.answers import Answer, drop, silence
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated


def configured(*servers: tuple[str, int], request_timeout_ms: int = 5_000, max_age_ms: int = 300_000) -> ClientConfig:
    return ClientConfig(
        servers=servers,
        request_timeout_ms=request_timeout_ms,
        metadata_max_age_ms=max_age_ms,
        retry_backoff_ms=1,
        retry_backoff_max_ms=5,
    )


def at(*brokers: Machine, **settings: int) -> ClientConfig:
    return configured(*((broker.host, broker.port) for broker in brokers), **settings)


def closed_port() -> int:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port: int = reserved.getsockname()[1]
        return port


@simulated
async def test_metadata_comes_from_any_bootstrap_server(broker: Machine) -> None:
    network = Network(configured(("nowhere", 9092), (broker.host, broker.port)))
    await network.start()
    assert network.cluster.brokers[0].host == broker.host
    await network.close()


async def test_no_bootstrap_server_answers() -> None:
    one, other = closed_port(), closed_port()
    network = Network(configured(("127.0.0.1", one), ("127.0.0.1", other)))
    with pytest.raises(KafkaConnectionError, match=rf"{one}.*{other}"):
        await network.start()
    await network.close()


@simulated
async def test_metadata_of_watched_topics_is_requested(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.create("u")
    network = Network(at(broker))
    network.watch(["t"])
    await network.start()
    assert set(network.cluster.topics) == {"t"}
    assert network.watch_also(["t", "u"])
    assert not network.watch_also(["u"])
    assert set((await network.refresh()).topics) == {"t", "u"}
    network.watch(["u"])
    assert set((await network.refresh()).topics) == {"u"}
    network.watch(None)
    assert set((await network.refresh()).topics) == {"t", "u"}
    assert broker.script.asked(MetadataRequest)[-1].topics is None
    await network.close()


@simulated
async def test_a_look_up_does_not_watch_topics(broker: Machine) -> None:
    await broker.create("t")
    network = Network(at(broker))
    await network.start()
    assert set((await network.look_up(None)).topics) == {"t"}
    assert set((await network.look_up(["t"])).topics) == {"t"}
    assert network.cluster.topics == {}
    assert network.topics == frozenset()
    await network.close()


@simulated
async def test_concurrent_refreshes_share_one_request(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    before = len(broker.script.asked(MetadataRequest))
    await asyncio.gather(*(network.refresh() for _ in range(20)))
    assert len(broker.script.asked(MetadataRequest)) - before <= 2
    await network.close()


@simulated
async def test_listeners_get_each_new_cluster(broker: Machine) -> None:
    network = Network(at(broker))
    heard: list[int] = []
    network.listeners.append(lambda cluster: heard.append(cluster.version))
    await network.start()
    await network.refresh()
    network.learn(network.cluster)
    assert heard == [1, 2]
    await network.close()


@simulated
async def test_metadata_is_requested_again_after_its_maximum_age(broker: Machine) -> None:
    network = Network(at(broker, max_age_ms=5))
    await network.start()
    updated = asyncio.Event()
    network.listeners.append(lambda cluster: updated.set())
    await updated.wait()
    await network.close()


@simulated
async def test_metadata_is_requested_again_while_a_topic_has_no_leader(simulation: Simulation) -> None:
    broker, other = await simulation.cluster(2)
    await broker.create("t", 1, [1])
    other.kill()
    image = broker.broker.services.cluster
    await until(lambda: image.image.topics["t"].partitions[0].leader == -1)
    network = Network(at(broker))
    network.watch(["t"])
    await network.start()
    found = asyncio.Event()
    tp = TopicPartition("t", 0)
    network.listeners.append(lambda cluster: found.set() if cluster.leader(tp) == 1 else None)
    await network.refresh()
    await other.start()
    await found.wait()
    await network.close()


@simulated
async def test_a_broker_that_disconnects_is_asked_again(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    broker.script.once(ApiKey.METADATA, drop)
    with pytest.raises(KafkaConnectionError):
        await network.refresh()
    assert (await network.refresh()).brokers
    await network.close()


@simulated
async def test_another_broker_is_asked_if_one_is_down(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = Network(at(one))
    await network.start()
    simulation.network.refuse(one.life, 60)
    cluster = await network.refresh()
    assert set(cluster.brokers) == {0, 1}
    assert other.script.asked(MetadataRequest)
    await network.close()


@simulated
async def test_another_broker_is_asked_if_one_brings_nothing_new(simulation: Simulation) -> None:
    """A broker that is cut off from its cluster names itself as the leader for as long as that lasts."""
    one, other = await simulation.cluster(2)
    network = Network(at(one))
    await network.start()
    await network.refresh()
    assert not other.script.asked(MetadataRequest)
    await network.refresh()
    assert other.script.asked(MetadataRequest)
    await network.close()


@simulated
async def test_a_refresh_has_a_timeout(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    broker.script.always(ApiKey.METADATA, silence)
    with pytest.raises(KafkaTimeoutError, match=r"no metadata within 0\.01 s"):
        await network.refresh(timeout=0.01)
    await network.close()


def no_brokers(request: Request) -> Answer:
    return MetadataResponse(brokers=[], topics=[])


@simulated
async def test_a_response_without_brokers_is_an_error(broker: Machine) -> None:
    broker.script.always(ApiKey.METADATA, no_brokers)
    with pytest.raises(KafkaConnectionError, match=r"knows no brokers.*To do: ") as raised:
        await Network(at(broker, request_timeout_ms=1_000)).start()
    broker.script.always(ApiKey.METADATA, None)
    network = Network(at(broker))
    await network.start()
    broker.script.always(ApiKey.METADATA, no_brokers)
    with pytest.raises(KafkaConnectionError, match=r"knows no brokers") as later:
        await network.refresh()
    assert raised.type is later.type is KafkaConnectionError, "and not a private class"
    await network.close()


@simulated
async def test_start_waits_until_a_broker_is_known(broker: Machine) -> None:
    broker.script.once(ApiKey.METADATA, no_brokers)
    network = Network(at(broker))
    await network.start()
    assert set(network.cluster.brokers) == {0}
    await network.close()


@simulated
async def test_one_connection_for_each_purpose(simulation: Simulation) -> None:
    broker = await simulation.machine()
    network = Network(at(broker))
    await network.start()
    data = await network.connection(0, Purpose.DATA)
    fetch, again = await asyncio.gather(network.connection(0, Purpose.FETCH), network.connection(0, Purpose.FETCH))
    assert fetch is again
    assert fetch is not data
    assert network.open_connection(0, Purpose.FETCH) is fetch
    assert network.open_connection(0, Purpose.GROUP) is None
    assert network.open_connection(9, Purpose.DATA) is None
    assert len(simulation.network._ends[broker.life]) == 2
    network.connections.disconnect((broker.host, broker.port), Purpose.FETCH, "test")
    assert fetch.closed
    assert await network.connection(0, Purpose.FETCH) is not fetch
    await network.close()


@simulated
async def test_a_broker_that_is_not_known(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    with pytest.raises(KafkaConnectionError, match=r"broker 9 is not part of the cluster"):
        await network.connection(9, Purpose.DATA)
    await network.close()


@simulated
async def test_why_a_broker_cannot_be_reached_is_known_whichever_task_has_tried(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = Network(at(one))
    await network.start()
    simulation.network.refuse(other.life, 10)
    with pytest.raises(KafkaConnectionError) as raised:
        await network.connection(1, Purpose.GROUP)
    assert network.failure(1) is raised.value
    assert network.failure(0) is None
    assert network.failure(7) is None
    await asyncio.sleep(10)
    await network.connections.open((other.host, other.port), Purpose.DATA, at_once=True)
    assert network.failure(1) is None
    await network.close()


@simulated
async def test_a_restarted_broker_is_reached_again(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    await broker.stop()
    for _ in range(3):
        with pytest.raises(KafkaConnectionError):
            await network.connection(0, Purpose.FETCH)
    await broker.start()
    await network.refresh()
    assert not (await network.connection(0, Purpose.FETCH)).closed
    await network.close()


@simulated
async def test_a_broker_that_moves_is_found_at_its_new_address(simulation: Simulation) -> None:
    before, after = await simulation.machine(), await simulation.machine()
    network = Network(at(before))
    await network.start()
    await before.stop()
    moved = MetadataResponseBroker(node_id=0, host=after.host, port=after.port)
    network.learn(network.cluster.updated(MetadataResponse(brokers=[moved], topics=[]), ()))
    assert (await network.connection(0, Purpose.DATA)).host == after.host
    await network.close()


@simulated
async def test_idle_connections_are_closed(broker: Machine) -> None:
    config = ClientConfig(servers=((broker.host, broker.port),), connections_max_idle_ms=5, retry_backoff_ms=1)
    network = Network(config)
    await network.start()
    connection = await network.connection(0, Purpose.FETCH)
    async with asyncio.timeout(60):
        await connection.wait_closed()
    assert connection.closed
    await network.close()


@simulated
async def test_a_closed_client_refuses(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    await network.close()
    with pytest.raises(KafkaConnectionError, match="closed"):
        await network.refresh()
    with pytest.raises(KafkaConnectionError, match="closed"):
        await network.connection(0, Purpose.GROUP)


@simulated
async def test_close_fails_pending_refreshes(broker: Machine) -> None:
    network = Network(at(broker))
    await network.start()
    broker.script.always(ApiKey.METADATA, silence)
    waiting = asyncio.ensure_future(network.refresh())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await network.close()
    with pytest.raises(KafkaConnectionError):
        await waiting


@simulated
async def test_error_codes_of_metadata(broker: Machine) -> None:
    here = MetadataResponseBroker(node_id=0, host=broker.host, port=broker.port)
    refused = MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, brokers=[here], topics=[])
    network = Network(at(broker))
    await network.start()
    broker.script.once(ApiKey.METADATA, lambda request: refused)
    with pytest.raises(KafkaConnectionError):
        await network.refresh()
    await network.close()
