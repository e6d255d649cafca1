"""How a consumer starts and stops."""

import asyncio

import pytest

from barnabas_client import Consumer
from barnabas_client.errors import ConsumerStoppedError, IllegalStateError, KafkaConnectionError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, consumer, member
from tests.world.answers import Action, Drop, refused, silence
from tests.world.broker import until
from tests.world.programs import Machine, simulated


@simulated
async def test_stop_ends_polls_and_iterations(broker: Machine) -> None:
    await broker.create("t")
    reader = consumer(broker, "t")
    await reader.start()

    async def iterate() -> int:
        return len([record async for record in reader])

    poll, iteration = asyncio.ensure_future(reader.getone()), asyncio.ensure_future(iterate())
    await asyncio.sleep(0)
    await reader.stop()
    await reader.stop()
    with pytest.raises(ConsumerStoppedError):
        await poll
    assert await iteration == 0
    with pytest.raises(ConsumerStoppedError):
        await reader.getmany()
    with pytest.raises(StopAsyncIteration):
        await anext(reader)
    with pytest.raises(ConsumerStoppedError):
        await reader.end_offsets([T0])
    with pytest.raises(IllegalStateError, match="stopped already"):
        await reader.start()


@simulated
async def test_stop_without_start(broker: Machine) -> None:
    reader = consumer(broker, "t")
    await reader.stop()
    with pytest.raises(ConsumerStoppedError):
        await reader.getone()


@simulated
async def test_calls_before_start_raise(broker: Machine) -> None:
    reader = consumer(broker, "t")
    for call in (reader.getone(), reader.getmany(), reader.topics(), reader.end_offsets([T0])):
        with pytest.raises(IllegalStateError, match=r"To do: start\(\) it first, or use it in a `with` block"):
            await call


async def test_a_failed_start_stops_the_consumer() -> None:
    reader = Consumer("t", bootstrap_servers="127.0.0.1:1", request_timeout_ms=1_000)
    with pytest.raises(KafkaConnectionError):
        await reader.start()
    with pytest.raises(ConsumerStoppedError):
        await reader.getone()


@simulated
async def test_a_consumer_that_was_never_stopped_causes_a_warning(broker: Machine) -> None:
    reader = consumer(broker, "t")
    await reader.start()
    session = reader._running()
    with pytest.warns(ResourceWarning, match="never stopped"):
        del reader
    await session.close(asyncio.get_running_loop().time() + 1)


# Stopping what is still starting.

#: What a start waits for, one after the other.
STEPS = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)


@pytest.mark.parametrize("step", STEPS)
@simulated
async def test_stop_cancels_a_start(broker: Machine, step: ApiKey) -> None:
    await broker.create("t")
    broker.script.always(step, silence)
    # The bound of the test is far shorter than this timeout.
    reader = member(broker, "t", request_timeout_ms=3_600_000, close_timeout_ms=100)
    starting = asyncio.ensure_future(reader.start())
    await until(lambda: bool(broker.script.versions(step)))
    with pytest.raises(IllegalStateError, match="start"):
        await reader.start()
    await reader.stop()
    with pytest.raises(ConsumerStoppedError, match="while it started"):
        await starting
    with pytest.raises(ConsumerStoppedError):
        await reader.getone()


@simulated
async def test_a_cancelled_start_raises_cancelled_error(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.JOIN_GROUP, silence)
    reader = member(broker, "t", request_timeout_ms=3_600_000, close_timeout_ms=100)
    starting = asyncio.ensure_future(reader.start())
    await until(lambda: bool(broker.script.versions(ApiKey.JOIN_GROUP)))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    with pytest.raises(ConsumerStoppedError):
        await reader.getone()


@simulated
async def test_the_requests_of_a_new_member(broker: Machine) -> None:
    """Every request here is one more round trip before the first record of every test of a program."""
    await broker.create("t")
    await broker.write("t", [b"a"])
    async with member(broker, "t", heartbeat_interval_ms=3_000) as reader:
        assert (await reader.getone()).value == b"a"
        asked = broker.script.keys()
    first = asked[: asked.index(ApiKey.FETCH) + 1]
    waited_for = [key for key in first[1:] if key is not ApiKey.API_VERSIONS]
    assert waited_for == [
        ApiKey.FIND_COORDINATOR,  # in one round trip with the next one
        ApiKey.METADATA,
        ApiKey.JOIN_GROUP,  # only to be given a member id (KIP-394)
        ApiKey.JOIN_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.OFFSET_FETCH,  # in one round trip with the next one
        ApiKey.LIST_OFFSETS,
        ApiKey.FETCH,
    ]
    assert first.count(ApiKey.API_VERSIONS) == 3  # one for each connection; only the first is waited for


@pytest.mark.parametrize("answer", [silence, lambda request: Drop()], ids=["silence", "it closes the connection"])
@simulated
async def test_a_broker_that_does_not_answer_where_the_coordinator_is_gives_its_metadata(
    broker: Machine, answer: Action
) -> None:
    """Without a subscription, nothing needs the coordinator."""
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.always(ApiKey.FIND_COORDINATOR, answer)
    async with consumer(broker, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([T0])
        reader.seek(T0, 0)
        assert (await reader.getone()).value == b"a"
    assert broker.script.keys().count(ApiKey.FIND_COORDINATOR) == 1


@simulated
async def test_a_member_searches_for_the_coordinator_that_was_not_found_with_the_metadata(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.once(ApiKey.FIND_COORDINATOR, refused(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    async with member(broker, "t") as reader:
        assert (await reader.getone()).value == b"a"
    assert broker.script.keys().count(ApiKey.FIND_COORDINATOR) == 2
