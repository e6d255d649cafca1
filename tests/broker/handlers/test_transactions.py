"""Transactions over the wire: memory, hostile patterns, late requests. The rest: `interop/behaviour`."""

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import TRANSACTION_STATE_LOG_NUM_PARTITIONS
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD
from tests.turns import watched
from tests.wire import PATIENCE, Wire

E = ErrorCode


@pytest.fixture
async def ready(wire: Wire, broker: BrokerServer) -> Wire:
    """A connection to a coordinator that is loaded, with a topic "t" of two partitions."""
    found = await find(wire)
    assert (found.error_code, found.port) == (E.NONE, broker.port)
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
    await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 7, CreateTopicsResponse)
    return wire


async def find(wire: Wire, key: str = "id") -> Any:
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=[key])
    return (await wire.ask(request, 6, FindCoordinatorResponse)).coordinators[0]


async def init(wire: Wire, version: int = 5, name: str | None = "id", **fields: int) -> InitProducerIdResponse:
    request = InitProducerIdRequest(transactional_id=name, **{"transaction_timeout_ms": 60_000, **fields})
    while True:  # the coordinator may still be loading, or writing markers
        answer = await wire.ask(request, version, InitProducerIdResponse)
        if answer.error_code not in (E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS):
            return answer


async def add(
    wire: Wire, who: InitProducerIdResponse, version: int = 0, **topics: list[int]
) -> dict[tuple[str, int], int]:
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="id",
        v3_and_below_producer_id=who.producer_id,
        v3_and_below_producer_epoch=who.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    answer = await wire.ask(request, version, AddPartitionsToTxnResponse)
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }


async def end(wire: Wire, who: Any, version: int = 1, committed: bool = True) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id="id", producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=committed
    )
    return await wire.ask(request, version, EndTxnResponse)


async def described(wire: Wire, *names: str) -> list[Any]:
    request = DescribeTransactionsRequest(transactional_ids=list(names))
    return list((await wire.ask(request, 0, DescribeTransactionsResponse)).transaction_states)


async def test_the_coordinator_is_found_and_its_topic_created(wire: Wire, broker: BrokerServer) -> None:
    assert (await find(wire)).node_id == broker.node_id
    topic = broker.services.cluster.image.topics["__transaction_state"]
    assert len(topic.partitions) == broker.config[TRANSACTION_STATE_LOG_NUM_PARTITIONS] == 4
    assert topic.configs["cleanup.policy"] == "compact"
    # As in Kafka, which refuses the empty transactional id only when it is used.
    assert (await find(wire, "")).node_id == broker.node_id


@pytest.mark.parametrize("version", [3, 4])
async def test_clients_learn_that_transactions_of_version_2_are_served(wire: Wire, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = await wire.ask(request, version, ApiVersionsResponse)
    levels = {each.name: (each.min_version_level, each.max_version_level) for each in answer.finalized_features}
    assert levels["transaction.version"] == (2, 2)
    assert ("transaction.version" in {each.name for each in answer.supported_features}) is (version >= 4)
    assert answer.finalized_features_epoch >= 0


@pytest.mark.slow
async def test_producers_without_a_transactional_id_take_no_memory(ready: Wire) -> None:
    many = 5_000
    # What the broker keeps of the next thousand ids is there before and after.
    tracemalloc.start()
    try:
        for _ in range(100):
            await init(ready, name=None)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        ids = len({(await init(ready, name=None)).producer_id for _ in range(many)})
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        assert ids == many
        assert (after - before) / many < 10
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("pattern", "error"),
    [
        # Within the bounds: these take long in a thread.
        ("(((((((a*b?)*c?)*d?)*e?)*f?)*g?)*h?)*" + "a?" * 1_500, E.NONE),
        ("(" * 45 + "a*" * 200 + ")" * 45, E.NONE),
        ("(.?a|a)*" * 900, E.NONE),
        ("[" + "bc" * 2_000 + "a]*", E.NONE),
        # Beyond them.
        ("([" + "bc" * 4_000 + "a]*)*" * 8, E.INVALID_REGULAR_EXPRESSION),
        ("(a|" * 5_000 + "b" + ")*" * 5_000, E.INVALID_REGULAR_EXPRESSION),
        ("a" * 32_000, E.INVALID_REGULAR_EXPRESSION),
        ("a\\1", E.INVALID_REGULAR_EXPRESSION),
    ],
    ids=range(8),
)
async def test_a_hostile_pattern_does_not_hold_the_loop(ready: Wire, pattern: str, error: E) -> None:
    name = "a" * 249
    await init(ready, name=name)
    request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
    held: list[float] = []
    # What holds the loop does so each time; a core that is shared with other programs may be slow once.
    while len(held) < ATTEMPTS and min(held, default=HELD) >= HELD:
        with watched() as longest:
            answer = await ready.ask(request, 2, ListTransactionsResponse)
            held.append(longest())
    assert min(held) < HELD
    listed = [name] if error is E.NONE else []
    assert (answer.error_code, [each.transactional_id for each in answer.transaction_states]) == (error, listed)


