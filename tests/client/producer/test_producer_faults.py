"""The producer when requests are lost, refused or answered late: no record is lost, duplicated or out of order."""

import asyncio
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_client.config import ClientConfig
from barnabas_client.errors import (
    KafkaError,
    MessageSizeTooLargeError,
)
from barnabas_client.producer.accumulator import Accumulator
from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.metrics import ProducerMeters
from barnabas_client.producer.sender import Sender
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas_protocol.messages.produce import (
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.records import read_header
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.producers import batches, numbered, producer
from tests.world.answers import Answer, Refused, default, drop, lose, refused, silence
from tests.world.programs import Machine, Simulation, simulated


@pytest.mark.parametrize(
    "fault",
    [
        drop,
        lose,
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refused(ErrorCode.LEADER_NOT_AVAILABLE),
        refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        refused(ErrorCode.NOT_ENOUGH_REPLICAS),
        refused(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
        refused(ErrorCode.REQUEST_TIMED_OUT),
        refused(ErrorCode.KAFKA_STORAGE_ERROR),
        refused(ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=lambda fault: getattr(fault, "__name__", ""),
)
@simulated
async def test_no_record_is_lost_by_a_temporary_fault(broker: Machine, fault: Callable[[Request], Answer]) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.PRODUCE, default, fault, default, fault, fault)
    async with producer(broker, batch_size=100) as sender:
        receipts = [await sender.send("t", value * 20) for value in numbered(30)]
        await sender.flush()
        assert [receipt.result().offset for receipt in receipts] == list(range(30))
    assert broker.values("t") == [value * 20 for value in numbered(30)]


@pytest.mark.parametrize("seed", range(12))
@simulated
async def test_any_faults_in_any_order(broker: Machine, seed: int) -> None:
    """Nothing acknowledged is lost, nothing comes twice, and the order of sending is the order of the log."""
    chance = random.Random(seed)
    faults: list[Callable[[Request], Answer]] = [
        drop,
        lose,
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refused(ErrorCode.NOT_ENOUGH_REPLICAS),
    ]
    await broker.create("t", 3)
    broker.script.always(ApiKey.PRODUCE, lambda r: chance.choice(faults)(r) if chance.random() < 0.3 else None)
    async with producer(broker, batch_size=200) as sender:
        receipts = []
        for value in numbered(300):
            receipts.append(await sender.send("t", value, partition=chance.randrange(3)))
            if chance.random() < 0.05:
                await asyncio.sleep(0)
        await sender.flush()
        written = [receipt.result() for receipt in receipts]
    for number in range(3):
        mine = [b"%d" % at for at, one in enumerate(written) if one.partition == number]
        assert broker.values("t", number) == mine
        assert [one.offset for one in written if one.partition == number] == list(range(len(mine)))


@simulated
async def test_order_is_kept_without_idempotence(broker: Machine) -> None:
    await broker.create("t")
    refuse = refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    broker.script.once(ApiKey.PRODUCE, default, refuse, drop, default, refuse)
    async with producer(broker, batch_size=100, enable_idempotence=False) as sender:
        for value in numbered(30):
            await sender.send("t", value * 20)
    assert broker.values("t") == [value * 20 for value in numbered(30)]


@simulated
async def test_the_broker_lost_acknowledged_records(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, batch_size=100) as sender:
        await sender.send_and_wait("t", b"first")
        first = read_header(broker.batches("t")[0]).producer_id

        def lost(request: Request) -> Answer:
            assert isinstance(request, ProduceRequest)
            batch = request.topic_data[0].partition_data[0].records or b""
            return Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER) if read_header(batch).producer_id == first else None

        broker.script.always(ApiKey.PRODUCE, lost)
        for value in numbered(10):
            await sender.send("t", value * 20)
        await sender.flush()
    assert broker.values("t") == [b"first", *(value * 20 for value in numbered(10))]
    assert len(broker.script.asked(InitProducerIdRequest)) == 2


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH])
@simulated
async def test_an_unknown_producer_gets_a_new_producer_id(broker: Machine, code: ErrorCode) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        broker.script.once(ApiKey.PRODUCE, default, refused(code))
        assert (await sender.send_and_wait("t", b"a")).offset == 0
        assert (await sender.send_and_wait("t", b"b")).offset == 1
        assert (await sender.send_and_wait("t", b"c")).offset == 2
    assert batches(broker) == [(0, 1), (0, 1), (1, 1)]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ],
)
@simulated
async def test_what_may_be_written_keeps_its_producer_id_while_another_partition_needs_a_new_one(
    broker: Machine, code: ErrorCode
) -> None:
    """A leader appends a batch, and is replaced before the other replicas have it: its answer is an error."""
    await broker.create("t", 2)
    codes = {0: code, 1: ErrorCode.UNKNOWN_PRODUCER_ID}

    def answer(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        (topic,) = request.topic_data
        assert [one.index for one in topic.partition_data] == [0, 1]
        written.append(asyncio.ensure_future(broker.append("t", bytes(topic.partition_data[0].records or b""))))
        answers = [
            PartitionProduceResponse(index=number, error_code=error, base_offset=-1) for number, error in codes.items()
        ]
        return ProduceResponse(responses=[TopicProduceResponse(name=topic.name, partition_responses=answers)])

    written: list[asyncio.Future[int]] = []

    async with producer(broker) as sender:
        for number in range(2):
            await sender.send_and_wait("t", b"a", partition=number)
        broker.script.once(ApiKey.PRODUCE, answer)
        receipts = [await sender.send("t", b"b", partition=number) for number in range(2)]
        assert [(await receipt).offset for receipt in receipts] == [1, 1]
        assert [await one for one in written] == [1]
    assert [broker.values("t", number) for number in range(2)] == [[b"a", b"b"]] * 2


@simulated
async def test_a_batch_without_an_answer_keeps_its_producer_id_while_another_partition_needs_a_new_one(
    broker: Machine,
) -> None:
    await broker.create("t", 2)
    async with producer(broker, retry_backoff_ms=1000, retry_backoff_max_ms=1000) as sender:
        for number in range(2):
            await sender.send_and_wait("t", b"a", partition=number)
        broker.script.once(ApiKey.PRODUCE, lose, refused(ErrorCode.UNKNOWN_PRODUCER_ID))
        unanswered = await sender.send("t", b"b", partition=0)
        await asyncio.sleep(0.1)  # it waits for its retry now
        assert (await sender.send_and_wait("t", b"b", partition=1)).offset == 1
        assert (await unanswered).offset == 1
    assert [broker.values("t", number) for number in range(2)] == [[b"a", b"b"]] * 2
    assert len(broker.script.asked(InitProducerIdRequest)) == 2


@simulated
async def test_a_batch_that_is_refused_fails_and_the_next_ones_do_not(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
    async with producer(broker, batch_size=100) as sender:
        receipts = [await sender.send("t", value * 80) for value in numbered(6)]
        await sender.flush()
        with pytest.raises(MessageSizeTooLargeError, match=r"send to t-0.*max\.message\.bytes"):
            await receipts[0]
        assert [(await receipt).offset for receipt in receipts[1:]] == list(range(5))
    assert broker.values("t") == [value * 80 for value in numbered(6)[1:]]


@simulated
async def test_a_duplicate_is_acknowledged(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.PRODUCE, refused(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    async with producer(broker) as sender:
        assert (await sender.send_and_wait("t", b"v")).offset == -1


@simulated
async def test_a_response_without_a_partition(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.PRODUCE, lambda request: ProduceResponse(responses=[]))
    async with producer(broker) as sender:
        assert (await sender.send_and_wait("t", b"v")).offset == 0


@simulated
async def test_the_broker_restarts(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        await sender.send_and_wait("t", b"a")
        await broker.stop()
        receipt = await sender.send("t", b"b")
        await asyncio.sleep(0)
        await broker.start()
        assert (await receipt).offset == 1


@simulated
async def test_the_leader_moves(simulation: Simulation) -> None:
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [0, 1])
    async with producer(one) as sender:
        await sender.send_and_wait("t", b"a")
        await simulation.lead("t", 1)
        assert (await sender.send_and_wait("t", b"b")).offset == 1
    assert other.script.asked(ProduceRequest)


@simulated
async def test_an_error_that_names_the_new_leader_saves_a_metadata_request(simulation: Simulation) -> None:
    """As Apache Kafka answers (KIP-951)."""
    one, other = await simulation.cluster(2)
    await one.create("t", 1, [0, 1])

    def moved(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        answer = PartitionProduceResponse(
            index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            base_offset=-1,
            current_leader=LeaderIdAndEpoch(leader_id=1, leader_epoch=1),
        )
        name = request.topic_data[0].name
        return ProduceResponse(responses=[TopicProduceResponse(name=name, partition_responses=[answer])])

    async with producer(one) as sender:
        await sender.send_and_wait("t", b"a")
        await simulation.lead("t", 1)
        one.script.once(ApiKey.PRODUCE, moved)
        for broker in (one, other):
            broker.script.always(ApiKey.METADATA, silence)
        assert (await sender.send_and_wait("t", b"b")).offset == 1


@simulated
async def test_a_producer_id_is_requested_again(broker: Machine) -> None:
    await broker.create("t")
    broker.script.once(ApiKey.INIT_PRODUCER_ID, drop, refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    async with producer(broker) as sender:
        assert (await sender.send_and_wait("t", b"v")).offset == 0


@simulated
async def test_a_producer_id_that_is_refused(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.INIT_PRODUCER_ID, refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    async with producer(broker) as sender:
        with pytest.raises(KafkaError, match=r"CLUSTER_AUTHORIZATION_FAILED.*grant this client WRITE on its topics"):
            await sender.send_and_wait("t", b"v")


def test_pauses_grow_while_a_leader_is_not_known() -> None:
    config = ClientConfig(servers=(), retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    network: Any = SimpleNamespace(
        config=config, cluster=SimpleNamespace(leader=lambda tp: None), want_refresh=lambda: None
    )
    accumulator = Accumulator(ProducerConfig())
    sender = Sender(network, accumulator, lambda: None, ProducerMeters(0.0))
    one, other = accumulator.queue(TopicPartition("t", 0)), accumulator.queue(TopicPartition("t", 1))
    pauses = []
    for now in range(6):
        again = sender._send_due([one], now * 2.0)
        assert again == one.retry_at
        pauses.append(one.retry_at - now * 2.0)
    factors = [pause / full for pause, full in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.0, 1.0], strict=True)]
    assert all(0.79 < factor < 1.21 for factor in factors)
    assert len({round(factor, 6) for factor in factors}) > 1, "jitter"
    again = sender._send_due([one, other], 20.0)
    assert again == other.retry_at < one.retry_at
    assert other.retry_at - 20 < 0.13
