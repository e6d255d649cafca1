"""A broker that gives the same answer for ever: clients ask less and less often, log little, and leave the CPU alone.

Each case is a broker and a client of its own; the cases of a test run side by side for the same short time.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from unittest.mock import patch

import pytest

from barnabas_broker.handlers.features import FEATURES
from barnabas_client.errors import KafkaError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchLeaderIdAndEpoch,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas_protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas_protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.records import build_batch
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.consumers import T0, consumer, member
from tests.client.producers import producer
from tests.sampling import slow_but_each
from tests.world.answers import Action, Answer, Refused, drop, refused
from tests.world.programs import Machine, Simulation, simulated

pytestmark = pytest.mark.broad

#: How long each case runs, in seconds. Pauses are 50, 100, 200 and then 400 ms: at most six attempts.
WINDOW: Final = 1.0
PAUSES: Final[dict[str, Any]] = {"retry_backoff_ms": 50, "retry_backoff_max_ms": 400, "close_timeout_ms": 200}
POLLS: Final[dict[str, Any]] = {**PAUSES, "fetch_max_wait_ms": 200}
#: Attempts of the API that is answered so, with a margin for the first one, which may be made again at once.
ATTEMPTS: Final = 14
#: All requests of a client. Metadata is requested at most every 50 ms.
REQUESTS: Final = 110
LINES: Final = 60
#: Of the broker.
KEYS: Final = {
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_heartbeat_interval_ms": "200",
}

CODES: Final = tuple(code for code in ErrorCode if code != ErrorCode.NONE)
#: Those that clients handle in a way of their own.
SPECIAL: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.OFFSET_OUT_OF_RANGE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTION_ABORTABLE,
)

Refusal = Callable[[ErrorCode], Action]


class Lines(logging.Handler):
    """Counts log lines."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler, log = Lines(), logging.getLogger("barnabas_client")
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler
    log.removeHandler(handler)
    log.setLevel(before)


def leads_again(broker: Machine) -> bool:
    return broker.broker.services.cluster.image.topics["t"].partitions[0].leader_epoch > 0


async def reads(broker: Machine, **settings: Any) -> None:
    """A program that polls, whatever the polls raise."""
    async with consumer(broker, **{**POLLS, **settings}) as reader:
        reader.assign([T0])
        if leads_again(broker):
            reader._subscription.state(T0).seek(1, 0)
        await poll(reader)


async def joins(broker: Machine) -> None:
    """A member that polls and commits."""
    async with member(broker, "t", **POLLS, heartbeat_interval_ms=100, auto_commit_interval_ms=100) as reader:
        await poll(reader)


async def joins_a_consumer_group(broker: Machine) -> None:
    """The same in a group of the consumer protocol."""
    settings: dict[str, Any] = {**POLLS, "group_protocol": "consumer", "auto_commit_interval_ms": 100}
    async with consumer(broker, "t", **settings, group_id="g") as reader:
        await poll(reader)


async def poll(reader: Any) -> None:
    while True:
        try:
            await reader.getmany(timeout_ms=100)
        except KafkaError:
            await asyncio.sleep(0.01)  # what the program does with the error


async def sends(broker: Machine) -> None:
    """A program that sends on, whatever happens to the records."""
    async with producer(broker, **PAUSES, delivery_timeout_ms=500, request_timeout_ms=400) as sender:
        while True:
            try:
                await sender.send_and_wait("t", b"x")
            except KafkaError:
                pass
            await asyncio.sleep(0.1)  # whatever else the program does


async def transacts(broker: Machine) -> None:
    """A program that goes on with transactions, and with a new producer whenever one has failed."""
    settings: dict[str, Any] = {**PAUSES, "delivery_timeout_ms": 500, "request_timeout_ms": 400, "max_block_ms": 500}
    while True:
        with suppress(KafkaError):
            async with producer(broker, **settings, transactional_id="x") as sender:
                while True:
                    async with sender.transaction():
                        await sender.send("t", b"x")
                        await sender.send_offsets_to_transaction({T0: 1}, "g")
                    await asyncio.sleep(0.1)  # whatever else the program does
        await asyncio.sleep(0.2)  # what the program does with the error: a producer asks twice, to commit and to abort


async def transacts_classically(broker: Machine) -> None:
    """The same with ``transaction.version`` 0."""
    with patch.dict(FEATURES, {"transaction.version": 0}):
        await transacts(broker)


Program = Callable[[Machine], Any]


async def started(simulation: Simulation, key: ApiKey) -> Machine:
    """A broker with two records, and in a second epoch if clients are to ask where the first one ended."""
    broker = await simulation.machine(**KEYS)
    await broker.create("t")
    if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
        await broker.lead_again("t")
    await broker.write("t", [b"a", b"b"])
    return broker


def repeated(key: ApiKey, actions: Iterable[Action], program: Program, lines: Lines) -> None:
    """Run the program against a broker for each action. When it has met the first such answer, bound what follows."""
    all_repeated([(key, action) for action in actions], program, lines)


