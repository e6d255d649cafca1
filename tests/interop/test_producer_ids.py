"""Producers of each client library keep their ids: others cannot use them, and logins, reconnects and restarts of the
broker do not take them away."""

import asyncio
from collections.abc import Iterator

import pytest

from barnabas_broker.security.sasl import PLAIN_MODULE
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
    ProducerState,
)
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas_protocol.records import build_batch
from tests.certificates import Authority
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.clients.base import Client, Login, Partition
from tests.interop.server import Server, free_port
from tests.interop.waiting import read
from tests.wire import Wire

pytestmark = [pytest.mark.interop, pytest.mark.together, pytest.mark.timeout(180)]


class Secured:
    """A broker whose clients log in over TLS; without a login on another listener."""

    def __init__(self, server: BarnabasBroker, address: str, login: Login) -> None:
        self.server = server
        self.address = address
        self.login = login


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    authority = Authority(tmp_path_factory.mktemp("producer-ids"))
    port, sasl = free_port(), free_port()
    listeners = f"PLAINTEXT://127.0.0.1:{port},SASL_SSL://localhost:{sasl}"
    settings = {
        "listeners": listeners,
        "advertised.listeners": listeners,
        "ssl.keystore.location": str(authority.issue("broker")),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ada="lovelace";',
    }
    with BarnabasBroker(settings, port=port) as server:
        login = Login(str(authority.trust), "PLAIN", "ada", "lovelace")
        yield Secured(server, f"localhost:{sasl}", login)


@pytest.fixture
def server(secured: Secured) -> Server:
    """The server of the fixture `client`."""
    return secured.server


@pytest.fixture
def ada(client: Client, secured: Secured) -> Client:
    return client.at(secured.address, secured.login)


class Eve:
    """A client without a login that may write to all topics, and knows all producers."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._topic = topic

    async def _producer(self, wire: Wire) -> ProducerState:
        asked = DescribeProducersTopicRequest(name=self._topic, partition_indexes=[0])
        answer = await wire.ask(DescribeProducersRequest(topics=[asked]), 0, DescribeProducersResponse)
        return max(answer.topics[0].partitions[0].active_producers, key=lambda each: each.producer_id)

    async def _continue(self, transactional_id: str | None) -> ErrorCode:
        async with await Wire.connect(self._port) as wire:
            producer = await self._producer(wire)
            if transactional_id is not None:
                own = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
                await wire.ask(own, 4, InitProducerIdResponse)
            records = build_batch(
                [(None, b"stolen", (), 0)],
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                base_sequence=producer.last_sequence + 1,
                transactional=transactional_id is not None,
            )
            data = TopicProduceData(name=self._topic, partition_data=[PartitionProduceData(index=0, records=records)])
            request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=60_000, topic_data=[data])
            answer = await wire.ask(request, 9, ProduceResponse)
            return ErrorCode(answer.responses[0].partition_responses[0].error_code)

    def continues(self, transactional_id: str | None = None) -> ErrorCode:
        """The answer to the next batch of the newest producer of the topic."""
        return asyncio.run(self._continue(transactional_id))


def _values(client: Client, topic: str, count: int) -> list[bytes | None]:
    with client.reader(None, read_committed=True) as reader:
        reader.assign(Partition(topic, 0))
        return [record.value for record in read(reader, count)]


def test_idempotent(ada: Client, secured: Secured, fresh: str) -> None:
    """Idempotent producers, whose ids others try to use, over a restart of the broker"""
    ada.admin().create_topic(fresh, 1)
    eve = Eve(secured.server.port, fresh)
    with ada.sender(idempotent=True) as sender:
        for number in range(3):
            sender.send(fresh, b"%d" % number, partition=0)
            sender.flush()
            assert eve.continues() is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        secured.server.restart()
        for number in range(3, 6):
            sender.send(fresh, b"%d" % number, partition=0)
            sender.flush()
            assert eve.continues() is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert _values(ada, fresh, 6) == [b"%d" % number for number in range(6)]


def test_transactional(ada: Client, secured: Secured, fresh: str) -> None:
    """Transactional producers, whose ids others try to use, over a restart of the broker"""
    ada.admin().create_topic(fresh, 1)
    eve = Eve(secured.server.port, fresh)
    with ada.sender(transactional_id=fresh) as sender:
        for number in range(0, 6, 2):
            sender.begin()
            sender.send(fresh, b"%d" % number, partition=0)
            sender.flush()
            assert eve.continues() is ErrorCode.INVALID_TXN_STATE
            assert eve.continues(f"{fresh}-eve") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
            if number == 2:
                secured.server.restart()
                assert eve.continues(f"{fresh}-eve") is not ErrorCode.NONE
            sender.send(fresh, b"%d" % (number + 1), partition=0)
            sender.flush()
            sender.commit()
            assert eve.continues() is ErrorCode.INVALID_TXN_STATE
    assert _values(ada, fresh, 6) == [b"%d" % number for number in range(6)]


def test_an_older_metadata_store(client: Client, secured: Secured, fresh: str) -> None:
    """Idempotent producers, over a kill of the broker and an older metadata store, which does not know their ids"""
    client.admin().create_topic(fresh, 1)
    store = sorted(secured.server.log_dir.glob("metadata.journal*"))
    older = {path: path.read_bytes() for path in store}
    assert older
    with client.sender(idempotent=True) as sender:
        sender.send(fresh, b"0", partition=0)
        sender.flush()
        secured.server.kill()
        for path, content in older.items():
            assert path.read_bytes() != content, "it names a later block of ids"
            path.write_bytes(content)
        secured.server.start()
        for number in range(1, 4):
            sender.send(fresh, b"%d" % number, partition=0)
            sender.flush()
    assert _values(client, fresh, 4) == [b"%d" % number for number in range(4)]
