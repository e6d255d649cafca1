"""One broker of several is down: operations that another broker can do do not wait for it.

Back-offs are a day long here, so a test that waits for one reaches its timeout.
"""

import asyncio
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
from tests.world.answers import drop, silence
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated

#: Longer than a simulation.
DAY_MS = 86_400_000
SLOW: dict[str, Any] = {"retry_backoff_ms": DAY_MS, "retry_backoff_max_ms": DAY_MS}


async def elected(leader: Machine, partition: int = 0) -> None:
    """Wait until a broker leads the partition, because the one before is down."""
    cluster = leader.broker.services.cluster
    await until(lambda: cluster.image.topics["t"].partitions[partition].leader == leader.node_id)


async def connected(*brokers: Machine) -> Network:
    settings = {"request_timeout_ms": DAY_MS, **SLOW}
    network = Network(ClientConfig(servers=tuple((broker.host, broker.port) for broker in brokers), **settings))
    await network.start()
    return network


async def look_again(client: Consumer | Producer) -> None:
    """What happens by itself every `retry_backoff_ms`."""
    network = client._running().network if isinstance(client, Consumer) else client._network
    assert network is not None
    await network.refresh()


@simulated
async def test_a_broker_that_cannot_be_reached_is_not_ready_and_reports_why(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = await connected(one)
    simulation.network.refuse(other.life, 10)
    assert network.ready(1)
    with pytest.raises(KafkaConnectionError, match="cannot connect"):
        await network.connection(1, Purpose.FETCH)
    assert not network.ready(1)
    with pytest.raises(KafkaConnectionError, match=r"is tried again in \d+\.\d\d s: .*cannot connect"):
        await network.connection(1, Purpose.FETCH)
    assert network.ready(0)
    assert not network.ready(7)
    await network.close()


@simulated
async def test_a_broker_that_was_reached_for_one_purpose_is_ready_for_all(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = await connected(one)
    simulation.network.refuse(other.life, 10)
    with pytest.raises(KafkaConnectionError):
        await network.connection(1, Purpose.FETCH)
    await asyncio.sleep(10)
    await network.connections.open((other.host, other.port), Purpose.DATA, at_once=True)
    assert network.ready(1)
    assert not (await network.connection(1, Purpose.FETCH)).closed
    await network.close()


@simulated
async def test_a_silent_broker_does_not_delay_metadata(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "_SILENCE", 0.1)
    one, other = await simulation.cluster(2)
    network = await connected(one)
    one.script.always(ApiKey.METADATA, silence)
    await one.create("t")
    network.watch(["t"])  # its answer brings something new, so that it is asked again
    assert set((await network.refresh()).brokers) == {0, 1}
    assert other.script.asked(MetadataRequest)
    before = len(one.script.asked(MetadataRequest))
    await network.refresh()  # it has something to answer still, so another one is asked first
    assert len(one.script.asked(MetadataRequest)) == before
    await network.close()


@simulated
async def test_a_broker_that_is_still_silent_does_not_delay_the_next_metadata(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = await connected(one)
    other.script.always(ApiKey.METADATA, silence)
    await network.refresh()  # nothing new, so the other one is asked first the next time
    for delay in (1.0, 0.0, 0.0):
        began = asyncio.get_running_loop().time()
        await network.refresh()
        assert delay <= asyncio.get_running_loop().time() - began < delay + 0.5
    assert len(other.script.asked(MetadataRequest)) == 1
    await network.close()


@simulated
async def test_a_broker_that_does_not_accept_connections_does_not_delay_the_next_metadata(
    simulation: Simulation,
) -> None:
    one, other = await simulation.cluster(2)
    network = await connected(one)
    other.script.always(ApiKey.API_VERSIONS, silence)
    await network.refresh()
    for delay in (1.0, 0.0, 0.0):
        began = asyncio.get_running_loop().time()
        await network.refresh()
        assert delay <= asyncio.get_running_loop().time() - began < delay + 0.5
    assert not network.ready(1)
    other.script.always(ApiKey.API_VERSIONS, None)
    await network.connections.open((other.host, other.port), Purpose.DATA, at_once=True)
    await network.refresh()
    assert len(other.script.asked(MetadataRequest)) == 1
    await network.close()


@simulated
async def test_another_broker_is_asked_after_a_silent_one(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SILENCE", 0.1)
    one, other = await simulation.cluster(2)
    network = await connected(one)
    await network.connection(0, Purpose.GROUP)  # so it is asked first
    one.script.always(ApiKey.FIND_COORDINATOR, silence)
    request = FindCoordinatorRequest(coordinator_keys=["g"])
    answer = await network.ask_any(request, FindCoordinatorResponse, purpose=Purpose.GROUP)
    assert answer.coordinators[0].key == "g"
    assert len(one.script.asked(FindCoordinatorRequest)) == len(other.script.asked(FindCoordinatorRequest)) == 1
    await network.close()


@simulated
async def test_the_last_error_is_raised_if_no_broker_answers(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    network = await connected(one)
    for broker in (one, other):
        broker.script.always(ApiKey.FIND_COORDINATOR, drop)
    with pytest.raises(KafkaConnectionError, match="the broker closed it"):
        await network.ask_any(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)
    assert len(one.script.asked(FindCoordinatorRequest)) == len(other.script.asked(FindCoordinatorRequest)) == 1
    await network.close()


@simulated
async def test_a_consumer_reads_from_the_other_leaders_and_from_the_new_one(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 2, [0, 1], [1, 0])
    async with consumer(one, **SLOW, request_timeout_ms=DAY_MS) as reader:
        reader.assign([T0, T1])
        await one.write("t", [b"a"], 0)
        await other.write("t", [b"b"], 1)
        assert sorted(await values(reader, 2)) == [b"a", b"b"]
        await other.stop()
        await one.write("t", [b"c"], 0)
        assert await values(reader, 1) == [b"c"]
        await elected(one, 1)
        await one.write("t", [b"d"], 1)
        await look_again(reader)
        assert await values(reader, 1) == [b"d"]


@simulated
async def test_a_fetch_does_not_wait_for_the_old_leader(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [1, 0])
    other.script.always(ApiKey.FETCH, silence)
    async with consumer(one, **SLOW, request_timeout_ms=DAY_MS) as reader:
        reader.assign([T0])
        await until(lambda: bool(other.script.asked(FetchRequest)))
        await simulation.lead("t", 0)
        await one.write("t", [b"a"])
        await look_again(reader)
        assert await values(reader, 1) == [b"a"]


@simulated
async def test_a_check_of_a_position_does_not_wait_for_the_old_leader(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [0, 1])
    await one.write("t", [b"a"])
    async with consumer(one, **SLOW, request_timeout_ms=DAY_MS) as reader:
        reader.assign([T0])
        assert await values(reader, 1) == [b"a"]
        other.script.always(ApiKey.OFFSET_FOR_LEADER_EPOCH, silence)
        await simulation.lead("t", 1)
        await look_again(reader)
        await until(lambda: bool(other.script.versions(ApiKey.OFFSET_FOR_LEADER_EPOCH)))
        await simulation.lead("t", 0)
        await one.write("t", [b"b"])
        await look_again(reader)
        assert await values(reader, 1) == [b"b"]


@simulated
async def test_a_producer_sends_to_the_new_leader_at_once(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [1, 0])
    async with Producer(bootstrap_servers=one.address, request_timeout_ms=DAY_MS, **SLOW) as producer:
        await producer.send_and_wait("t", b"a")
        other.script.once(ApiKey.PRODUCE, drop)
        lost = await producer.send("t", b"b")
        await until(lambda: len(other.script.asked(ProduceRequest)) == 2)
        await other.stop()
        await elected(one)
        await look_again(producer)
        await lost
    assert one.values("t") == [b"a", b"b"]


@simulated
async def test_a_producer_does_not_wait_for_a_leader_that_cannot_be_reached(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [1, 0])
    async with Producer(bootstrap_servers=one.address, request_timeout_ms=DAY_MS, **SLOW) as producer:
        await producer.partitions_for("t")
        await other.stop()
        sent = await producer.send("t", b"a")
        network = producer._network
        assert network is not None
        await until(lambda: not network.ready(1))
        await elected(one)
        await look_again(producer)
        await sent
    assert one.values("t") == [b"a"]
