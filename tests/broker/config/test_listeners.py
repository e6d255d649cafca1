"""Several listeners: valid and invalid keys, and the address advertised to the clients of each listener."""

import socket
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas_broker.__main__ import read_config
from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster.image import BrokerRegistered, Event, Image, PartitionInfo, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError, Listener, show
from barnabas_broker.config.checks import advertise, check_inter_broker, protocols_of
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
    NUM_PARTITIONS,
    SSL_CLIENT_AUTH,
)
from barnabas_broker.errors import BrokerError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.config.flags import flags
from tests.broker.conftest import StartBroker
from tests.wire import Wire

TWO = "PLAINTEXT://127.0.0.1:0,INTERNAL://127.0.0.1:0"
OUTSIDE, INSIDE = ("outside.example", 9092), ("inside.example", 19092)
ADVERTISED = "INTERNAL://inside.example:19092,PLAINTEXT://outside.example:9092"


def test_listeners_are_parsed_and_formatted_as_in_kafka() -> None:
    text = " plaintext://:9092 , INTERNAL://[::1]:19092,X-1.y://host:0"
    listeners = LISTENERS.read(text)
    assert listeners == (
        Listener("PLAINTEXT", "0.0.0.0", 9092),
        Listener("INTERNAL", "::1", 19092),
        Listener("X-1.Y", "host", 0),
    )
    assert show(listeners) == "PLAINTEXT://0.0.0.0:9092,INTERNAL://[::1]:19092,X-1.Y://host:0"
    assert LISTENERS.read(show(listeners) or "") == listeners
    assert LISTENERS.read("") == ()


@pytest.mark.parametrize(
    "text",
    ["localhost:9092", "A://x:9092 B://y:1", "A://x", "A://x:70000", "A://x:-1", "://x:1", "A://x/y:1"],
)
def test_invalid_listeners_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^listeners='.*': must be NAME://HOST:PORT, separated by commas$"):
        LISTENERS.read(text)


def test_a_listener_name_is_unique() -> None:
    with pytest.raises(ConfigError, match="each name must be there only once"):
        LISTENERS.read("A://x:1,a://y:2")


@pytest.mark.parametrize("text", ["nowhere", "A://:9092", ":9092", "h:x", "h:99999"])
def test_invalid_addresses_are_rejected(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^advertised\.listeners='.*': must be \[NAME://\]HOST:PORT"):
        ADVERTISED_LISTENERS.read(text)


def advertised(given: str, *listeners: Listener) -> str | None:
    return show(advertise(listeners, ADVERTISED_LISTENERS.read(given), "this-machine"))


A, B = Listener("A", "127.0.0.1", 1), Listener("B", "0.0.0.0", 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("", "A://127.0.0.1:1,B://this-machine:2"),
        ("B://b:22", "A://127.0.0.1:1,B://b:22"),
        ("b://b:0,A://[::1]:11", "A://[::1]:11,B://b:2"),
        ("a:11", "A://a:11,B://this-machine:2"),
        ("::1:11", "A://[::1]:11,B://this-machine:2"),
    ],
)
def test_the_advertised_address_of_each_listener(given: str, expected: str) -> None:
    assert advertised(given, A, B) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("C://c:3", r"advertised.listeners: C://c:3 is no listener; listeners has A, B"),
        ("A://a:1,b:2", r"advertised.listeners: there are two addresses for A"),
    ],
)
def test_invalid_advertised_listeners_are_rejected(given: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        advertised(given, A, B)


@pytest.mark.parametrize(
    ("mapped", "spoken"),
    [
        ("", {"A": "PLAINTEXT", "B": "PLAINTEXT", "SSL": "SSL"}),
        ("A:PLAINTEXT,b:ssl", {"A": "PLAINTEXT", "B": "SSL", "SSL": "SSL"}),
        ("A:SSL,B:PLAINTEXT,SSL:PLAINTEXT,X:SASL_SSL", {"A": "SSL", "B": "PLAINTEXT", "SSL": "PLAINTEXT"}),
    ],
)
def test_what_listeners_speak(mapped: str, spoken: dict[str, str]) -> None:
    assert protocols_of([A, B, Listener("SSL", "h", 1)], LISTENER_SECURITY_PROTOCOL_MAP.read(mapped)) == spoken


def test_a_listener_that_the_map_leaves_out_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"listeners: B://0\.0\.0\.0:2 is not in listener.* add B:SSL or B:PLAINTEXT"):
        protocols_of([A, B], LISTENER_SECURITY_PROTOCOL_MAP.read("A:SSL"))


