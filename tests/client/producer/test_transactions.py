"""Transactions of the producer: with scripted answers in the simulated world, and against real brokers."""

import asyncio
from itertools import count
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, KafkaError, Producer, Receipt, TopicPartition
from barnabas_client.errors import (
    CommitFailedError,
    DeliveryTimeoutError,
    IllegalOperationError,
    IllegalStateError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
)
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.end_txn import EndTxnRequest
from barnabas_protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
)
from barnabas_protocol.messages.produce import ProduceRequest
from barnabas_protocol.records import read_header
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.consumers import T0, consumer, member, stored, values
from tests.client.producers import numbered, producer
from tests.sampling import slow
from tests.world.answers import Action, Answer, Refused, drop, lose, refused, silence
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated

_NAMES = count(1)


async def committed(broker: Machine, number: int) -> list[bytes]:
    """The values that a read_committed consumer gets from partition 0, of which there are so many."""
    async with consumer(broker, isolation_level="read_committed") as reader:
        reader.assign([T0])
        end = (await reader.end_offsets([T0]))[T0]
        found: list[Any] = []
        while await reader.position(T0) < end:
            found += [each.value for records in (await reader.getmany(timeout_ms=1000)).values() for each in records]
        assert len(found) == number
        return found


@simulated
async def test_a_transaction(broker: Machine, transactions: int) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as sender:
        async with sender.transaction():
            receipts = [await sender.send("t", value, partition=0) for value in numbered(5)]
            await sender.send("t", b"other", partition=1)
        assert [receipt.result().offset for receipt in receipts] == list(range(5))
        async with sender.transaction():
            await sender.send("t", b"5", partition=0)
    assert broker.markers("t") == [True, True]
    assert await committed(broker, 6) == numbered(6)
    assert (max(broker.script.versions(ApiKey.PRODUCE)) >= 12) == (transactions == 2)
    assert all(request.transactional_id == "x" for request in broker.script.asked(ProduceRequest))