def all_repeated(cases: Sequence[tuple[ApiKey, Action]], program: Program, lines: Lines) -> None:
    """The same for answers of several APIs."""
    busy = 0.0
    for key, action in cases:
        lines.count = 0
        simulation = Simulation(level=logging.INFO)
        busy += simulation.play(partial(measured, simulation, key, action, program, lines))
        assert lines.count <= LINES, key
    assert busy <= 0.05 * len(cases) + 0.3, "seconds of processor time"


async def measured(simulation: Simulation, key: ApiKey, action: Action, program: Program, lines: Lines) -> float:
    """Bound what the program asks for; its processor time."""
    broker, met = await started(simulation, key), asyncio.Event()
    broker.script.always(key, noted(action, met))
    task = asyncio.create_task(run_to(program, broker, met))
    async with asyncio.timeout(60):
        await met.wait()
    before, so_far, lines.count = time.process_time(), len(broker.script.keys()), 0
    await asyncio.wait([task], timeout=WINDOW)
    busy = time.process_time() - before
    count = Counter(broker.script.keys()[so_far:])
    task.cancel()
    await asyncio.wait([task])
    assert count[key] <= ATTEMPTS, (key, count)
    assert count.total() <= REQUESTS, (key, count)
    return busy


def noted(action: Action, met: asyncio.Event) -> Action:
    """The action, which also sets an event."""

    def noting(request: Request) -> Answer:
        met.set()
        return action(request)

    return noting


async def run(program: Program, broker: Machine) -> None:
    with suppress(KafkaError):
        await program(broker)


async def run_to(program: Program, broker: Machine, met: asyncio.Event) -> None:
    # Of many clients that start at once, some may reach a timeout before they get the answer.
    while not met.is_set():
        await run(program, broker)


# Each error code of each API.


def fetch_failed(code: ErrorCode) -> Action:
    return lambda request: FetchResponse(error_code=code, responses=[])


def metadata_refused(code: ErrorCode) -> Action:
    """Refuse the topic, and the partition lookup with it."""

    def action(request: Request) -> Answer:
        assert isinstance(request, MetadataRequest)
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=0, host="nowhere", port=1)],
            cluster_id="scripted",
            controller_id=0,
            topics=[
                MetadataResponseTopic(error_code=code, name=topic.name, partitions=[]) for topic in request.topics or []
            ],
        )

    return action


def group_heartbeat_refused_after_joining(code: ErrorCode) -> Action:
    """Accept every join, and refuse what follows."""

    def action(request: Request) -> Answer:
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        return None if request.member_epoch == 0 else Refused(code)

    return action


def offset_refused(code: ErrorCode) -> Action:
    def action(request: Request) -> Answer:
        assert isinstance(request, OffsetFetchRequest)
        refused = OffsetFetchResponsePartitions(
            partition_index=0, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
        )
        topics = [OffsetFetchResponseTopics(name="t", partitions=[refused])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])

    return action


APIS: Final = [
    (ApiKey.PRODUCE, refused, sends),
    (ApiKey.INIT_PRODUCER_ID, refused, sends),
    (ApiKey.METADATA, metadata_refused, sends),
    (ApiKey.METADATA, metadata_refused, reads),
    (ApiKey.API_VERSIONS, refused, sends),
    (ApiKey.API_VERSIONS, refused, joins),
    (ApiKey.FETCH, refused, reads),
    (ApiKey.FETCH, fetch_failed, reads),
    (ApiKey.LIST_OFFSETS, refused, reads),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, refused, reads),
    (ApiKey.FIND_COORDINATOR, refused, joins),
    (ApiKey.JOIN_GROUP, refused, joins),
    (ApiKey.SYNC_GROUP, refused, joins),
    (ApiKey.HEARTBEAT, refused, joins),
    (ApiKey.OFFSET_FETCH, refused, joins),
    (ApiKey.OFFSET_FETCH, offset_refused, joins),
    (ApiKey.OFFSET_COMMIT, refused, joins),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, refused, joins_a_consumer_group),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, group_heartbeat_refused_after_joining, joins_a_consumer_group),
    (ApiKey.OFFSET_COMMIT, refused, joins_a_consumer_group),
    (ApiKey.INIT_PRODUCER_ID, refused, transacts),
    (ApiKey.PRODUCE, refused, transacts),
    (ApiKey.FIND_COORDINATOR, refused, transacts),
    (ApiKey.ADD_PARTITIONS_TO_TXN, refused, transacts_classically),
    (ApiKey.ADD_OFFSETS_TO_TXN, refused, transacts_classically),
    (ApiKey.TXN_OFFSET_COMMIT, refused, transacts),
    (ApiKey.END_TXN, refused, transacts),
]
NAMES: Final = [f"{key.name}-{refusal.__name__}-{program.__name__}" for key, refusal, program in APIS]


