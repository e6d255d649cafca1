"""Requests whose lists are as long as they may be, or name one thing many times, hold neither the loop nor memory.

Each array of each API gets many elements, all different or all the same, from the clients of `ASKED`.
"""

import asyncio
import gc
import sys
from itertools import product
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.handlers.table import join
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.shares.ports import MOST_BATCHES
from barnabas_broker.shares.records import ShareKey
from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateData,
    InitializeStatePartitionData,
)
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from barnabas_protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateBatch,
    WriteStateData,
    WriteStatePartitionData,
)
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.broker.conftest import StartBroker
from tests.broker.handlers.crowds import NAME, Crowd, crowds
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD, PAUSE
from tests.sampling import slow
from tests.turns import watched
from tests.wire import PATIENCE, Wire

pytestmark = [pytest.mark.broad, pytest.mark.timeout(20 * PATIENCE), pytest.mark.usefixtures("collector")]

#: Elements of an array; at most 100,000 are accepted.
MANY = 98_000
#: Bytes that the process may take for such a request, above those at rest.
MEMORY = 64 << 20
#: Seconds that a request may take, beside other tests: what is measured is how long it holds the loop.
LONGEST = 4 * PATIENCE
#: Partitions of the topic, and so of the offsets of the group and of the transaction.
PARTITIONS = 50
#: In the place of the topic's id, until there is a topic.
ANY_ID = uuid4().bytes
#: Groups and transactions that are named again in the tests of what is answered then.
AGAIN = 3_000

#: For each client of a broker with an authorizer, whether the elements are all the same, all different, or both.
#:
#: An authorizer decides once on each distinct name, before all else (`handlers/authorization.py`): different names that
#: are refused cost more than one refused name. Without an authorizer the same happens without that step:
#: `test_large_requests.py` and `test_floods.py` do that.
ASKED: dict[str, tuple[bool, ...]] = {"may do nothing": (False,), "may do everything": (False, True)}

#: What `make test` runs.
SAMPLE = [(ApiKey.LIST_OFFSETS, 33_000), (ApiKey.CONSUMER_GROUP_DESCRIBE, 33_000)]

_LOADING = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)


def everything() -> list[AclBinding]:
    """Everyone may do everything."""
    kinds = (AclResourceType.TOPIC, AclResourceType.GROUP, AclResourceType.CLUSTER, AclResourceType.TRANSACTIONAL_ID)
    return [
        AclBinding(kind, "*", AclPatternType.LITERAL, "User:*", "*", AclOperation.ALL, AclPermissionType.ALLOW)
        for kind in kinds
    ]


async def prepared(broker: BrokerServer) -> bytes:
    """Make a topic, a group with offsets and an open transaction of one name; return the id of the topic."""
    async with await Wire.connect(broker.port) as wire:
        topic = CreatableTopic(name=NAME, num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
        await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1_000), 7, CreateTopicsResponse)
        for kind in (0, 1):
            await wire.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[NAME]), 4, FindCoordinatorResponse)
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1, committed_metadata=None)
            for index in range(PARTITIONS)
        ]
        commit = OffsetCommitRequest(group_id=NAME, topics=[OffsetCommitRequestTopic(name=NAME, partitions=partitions)])
        while (await wire.ask(commit, 9, OffsetCommitResponse)).topics[0].partitions[0].error_code in _LOADING:
            pass
        init = InitProducerIdRequest(transactional_id=NAME, transaction_timeout_ms=900_000)
        while (producer := await wire.ask(init, 4, InitProducerIdResponse)).error_code in _LOADING:
            pass
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=NAME, partitions=list(range(PARTITIONS)))],
        )
        await wire.ask(add, 3, AddPartitionsToTxnResponse)
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=NAME)])
        return bytes((await wire.ask(asked, 12, MetadataResponse)).topics[0].topic_id)


