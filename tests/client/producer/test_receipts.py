"""Receipts: futures that exist only if a program waits, over the outcome of a batch, which may be split."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas_client.errors import KafkaConnectionError
from barnabas_client.producer.accumulator import Accumulator, ProducerBatch
from barnabas_client.producer.config import ProducerConfig
from barnabas_client.producer.delivery import Delivery
from barnabas_client.producer.receipts import BatchReceipt, Receipt, give_up
from barnabas_client.structs import BatchMetadata, RecordMetadata, TopicPartition

T0 = TopicPartition("t", 0)
ERROR = KafkaConnectionError("no")


def pending(loop: Any = None) -> Delivery:
    return Delivery(T0, loop or asyncio.get_running_loop())


class Interrupted(asyncio.Future[Any]):
    """The future of a receipt that is cancelled at the very moment at which it is resolved, as by Ctrl-C: `asyncio.run`
    cancels what the main task waits for in a signal handler."""

    def set_result(self, result: Any, /) -> None:
        self.cancel()
        super().set_result(result)

    def set_exception(self, exception: Any, /) -> None:
        self.cancel()
        super().set_exception(exception)


async def test_ctrl_c_while_a_batch_is_acknowledged() -> None:
    delivery = pending(SimpleNamespace(create_future=Interrupted))
    receipts = [Receipt(delivery, at, 7) for at in range(2)]
    waiting = [asyncio.ensure_future(receipt) for receipt in receipts]
    await asyncio.sleep(0)
    delivery.acknowledge(5, -1, 0)
    assert all(receipt.cancelled() for receipt in receipts)
    assert Receipt(delivery, 1, 7).result().offset == 6
    await asyncio.wait(waiting)


async def test_ctrl_c_while_a_batch_fails() -> None:
    delivery = pending(SimpleNamespace(create_future=Interrupted))
    receipt = Receipt(delivery, 0, 7)
    waiting = asyncio.ensure_future(receipt)
    await asyncio.sleep(0)
    batch = ProducerBatch(Accumulator(ProducerConfig()).queue(T0), 1.0, None, 0.0)
    batch.delivery = delivery
    give_up([batch], ERROR)
    assert receipt.cancelled()
    assert Receipt(delivery, 1, 7).exception() is ERROR
    await asyncio.wait([waiting])


async def test_a_receipt_before_and_after_its_acknowledgement() -> None:
    delivery = pending()
    receipt = Receipt(delivery, 2, 7)
    assert not receipt.done()
    assert not receipt.cancelled()
    for read in (receipt.result, receipt.exception):
        with pytest.raises(asyncio.InvalidStateError, match="await the receipt"):
            read()
    assert repr(receipt) == "<Receipt of a record for t-0, pending>"
    delivery.acknowledge(5, -1, 1)
    assert receipt.done()
    assert receipt.exception() is None
    assert receipt.result() == await receipt == RecordMetadata("t", 0, T0, 7, 7, 0, 1)
    assert receipt.exception() is None
    assert not receipt.cancel()
    assert repr(receipt) == "<Receipt of a record for t-0, done>"


async def test_the_brokers_time_is_that_of_all_records() -> None:
    delivery = pending()
    delivery.acknowledge(5, 99, 0)
    assert Receipt(delivery, 1, 7).result() == RecordMetadata("t", 0, T0, 6, 99, 1, 0)


async def test_an_offset_that_is_not_known() -> None:
    delivery = pending()
    delivery.acknowledge(-1, -1, -1)
    assert Receipt(delivery, 1, 7).result().offset == -1
    written = BatchReceipt(delivery, 1, range(3)).result()
    assert (written.offset, written.last_offset) == (-1, -1)


async def test_what_waits_for_a_receipt() -> None:
    delivery = pending()
    receipts = [Receipt(delivery, at, 7) for at in range(4)]
    called: list[int] = []
    receipts[3].add_done_callback(lambda future: called.append(future.result().offset))

    def removed(future: object) -> None:
        called.append(-1)

    assert receipts[1].remove_done_callback(removed) == 0
    receipts[2].add_done_callback(removed)
    assert receipts[2].remove_done_callback(removed) == 1
    assert receipts[1].get_loop() is asyncio.get_running_loop()
    gathered = asyncio.gather(*receipts)
    shielded = asyncio.shield(receipts[1])
    plain: list[Any] = receipts[:2]
    both = asyncio.ensure_future(asyncio.wait(plain))
    waited = asyncio.ensure_future(asyncio.wait_for(receipts[0], 60))
    await asyncio.sleep(0)
    delivery.acknowledge(0, -1, 0)
    assert [one.offset for one in await gathered] == [0, 1, 2, 3]
    assert (await waited).offset == 0
    assert (await shielded).offset == 1
    assert await both == (set(receipts[:2]), set())
    assert called == [3]


async def test_a_cancelled_receipt() -> None:
    delivery = pending()
    receipt, other = Receipt(delivery, 0, 7), Receipt(delivery, 1, 7)
    assert receipt.cancel("enough")
    assert receipt.done()
    assert receipt.cancelled()
    with pytest.raises(asyncio.CancelledError):
        await receipt
    delivery.acknowledge(0, -1, 0)
    assert receipt.cancelled()
    assert (await other).offset == 1


async def test_a_failed_batch(no_complaints: None) -> None:
    delivery = pending()
    receipt, many, ignored = Receipt(delivery, 0, 7), BatchReceipt(delivery, 0, range(3)), Receipt(delivery, 0, 7)
    ignored.add_done_callback(lambda future: None)
    delivery.fail(ERROR)
    for one in (receipt, many):
        assert one.exception() is ERROR
        with pytest.raises(KafkaConnectionError):
            one.result()
        with pytest.raises(KafkaConnectionError):
            await one
        assert one.exception() is ERROR


async def test_the_receipt_of_a_batch() -> None:
    delivery = pending()
    receipt = BatchReceipt(delivery, 2, range(10, 14))
    assert len(receipt) == 4
    assert list(receipt.records) == [10, 11, 12, 13]
    assert receipt.acknowledged == 0
    assert repr(receipt) == "<BatchReceipt of 4 records for t-0, pending>"
    delivery.acknowledge(100, -1, 3)
    assert await receipt == receipt.result() == BatchMetadata("t", 0, T0, 102, 105, 4, 3)


async def test_a_batch_that_is_split_twice() -> None:
    delivery, first, second, third, fourth = (pending() for _ in range(5))
    singles = [Receipt(delivery, at, 7) for at in range(6)]
    early = BatchReceipt(delivery, 0, range(6))
    waiting = asyncio.gather(asyncio.gather(*singles), early)
    await asyncio.sleep(0)
    delivery.split(3, first, second)
    late = BatchReceipt(delivery, 2, range(3))  # the last one of the first half, and two of the second one
    second.split(1, third, fourth)
    first.acknowledge(10, -1, 0)
    assert [single.done() for single in singles] == [True] * 3 + [False] * 3
    fourth.acknowledge(30, -1, 0)
    assert not early.done()
    assert not late.done()
    third.acknowledge(20, -1, 0)
    written, all_of_them = await waiting
    assert [one.offset for one in written] == [10, 11, 12, 20, 30, 31]
    assert (all_of_them.offset, all_of_them.last_offset, all_of_them.record_count) == (10, 31, 6)
    assert (late.result().offset, late.result().last_offset) == (12, 30)


async def test_one_half_of_a_batch_fails() -> None:
    delivery, first, second = (pending() for _ in range(3))
    receipt = BatchReceipt(delivery, 0, range(4))
    delivery.split(2, first, second)
    second.fail(ERROR)
    assert not receipt.done()
    first.acknowledge(0, -1, 0)
    with pytest.raises(KafkaConnectionError):
        await receipt
    assert receipt.acknowledged == 2
    assert Receipt(delivery, 1, 7).result().offset == 1
    assert Receipt(delivery, 2, 7).exception() is ERROR