async def test_a_pattern_has_the_syntax_of_re2(ready: Wire) -> None:
    for name in ("Orders-1", "orders-é"):
        await init(ready, name=name)
    for pattern, names in {
        "(?i)orders-.": ["Orders-1", "orders-é"],
        r"(?P<x>\pL+)-\d": ["Orders-1"],
        r"\Qorders\E-\P{Lu}": ["orders-é"],
        "^Orders-[[:digit:]]$": ["Orders-1"],
    }.items():
        request = ListTransactionsRequest(state_filters=[], producer_id_filters=[], transactional_id_pattern=pattern)
        answer = await ready.ask(request, 2, ListTransactionsResponse)
        assert sorted(each.transactional_id for each in answer.transaction_states) == names


@pytest.mark.parametrize("version", [0, 4])
async def test_a_late_end_does_not_end_the_next_transaction_of_the_same_epoch(
    ready: Wire, broker: BrokerServer, version: int
) -> None:
    """It was sent on a connection that the client has given up, and again on a new one."""
    who = await init(ready, 4)
    async with await Wire.connect(broker.port) as newer:
        assert await add(newer, who, 3, t=[0]) == {("t", 0): E.NONE}
        assert (await end(newer, who, version, committed=False)).error_code == E.NONE
        await settled(newer, "CompleteAbort")
        assert await add(newer, who, 3, t=[0]) == {("t", 0): E.NONE}
        with pytest.raises((ConnectionError, EOFError)):
            await end(ready, who, version, committed=False)
        assert (await described(newer, "id"))[0].transaction_state == "Ongoing"
        assert (await end(newer, who, version)).error_code == E.NONE
        # A client that still has the old connection goes on on yet another one.
        async with await Wire.connect(broker.port) as newest:
            await settled(newest, "CompleteCommit")
            assert await add(newest, who, 3, t=[0]) == {("t", 0): E.NONE}
            with pytest.raises((ConnectionError, EOFError)):
                await add(newer, who, 3, t=[1])
            assert (await end(newest, who, version)).error_code == E.NONE


async def test_another_program_takes_over_on_an_old_connection(ready: Wire, broker: BrokerServer) -> None:
    async with await Wire.connect(broker.port) as newer:
        await add(newer, await init(newer, 4), 3, t=[0])
        who = await init(ready, 4)
        assert await add(ready, who, 3, t=[0]) == {("t", 0): E.NONE}
        assert (await end(ready, who)).error_code == E.NONE


async def settled(wire: Wire, state: str) -> None:
    """Wait until the markers are written."""
    async with asyncio.timeout(PATIENCE):
        while (await described(wire, "id"))[0].transaction_state != state:
            pass