def resident(what: str) -> int:
    """Bytes of this process in memory: now (``VmRSS``), or at most since :func:`measure_anew` (``VmHWM``)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(what):
            return int(line.split()[1]) * 1024
    raise LookupError(what)


def measure_anew() -> None:
    """Let the most memory of this process begin with what it takes now."""
    Path("/proc/self/clear_refs").write_text("5")


async def cost(broker: BrokerServer, frame: bytes) -> tuple[float, int]:
    """How long the loop was held by a request while another connection was answered, and the memory that it took."""
    small = encode_request(MetadataRequest(topics=[]), 12, 1, "test")
    measured = sys.platform == "linux"
    gc.collect()
    rest = resident("VmRSS") if measured else 0
    if measured:
        measure_anew()
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)

    async def send_and_receive() -> None:
        """Send the frame and drop the response, which takes memory of the client."""
        for at in range(0, len(frame), 1 << 16):
            writer.write(frame[at : at + (1 << 16)])
            await writer.drain()
        left = int.from_bytes(await reader.readexactly(4), "big")
        while left:
            left -= len(await reader.read(min(left, 1 << 16)) or b"\0" * left)

    try:
        async with asyncio.timeout(LONGEST), await Wire.connect(broker.port) as other:
            with watched() as held:
                pending = asyncio.ensure_future(send_and_receive())
                while not pending.done():
                    other.writer.write(small)
                    await other.frame()
                    await asyncio.wait([pending], timeout=PAUSE)
            try:
                pending.result()
            except (asyncio.IncompleteReadError, ConnectionError):
                pass  # Some requests have no response but the end of the connection.
            return held(), (resident("VmHWM") - rest if measured else 0)
    finally:
        writer.close()


def within(costs: list[tuple[float, int]]) -> bool:
    """Whether the least time that the loop was held, and the least memory, of these attempts are within the bounds."""
    return min((held for held, _ in costs), default=HELD) < HELD and min(size for _, size in costs) < MEMORY


def cases() -> list[Any]:
    """All APIs with the most elements, and a sample with fewer."""
    return [*SAMPLE, *(slow((key, MANY)) for key, route in join().items() if any(crowds(route)))]


async def fresh(broker: BrokerServer, client: str) -> bytes:
    """Create what the requests name, with a client that may do everything."""
    authorizer = broker.services.authorizer
    assert authorizer is not None
    authorizer.change(added=everything())
    topic_id = await prepared(broker)
    if client == "may do nothing":
        authorizer.change(removed=everything())
    return topic_id


@pytest.mark.parametrize(
    ("key", "many"), cases(), ids=lambda value: value.title if isinstance(value, ApiKey) else str(value)
)
async def test_long_lists_and_repeated_names_hold_neither_the_loop_nor_memory(
    start_broker: StartBroker, key: ApiKey, many: int
) -> None:
    broker = await start_broker(authorizer_class_name=STANDARD_AUTHORIZER)
    bad: list[str] = []
    for crowd, same in product(crowds(broker.dispatch.routes[key]), (False, True)):
        # Making a request takes as long as a broker needs for it.
        made = encode_request(crowd.request(many, ANY_ID, same=same), crowd.version, 1, "test")
        for client in (each for each, asked in ASKED.items() if same in asked):
            frame = made.replace(ANY_ID, await fresh(broker, client))
            costs: list[tuple[float, int]] = []
            # A request that holds the loop, or takes memory, does so each time; other programs and the garbage of
            # earlier requests cost something once.
            while len(costs) < ATTEMPTS and not within(costs):
                costs.append(await cost(broker, frame))
            if not within(costs):
                figures = ", ".join(f"{seconds * 1000:.0f} ms and {size >> 20} MB" for seconds, size in costs)
                bad.append(f"{crowd}, {'the same' if same else 'different'}, {client}: {figures}")
    assert bad == []


def test_each_api_with_a_list_is_among_them() -> None:
    without = {key for key, route in join().items() if not any(crowds(route))}
    assert without == {
        ApiKey.HEARTBEAT,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.ENVELOPE,  # What it carries has lists: groups/test_fetch_reports.py.
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }


def test_a_crowd_is_made_of_each_array_of_a_request() -> None:
    paths = [crowd.path for crowd in crowds(join()[ApiKey.OFFSET_FETCH])]
    assert paths == [
        ("topics",),
        ("topics", "partition_indexes"),
        ("groups",),
        ("groups", "topics"),
        ("groups", "topics", "partition_indexes"),
    ]
    request = Crowd(ApiKey.OFFSET_FETCH, 9, ("groups", "topics")).request(3, bytes(16), same=False)
    assert isinstance(request, OffsetFetchRequest)
    assert [[topic.name for topic in group.topics or ()] for group in request.groups] == [
        [f"{NAME}-0", f"{NAME}-1", f"{NAME}-2"]
    ]


async def test_invalid_names_of_topics_that_metadata_should_create_do_not_hold_the_loop(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    names = [MetadataRequestTopic(name=f"not a name {number}") for number in range(MANY)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=True)
    frame = encode_request(request, 9, 1, "test")
    costs: list[float] = []
    while len(costs) < ATTEMPTS and min(costs, default=HELD) >= HELD:
        costs.append((await cost(broker, frame))[0])
    assert min(costs) < HELD


async def test_the_largest_states_of_share_partitions_do_not_hold_the_loop(start_broker: StartBroker) -> None:
    broker = await start_broker(share_coordinator_snapshot_update_records_per_snapshot="0")
    topic_id = await prepared(broker)
    key = ShareKey(NAME, UUID(bytes=topic_id), 0)
    async with await Wire.connect(broker.port) as wire:
        find = FindCoordinatorRequest(key_type=2, coordinator_keys=[key.name])
        while (await wire.ask(find, 6, FindCoordinatorResponse)).coordinators[0].error_code in _LOADING:
            pass
        first = InitializeStatePartitionData(partition=0, state_epoch=0, start_offset=0)
        request = InitializeShareGroupStateRequest(
            group_id=NAME, topics=[InitializeStateData(topic_id=topic_id, partitions=[first])]
        )
        while (await wire.ask(request, 0, InitializeShareGroupStateResponse)).results[0].partitions[
            0
        ].error_code in _LOADING:
            pass
    batches = [
        WriteStateBatch(first_offset=offset, last_offset=offset, delivery_state=2 + offset % 2 * 2, delivery_count=1)
        for offset in range(MOST_BATCHES)
    ]
    written = WriteStatePartitionData(
        partition=0, state_epoch=0, leader_epoch=0, start_offset=-1, state_batches=batches
    )
    write = WriteShareGroupStateRequest(group_id=NAME, topics=[WriteStateData(topic_id=topic_id, partitions=[written])])
    frame = encode_request(write, 1, 1, "test")
    costs: list[float] = []
    while len(costs) < ATTEMPTS and min(costs, default=HELD) >= HELD:
        costs.append((await cost(broker, frame))[0])
    answer = decode_response(WriteShareGroupStateResponse, 1, await answered(broker, write, 1))
    assert answer.results[0].partitions[0].error_code == ErrorCode.NONE
    assert min(costs) < HELD


async def answered(broker: BrokerServer, request: Request, version: int) -> bytes:
    async with await Wire.connect(broker.port, limit=2**30) as wire:
        wire.send(request, version)
        return await wire.frame()


async def test_a_group_that_is_named_again_and_again_is_answered_up_to_a_bound(start_broker: StartBroker) -> None:
    broker = await start_broker()
    await prepared(broker)
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=NAME, topics=None)] * AGAIN)
    answer = decode_response(OffsetFetchResponse, 9, await answered(broker, request, 9))
    codes = [group.error_code for group in answer.groups]
    whole = 100_000 // PARTITIONS
    assert codes == [ErrorCode.NONE] * whole + [ErrorCode.INVALID_REQUEST] * (AGAIN - whole)
    assert {len(group.topics[0].partitions) for group in answer.groups[:whole]} == {PARTITIONS}


async def test_a_transaction_that_is_named_again_and_again_is_described_up_to_a_bound(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    await prepared(broker)
    request = DescribeTransactionsRequest(transactional_ids=[NAME] * AGAIN)
    answer = decode_response(DescribeTransactionsResponse, 0, await answered(broker, request, 0))
    codes = [each.error_code for each in answer.transaction_states]
    whole = -(-100_000 // (PARTITIONS + 1))
    assert codes == [ErrorCode.NONE] * whole + [ErrorCode.INVALID_REQUEST] * (AGAIN - whole)
