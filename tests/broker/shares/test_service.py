"""The share coordinator and the persister, with a log in memory."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any
from uuid import UUID

import pytest

from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.ports import ShareState, StateBatch
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.shares.state import Answer
from barnabas_protocol.codec import decode, encode, encode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStatePartitionResult,
    InitializeStateResult,
)
from barnabas_protocol.messages.read_share_group_state import (
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateBatch,
    ReadStatePartitionResult,
    ReadStateResult,
)
from barnabas_protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from barnabas_protocol.schema import Request, Response
from tests.broker.groups.memory import MemoryLog
from tests.wire import until

E = ErrorCode
NODE = 1
TOPIC = UUID(int=7)
KEY = ShareKey("g", TOPIC, 0)
DONE = StateBatch(5, 6, 2, 1)


class Broker:
    """A share coordinator of two partitions, and a persister that finds it on this broker or another one."""

    def __init__(self, **settings: str) -> None:
        given = {"share.coordinator.state.topic.num.partitions": "2"}
        self.config = Config(BROKER_KEYS, given | {key.replace("_", "."): text for key, text in settings.items()})
        self.log = MemoryLog()
        self.ms = 1_000_000
        self.topics = {TOPIC}
        self.pruned: list[tuple[int, int]] = []
        self.leaders: dict[int, int] | None = {0: NODE, 1: NODE}
        self.pauses: list[float] = []
        self.requests: list[tuple[int, Request]] = []
        self.answers: list[Response | OSError] = []
        self.create_error: KafkaError | None = None
        self.shares = self.make()

    def make(self) -> ShareCoordinator:
        self.shares = ShareCoordinator(
            self.config,
            self.log,
            lambda topic_id, partition: topic_id in self.topics and partition < 3,
            lambda partition, offset: self.pruned.append((partition, offset)),
            now=lambda: self.ms / 1000,
            wall_ms=lambda: self.ms,
        )
        self.persister = SharePersister(NODE, self.shares, self, self, 5.0, self.sleep)
        return self.shares

    async def load(self, epoch: int = 0) -> None:
        for index in range(2):
            await self.shares.runtime.load(index, epoch)

    async def restart(self) -> None:
        await self.shares.close()
        self.make()
        await self.load(1)

    # Ports of the persister

    def leader(self, partition: int) -> int | None:
        return None if self.leaders is None else self.leaders.get(partition, -1)

    async def create(self) -> None:
        if self.create_error is not None:
            raise self.create_error
        self.leaders = {0: NODE, 1: NODE}

    async def sleep(self, pause: float) -> None:
        self.pauses.append(pause)
        await asyncio.sleep(0)

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        self.requests.append((node_id, decode(type(request), version, encode(request, version))))
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return encode_response(answer, version, 7)[4:]

    async def write(self, *batches: StateBatch, leader_epoch: int = 0, start: int = -1, count: int = -1) -> None:
        await self.persister.write(
            *KEY,
            state_epoch=0,
            leader_epoch=leader_epoch,
            start_offset=start,
            delivery_complete_count=count,
            batches=batches,
        )


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    broker = Broker()
    await broker.load()
    yield broker
    await broker.shares.close()


async def error_of(call: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        await call
    return raised.value.code


async def test_the_state_outlives_a_coordinator(broker: Broker) -> None:
    await broker.persister.initialize(KEY, 0, 5)
    await broker.write(DONE, start=5, count=2)
    await broker.restart()
    assert await broker.persister.read(*KEY, 2) == ShareState(0, 5, 2, (DONE,))
    await broker.restart()
    assert await error_of(broker.write(DONE, leader_epoch=1)) is E.FENCED_LEADER_EPOCH
    summary = await broker.persister.summary(KEY)
    assert summary == Answer(E.NONE, None, ShareState(0, 5, 2, ()), 2)
    await broker.persister.delete(KEY)
    await broker.restart()
    assert broker.shares.runtime.count == 0


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (KEY._replace(partition=-1), E.INVALID_REQUEST),
        (KEY._replace(partition=3), E.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(topic_id=UUID(int=8)), E.UNKNOWN_TOPIC_OR_PARTITION),
        (KEY._replace(group=""), E.INVALID_REQUEST),
        (KEY._replace(group="g" * 40_000), E.INVALID_REQUEST),
    ],
    ids=["negative", "no such partition", "no such topic", "no group", "long group"],
)
async def test_what_may_have_no_state(broker: Broker, key: ShareKey, error: ErrorCode) -> None:
    assert await error_of(broker.persister.initialize(key, 0, 0)) is error
    assert broker.shares.summary(key).error is error
    assert broker.shares.runtime.count == 0


async def test_a_refused_beginning_leaves_nothing(broker: Broker) -> None:
    assert await error_of(broker.persister.initialize(KEY, -1, 0)) is E.INVALID_REQUEST
    assert await error_of(broker.persister.read(*KEY, 0)) is E.INVALID_REQUEST
    assert broker.shares.runtime.count == 0


async def test_a_write_that_fails_has_changed_nothing(broker: Broker) -> None:
    await broker.persister.initialize(KEY, 0, 5)
    broker.log.fail = E.KAFKA_STORAGE_ERROR
    assert await error_of(broker.write(DONE)) is E.NOT_COORDINATOR
    assert len(broker.pauses) == 11, "it was tried again, with back-off"
    assert broker.pauses == sorted(broker.pauses[:7]) + broker.pauses[7:]
    broker.log.fail = E.NONE
    assert (await broker.persister.read(*KEY, 0)).batches == ()


async def test_a_snapshot_of_a_coordinator_that_leads_no_more_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another broker leads the partition, and this one has not heard of it as its coordinator."""

    def end_offset(partition: int) -> int:
        raise KafkaError(E.NOT_LEADER_OR_FOLLOWER)

    broker.log.fail = E.NOT_LEADER_OR_FOLLOWER
    monkeypatch.setattr(broker.log, "end_offset", end_offset)
    assert (await broker.shares.initialize(KEY, 0, 5)).error is E.NOT_COORDINATOR


