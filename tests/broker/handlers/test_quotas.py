"""Quotas over the wire: they are set and described, and clients that are over them have to wait."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.handlers.quotas import MOST_CHANGES
from barnabas_broker.server.connection import Peer
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    OpData,
)
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_data import ZERO, batch, topic_id
from tests.wire import Wire, until

__all__ = ["topic_id"]

ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")
ANY_CLIENT = (("client-id", None),)


def alter(
    entity: Iterable[tuple[str, str | None]], values: Mapping[str, float | None], *, validate_only: bool = False
) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterEntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
            )
        ],
        validate_only=validate_only,
    )


async def set_quota(wire: Wire, entity: Sequence[tuple[str, str | None]], **values: float | None) -> None:
    answer = await wire.ask(alter(entity, values), 1, AlterClientQuotasResponse, client_id="operator")
    assert [entry.error_code for entry in answer.entries] == [0]


async def described(wire: Wire, *components: tuple[str, int, str | None], strict: bool = False) -> dict[str, float]:
    asked = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components],
        strict=strict,
    )
    answer = await wire.ask(asked, 1, DescribeClientQuotasResponse)
    assert answer.error_code == 0
    return {
        "/".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity) + ":" + value.key: value.value
        for entry in answer.entries or ()
        for value in entry.values
    }


def producing(size: int, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=0, records=batch(bytes(size)))
    topic = TopicProduceData(name="t", topic_id=ZERO, partition_data=[data])
    return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=[topic])


def fetching(
    offset: int = 0, session: tuple[int, int] = (0, -1), most: int = 1 << 20, replica: int = -1
) -> FetchRequest:
    wanted = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)]
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic="t", topic_id=ZERO, partitions=wanted)],
    )


def size_of(answer: FetchResponse) -> int:
    return sum(len(one.records or b"") for topic in answer.responses for one in topic.partitions)


def muted(broker: BrokerServer) -> list[Peer]:
    return [peer for peer in broker.server.peers if peer.muted is not None]


def left(peer: Peer) -> float:
    """Seconds for which a connection is still muted."""
    assert peer.muted is not None
    return peer.muted.when() - asyncio.get_running_loop().time()


def unmute(peer: Peer) -> None:
    """End the wait now, as its timer does."""
    assert peer.muted is not None
    peer.muted.cancel()
    peer._unmute()


async def test_quotas_are_set_and_described(wire: Wire) -> None:
    await set_quota(wire, [("user", "ada"), ("client-id", "app")], producer_byte_rate=1024)
    await set_quota(wire, [("user", "ada")], request_percentage=12.5)
    await set_quota(wire, [("user", None)], consumer_byte_rate=5)
    await set_quota(wire, [("ip", "127.0.0.1")], connection_creation_rate=50)
    everything = {
        "client-id=app/user=ada:producer_byte_rate": 1024,
        "user=ada:request_percentage": 12.5,
        "user=None:consumer_byte_rate": 5,
        "ip=127.0.0.1:connection_creation_rate": 50,
    }
    assert await described(wire) == everything
    assert await described(wire, strict=True) == {}
    of_users = {key: value for key, value in everything.items() if "user" in key}
    assert await described(wire, ("user", 2, None)) == of_users
    assert await described(wire, ("user", 0, "ada"), strict=True) == {"user=ada:request_percentage": 12.5}
    assert await described(wire, ("user", 1, None)) == {"user=None:consumer_byte_rate": 5}
    assert list(await described(wire, ("client-id", 2, None))) == ["client-id=app/user=ada:producer_byte_rate"]
    await set_quota(wire, [("user", "ada")], request_percentage=None)
    assert await described(wire, ("user", 0, "ada"), strict=True) == {}


async def test_too_many_changes(wire: Wire) -> None:
    one = alter(ANY_CLIENT, {"producer_byte_rate": 5})
    one.entries *= MOST_CHANGES + 1
    answer = await wire.ask(one, 1, AlterClientQuotasResponse)
    assert {entry.error_code for entry in answer.entries} == {ErrorCode.INVALID_REQUEST}
    one = alter([("user", "ada")] * 17, {"producer_byte_rate": 5})
    answer = await wire.ask(one, 1, AlterClientQuotasResponse)
    assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST


async def test_quotas_are_there_after_a_restart(start_broker: StartBroker) -> None:
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        await set_quota(wire, [("user", None)], request_percentage=1e300, producer_byte_rate=1)
    await broker.stop()
    broker = await start_broker()
    async with await Wire.connect(broker.port) as wire:
        assert await described(wire) == {"user=None:request_percentage": 1e300, "user=None:producer_byte_rate": 1}
    assert broker.services.quotas.active


@pytest.mark.parametrize("acks", [1, -1])
async def test_a_producer_over_its_quota_is_answered_and_then_waits(
    broker: BrokerServer, wire: Wire, topic_id: bytes, acks: int
) -> None:
    await set_quota(wire, [("client-id", "test")], producer_byte_rate=100)
    assert (await wire.ask(producing(10, acks), 9, ProduceResponse)).throttle_time_ms == 0
    # 3,000 bytes are within ten seconds of 100 a second, and 2,000 above.
    answer = await wire.ask(producing(3000, acks), 9, ProduceResponse)
    assert 20_000 < answer.throttle_time_ms < 25_000
    assert answer.responses[0].partition_responses[0].error_code == 0
    (peer,) = muted(broker)
    assert answer.throttle_time_ms / 1000 - 5 < left(peer) <= answer.throttle_time_ms / 1000 + 0.01
    assert broker.services.quotas.produces.throttled == 1
    wire.send(ASK, 3)
    async with await Wire.connect(broker.port) as other:
        # Another client has its own quota, and this one waits on all of its connections.
        assert (await other.ask(producing(3000), 9, ProduceResponse, "other")).throttle_time_ms == 0
        assert (await other.ask(producing(10), 9, ProduceResponse, "test")).throttle_time_ms > 20_000
    unmute(peer)
    assert decode_response(ApiVersionsResponse, 3, await wire.frame()).error_code == 0


async def test_no_request_is_started_behind_one_that_has_to_wait(
    broker: BrokerServer, wire: Wire, topic_id: bytes
) -> None:
    await set_quota(wire, ANY_CLIENT, producer_byte_rate=10)
    log = broker.services.replicas.find("t", 0).log
    for _ in range(5):
        wire.send(producing(1000, -1), 9)
    assert decode_response(ProduceResponse, 9, await wire.frame()).throttle_time_ms > 0
    assert log.log_end_offset == 1
    (peer,) = muted(broker)
    unmute(peer)
    assert decode_response(ProduceResponse, 9, await wire.frame()).throttle_time_ms > 0
    assert log.log_end_offset == 2


async def test_acks_0_waits_without_an_answer(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    await set_quota(wire, ANY_CLIENT, producer_byte_rate=10, request_percentage=1e-9)
    wire.send(producing(1000, 0), 9)
    wire.send(ASK, 3)
    await until(lambda: bool(broker.services.quotas.produces.throttled))
    assert not broker.services.quotas.requests.throttled
    (peer,) = muted(broker)
    assert left(peer) > 50
    unmute(peer)
    assert decode_response(ApiVersionsResponse, 3, await wire.frame()).error_code == 0


async def test_a_consumer_over_its_quota_gets_an_empty_response(
    broker: BrokerServer, wire: Wire, topic_id: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowed: list[tuple[str, str]] = []
    monkeypatch.setattr(broker.services.groups.fetches, "throttled", slowed.append)
    for _ in range(4):
        await wire.ask(producing(1000), 9, ProduceResponse)
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=250)
    answer = await wire.ask(fetching(), 12, FetchResponse)
    # Not more than ten seconds of 250 bytes at a time, in whole batches.
    assert 2000 < size_of(answer) <= 2500
    assert answer.throttle_time_ms == 0
    answer = await wire.ask(fetching(2), 12, FetchResponse)
    assert (size_of(answer), answer.responses, answer.error_code) == (0, [], 0)
    assert 1000 < answer.throttle_time_ms < 20_000
    assert [host for _, host in slowed] == ["/127.0.0.1"]
    (peer,) = muted(broker)
    assert 0 < left(peer) <= answer.throttle_time_ms / 1000 + 0.01
    unmute(peer)
    # What was held back is not counted.
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=500)
    assert size_of(await wire.ask(fetching(2), 12, FetchResponse)) > 2000


async def test_a_batch_larger_than_the_quota_of_a_window_gets_through(
    broker: BrokerServer, wire: Wire, topic_id: bytes
) -> None:
    await wire.ask(producing(1000), 9, ProduceResponse)
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=10)
    answer = await wire.ask(fetching(), 12, FetchResponse)
    assert size_of(answer) == 0
    assert answer.throttle_time_ms > 0


async def test_followers_have_no_quota(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    await wire.ask(producing(1000), 9, ProduceResponse)
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=1, request_percentage=1e-9)
    for _ in range(3):
        # A single broker has no followers, so that this one gets an error for the partition.
        answer = await wire.ask(fetching(replica=2), 12, FetchResponse, client_id="broker-2")
        assert answer.throttle_time_ms == 0
        assert answer.responses
    assert not len(broker.services.quotas.fetches)
    assert (await wire.ask(fetching(), 12, FetchResponse)).throttle_time_ms > 0


async def test_a_session_goes_on_after_a_wait(broker: BrokerServer, wire: Wire, topic_id: bytes) -> None:
    await wire.ask(producing(1000), 9, ProduceResponse)
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=1000)
    first = await wire.ask(fetching(session=(0, 0)), 12, FetchResponse)
    assert first.session_id > 0
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=1)
    incremental = fetching(1, session=(first.session_id, 1))
    held = await wire.ask(incremental, 12, FetchResponse)
    assert (held.session_id, held.responses) == (first.session_id, [])
    assert held.throttle_time_ms > 0
    (peer,) = muted(broker)
    unmute(peer)
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=None)
    go_on = fetching(0, session=(first.session_id, 2))
    assert size_of(await wire.ask(go_on, 12, FetchResponse)) > 1000
    # A full fetch that is held back begins no session.
    await set_quota(wire, ANY_CLIENT, consumer_byte_rate=1)
    sessions = len(broker.services.fetch_sessions)
    held = await wire.ask(fetching(session=(0, 0)), 12, FetchResponse)
    assert (held.session_id, held.responses) == (0, [])
    assert len(broker.services.fetch_sessions) == sessions


async def test_the_time_of_requests_counts(broker: BrokerServer, wire: Wire) -> None:
    await set_quota(wire, [("client-id", "busy")], request_percentage=1e-6)
    # The first response may already be late.
    answer = await wire.ask(
        HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, HeartbeatResponse, "busy"
    )
    assert answer.throttle_time_ms == 1000
    (peer,) = muted(broker)
    assert 0 < left(peer) <= 1.01
    unmute(peer)
    # The answer to another client is the same, but for the time.
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    other = await wire.ask(request, 4, HeartbeatResponse, "idle")
    assert (other.error_code, other.throttle_time_ms) == (answer.error_code, 0)


async def test_topics_are_created_and_deleted_at_a_rate(broker: BrokerServer, wire: Wire) -> None:
    await set_quota(wire, [("user", None)], controller_mutation_rate=1)

    def create(*names: str, partitions: int = 4) -> CreateTopicsRequest:
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
            for name in names
        ]
        return CreateTopicsRequest(topics=topics, timeout_ms=5000, validate_only=False)

    answer = await wire.ask(create("a", "b", "c", "d"), 7, CreateTopicsResponse)
    assert [topic.error_code for topic in answer.topics] == [0, 0, 0, ErrorCode.THROTTLING_QUOTA_EXCEEDED]
    assert 0 < answer.throttle_time_ms <= 1000
    unmute(muted(broker)[0])
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=5, assignments=None)], timeout_ms=5000, validate_only=False
    )
    answers = await wire.ask(grown, 3, CreatePartitionsResponse)
    assert answers.results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    unmute(muted(broker)[0])
    # Older clients do not know that error: they only wait.
    gone = DeleteTopicsRequest(topic_names=["a"], timeout_ms=5000)
    deleted = await wire.ask(gone, 4, DeleteTopicsResponse)
    assert deleted.responses[0].error_code == 0
    assert deleted.throttle_time_ms > 3000
    unmute(muted(broker)[0])
    named = DeleteTopicsRequest(topics=[DeleteTopicState(name="b")], timeout_ms=5000)
    refused = await wire.ask(named, 6, DeleteTopicsResponse)
    assert refused.responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    unmute(muted(broker)[0])
    # A topic that is created by its use stays unknown.
    asked = [MetadataRequestTopic(name="auto", topic_id=ZERO)]
    unknown = await wire.ask(MetadataRequest(topics=asked), 12, MetadataResponse)
    assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(broker.services.cluster.image.topics) == {"b", "c"}


async def test_a_muted_client_that_hangs_up_leaves_nothing(broker: BrokerServer, topic_id: bytes, wire: Wire) -> None:
    await set_quota(wire, [("client-id", "gone")], producer_byte_rate=1)
    other = await Wire.connect(broker.port)
    assert (await other.ask(producing(70_000), 9, ProduceResponse, "gone")).throttle_time_ms > 1_000_000
    other.writer.write((100_000_000).to_bytes(4, "big"))  # the head of a large request
    await other.close()
    (peer,) = muted(broker)
    assert broker.server.requests.used == 0
    (connection,) = [each for each in broker.server._connections if each.peer is peer]
    assert not connection.busy
    assert not connection.reading
    timer = peer.muted
    connection.abort()
    await until(lambda: connection not in broker.server._connections)
    assert timer is not None
    assert timer.cancelled()
    assert broker.server.requests.used == 0