def test_brokers_reach_each_other_by_the_listener_of_a_protocol() -> None:
    given = Config(BROKER_KEYS, {"security.inter.broker.protocol": "SSL"})
    assert given[INTER_BROKER_LISTENER_NAME] == "SSL"
    check_inter_broker(given, [A, Listener("SSL", "h", 1)])
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name='SSL': must be one of listeners: A, B"):
        check_inter_broker(given, [A, B])
    given.given["inter.broker.listener.name"] = "A"
    with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol: give one of them"):
        check_inter_broker(given, [A, B])


def test_a_listener_has_keys_of_its_own() -> None:
    given = Config(
        BROKER_KEYS,
        {
            "ssl.client.auth": "required",
            "listener.name.x-1.y.ssl.client.auth": "none",
            "listener.name.x-1.y.num.partitions": "7",
        },
    )
    assert given.of_listener("X-1.Y")[SSL_CLIENT_AUTH] == "none"
    assert given.of_listener("Y")[SSL_CLIENT_AUTH] == "required"
    assert given.of_listener("X-1.Y")[NUM_PARTITIONS] == 1


@pytest.mark.parametrize("mapped", ["A", "A:TLS", ":SSL", "A:B:SSL"])
def test_invalid_protocol_maps_are_rejected(mapped: str) -> None:
    with pytest.raises(ConfigError, match=r"^listener\.security\.protocol\.map=.*must be NAME:PROTOCOL"):
        LISTENER_SECURITY_PROTOCOL_MAP.read(mapped)


def test_listeners_can_be_set_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:19092")
    monkeypatch.setenv("KAFKA_ADVERTISED_LISTENERS", "PLAINTEXT://localhost:9092,INTERNAL://broker1:19092")
    monkeypatch.setenv("KAFKA_INTER_BROKER_LISTENER_NAME", "INTERNAL")
    monkeypatch.setenv("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT")
    config, unknown = read_config(flags())
    assert not unknown
    assert [each.name for each in config[LISTENERS]] == ["PLAINTEXT", "INTERNAL"]
    assert config[ADVERTISED_LISTENERS][1] == Listener("INTERNAL", "broker1", 19092)
    assert config[INTER_BROKER_LISTENER_NAME] == "INTERNAL"
    assert config[LISTENER_SECURITY_PROTOCOL_MAP] == ("PLAINTEXT:PLAINTEXT", "INTERNAL:PLAINTEXT")


@dataclass
class Answers:
    """The broker addresses in the responses to one connection."""

    metadata: list[tuple[int, str, int]]
    cluster: list[tuple[int, str, int]]
    coordinator: tuple[int, str, int]


async def answers(port: int) -> Answers:
    async with await Wire.connect(port) as wire:
        metadata = await wire.ask(MetadataRequest(topics=[]), 12, MetadataResponse)
        cluster = await wire.ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False), 1, DescribeClusterResponse
        )
        found = await wire.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4, FindCoordinatorResponse)
    one = found.coordinators[0]
    return Answers(
        [(b.node_id, b.host, b.port) for b in metadata.brokers],
        [(b.broker_id, b.host, b.port) for b in cluster.brokers],
        (one.node_id, one.host, one.port),
    )


async def start_two(start_broker: StartBroker) -> BrokerServer:
    return await start_broker(listeners=TWO, advertised_listeners=ADVERTISED, inter_broker_listener_name="INTERNAL")


async def test_each_listener_advertises_its_own_address(start_broker: StartBroker) -> None:
    broker = await start_two(start_broker)
    assert [each.name for each in broker.listeners] == ["PLAINTEXT", "INTERNAL"]
    assert broker.port == broker.listeners[0].port != broker.listeners[1].port
    for listener, (host, port) in zip(broker.listeners, (OUTSIDE, INSIDE), strict=True):
        here = (1, host, port)
        assert await answers(listener.port) == Answers([here], [here], here)


