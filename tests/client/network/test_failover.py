"""One broker of several is down: operations that another broker can do do not wait for it.

Back-offs are an hour long here, so a test that waits for one reaches its timeout.
"""

from typing import Any

import pytest

from barnabas_client import Consumer, Producer
from barnabas_client.config import ClientConfig
from barnabas_client.errors import KafkaConnectionError
from barnabas_client.network import connections
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.messages.produce import ProduceRequest
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, T1, consumer, values
from tests.client.fake_broker import HOST, FakeBroker
from tests.world.answers import drop, silence
from tests.world.broker import until

pytestmark = pytest.mark.usefixtures("no_complaints")

HOUR_MS = 3_600_000
SLOW: dict[str, Any] = {"retry_backoff_ms": HOUR_MS, "retry_backoff_max_ms": HOUR_MS}

Pair = tuple[FakeBroker, FakeBroker]


def lead(broker: FakeBroker, partition: int) -> None:
    """Make it the leader, in the next epoch."""
    state = broker.topics["t"][partition]
    state.leader, state.leader_epoch = broker.node_id, state.leader_epoch + 1


async def connected(*brokers: FakeBroker) -> Network:
    settings = {"request_timeout_ms": HOUR_MS, **SLOW}
    network = Network(ClientConfig(servers=tuple((HOST, broker.port) for broker in brokers), **settings))
    await network.start()
    return network


async def look_again(client: Consumer | Producer) -> None:
    """What happens by itself every `retry_backoff_ms`."""
    network = client._running().network if isinstance(client, Consumer) else client._network
    assert network is not None
    await network.refresh()


async def test_a_broker_that_cannot_be_reached_is_not_ready_and_reports_why(pair: Pair) -> None:
    one, other = pair
    network = await connected(one)
    await other.stop()
    assert network.ready(1)
    with pytest.raises(KafkaConnectionError, match="cannot connect"):
        await network.connection(1, Purpose.FETCH)
    assert not network.ready(1)
    with pytest.raises(KafkaConnectionError, match=r"is tried again in \d+\.\d\d s: .*cannot connect"):
        await network.connection(1, Purpose.FETCH)
    assert network.ready(0)
    assert not network.ready(7)
    await network.close()


async def test_a_broker_that_was_reached_for_one_purpose_is_ready_for_all(pair: Pair) -> None:
    one, other = pair
    network = await connected(one)
    await other.stop()
    with pytest.raises(KafkaConnectionError):
        await network.connection(1, Purpose.FETCH)
    await other.start()
    await network.connections.open((HOST, other.port), Purpose.DATA, at_once=True)
    assert network.ready(1)
    assert not (await network.connection(1, Purpose.FETCH)).closed
    await network.close()


async def test_a_silent_broker_does_not_delay_metadata(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENCE", 0.01)
    one, other = pair
    network = await connected(one)
    one.always(ApiKey.METADATA, silence)
    assert set((await network.refresh()).brokers) == {0, 1}
    assert other.asked(MetadataRequest)
    before = len(one.asked(MetadataRequest))
    await network.refresh()  # it has something to answer still, so another one is asked first
    assert len(one.asked(MetadataRequest)) == before
    await network.close()


async def test_another_broker_is_asked_after_a_silent_one(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENCE", 0.01)
    one, other = pair
    network = await connected(one)
    await network.connection(0, Purpose.GROUP)  # so it is asked first
    one.always(ApiKey.FIND_COORDINATOR, silence)
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    answer = await network.ask_any(request, FindCoordinatorResponse, purpose=Purpose.GROUP)
    assert answer.coordinators[0].node_id == 1
    assert len(one.asked(FindCoordinatorRequest)) == len(other.asked(FindCoordinatorRequest)) == 1
    await network.close()


async def test_the_last_error_is_raised_if_no_broker_answers(pair: Pair) -> None:
    one, other = pair
    network = await connected(one)
    for broker in pair:
        broker.always(ApiKey.FIND_COORDINATOR, drop)
    with pytest.raises(KafkaConnectionError, match="the broker closed it"):
        await network.ask_any(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    assert len(one.asked(FindCoordinatorRequest)) == len(other.asked(FindCoordinatorRequest)) == 1
    await network.close()


async def test_a_consumer_reads_from_the_other_leaders_and_from_the_new_one(pair: Pair) -> None:
    one, other = pair
    one.create("t", 2)
    lead(other, 1)
    async with consumer(one, **SLOW, request_timeout_ms=HOUR_MS) as reader:
        reader.assign([T0, T1])
        one.write("t", [b"a"], 0)
        other.write("t", [b"b"], 1)
        assert sorted(await values(reader, 2)) == [b"a", b"b"]
        await other.stop()
        one.write("t", [b"c"], 0)
        assert await values(reader, 1) == [b"c"]
        lead(one, 1)
        one.write("t", [b"d"], 1)
        await look_again(reader)
        assert await values(reader, 1) == [b"d"]


async def test_a_fetch_does_not_wait_for_the_old_leader(pair: Pair) -> None:
    one, other = pair
    one.create("t", 1)
    lead(other, 0)
    other.always(ApiKey.FETCH, silence)
    async with consumer(one, **SLOW, request_timeout_ms=HOUR_MS) as reader:
        reader.assign([T0])
        await until(lambda: bool(other.asked(FetchRequest)))
        lead(one, 0)
        one.write("t", [b"a"])
        await look_again(reader)
        assert await values(reader, 1) == [b"a"]


async def test_a_check_of_a_position_does_not_wait_for_the_old_leader(pair: Pair) -> None:
    one, other = pair
    one.create("t", 1)
    one.write("t", [b"a"])
    async with consumer(one, **SLOW, request_timeout_ms=HOUR_MS) as reader:
        reader.assign([T0])
        assert await values(reader, 1) == [b"a"]
        other.always(ApiKey.OFFSET_FOR_LEADER_EPOCH, silence)
        lead(other, 0)
        await look_again(reader)
        await until(lambda: any(key is ApiKey.OFFSET_FOR_LEADER_EPOCH for key, _, _ in other.requests))
        lead(one, 0)
        one.write("t", [b"b"])
        await look_again(reader)
        assert await values(reader, 1) == [b"b"]


async def test_a_producer_sends_to_the_new_leader_at_once(pair: Pair) -> None:
    one, other = pair
    one.create("t", 1)
    lead(other, 0)
    async with Producer(bootstrap_servers=one.address, request_timeout_ms=HOUR_MS, **SLOW) as producer:
        await producer.send_and_wait("t", b"a")
        other.once(ApiKey.PRODUCE, drop)
        lost = await producer.send("t", b"b")
        await until(lambda: len(other.asked(ProduceRequest)) == 2)
        await other.stop()
        lead(one, 0)
        await look_again(producer)
        await lost
    assert one.values("t") == [b"a", b"b"]


async def test_a_producer_does_not_wait_for_a_leader_that_cannot_be_reached(pair: Pair) -> None:
    one, other = pair
    one.create("t", 1)
    lead(other, 0)
    async with Producer(bootstrap_servers=one.address, request_timeout_ms=HOUR_MS, **SLOW) as producer:
        await producer.partitions_for("t")
        await other.stop()
        sent = await producer.send("t", b"a")
        network = producer._network
        assert network is not None
        await until(lambda: not network.ready(1))
        lead(one, 0)
        await look_again(producer)
        await sent
    assert one.values("t") == [b"a"]