@pytest.mark.usefixtures("transactions")
@simulated
async def test_an_exception_aborts(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as sender:
        pending: list[Receipt] = []

        async def fails() -> None:
            async with sender.transaction():
                await sender.send_and_wait("t", b"no", partition=0)
                pending.append(await sender.send("t", b"no", partition=1))
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await fails()
        with pytest.raises(TransactionAbortedError):
            await pending[0]
        async with sender.transaction():
            await sender.send("t", b"yes", partition=0)
    assert broker.markers("t") == [False, True]
    assert await committed(broker, 1) == [b"yes"]
    async with consumer(broker) as reader:
        reader.assign([T0])
        assert await values(reader, 2) == [b"no", b"yes"], "read_uncommitted"


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_cancelled_block_aborts(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as sender:
        written = asyncio.Event()

        async def program() -> None:
            async with sender.transaction():
                await sender.send_and_wait("t", b"no", partition=0)
                written.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(program())
        await written.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert broker.markers("t") == [False]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_stop_aborts_an_open_transaction(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as sender:
        await sender.begin_transaction()
        await sender.send_and_wait("t", b"no", partition=0)
    assert broker.markers("t") == [False]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_records_outside_of_a_transaction_are_refused(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as sender:
        with pytest.raises(IllegalStateError, match=r"async with producer\.transaction"):
            await sender.send("t", b"no")
        async with sender.transaction():
            pass
        with pytest.raises(IllegalStateError, match="begin a transaction first"):
            await sender.send("t", b"no")
    assert not broker.script.asked(ProduceRequest)
    async with producer(broker) as plain:
        with pytest.raises(IllegalStateError, match="give it a transactional_id"):
            await plain.begin_transaction()


@pytest.mark.parametrize("fault", [slow(drop), lose], ids=["drop", "lose"])
@pytest.mark.parametrize(
    "key",
    [
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.END_TXN,
        ApiKey.PRODUCE,
        ApiKey.FIND_COORDINATOR,
    ],
    ids=lambda key: key.name,
)
@pytest.mark.usefixtures("transactions")
@simulated
async def test_lost_requests_and_answers(broker: Machine, key: ApiKey, fault: Action) -> None:
    await broker.create("t", 2)
    broker.script.once(key, fault, fault)
    async with producer(broker, transactional_id="x") as sender:
        for value in numbered(3):
            async with sender.transaction():
                await sender.send("t", value, partition=0)
                await sender.send_offsets_to_transaction({T0: int(value) + 1}, "g")
    assert broker.markers("t") == [True] * 3
    assert await committed(broker, 3) == numbered(3)
    assert await stored(broker) == (3, "")


def named(coordinator: Machine) -> Action:
    """FindCoordinator names this broker."""

    def action(request: Request) -> Answer:
        assert isinstance(request, FindCoordinatorRequest)
        (key,) = request.coordinator_keys
        node = Coordinator(key=key, node_id=coordinator.broker.services.node_id, host=coordinator.name, port=9092)
        return FindCoordinatorResponse(coordinators=[node])

    return action


@simulated
async def test_a_coordinator_that_moves(simulation: Simulation) -> None:
    one, other = await simulation.machine(), await simulation.machine()
    await one.create("t")
    async with producer(one, transactional_id="x") as sender:
        await sender.begin_transaction()
        await sender.send_and_wait("t", b"0")
        one.script.always(ApiKey.END_TXN, refused(ErrorCode.NOT_COORDINATOR))
        other.script.always(ApiKey.END_TXN, refused(ErrorCode.NONE))
        for broker in (one, other):
            broker.script.always(ApiKey.FIND_COORDINATOR, named(other))
        await sender.commit_transaction()
    assert [request.committed for request in other.script.asked(EndTxnRequest)] == [True]


# Failures.


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_record_that_is_refused_fails_the_transaction(broker: Machine) -> None:
    await broker.create("t", 2)
    broker.script.once(ApiKey.PRODUCE, refused(ErrorCode.MESSAGE_TOO_LARGE))
    async with producer(broker, transactional_id="x") as sender:
        with pytest.raises(TransactionAbortableError, match="MESSAGE_TOO_LARGE") as raised:
            async with sender.transaction():
                await sender.send("t", b"0", partition=0)
        assert isinstance(raised.value.__cause__, MessageSizeTooLargeError)
        async with sender.transaction():
            await sender.send("t", b"1", partition=0)
    assert await committed(broker, 1) == [b"1"]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_delivery_timeout_fails_the_transaction(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x", delivery_timeout_ms=300, request_timeout_ms=300) as sender:
        async with sender.transaction():
            await sender.send("t", b"0", partition=0)
        broker.script.once(ApiKey.PRODUCE, silence)
        with pytest.raises(TransactionAbortableError) as raised:
            async with sender.transaction():
                await sender.send("t", b"no", partition=0)
        assert isinstance(raised.value.__cause__, DeliveryTimeoutError)
        async with sender.transaction():
            await sender.send("t", b"1", partition=0)
    assert await committed(broker, 2) == numbered(2)
    headers = [read_header(batch) for batch in broker.batches("t")]
    ends = zip(broker.markers("t"), [each.producer_epoch for each in headers if each.is_control], strict=True)
    epochs = [epoch for committed, epoch in ends if committed]
    assert epochs == sorted(set(epochs)), "a gap in the sequence needs a new epoch"


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_second_producer_fences_the_first(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as first:
        await first.begin_transaction()
        await first.send_and_wait("t", b"no", partition=0)
        async with producer(broker, transactional_id="x") as second:
            with pytest.raises(ProducerFencedError, match="the coordinator has epoch") as raised:
                await first.commit_transaction()
            assert raised.value.current_epoch == 2
            with pytest.raises(ProducerFencedError):
                await first.begin_transaction()
            with pytest.raises(ProducerFencedError):
                async with first.transaction():
                    pass
            async with second.transaction():
                await second.send("t", b"yes", partition=0)
    assert await committed(broker, 1) == [b"yes"]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_fencing_inside_of_a_block_is_what_the_block_raises(broker: Machine) -> None:
    await broker.create("t", 2)
    async with producer(broker, transactional_id="x") as first:

        async def fenced() -> None:
            async with first.transaction():
                await first.send_and_wait("t", b"no", partition=0)
                async with producer(broker, transactional_id="x"):
                    pass
                await first.send_and_wait("t", b"no", partition=0)

        with pytest.raises(ProducerFencedError):
            await fenced()


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_commit_that_takes_too_long_goes_on(broker: Machine) -> None:
    await broker.create("t", 2)
    asked = asyncio.Event()

    def not_yet(request: Request) -> Answer:
        asked.set()
        return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)

    async with producer(broker, transactional_id="x", max_block_ms=200) as sender:
        await sender.begin_transaction()
        await sender.send_and_wait("t", b"0", partition=0)
        broker.script.always(ApiKey.END_TXN, not_yet)
        with pytest.raises(KafkaTimeoutError, match=r"CONCURRENT_TRANSACTIONS.*the same call can be made again"):
            await sender.commit_transaction()
        assert asked.is_set()
        broker.script.always(ApiKey.END_TXN, None)
        await until(lambda: bool(broker.markers("t")))
        await sender.commit_transaction()
    assert broker.markers("t") == [True]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_a_coordinator_that_never_answers(broker: Machine) -> None:
    await broker.create("t", 2)
    broker.script.always(ApiKey.INIT_PRODUCER_ID, silence)
    with pytest.raises(KafkaTimeoutError, match="initialize transactional id 'x'"):
        await producer(broker, transactional_id="x", max_block_ms=200).start()


# Consumers.


@pytest.mark.usefixtures("transactions")
@simulated
async def test_the_offsets_of_a_member(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", [b"a"])
    async with (
        member(broker, "t", isolation_level="read_committed", enable_auto_commit=False) as reader,
        producer(broker, transactional_id="x") as sender,
    ):
        assert await values(reader, 1) == [b"a"]
        group = reader.group_metadata()
        assert (group.group_id, group.generation_id) == ("g", 1)
        async with sender.transaction():
            await sender.send_offsets_to_transaction({T0: 1}, group)
        assert await stored(broker) == (1, "")
        await sender.begin_transaction()
        await sender.send_offsets_to_transaction({T0: 2}, group)
        await sender.abort_transaction()
        group = group._replace(generation_id=0)  # the partitions belong to another member by now

        async def too_late() -> None:
            async with sender.transaction():
                await sender.send("t", b"no", partition=1)
                await sender.send_offsets_to_transaction({T0: 2}, group)

        with pytest.raises(CommitFailedError, match="ILLEGAL_GENERATION"):
            await too_late()
    assert await stored(broker) == (1, "")


@simulated
async def test_group_metadata_needs_a_group(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker) as reader:
        reader.assign([T0])
        with pytest.raises(IllegalOperationError):
            reader.group_metadata()


@simulated
async def test_arguments_that_are_wrong(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, transactional_id="x") as sender:
        await sender.begin_transaction()
        with pytest.raises(TypeError, match=r"consumer\.group_metadata"):
            await sender.send_offsets_to_transaction({T0: 1}, 3)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="at least 0"):
            await sender.send_offsets_to_transaction({T0: -1}, "g")
    for settings, error in (
        ({"transactional_id": ""}, "give a name"),
        ({"transactional_id": "x" * 40_000}, "at most 32767 bytes"),
        ({"transactional_id": "x", "acks": 1}, "without idempotence"),
        ({"transactional_id": "x", "enable_idempotence": False}, "without idempotence"),
        ({"transactional_id": "x", "transaction_timeout_ms": 0}, "at least 1"),
    ):
        with pytest.raises(ValueError, match=error):
            Producer(**settings)


@simulated
async def test_offsets_of_an_open_transaction_are_waited_for(broker: Machine) -> None:
    """KIP-447: a member that takes over a partition starts after the transaction of the member before."""
    await broker.create("t")
    await broker.write("t", numbered(3))

    async with producer(broker, transactional_id="x") as sender:
        await sender.begin_transaction()
        await sender.send_offsets_to_transaction({T0: 2}, "g")
        async with member(broker, "t") as reader:
            reading = asyncio.ensure_future(values(reader, 1))
            await until(lambda: len(broker.script.asked(OffsetFetchRequest)) >= 2)
            assert not reading.done()
            await sender.commit_transaction()
            assert await reading == [b"2"]


@pytest.mark.usefixtures("transactions")
@simulated
async def test_the_lag_of_a_read_committed_consumer_ends_at_an_open_transaction(broker: Machine) -> None:
    await broker.create("t", 2)
    await broker.write("t", numbered(3))
    async with (
        producer(broker, transactional_id="x") as sender,
        consumer(broker, isolation_level="read_committed") as reader,
        consumer(broker) as uncommitted,
    ):
        await sender.begin_transaction()
        await sender.send_and_wait("t", b"open", partition=0)
        reader.assign([T0])
        uncommitted.assign([T0])
        assert await values(reader, 1) == await values(uncommitted, 1) == [b"0"]
        assert await reader.lag(T0) == {T0: 2} and await uncommitted.lag(T0) == {T0: 3}
        assert await reader.end_offsets([T0]) == {T0: 3} and await uncommitted.end_offsets([T0]) == {T0: 4}
        assert reader.last_stable_offset(T0) == 3 and reader.highwater(T0) == 4
        await sender.commit_transaction()
        assert await values(reader, 3) == [b"1", b"2", b"open"]
        assert len(broker.script.asked(InitProducerIdRequest)) == 1


# Real brokers.


async def test_consume_transform_produce(bootstrap_servers: str) -> None:
    """Half of the transactions are aborted, and read again: the results have each record once, in order."""
    source, target, group = (f"{name}-{next(_NAMES)}-{id(object())}" for name in ("source", "target", "group"))
    async with Producer(bootstrap_servers=bootstrap_servers) as filler:
        for value in numbered(40):
            await filler.send(source, value)
    aborted = 0
    async with (
        Consumer(
            source,
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        ) as reader,
        Producer(bootstrap_servers=bootstrap_servers, transactional_id=group) as sender,
    ):
        done = 0
        while done < 40:
            for tp, records in (await reader.getmany(timeout_ms=1000, max_records=5)).items():
                try:
                    async with sender.transaction():
                        for record in records:
                            await sender.send(target, record.value)
                        offsets = {tp: records[-1].offset + 1}
                        await sender.send_offsets_to_transaction(offsets, reader.group_metadata())
                        if (done // 5 + aborted) % 2 == 0:
                            raise ZeroDivisionError
                    done += len(records)
                except ZeroDivisionError:
                    aborted += 1
                    await reader.seek_to_committed(tp)
                    if await reader.committed(tp) is None:
                        await reader.seek_to_beginning(tp)
        assert await reader.committed(TopicPartition(source, 0)) == 40
    assert aborted == 8
    async with Consumer(
        target, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as results:
        assert await values(results, 40) == numbered(40)


async def test_fencing_by_a_real_broker(bootstrap_servers: str) -> None:
    name = f"fenced-{next(_NAMES)}-{id(object())}"
    async with Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as first:
        await first.begin_transaction()
        await first.send_and_wait(name, b"no")
        async with Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as second:
            with pytest.raises(ProducerFencedError, match="the coordinator has epoch"):
                await first.commit_transaction()
            async with second.transaction():
                await second.send(name, b"yes")
    async with Consumer(
        name, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        assert await values(reader, 1) == [b"yes"]


@pytest.mark.parametrize("committed", [True, False])
async def test_a_prepared_transaction_is_ended_elsewhere(bootstrap_servers: str, committed: bool) -> None:
    name = f"prepared-{next(_NAMES)}-{id(object())}"
    async with Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as first:
        await first.begin_transaction()
        await first.send(name, b"prepared")
        prepared = await first.prepare_transaction()
        with pytest.raises(IllegalStateError, match="is prepared"):
            await first.send(name, b"no")
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        (open_one,) = await admin.describe_transactions([name])
        assert (open_one.state, open_one.producer_epoch) == ("Ongoing", prepared.producer_epoch)
        for _ in range(2):
            assert await admin.end_transactions([prepared], committed=committed) == {prepared: None}
        refused = await admin.end_transactions([prepared], committed=not committed)
        assert isinstance(refused[prepared], KafkaError)
        with pytest.raises(ValueError, match="the same transactional id"):
            await admin.end_transactions([prepared, prepared], committed=True)
        async with Producer(bootstrap_servers=bootstrap_servers, transactional_id=name) as second:
            assert list((await admin.end_transactions([prepared], committed=committed)).values()) != [None]
            async with second.transaction():
                await second.send(name, b"next")
    async with Consumer(
        name, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as reader:
        expected = [b"prepared", b"next"] if committed else [b"next"]
        assert await values(reader, len(expected)) == expected
