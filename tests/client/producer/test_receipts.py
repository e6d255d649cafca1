"""Ctrl-C between two steps of the sender: `asyncio.run` cancels the receipts that are awaited in a signal handler."""

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas_client.errors import KafkaConnectionError
from barnabas_client.producer.receipts import acknowledge, give_up
from barnabas_client.structs import RecordMetadata, TopicPartition


class Interrupted(asyncio.Future[RecordMetadata]):
    """A receipt that is cancelled at the very moment at which it is resolved."""

    def set_result(self, result: RecordMetadata, /) -> None:
        self.cancel()
        super().set_result(result)

    def set_exception(self, exception: Any, /) -> None:
        self.cancel()
        super().set_exception(exception)


def batch(*receipts: asyncio.Future[RecordMetadata]) -> Any:
    return SimpleNamespace(
        tp=TopicPartition("t", 0), receipts=list(receipts), timestamps=[7] * len(receipts), count=len(receipts)
    )


async def test_the_other_records_of_the_batch_are_acknowledged() -> None:
    receipts = [Interrupted(), asyncio.Future[RecordMetadata]()]
    acknowledge(batch(*receipts), 5, -1, 0)
    assert receipts[0].cancelled()
    assert (await receipts[1]).offset == 6


async def test_the_other_records_of_the_batch_get_their_error() -> None:
    receipts = [Interrupted(), asyncio.Future[RecordMetadata]()]
    give_up([batch(*receipts)], KafkaConnectionError("no"))
    assert receipts[0].cancelled()
    assert isinstance(receipts[1].exception(), KafkaConnectionError)
