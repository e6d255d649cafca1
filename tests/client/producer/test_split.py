"""A batch that is larger than the topic's `max.message.bytes` is split until it fits (KIP-126)."""

import random
from typing import Any

import pytest

from barnabas_client.errors import MessageSizeTooLargeError
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.produce import ProduceRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.client.producers import batches, producer
from tests.world.answers import Answer, Refused, drop
from tests.world.programs import Machine, simulated


def at_most(size: int, *, chance: random.Random | None = None) -> Any:
    """Refuse larger batches; sometimes break the connection instead."""

    def action(request: Request) -> Answer:
        assert isinstance(request, ProduceRequest)
        if chance is not None and chance.random() < 0.2:
            return drop(request)
        sizes = [len(part.records or b"") for topic in request.topic_data for part in topic.partition_data]
        return Refused(ErrorCode.MESSAGE_TOO_LARGE) if max(sizes) > size else None

    return action


@pytest.mark.parametrize(
    "settings", [{}, {"enable_idempotence": False}, {"compression_type": "gzip"}, {"acks": 1}], ids=str
)
@simulated
async def test_records_that_fit_alone_are_written(broker: Machine, settings: dict[str, Any]) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, at_most(400))
    chance = random.Random(7)
    sent = [chance.randbytes(50) for _ in range(60)]
    async with producer(broker, linger_ms=50, **settings) as sender:
        receipts = [await sender.send("t", value, headers=[("h", b"1")]) for value in sent]
        await sender.flush()
        assert [receipt.result().offset for receipt in receipts] == list(range(60))
        assert sender._accumulator.memory == 0
    assert broker.values("t") == sent


@pytest.mark.parametrize("seed", range(6))
@simulated
async def test_in_order_and_once_whatever_happens(broker: Machine, seed: int) -> None:
    chance = random.Random(seed)
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, at_most(chance.randrange(150, 1_500), chance=chance))
    sent = [b"%d:" % at + chance.randbytes(chance.randrange(40)) for at in range(200)]
    async with producer(broker, batch_size=2_000) as sender:
        receipts = [await sender.send("t", value) for value in sent]
        await sender.flush()
        assert [receipt.result().offset for receipt in receipts] == list(range(200))
        assert sender._accumulator.memory == 0
    assert broker.values("t") == sent
    sequences = batches(broker)
    assert [first for first, _ in sequences] == [
        sum(count for _, count in sequences[:at]) for at in range(len(sequences))
    ]


@simulated
async def test_only_the_record_that_does_not_fit_fails(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, at_most(500))
    sent = [b"a" * 20] * 9 + [b"b" * 2_000] + [b"c" * 20] * 9
    async with producer(broker, linger_ms=50) as sender:
        receipts = [await sender.send("t", value) for value in sent]
        await sender.flush()
        errors = [type(receipt.exception()) for receipt in receipts]
    assert errors[9] is MessageSizeTooLargeError
    assert errors.count(type(None)) == 18
    assert broker.values("t") == [b"a" * 20] * 9 + [b"c" * 20] * 9


@simulated
async def test_later_batches_are_smaller(broker: Machine) -> None:
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, at_most(1_100))
    async with producer(broker, batch_size=10_000) as sender:
        for _ in range(5):
            for _ in range(100):
                await sender.send("t", b"x" * 40)
            await sender.flush()
    assert len(broker.values("t")) == 500
    refused = len(broker.script.asked(ProduceRequest)) - len(broker.batches("t"))
    assert refused < 20
