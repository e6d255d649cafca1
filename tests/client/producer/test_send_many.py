"""`send_many`: the records, batches and errors of `send`, for whole iterables."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from itertools import chain, count, repeat
from typing import Any

import pytest

from barnabas_client import BatchReceipt, Producer
from barnabas_client.errors import (
    BufferExhaustedError,
    DeliveryTimeoutError,
    IllegalStateError,
    MessageSizeTooLargeError,
    ProducerClosedError,
    RecordTooLargeError,
    TransactionAbortedError,
    UnknownTopicOrPartitionError,
)
from barnabas_client.producer.partitioner import positive_hash
from barnabas_client.structs import BatchMetadata
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import ProduceRequest
from barnabas_protocol.records import build_batch, decode_records
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.producers import T0, batches, numbered, producer
from tests.world.answers import Answer, Held, Refused, drop, lose, refused, silence
from tests.world.broker import until
from tests.world.programs import Machine, simulated

pytestmark = pytest.mark.broad


def places(receipts: Iterable[BatchReceipt]) -> list[int]:
    """The places of all records in their call, in order."""
    return sorted(chain.from_iterable(receipt.records for receipt in receipts))


def small(**settings: Any) -> dict[str, Any]:
    """Settings with which few records fill a batch."""
    return {"batch_size": 500, **settings}


# What is written.


@simulated
async def test_records_in_order_in_batches_with_a_receipt_each(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, **small()) as sender:
        receipts = await sender.send_many("t", numbered(300))
        done = await asyncio.gather(*receipts)
    assert broker.values("t") == numbered(300)
    assert places(receipts) == list(range(300))
    assert len(receipts) > 5
    assert done[0] == BatchMetadata("t", 0, T0, 0, len(receipts[0]) - 1, len(receipts[0]), 0)
    for receipt, one in zip(receipts, done, strict=True):
        assert list(receipt.records) == list(range(one.offset, one.last_offset + 1))
    sizes = [size for _, size in batches(broker)]
    assert [sequence for sequence, _ in batches(broker)] == [sum(sizes[:at]) for at in range(len(sizes))]


@simulated
async def test_the_batches_are_those_of_single_records(broker: Machine) -> None:
    await broker.create("t")
    chance = random.Random(3)
    values = [chance.choice([None, b"", chance.randbytes(chance.randrange(300))]) for _ in range(400)]
    keys = [chance.choice([None, chance.randbytes(5)]) for _ in values]
    headers = [chance.choice([None, (), [("h", b"1"), ("n", None)]]) for _ in values]
    times = [1_700_000_000_000 + chance.randrange(9_000) for _ in values]
    async with producer(broker, **small(batch_size=4_000)) as sender:
        await sender.send_many("t", values, keys, headers, times, partition=0)
    found = [(record.key, record.value, tuple(record.headers), record.timestamp) for record in broker.records("t")]
    assert found == [
        (key, value, tuple(some or ()), time)
        for key, value, some, time in zip(keys, values, headers, times, strict=True)
    ]
    for batch in broker.batches("t"):
        again = build_batch((one.key, one.value, one.headers, one.timestamp) for one in decode_records(batch))
        assert bytes(again[61:]) == bytes(batch[61:])


@pytest.mark.parametrize(
    "settings",
    [{"acks": 0}, {"acks": 1}, {"enable_idempotence": False}, {"compression_type": "lz4"}, {"linger_ms": 60_000}],
    ids=str,
)
@simulated
async def test_settings_of_the_producer(broker: Machine, settings: dict[str, Any]) -> None:
    await broker.create("t")
    async with producer(broker, **small(**settings)) as sender:
        receipts = await sender.send_many("t", iter(numbered(100)))
        await sender.flush()
        assert all(receipt.done() for receipt in receipts)
        offsets = [receipt.result().offset for receipt in receipts]
        await until(lambda: broker.values("t") == numbered(100))
    assert offsets[0] == (-1 if settings.get("acks") == 0 else 0)


@simulated
async def test_serializers(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, key_serializer=str.encode, value_serializer=lambda value: b"%d" % value) as sender:
        await sender.send_many("t", [1, None, 3], ["a", "b", None])
    assert [(one.key, one.value) for one in broker.records("t")] == [(b"a", b"1"), (b"b", None), (None, b"3")]


@simulated
async def test_nothing(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        assert await sender.send_many("t", []) == []
    assert broker.values("t") == []


@simulated
async def test_send_and_send_many_share_batches_and_order(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, linger_ms=60_000) as sender:
        first = await sender.send("t", b"0")
        (many,) = await sender.send_many("t", [b"1", b"2"])
        last = await sender.send("t", b"3")
        await sender.flush()
        assert (first.result().offset, last.result().offset) == (0, 3)
        assert (many.result().offset, many.result().last_offset, list(many.records)) == (1, 2, [0, 1])
    assert batches(broker) == [(0, 4)]
    assert broker.values("t") == numbered(4)


@simulated
async def test_generators_that_never_end(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, buffer_memory=20_000, **small()) as sender:
        call = asyncio.ensure_future(sender.send_many("t", (b"%d" % at for at in count())))
        await until(lambda: sum(size for _, size in batches(broker)) > 10_000)
        assert sender._accumulator.memory <= 20_000
        call.cancel()
        await asyncio.wait([call])
        await sender.flush()
    there = broker.values("t")
    assert there == numbered(len(there))


@simulated
async def test_other_tasks_run_meanwhile(broker: Machine) -> None:
    await broker.create("t")
    turns, done = 0, False

    async def other() -> None:
        nonlocal turns
        while not done:
            turns += 1
            await asyncio.sleep(0)

    async with producer(broker) as sender:
        await sender.send_and_wait("t", b"the topic is known")
        task = asyncio.ensure_future(other())
        await sender.send_many("t", repeat(b"x", 20_000))
        done = True
        await task
        assert turns > 4


# Partitions.


@simulated
async def test_keys_choose_partitions_as_in_java(broker: Machine) -> None:
    await broker.create("t", 7)
    chance = random.Random(1)
    keys = [chance.randbytes(chance.choice([0, 3, 8, 36])) for _ in range(500)]
    async with producer(broker, **small()) as sender:
        receipts = await sender.send_many("t", numbered(500), keys)
        done = await asyncio.gather(*receipts)
    assert places(receipts) == list(range(500))
    for number in range(7):
        mine = [b"%d" % at for at, key in enumerate(keys) if positive_hash(key) % 7 == number]
        assert broker.values("t", number) == mine
    for receipt, one in zip(receipts, done, strict=True):
        there = broker.values("t", one.partition)[one.offset : one.last_offset + 1]
        assert there == [b"%d" % place for place in receipt.records]


@simulated
async def test_records_without_a_key_are_spread_by_batches(broker: Machine) -> None:
    await broker.create("t", 3)
    async with producer(broker, batch_size=1_000) as sender:
        await sender.send_many("t", [b"x" * 50] * 600)
    counts = [len(broker.values("t", number)) for number in range(3)]
    assert sum(counts) == 600
    assert min(counts) > 100


@simulated
async def test_some_records_have_a_key(broker: Machine) -> None:
    await broker.create("t", 3)
    keys = [b"%d" % at if at % 2 else None for at in range(100)]
    async with producer(broker) as sender:
        await sender.send_many("t", numbered(100), keys)
    for number in range(3):
        assert all(positive_hash(one.key) % 3 == number for one in broker.records("t", number) if one.key is not None)
    assert sum(len(broker.values("t", number)) for number in range(3)) == 100


@simulated
async def test_a_given_partition(broker: Machine) -> None:
    await broker.create("t", 3)
    async with producer(broker) as sender:
        await sender.send_many("t", numbered(9), numbered(9), partition=2)
        with pytest.raises(UnknownTopicOrPartitionError, match="no partition 3, only 3"):
            await sender.send_many("t", numbered(9), partition=3)
        wrong: Any = "1"
        with pytest.raises(TypeError, match="partition is '1'"):
            await sender.send_many("t", numbered(9), partition=wrong)
    assert broker.values("t", 2) == numbered(9)


@simulated
async def test_a_custom_partitioner(broker: Machine) -> None:
    await broker.create("t", 4)

    def mine(key: bytes | None, everything: Any, available: Any) -> int:
        assert (everything, available) == ((0, 1, 2, 3), (0, 1, 2, 3))
        return 3 if key is None else int(key)

    async with producer(broker, partitioner=mine) as sender:
        await sender.send_many("t", numbered(3))
        with pytest.raises(UnknownTopicOrPartitionError, match="send_many to t: record 2: it has no partition 9"):
            await sender.send_many("t", [b"a", b"b", b"c", b"d"], [b"0", b"1", b"9", b"0"])
        with pytest.raises(UnknownTopicOrPartitionError, match="record 0"):
            await sender.send_many("t", [b"e"], [b"9"])
        with pytest.raises(ValueError, match="invalid literal"):
            await sender.send_many("t", [b"f", b"g"], [b"0", b"x"])
    assert [broker.values("t", number) for number in range(4)] == [[b"a", b"f"], [b"b"], [], numbered(3)]


# Room.


@simulated
async def test_memory_is_bounded(broker: Machine) -> None:
    await broker.create("t", 2)
    most = 0

    def look(request: Request) -> Answer:
        nonlocal most
        most = max(most, sender._accumulator.memory)
        return None

    broker.script.always(ApiKey.PRODUCE, look)
    async with producer(broker, buffer_memory=2_000, linger_ms=60_000, **small()) as sender:
        receipts = await sender.send_many("t", [b"x" * 100] * 300, numbered(300))
        assert places(receipts) == list(range(300))
    assert 1_000 < most <= 2_000
    assert sum(len(broker.values("t", number)) for number in range(2)) == 300


@simulated
async def test_a_record_larger_than_buffer_memory(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker, buffer_memory=1_000) as sender:
        await sender.send_many("t", [b"x" * 3_000, b"y", b"z" * 3_000])
    assert broker.values("t") == [b"x" * 3_000, b"y", b"z" * 3_000]


@simulated
async def test_buffer_memory_stays_full(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, refused(ErrorCode.NOT_ENOUGH_REPLICAS))
    async with producer(broker, buffer_memory=500, max_block_ms=1_000) as sender:
        with pytest.raises(BufferExhaustedError, match=r"buffer_memory \(500 bytes\) stayed full"):
            await sender.send_many("t", [b"%d" % at * 150 for at in range(9)])
        broker.script.always(ApiKey.PRODUCE, None)
    assert broker.values("t") == [b"%d" % at * 150 for at in range(2)]


@simulated
async def test_requests_are_not_larger_than_max_request_size(broker: Machine) -> None:
    await broker.create("t", 4)
    async with producer(broker, max_request_size=1_000, batch_size=400, linger_ms=5) as sender:
        await sender.send_many("t", [b"x" * 100] * 80, numbered(80))
    sizes = [
        sum(len(one.records or b"") for topic in request.topic_data for one in topic.partition_data)
        for request in broker.script.asked(ProduceRequest)
    ]
    assert max(sizes) <= 1_000


@pytest.mark.parametrize("keyed", [False, True])
@simulated
async def test_a_cancelled_call_has_sent_the_records_before(broker: Machine, keyed: bool) -> None:
    await broker.create("t", 2)
    go = asyncio.Event()
    broker.script.always(ApiKey.PRODUCE, lambda request: Held(go))
    async with producer(broker, buffer_memory=3_000, **small()) as sender:
        keys = numbered(200) if keyed else None
        call = asyncio.ensure_future(sender.send_many("t", [b"%03d" % at * 30 for at in range(200)], keys))
        await until(lambda: sender._accumulator.flushing > 0)  # it waits for room
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.script.always(ApiKey.PRODUCE, None)
        go.set()
    found = sorted(broker.values("t", 0) + broker.values("t", 1), key=lambda value: value or b"")
    assert 10 < len(found) < 100
    assert found == [b"%03d" % at * 30 for at in range(len(found))]


@simulated
async def test_a_producer_that_is_stopped_meanwhile(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, silence)
    sender = producer(broker, buffer_memory=3_000, **small())
    await sender.start()
    call = asyncio.ensure_future(sender.send_many("t", [b"x" * 100] * 100))
    await until(lambda: sender._accumulator.flushing > 0)
    await sender.stop(timeout_ms=0)
    with pytest.raises(ProducerClosedError):
        await call


# Items that cannot be sent: those before them are sent, and no other.


def raising(number: int) -> Iterator[bytes]:
    """Yield as many values, and raise."""
    yield from numbered(number)
    raise ZeroDivisionError("the source has failed")


@pytest.mark.parametrize("number", [0, 1, 63, 64, 65, 1_000])
@simulated
async def test_an_iterable_that_raises(broker: Machine, number: int) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        with pytest.raises(ZeroDivisionError, match="the source has failed") as caught:
            await sender.send_many("t", raising(number))
        assert caught.value.__notes__ == [f"send_many to t: values raised this after {number} records"]
        with pytest.raises(ZeroDivisionError):
            await sender.send_many("t", repeat(b"more", 2_000), raising(number), partition=0)
    assert broker.values("t") == numbered(number) + [b"more"] * number


BAD: Any = object()


@pytest.mark.parametrize("at", [0, 5, 64, 700])
@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("text",), TypeError, "the value is str: give bytes, or set value_serializer"),
        ((b"v", 7), TypeError, "the key is int: give bytes, or set key_serializer"),
        ((b"v", b"k", [("h", "text")]), TypeError, r"\('h', 'text'\) is not a header"),
        ((b"v", b"k", [("\ud800", b"")]), ValueError, "header's name .* cannot be encoded"),
        ((b"v", b"k", 7), TypeError, "not iterable"),
        ((b"v", b"k", None, "now"), TypeError, "timestamp_ms is 'now'"),
        ((b"v", b"k", None, -1), ValueError, "timestamp_ms is -1"),
        ((b"v", b"k", None, True), TypeError, "timestamp_ms is True"),
        ((b"v" * 2_000,), RecordTooLargeError, "2040 bytes is larger than max_request_size 2000"),
    ],
    ids=lambda one: str(one)[:20],
)
@simulated
async def test_the_error_names_the_record(
    broker: Machine, at: int, arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    await broker.create("t")
    good: list[Any] = [b"v", b"k", [("h", b"1")], 5]
    columns: list[Any] = [
        chain(repeat(good[place], at), [argument], repeat(good[place], 100)) for place, argument in enumerate(arguments)
    ]
    async with producer(broker, max_request_size=2_000) as sender:
        with pytest.raises(error, match=message) as caught:
            await sender.send_many("t", *columns)
    if message != "not iterable":
        assert f"send_many to t: record {at}: " in str(caught.value)
    assert broker.values("t") == [b"v"] * at


@pytest.mark.parametrize("at", [0, 3, 500])
@simulated
async def test_a_serializer_that_raises(broker: Machine, at: int) -> None:
    await broker.create("t")
    async with producer(broker, value_serializer=lambda value: b"%d" % (1 // value)) as sender:
        with pytest.raises(ZeroDivisionError) as caught:
            await sender.send_many("t", chain(repeat(1, at), [0], repeat(1, 9)))
        assert caught.value.__notes__ == [f"send_many to t: value_serializer raised this for record {at}"]
    assert broker.values("t") == [b"1"] * at


@simulated
async def test_columns_of_different_lengths(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        with pytest.raises(ValueError, match="values has 3 items, keys 2: give as many"):
            await sender.send_many("t", numbered(3), numbered(2))
        assert broker.values("t") == []
        with pytest.raises(ValueError, match="keys has only 100 items, values has more"):
            await sender.send_many("t", repeat(b"v"), iter(numbered(100)))
        await sender.send_many("t", [b"w"], repeat(b"k"), repeat([("h", b"1")]), count(7))
    *first, last = broker.records("t")
    assert [one.key for one in first] == numbered(100)
    assert (last.key, last.value, tuple(last.headers), last.timestamp) == (b"k", b"w", (("h", b"1"),), 7)


@simulated
async def test_arguments_that_are_no_iterables(broker: Machine) -> None:
    await broker.create("t")

    async def produced() -> AsyncIterator[bytes]:
        yield b""

    async with producer(broker) as sender:
        for wrong, message in [
            (b"value", "values is bytes: give a list or another iterable. To do: for a single record use send"),
            ("value", "values is str"),
            (7, "values is int: give an iterable with an item for each record"),
            (produced(), "values is an async iterable. To do: collect some of its items in a list"),
        ]:
            values: Any = wrong
            with pytest.raises(TypeError, match=message):
                await sender.send_many("t", values)
        key: Any = b"k"
        with pytest.raises(TypeError, match="keys is bytes"):
            await sender.send_many("t", [b"v"], key)
        nothing: Any = None
        with pytest.raises(TypeError, match="None is not a topic"):
            await sender.send_many(nothing, [b"v"])
    assert broker.values("t") == []


@simulated
async def test_before_the_start_and_after_the_end(broker: Machine) -> None:
    sender = producer(broker)
    with pytest.raises(IllegalStateError, match=r"To do: start\(\) it first, or use it in a `with` block"):
        await sender.send_many("t", [b"v"])
    async with sender:
        pass
    with pytest.raises(ProducerClosedError, match="make a new one"):
        await sender.send_many("t", [b"v"])


# Failures.


@pytest.mark.parametrize("seed", range(12))
@simulated
async def test_any_faults_in_any_order(broker: Machine, seed: int) -> None:
    """Nothing acknowledged is lost, nothing comes twice, and the order of sending is the order of the log: with records
    that are sent one by one between those that are sent together, and batches that are split."""
    chance = random.Random(seed)
    limit = chance.randrange(100, 400)
    faults: list[Callable[[Request], Answer]] = [
        drop,
        lose,
        refused(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        refused(ErrorCode.NOT_ENOUGH_REPLICAS),
    ]

    def answer(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        # The answer is for all partitions of the request.
        smallest = min(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
        if smallest > limit:
            return Refused(ErrorCode.MESSAGE_TOO_LARGE)
        largest = max(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
        # A batch that was written once is never too large.
        return chance.choice(faults)(request) if chance.random() < 0.3 and largest <= limit else None

    await broker.create("t", 3)
    broker.script.always(ApiKey.PRODUCE, answer)
    sent = 0
    order: list[list[bytes]] = [[], [], []]
    receipts: list[Any] = []
    async with producer(broker, batch_size=600, buffer_memory=5_000) as sender:
        while sent < 400:
            number = chance.randrange(3)
            values = [b"%d" % at for at in range(sent, sent + chance.choice([1, 2, 60]))]
            sent += len(values)
            order[number] += values
            if len(values) == 1:
                receipts.append(await sender.send("t", values[0], partition=number))
            else:
                receipts += await sender.send_many("t", values, partition=number)
        await sender.flush()
        for receipt in receipts:
            done = receipt.result()
            if isinstance(done, BatchMetadata):
                there = broker.values("t", done.partition)
                assert (
                    there[done.offset : done.last_offset + 1]
                    == order[done.partition][done.offset : done.last_offset + 1]
                )
        assert sender._accumulator.memory == 0
    assert [broker.values("t", number) for number in range(3)] == order


@simulated
async def test_only_the_batch_with_a_record_that_does_not_fit_fails(broker: Machine) -> None:
    def answer(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        largest = max(len(part.records or b"") for topic in request.topic_data for part in topic.partition_data)
        return Refused(ErrorCode.MESSAGE_TOO_LARGE) if largest > 700 else None

    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, answer)
    values = [b"a" * 20] * 9 + [b"b" * 2_000] + [b"c" * 20] * 9
    async with producer(broker, batch_size=500) as sender:
        receipts = await sender.send_many("t", values)
        await sender.flush()
        failed = [receipt for receipt in receipts if receipt.exception() is not None]
    assert [list(receipt.records) for receipt in failed] == [[9]]
    assert isinstance(failed[0].exception(), MessageSizeTooLargeError)
    assert broker.values("t") == values[:9] + values[10:]


@simulated
async def test_records_that_are_not_acknowledged_in_time(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, refused(ErrorCode.NOT_ENOUGH_REPLICAS))
    async with producer(
        broker, delivery_timeout_ms=60_000, retry_backoff_ms=20_000, retry_backoff_max_ms=20_000
    ) as sender:
        (receipt,) = await sender.send_many("t", numbered(5))
        with pytest.raises(DeliveryTimeoutError, match=r"delivery_timeout_ms \(60000 ms, records: 5,"):
            await receipt
        broker.script.always(ApiKey.PRODUCE, None)


# Transactions.


@pytest.mark.usefixtures("transactions")
@simulated
async def test_transactions(broker: Machine) -> None:
    await broker.create("t", 2)

    async def aborted(sender: Producer[Any, Any]) -> list[BatchReceipt]:
        async with sender.transaction():
            for number in range(2):
                await sender.send("t", b"no", partition=number)
            await sender.flush()
            receipts = await sender.send_many("t", [b"no"] * 50, numbered(50))
            await sender.abort_transaction()
            return receipts

    async with producer(broker, transactional_id="x", linger_ms=60_000, **small()) as sender:
        with pytest.raises(IllegalStateError, match="begin"):
            await sender.send_many("t", [b"v"])
        receipts = await aborted(sender)
        assert any(isinstance(receipt.exception(), TransactionAbortedError) for receipt in receipts)
        async with sender.transaction():
            receipts = await sender.send_many("t", numbered(300), numbered(300))
        assert all(receipt.exception() is None for receipt in receipts)
    assert [broker.markers("t", number) for number in range(2)] == [[False, True]] * 2
    values = broker.values("t", 0) + broker.values("t", 1)
    assert sorted(value for value in values if value not in (b"no", None) and value.isdigit()) == sorted(numbered(300))


@simulated
async def test_a_transaction_that_ends_while_records_wait_for_room(broker: Machine) -> None:
    await broker.create("t")
    go = asyncio.Event()
    async with producer(broker, transactional_id="x", buffer_memory=2_000, **small()) as sender:
        await sender.begin_transaction()
        broker.script.once(ApiKey.PRODUCE, lambda request: Held(go))
        call = asyncio.ensure_future(sender.send_many("t", [b"x" * 100] * 100))
        await until(lambda: sender._accumulator.flushing > 0)
        end = asyncio.ensure_future(sender.abort_transaction())
        go.set()
        await end
        with pytest.raises(IllegalStateError, match=r"begin|aborting"):
            await call