async def test_the_addresses_in_use_are_shown_as_configuration(start_broker: StartBroker) -> None:
    broker = await start_two(start_broker)
    resource = DescribeConfigsResource(
        resource_type=4, resource_name="1", configuration_keys=["listeners", "advertised.listeners"]
    )
    async with await Wire.connect(broker.port) as wire:
        answer = await wire.ask(DescribeConfigsRequest(resources=[resource]), 4, DescribeConfigsResponse)
    values = {each.name: each.value for each in answer.results[0].configs}
    ports = [each.port for each in broker.listeners]
    assert values == {
        "listeners": f"PLAINTEXT://127.0.0.1:{ports[0]},INTERNAL://127.0.0.1:{ports[1]}",
        "advertised.listeners": "PLAINTEXT://outside.example:9092,INTERNAL://inside.example:19092",
    }


async def test_a_broker_without_the_clients_listener_is_left_out(start_broker: StartBroker) -> None:
    broker = await start_two(start_broker)
    other: list[Event] = [
        BrokerRegistered(2, {"INTERNAL": ("other.example", 19092)}),
        TopicCreated("theirs", b"t" * 16, (PartitionInfo(2, 0, (2, 1), (2, 1)),), {}),
    ]

    def decide(image: Image) -> tuple[list[Event], None]:
        return other, None

    await broker.services.cluster.change(decide)
    request = MetadataRequest(topics=[MetadataRequestTopic(name="theirs")])
    found = {}
    for listener in broker.listeners:
        async with await Wire.connect(listener.port) as wire:
            for version in (5, 6):
                answer = await wire.ask(request, version, MetadataResponse)
                (partition,) = answer.topics[0].partitions
                brokers = [b.node_id for b in answer.brokers]
                found[listener.name, version] = brokers, partition.error_code, list(partition.offline_replicas)
    assert found == {
        ("PLAINTEXT", 5): ([1], ErrorCode.LEADER_NOT_AVAILABLE, [2]),
        ("PLAINTEXT", 6): ([1], ErrorCode.LISTENER_NOT_FOUND, [2]),
        ("INTERNAL", 5): ([1, 2], ErrorCode.NONE, []),
        ("INTERNAL", 6): ([1, 2], ErrorCode.NONE, []),
    }


async def test_a_stop_closes_all_listeners(start_broker: StartBroker) -> None:
    broker = await start_two(start_broker)
    await broker.stop()
    for listener in broker.listeners:
        with pytest.raises(ConnectionRefusedError):
            await Wire.connect(listener.port)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"listeners": TWO, "inter.broker.listener.name": "X"}, r"inter.broker.listener.name='X': must be one of"),
        ({"listeners": "IN://127.0.0.1:0"}, r"inter.broker.listener.name='PLAINTEXT': must be one of listeners: IN"),
        ({"listeners": "SSL://127.0.0.1:0"}, r"inter.broker.listener.name='PLAINTEXT': must be one of listeners: SSL"),
        (
            {"listeners": "SSL://127.0.0.1:0", "security.inter.broker.protocol": "SSL"},
            r"the listener SSL speaks TLS and has no certificate. To do: give ssl.keystore.location",
        ),
        ({"advertised.listeners": "INTERNAL://h:1"}, r"INTERNAL://h:1 is no listener; listeners has PLAINTEXT"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"},
            r"the listener PLAINTEXT speaks SASL\. To do: give sasl\.enabled\.mechanisms=SCRAM-SHA-256",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT", "sasl.enabled.mechanisms": "PLAIN"},
            r"listener\.name\.plaintext\.plain\.sasl\.jaas\.config: must be MODULE required",
        ),
    ],
)
async def test_a_broker_with_contradicting_listeners_does_not_start(
    tmp_path: Path, settings: dict[str, str], why: str
) -> None:
    config = Config(BROKER_KEYS, {"log.dir": str(tmp_path / "data"), **settings})
    with pytest.raises(BrokerError, match=why) as refused:
        await BrokerServer.start(config, port=0)
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "data").exists()


async def test_one_busy_port_releases_the_others(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free, taken = probe.getsockname()[1], busy.getsockname()[1]
        probe.close()
        given = {"log.dir": str(tmp_path), "listeners": f"PLAINTEXT://127.0.0.1:{free},B://127.0.0.1:{taken}"}
        with pytest.raises(BrokerError, match=f"cannot listen on 127.0.0.1:{taken}"):
            await BrokerServer.start(Config(BROKER_KEYS, given))
        socket.create_server(("127.0.0.1", free)).close()
