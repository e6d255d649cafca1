"""Resolves the futures of the records of batches: acknowledged, or failed."""

import asyncio
from collections.abc import Iterable
from typing import Final

from barnabas_client.errors import TransactionAbortedError
from barnabas_client.logs import logger
from barnabas_client.producer.accumulator import ProducerBatch
from barnabas_client.structs import CREATE_TIME, LOG_APPEND_TIME, RecordMetadata
from barnabas_client.tasks import reject, resolve
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.producer.sender")

Receipt = asyncio.Future[RecordMetadata]


def acknowledge(batch: ProducerBatch, base_offset: int, append_time: int, log_start_offset: int) -> None:
    """Resolve the future of each record with the position at which it was written."""
    tp = batch.tp
    topic, number = tp
    timestamp_type = CREATE_TIME if append_time < 0 else LOG_APPEND_TIME
    offset, step = (base_offset, 1) if base_offset >= 0 else (-1, 0)
    for receipt, timestamp in zip(batch.receipts, batch.timestamps, strict=True):
        future: Receipt = receipt
        time = timestamp if append_time < 0 else append_time
        resolve(future, RecordMetadata(topic, number, tp, offset, time, timestamp_type, log_start_offset))
        offset += step


def give_up(batches: Iterable[ProducerBatch], error: KafkaError) -> None:
    """Fail the future of each record."""
    # A program that aborts a transaction knows it.
    log = _log.info if isinstance(error, TransactionAbortedError) else _log.warning
    for batch in batches:
        log("records were not delivered", partition=str(batch.tp), count=batch.count, reason=str(error))
        for receipt in batch.receipts:
            future: Receipt = receipt
            reject(future, error)
            if not future.cancelled():
                future.exception()  # mark it as read: it is logged, even if the program ignores this future
