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
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.fake_broker import HOST, FakeBroker
from tests.world.answers import Answer, drop, silence

pytestmark = pytest.mark.usefixtures("no_complaints")


def configured(*servers: tuple[str, int], request_timeout_ms: int = 5_000, max_age_ms: int = 300_000) -> ClientConfig:
    return ClientConfig(
        servers=servers,
        request_timeout_ms=request_timeout_ms,
        metadata_max_age_ms=max_age_ms,
        retry_backoff_ms=1,
        retry_backoff_max_ms=5,
    )


def at(*brokers: FakeBroker, **settings: int) -> ClientConfig:
    return configured(*((HOST, broker.port) for broker in brokers), **settings)


def closed_port() -> int:
    with socket.socket() as reserved:
        reserved.bind((HOST, 0))
        port: int = reserved.getsockname()[1]
        return port


async def test_metadata_comes_from_any_bootstrap_server(broker: FakeBroker) -> None:
    network = Network(configured((HOST, closed_port()), (HOST, broker.port)))
    await network.start()
    assert network.cluster.brokers[0].port == broker.port
    await network.close()


async def test_no_bootstrap_server_answers() -> None:
    one, other = closed_port(), closed_port()
    network = Network(configured((HOST, one), (HOST, other)))
    with pytest.raises(KafkaConnectionError, match=rf"{one}.*{other}"):
        await network.start()
    await network.close()


async def test_metadata_of_watched_topics_is_requested(broker: FakeBroker) -> None:
    broker.create("t", 2)
    broker.create("u")
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
    assert broker.asked(MetadataRequest)[-1].topics is None
    await network.close()


async def test_a_look_up_does_not_watch_topics(broker: FakeBroker) -> None:
    broker.create("t")
    network = Network(at(broker))
    await network.start()
    assert set((await network.look_up(None)).topics) == {"t"}
    assert set((await network.look_up(["t"])).topics) == {"t"}
    assert network.cluster.topics == {}
    assert network.topics == frozenset()
    await network.close()