@pytest.mark.parametrize(("key", "refusal", "program"), slow_but_each(3, APIS), ids=NAMES)
def test_errors_that_repeat(key: ApiKey, refusal: Refusal, program: Program, lines: Lines) -> None:
    codes = {*SPECIAL, *random.Random(key).sample(CODES, 5)}
    repeated(key, map(refusal, sorted(codes)), program, lines)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "refusal", "program"), APIS, ids=NAMES)
async def test_every_error_that_repeats(key: ApiKey, refusal: Refusal, program: Program, lines: Lines) -> None:
    for at in range(0, len(CODES), 20):
        lines.count = 0
        repeated(key, map(refusal, CODES[at : at + 20]), program, lines)


@pytest.mark.parametrize("program", [sends, reads, joins])
def test_connections_that_break_again_and_again(program: Program, lines: Lines) -> None:
    keys = sorted({key for key, _, one in APIS if one is program})
    all_repeated([(key, drop) for key in keys], program, lines)


# Answers without an error that bring nothing.


def fetched(**data: Any) -> Action:
    """Answer each fetch at once with this."""

    def action(request: Request) -> Answer:
        assert isinstance(request, FetchRequest)
        return FetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partitions=[
                        PartitionData(
                            partition_index=one.partition,
                            **{"error_code": 0, "high_watermark": 2, "records": b"", **data},
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    return action


def nothing(request: Request) -> Answer:
    return FetchResponse(responses=[])


OLD: Final = bytes(build_batch([(None, b"old", (), 1)]))
FRUITLESS: Final = {
    "nothing": nothing,
    "empty": fetched(),
    "unknown replica": fetched(preferred_read_replica=7),
    "diverging": fetched(diverging_epoch=FetchEpochEndOffset(epoch=0, end_offset=0)),
    "doubted": fetched(diverging_epoch=FetchEpochEndOffset(epoch=-1, end_offset=-1)),
    "too large": fetched(records=OLD[:30]),
    "corrupt": fetched(records=OLD[:-1] + b"?"),
    "new leader": fetched(
        error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=FetchLeaderIdAndEpoch(leader_id=0, leader_epoch=9)
    ),
}


def test_answers_that_bring_nothing(lines: Lines) -> None:
    repeated(ApiKey.FETCH, FRUITLESS.values(), lambda broker: reads(broker, fetch_max_wait_ms=5_000), lines)


def test_records_that_were_fetched_before(lines: Lines) -> None:
    async def program(broker: Machine) -> None:
        async with consumer(broker, **PAUSES, fetch_max_wait_ms=5_000) as reader:
            reader.assign([T0])
            reader.seek(T0, 2)
            await poll(reader)

    repeated(ApiKey.FETCH, [fetched(records=OLD)], program, lines)


# Two brokers that name each other as leader, or as coordinator.


def not_leader(other: int) -> tuple[Action, Action]:
    """A refusal of Produce and one of Fetch that name the other broker, in an epoch that grows."""
    epochs = iter(range(1, 1_000_000))

    def produce(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        leader = LeaderIdAndEpoch(leader_id=other, leader_epoch=2 * next(epochs) + other)
        refused = PartitionProduceResponse(
            index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1, current_leader=leader
        )
        topics = [TopicProduceResponse(name=topic.name, partition_responses=[refused]) for topic in request.topic_data]
        return ProduceResponse(responses=topics)

    def fetch(request: Request) -> Answer:
        leader = FetchLeaderIdAndEpoch(leader_id=other, leader_epoch=2 * next(epochs) + other)
        return fetched(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=leader)(request)

    return produce, fetch


def coordinated_by(node_id: int, broker: Machine, request: Request) -> Answer:
    found = Coordinator(key="g", node_id=node_id, host=broker.host, port=broker.port, error_code=0, error_message=None)
    return FindCoordinatorResponse(coordinators=[found])


@simulated
async def test_brokers_that_name_each_other(simulation: Simulation) -> None:
    pair = await simulation.cluster(2)
    await pair[0].create("t", 1, [0])
    for number, broker in enumerate(pair):
        other = pair[1 - number]
        produce, fetch = not_leader(1 - number)
        broker.script.always(ApiKey.PRODUCE, produce)
        broker.script.always(ApiKey.FETCH, fetch)
        broker.script.always(
            ApiKey.FIND_COORDINATOR,
            partial(coordinated_by, 1 - number, other),
        )
        broker.script.always(ApiKey.JOIN_GROUP, refused(ErrorCode.NOT_COORDINATOR))

    tasks = [asyncio.create_task(run(program, pair[0])) for program in (sends, reads, joins)]
    await asyncio.wait(tasks, timeout=WINDOW)
    counts = Counter(pair[0].script.keys() + pair[1].script.keys())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.FIND_COORDINATOR):
        assert counts[key] <= ATTEMPTS, counts
    assert counts.total() <= 3 * REQUESTS, counts