async def test_the_state_of_a_deleted_topic_is_deleted(broker: Broker) -> None:
    await broker.persister.initialize(KEY, 0, 5)
    broker.topics.clear()
    broker.shares.topics_deleted()
    await until(lambda: not broker.shares.runtime.count)
    await broker.restart()
    assert broker.shares.runtime.count == 0


async def test_a_topic_that_was_deleted_while_no_broker_coordinated(broker: Broker) -> None:
    await broker.persister.initialize(KEY, 0, 5)
    await broker.shares.close()
    broker.topics.clear()
    broker.make()
    await broker.load(1)
    await until(lambda: not broker.shares.runtime.count)


async def test_what_later_snapshots_replace_is_deleted(broker: Broker) -> None:
    other = KEY._replace(partition=1)
    home = broker.shares.runtime.partition_for(KEY.name)
    if broker.shares.runtime.partition_for(other.name) != home:
        other = KEY._replace(partition=2)
    assert broker.shares.runtime.partition_for(other.name) == home, "both are in one partition"
    await broker.persister.initialize(KEY, 0, 5)
    await broker.persister.initialize(other, 0, 5)
    for offset in range(5, 9):
        await broker.write(StateBatch(offset, offset, 2, 1))
    list(broker.shares._delete_old())
    assert broker.pruned == [], "the first snapshot is the first record"
    broker.ms += 300_000
    list(broker.shares._renew())
    await until(lambda: not broker.shares.runtime.writer.unsettled(home))
    list(broker.shares._delete_old())
    assert broker.pruned == [(home, 6)]
    # A coordinator that begins there knows the same.
    broker.log.batches[home] = broker.log.batches[home][6:]
    await broker.restart()
    assert (await broker.persister.read(*KEY, 0)).batches == (StateBatch(5, 8, 2, 1),)
    assert (await broker.persister.read(*other, 0)).batches == ()
    broker.ms += 300_000
    list(broker.shares._renew())
    assert broker.log.end_offset(home) == 8, "idle share partitions are not written again and again"


