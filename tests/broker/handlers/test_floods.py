"""Small requests with large answers, pipelined over many connections: they hold the loop no longer than one does."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from barnabas_broker.broker import BrokerServer
from barnabas_broker.config.keys import STANDARD_AUTHORIZER
from barnabas_broker.server.connection import Connection
from barnabas_protocol.codec import encode_request
from barnabas_protocol.messages.api_versions import ApiVersionsRequest
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas_protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from barnabas_protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from barnabas_protocol.messages.elect_leaders import ElectLeadersRequest
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas_protocol.messages.heartbeat import HeartbeatRequest
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas_protocol.messages.list_groups import ListGroupsRequest
from barnabas_protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas_protocol.messages.metadata import MetadataRequest
from barnabas_protocol.schema import Request
from tests.broker.conftest import StartBroker
from tests.broker.handlers.test_large_requests import ATTEMPTS, HELD
from tests.sampling import slow_except
from tests.turns import watched
from tests.wire import Wire

pytestmark = [pytest.mark.broad, pytest.mark.usefixtures("collector")]

PARTITIONS = 500
#: Requests that all connections together send at once, and one connection alone.
REQUESTS_IN_ALL = 1_000
PIPELINED = 50
#: Turns of the loop from the arrival of a heartbeat to its answer: the budget of the turn in which it has arrived may
#: be over, and the next turn begins with it, because no other client sends single requests.
TURNS = 1
#: Turns between two heartbeats.
QUIET = 30

REQUESTS: dict[str, tuple[Callable[[], Request], int]] = {
    "Metadata": (lambda: MetadataRequest(topics=None), 12),
    "DescribeConfigs": (
        lambda: DescribeConfigsRequest(
            resources=[DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]
        ),
        4,
    ),
    "DescribeTopicPartitions": (lambda: DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")]), 0),
    "DescribeLogDirs": (lambda: DescribeLogDirsRequest(topics=None), 4),
    "ListOffsets": (
        lambda: ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name="t", partitions=[ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(50)]
                )
            ],
        ),
        7,
    ),
    "FindCoordinator": (lambda: FindCoordinatorRequest(coordinator_keys=[f"group-{n}" for n in range(20)]), 4),
    "ElectLeaders": (lambda: ElectLeadersRequest(topic_partitions=None), 2),
    "InitProducerId": (lambda: InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4),
    "ListGroups": (lambda: ListGroupsRequest(states_filter=[], types_filter=[]), 5),
    "ApiVersions": (lambda: ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3),
    "Heartbeat": (lambda: HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
}


async def started(start_broker: StartBroker, *, authorizer: bool) -> BrokerServer:
    """Start a broker, and create the topic that the requests name."""
    settings = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:ANONYMOUS"} if authorizer else {}
    broker = await start_broker(**settings)
    topic = CreatableTopic(name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[])
    async with await Wire.connect(broker.port) as wire:
        created = await wire.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7, CreateTopicsResponse)
        assert [each.error_code for each in created.topics] == [0]
    return broker


class Turns:
    """Counts the turns of the event loop, and those from the arrival of a client's bytes to the answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.longest = 0
        self.client = 0
        self._arrived = 0
        received, send = Connection.buffer_updated, Connection._send

        def buffer_updated(connection: Connection, size: int) -> None:
            if connection.peer.port == self.client:
                self._arrived = self.count
            received(connection, size)

        def answer(connection: Connection, *answers: Any) -> None:
            if connection.peer.port == self.client:
                self.longest = max(self.longest, self.count - self._arrived)
            send(connection, *answers)

        monkeypatch.setattr(Connection, "buffer_updated", buffer_updated)
        monkeypatch.setattr(Connection, "_send", answer)
        self._turn()

    def _turn(self) -> None:
        self.count += 1
        self._next = asyncio.get_running_loop().call_soon(self._turn)

    def end(self) -> None:
        self._next.cancel()


async def crowd(port: int, frame: bytes, size: int, connections: int, requests: int) -> None:
    """Send requests over many connections at once, and read the responses, of `size` bytes each."""

    async def one(wire: Wire) -> None:
        wire.writer.write(frame * requests)
        left = requests * size
        while left:
            data = await wire.reader.read(1 << 20)
            assert data
            left -= len(data)

    async with AsyncExitStack() as stack:
        wires = [await stack.enter_async_context(await Wire.connect(port)) for _ in range(connections)]
        await asyncio.gather(*map(one, wires))


async def flood(port: int, frame: bytes, size: int, connections: int, requests: int, turns: Turns) -> float:
    """Send requests over many connections, and a heartbeat now and then over another one.

    Returns:
        How long the loop was held, in seconds of processor time. The crowd has a thread of its own.
    """
    beat = encode_request(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4, 1, "beat")
    async with await Wire.connect(port) as other:
        other.writer.write(beat)
        await other.frame()  # the broker has accepted the connection
        turns.client = other.writer.get_extra_info("sockname")[1]
        with watched() as held:
            flooding = asyncio.ensure_future(
                asyncio.to_thread(asyncio.run, crowd(port, frame, size, connections, requests))
            )
            while not flooding.done():
                other.writer.write(beat)
                await other.frame()
                for _ in range(QUIET):
                    await asyncio.sleep(0)
            await flooding
            return held()


@pytest.mark.parametrize(("name", "connections", "authorizer"), slow_except(
    [(name, *crowd) for name in REQUESTS for crowd in ((1, False), (100, False), (100, True))],
    ("DescribeConfigs", 1, False), ("FindCoordinator", 100, False), ("DescribeConfigs", 100, True),
))  # fmt: skip
async def test_pipelined_requests_of_many_connections_do_not_hold_the_loop(
    start_broker: StartBroker, name: str, connections: int, authorizer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await started(start_broker, authorizer=authorizer)
    make, version = REQUESTS[name]
    frame = encode_request(make(), version, 1, "test")
    async with await Wire.connect(broker.port) as wire:
        wire.writer.write(frame)
        size = 4 + len(await wire.frame())
    requests = PIPELINED if connections == 1 else REQUESTS_IN_ALL // connections
    holds: list[float] = []
    turns = Turns(monkeypatch)
    while len(holds) < ATTEMPTS and min(holds, default=HELD) >= HELD:
        holds.append(await flood(broker.port, frame, size, connections, requests, turns))
    turns.end()
    assert turns.longest <= TURNS
    assert min(holds) < HELD, f"{name}: {[round(each * 1000) for each in holds]} ms"