async def test_concurrent_refreshes_share_one_request(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    before = len(broker.asked(MetadataRequest))
    await asyncio.gather(*(network.refresh() for _ in range(20)))
    assert len(broker.asked(MetadataRequest)) - before <= 2
    await network.close()


async def test_listeners_get_each_new_cluster(broker: FakeBroker) -> None:
    network = Network(at(broker))
    heard: list[int] = []
    network.listeners.append(lambda cluster: heard.append(cluster.version))
    await network.start()
    await network.refresh()
    network.learn(network.cluster)
    assert heard == [1, 2]
    await network.close()


async def test_metadata_is_requested_again_after_its_maximum_age(broker: FakeBroker) -> None:
    network = Network(configured((HOST, broker.port), max_age_ms=5))
    await network.start()
    updated = asyncio.Event()
    network.listeners.append(lambda cluster: updated.set())
    await updated.wait()
    await network.close()


async def test_metadata_is_requested_again_while_a_topic_has_no_leader(broker: FakeBroker) -> None:
    broker.create("t")
    broker.topics["t"][0].leader = -1
    network = Network(at(broker))
    network.watch(["t"])
    await network.start()
    found = asyncio.Event()
    tp = TopicPartition("t", 0)
    network.listeners.append(lambda cluster: found.set() if cluster.leader(tp) == 0 else None)
    await network.refresh()
    broker.topics["t"][0].leader = 0
    await found.wait()
    await network.close()


async def test_a_broker_that_disconnects_is_asked_again(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    broker.once(ApiKey.METADATA, drop)
    with pytest.raises(KafkaConnectionError):
        await network.refresh()
    assert (await network.refresh()).brokers
    await network.close()


async def test_another_broker_is_asked_if_one_is_down(pair: tuple[FakeBroker, FakeBroker]) -> None:
    one, other = pair
    network = Network(at(one))
    await network.start()
    await one.stop()
    cluster = await network.refresh()
    assert set(cluster.brokers) == {0, 1}
    assert other.asked(MetadataRequest)
    await network.close()


async def test_another_broker_is_asked_if_one_brings_nothing_new(pair: tuple[FakeBroker, FakeBroker]) -> None:
    """A broker that is cut off from its cluster names itself as the leader for as long as that lasts."""
    one, other = pair
    network = Network(at(one))
    await network.start()
    await network.refresh()
    assert not other.asked(MetadataRequest)
    await network.refresh()
    assert other.asked(MetadataRequest)
    await network.close()


async def test_a_refresh_has_a_timeout(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    broker.always(ApiKey.METADATA, silence)
    with pytest.raises(KafkaTimeoutError, match=r"no metadata within 0\.01 s"):
        await network.refresh(timeout=0.01)
    await network.close()


def no_brokers(request: Request) -> Answer:
    return MetadataResponse(brokers=[], topics=[])


async def test_a_response_without_brokers_is_an_error(broker: FakeBroker) -> None:
    broker.always(ApiKey.METADATA, no_brokers)
    with pytest.raises(KafkaConnectionError, match=r"knows no brokers.*To do: ") as raised:
        await Network(at(broker, request_timeout_ms=1_000)).start()
    broker.always(ApiKey.METADATA, None)
    network = Network(at(broker))
    await network.start()
    broker.always(ApiKey.METADATA, no_brokers)
    with pytest.raises(KafkaConnectionError, match=r"knows no brokers") as later:
        await network.refresh()
    assert raised.type is later.type is KafkaConnectionError, "and not a private class"
    await network.close()


async def test_start_waits_until_a_broker_is_known(broker: FakeBroker) -> None:
    broker.once(ApiKey.METADATA, no_brokers)
    network = Network(at(broker))
    await network.start()
    assert set(network.cluster.brokers) == {0}
    await network.close()


async def test_one_connection_for_each_purpose(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    data = await network.connection(0, Purpose.DATA)
    fetch, again = await asyncio.gather(network.connection(0, Purpose.FETCH), network.connection(0, Purpose.FETCH))
    assert fetch is again
    assert fetch is not data
    assert network.open_connection(0, Purpose.FETCH) is fetch
    assert network.open_connection(0, Purpose.GROUP) is None
    assert network.open_connection(9, Purpose.DATA) is None
    assert broker.connections == 2
    network.connections.disconnect((HOST, broker.port), Purpose.FETCH, "test")
    assert fetch.closed
    assert await network.connection(0, Purpose.FETCH) is not fetch
    await network.close()


async def test_a_broker_that_is_not_known(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    with pytest.raises(KafkaConnectionError, match=r"broker 9 is not part of the cluster"):
        await network.connection(9, Purpose.DATA)
    await network.close()


async def test_why_a_broker_cannot_be_reached_is_known_whoever_has_tried(pair: tuple[FakeBroker, FakeBroker]) -> None:
    one, other = pair
    network = Network(at(one))
    await network.start()
    await other.stop()
    with pytest.raises(KafkaConnectionError) as raised:
        await network.connection(1, Purpose.GROUP)
    assert network.failure(1) is raised.value
    assert network.failure(0) is None
    assert network.failure(7) is None
    await other.start()
    await network.connections.open((HOST, other.port), Purpose.DATA, at_once=True)
    assert network.failure(1) is None
    await network.close()


async def test_a_restarted_broker_is_reached_again(broker: FakeBroker) -> None:
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


async def test_a_broker_that_moves_is_found_at_its_new_address(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    await broker.stop()
    broker.port = 0
    await broker.start()
    network.learn(network.cluster.updated(metadata_of(broker), ()))
    assert (await network.connection(0, Purpose.DATA)).port == broker.port
    await network.close()


def metadata_of(broker: FakeBroker) -> MetadataResponse:
    return broker._metadata(MetadataRequest(topics=[]))


async def test_idle_connections_are_closed(broker: FakeBroker) -> None:
    config = ClientConfig(servers=((HOST, broker.port),), connections_max_idle_ms=5, retry_backoff_ms=1)
    network = Network(config)
    await network.start()
    connection = await network.connection(0, Purpose.FETCH)
    async with asyncio.timeout(60):
        await connection.wait_closed()
    assert connection.closed
    await network.close()


async def test_a_closed_client_refuses(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    await network.close()
    with pytest.raises(KafkaConnectionError, match="closed"):
        await network.refresh()
    with pytest.raises(KafkaConnectionError, match="closed"):
        await network.connection(0, Purpose.GROUP)


async def test_close_fails_pending_refreshes(broker: FakeBroker) -> None:
    network = Network(at(broker))
    await network.start()
    broker.always(ApiKey.METADATA, silence)
    waiting = asyncio.ensure_future(network.refresh())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await network.close()
    with pytest.raises(KafkaConnectionError):
        await waiting


async def test_error_codes_of_metadata(broker: FakeBroker) -> None:
    def refused(request: Request) -> Answer:
        response = metadata_of(broker)
        response.error_code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return response

    network = Network(at(broker))
    await network.start()
    broker.once(ApiKey.METADATA, refused)
    with pytest.raises(KafkaConnectionError):
        await network.refresh()
    await network.close()