async def test_the_topic_is_created_on_first_use(broker: Broker) -> None:
    broker.leaders = None
    broker.create_error = KafkaError(E.INVALID_REPLICATION_FACTOR, "too few brokers")
    with pytest.raises(KafkaError, match="too few brokers") as raised:
        await broker.persister.initialize(KEY, 0, 5)
    assert raised.value.code is E.COORDINATOR_NOT_AVAILABLE
    broker.create_error = None
    await broker.persister.initialize(KEY, 0, 5)
    assert (await broker.persister.read(*KEY, 0)).start_offset == 5


def initialized(error: ErrorCode) -> Response:
    result = InitializeStatePartitionResult(partition=0, error_code=error, error_message=None)
    return InitializeShareGroupStateResponse(results=[InitializeStateResult(topic_id=TOPIC.bytes, partitions=[result])])


async def test_a_coordinator_on_another_broker(broker: Broker) -> None:
    broker.leaders = {0: 2, 1: 2}
    broker.answers = [
        ConnectionError("down"),
        initialized(E.COORDINATOR_LOAD_IN_PROGRESS),
        initialized(E.NOT_COORDINATOR),
        initialized(E.NONE),
    ]
    await broker.persister.initialize(KEY, 1, 5)
    assert len(broker.requests) == 4 and len(broker.pauses) == 3
    node_id, request = broker.requests[-1]
    assert node_id == 2 and isinstance(request, InitializeShareGroupStateRequest) and request.group_id == "g"
    (topic,) = request.topics
    ((partition),) = topic.partitions
    assert (topic.topic_id, partition.partition, partition.state_epoch, partition.start_offset) == (
        TOPIC.bytes,
        0,
        1,
        5,
    )
    batch = ReadStateBatch(first_offset=5, last_offset=6, delivery_state=2, delivery_count=1)
    result = ReadStatePartitionResult(
        partition=0, error_code=0, error_message=None, state_epoch=1, start_offset=5, state_batches=[batch]
    )
    answer = ReadShareGroupStateResponse(results=[ReadStateResult(topic_id=TOPIC.bytes, partitions=[result])])
    broker.answers = [answer]
    assert await broker.persister.read(*KEY, 4) == ShareState(1, 5, -1, (DONE,))
    asked = broker.requests[-1][1]
    assert isinstance(asked, ReadShareGroupStateRequest) and asked.topics[0].partitions[0].leader_epoch == 4


async def test_answers_of_another_broker_that_cannot_be_read(broker: Broker) -> None:
    broker.leaders = {0: 2, 1: 2}
    broker.answers = [InitializeShareGroupStateResponse(results=[])]
    assert await error_of(broker.persister.initialize(KEY, 1, 5)) is E.UNKNOWN_SERVER_ERROR
    unknown = initialized(E.NONE)
    assert isinstance(unknown, InitializeShareGroupStateResponse)
    unknown.results[0].partitions[0].error_code = 9999
    broker.answers = [unknown]
    assert await error_of(broker.persister.initialize(KEY, 1, 5)) is E.UNKNOWN_SERVER_ERROR


async def test_a_write_to_another_broker_has_everything(broker: Broker) -> None:
    broker.leaders = {0: 2, 1: 2}
    broker.answers = [ConnectionError("down")] * 12
    assert await error_of(broker.write(DONE, leader_epoch=3, start=5, count=2)) is E.NETWORK_EXCEPTION
    request = broker.requests[-1][1]
    assert isinstance(request, WriteShareGroupStateRequest)
    partition = request.topics[0].partitions[0]
    assert (partition.leader_epoch, partition.start_offset, partition.delivery_complete_count) == (3, 5, 2)
    assert [each.last_offset for each in partition.state_batches] == [6]
