"""A broker that gives the same answer for ever: clients ask less and less often, log little, and leave the CPU alone.

Each case is a broker and a client of its own; the cases of a test run side by side for the same short time.
"""

import asyncio
import logging
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

import pytest

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
from tests.client.fake_broker import HOST, FakeBroker, brokers
from tests.client.producers import producer
from tests.sampling import slow_but_each
from tests.world.answers import Action, Answer, Refused, drop, refused

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


async def reads(broker: FakeBroker, **settings: Any) -> None:
    """A program that polls, whatever the polls raise."""
    async with consumer(broker, **{**POLLS, **settings}) as reader:
        reader.assign([T0])
        if "epochs" in broker.topics:
            reader._subscription.state(T0).seek(1, 0)
        await poll(reader)


async def joins(broker: FakeBroker) -> None:
    """A member that polls and commits."""
    async with member(broker, "t", **POLLS, heartbeat_interval_ms=100, auto_commit_interval_ms=100) as reader:
        await poll(reader)


async def joins_a_consumer_group(broker: FakeBroker) -> None:
    """The same in a group of the consumer protocol."""
    broker.heartbeat_interval_ms = 200
    settings: dict[str, Any] = {**POLLS, "group_protocol": "consumer", "auto_commit_interval_ms": 100}
    async with consumer(broker, "t", **settings, group_id="g") as reader:
        await poll(reader)


async def poll(reader: Any) -> None:
    while True:
        try:
            await reader.getmany(timeout_ms=100)
        except KafkaError:
            await asyncio.sleep(0.01)  # what the program does with the error


async def sends(broker: FakeBroker) -> None:
    """A program that sends on, whatever happens to the records."""
    async with producer(broker, **PAUSES, delivery_timeout_ms=500, request_timeout_ms=400) as sender:
        while True:
            try:
                await sender.send_and_wait("t", b"x")
            except KafkaError:
                pass
            await asyncio.sleep(0.1)  # whatever else the program does


async def transacts(broker: FakeBroker) -> None:
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


async def transacts_classically(broker: FakeBroker) -> None:
    """The same with ``transaction.version`` 0."""
    broker.transactions.version = 0
    await transacts(broker)


Program = Callable[[FakeBroker], Any]


async def repeated(key: ApiKey, actions: Iterable[Action], program: Program, lines: Lines) -> None:
    """Run the program against a broker for each action. When all have met the first such answer, bound what follows."""
    await all_repeated([(key, action) for action in actions], program, lines)


async def all_repeated(cases: Sequence[tuple[ApiKey, Action]], program: Program, lines: Lines) -> None:
    """The same for answers of several APIs."""
    async with AsyncExitStack() as stack:
        servers: list[FakeBroker] = []
        met: list[asyncio.Event] = []
        for key, action in cases:
            (broker,) = await stack.enter_async_context(brokers())
            broker.create("t")
            broker.write("t", [b"a", b"b"])
            if key is ApiKey.OFFSET_FOR_LEADER_EPOCH:
                broker.topics["t"][0].leader_epoch = 1
                broker.topics["epochs"] = {}
            met.append(asyncio.Event())
            broker.always(key, noted(action, met[-1]))
            servers.append(broker)
        tasks = [asyncio.create_task(run_to(program, *each)) for each in zip(servers, met, strict=True)]
        async with asyncio.timeout(60):
            for event in met:
                await event.wait()
        before, began, logged = time.process_time(), time.monotonic(), lines.count
        so_far = [len(broker.requests) for broker in servers]
        await asyncio.wait(tasks, timeout=WINDOW, return_when=asyncio.ALL_COMPLETED)
        busy, took, logged = time.process_time() - before, time.monotonic() - began, lines.count - logged
        counts = [
            Counter(asked for asked, _, _ in broker.requests[at:]) for broker, at in zip(servers, so_far, strict=True)
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    stretched = max(1.0, took / WINDOW)
    for (key, _), count in zip(cases, counts, strict=True):
        assert count[key] <= ATTEMPTS * stretched, (key, count)
        assert count.total() <= REQUESTS * stretched, (key, count)
    assert logged <= LINES * len(servers) * stretched
    assert busy <= 0.05 * len(servers) * stretched + 0.3, "seconds of processor time"


def noted(action: Action, met: asyncio.Event) -> Action:
    """The action, which also sets an event."""

    def noting(request: Request) -> Answer:
        met.set()
        return action(request)

    return noting


async def run(program: Program, broker: FakeBroker) -> None:
    with suppress(KafkaError):
        await program(broker)


async def run_to(program: Program, broker: FakeBroker, met: asyncio.Event) -> None:
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
            brokers=[MetadataResponseBroker(node_id=0, host=HOST, port=1)],
            cluster_id="fake",
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
async def test_errors_that_repeat(key: ApiKey, refusal: Refusal, program: Program, lines: Lines) -> None:
    codes = {*SPECIAL, *random.Random(key).sample(CODES, 5)}
    await repeated(key, map(refusal, sorted(codes)), program, lines)


@pytest.mark.slow
@pytest.mark.parametrize(("key", "refusal", "program"), APIS, ids=NAMES)
async def test_every_error_that_repeats(key: ApiKey, refusal: Refusal, program: Program, lines: Lines) -> None:
    for at in range(0, len(CODES), 20):
        lines.count = 0
        await repeated(key, map(refusal, CODES[at : at + 20]), program, lines)


@pytest.mark.parametrize("program", [sends, reads, joins])
async def test_connections_that_break_again_and_again(program: Program, lines: Lines) -> None:
    keys = sorted({key for key, _, one in APIS if one is program})
    await all_repeated([(key, drop) for key in keys], program, lines)


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


async def test_answers_that_bring_nothing(lines: Lines) -> None:
    await repeated(ApiKey.FETCH, FRUITLESS.values(), lambda broker: reads(broker, fetch_max_wait_ms=5_000), lines)


async def test_records_that_were_fetched_before(lines: Lines) -> None:
    async def program(broker: FakeBroker) -> None:
        async with consumer(broker, **PAUSES, fetch_max_wait_ms=5_000) as reader:
            reader.assign([T0])
            reader.seek(T0, 2)
            await poll(reader)

    await repeated(ApiKey.FETCH, [fetched(records=OLD)], program, lines)


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


async def test_brokers_that_name_each_other(pair: tuple[FakeBroker, FakeBroker]) -> None:
    pair[0].create("t")
    for broker in pair:
        other = pair[1 - broker.node_id]
        produce, fetch = not_leader(other.node_id)
        broker.always(ApiKey.PRODUCE, produce)
        broker.always(ApiKey.FETCH, fetch)
        broker.always(
            ApiKey.FIND_COORDINATOR,
            lambda request, other=other: FindCoordinatorResponse(  # type: ignore[misc]
                coordinators=[
                    Coordinator(
                        key="g", node_id=other.node_id, host=HOST, port=other.port, error_code=0, error_message=None
                    )
                ]
            ),
        )
        broker.always(ApiKey.JOIN_GROUP, refused(ErrorCode.NOT_COORDINATOR))

    began = time.monotonic()
    tasks = [asyncio.create_task(run(program, pair[0])) for program in (sends, reads, joins)]
    await asyncio.wait(tasks, timeout=WINDOW)
    stretched = max(1.0, (time.monotonic() - began) / WINDOW)
    counts = Counter(key for broker in pair for key, _, _ in broker.requests)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for key in (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.FIND_COORDINATOR):
        assert counts[key] <= ATTEMPTS * stretched, counts
    assert counts.total() <= 3 * REQUESTS * stretched, counts
