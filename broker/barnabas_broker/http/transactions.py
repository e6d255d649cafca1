"""Transactions as JSON: those that are open, and the partitions in which ``read_committed`` consumers wait for them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas_broker.http.text import PIECE, listing
from barnabas_broker.http.view import View
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import TopicPartition
from barnabas_broker.transactions.service import HostedTransaction, TransactionCoordinator
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Open transactions, blocked partitions, and partitions of a transaction that are shown.
_MOST: Final = 1_000
_MOST_PARTITIONS: Final = 200


def all_transactions(view: View) -> Iterator[str]:
    """``/transactions``: the open transactions that this broker coordinates, the oldest first, and the partitions that
    it leads whose records are not stable."""
    hosted = [each for home in view.transactions.runtime.partitions.values() for each in home.open.values()]
    hosted.sort(key=lambda each: each.opened)
    by_producer = {each.machine.metadata.producer_id: each.name for each in hosted}
    head = {
        "time": view.wall_ms(),
        "node_id": view.node_id,
        "transactional_ids": view.transactions.transactional_ids,
        "loading": _is_loading(view.transactions),
        "open_count": len(hosted),
        "open": [_open(each) for each in hosted[:_MOST]],
    }
    return listing(head, "blocked", _blocked(view, by_producer))


def _is_loading(transactions: TransactionCoordinator) -> bool:
    try:
        transactions.listed()
    except KafkaError as error:
        return error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return False


def _open(hosted: HostedTransaction) -> dict[str, Any]:
    metadata = hosted.machine.metadata
    return {
        "transactional_id": hosted.name,
        "state": metadata.state.value,
        "client": hosted.client,
        "producer_id": metadata.producer_id,
        "producer_epoch": metadata.producer_epoch,
        "start_ms": metadata.start_ms,
        "updated_ms": metadata.updated_ms,
        "timeout_ms": metadata.timeout_ms,
        "partition_count": len(metadata.partitions),
        "partitions": _by_topic(sorted(metadata.partitions)[:_MOST_PARTITIONS]),
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic, number in partitions:
        found.setdefault(topic, []).append(number)
    return found


def _blocked(view: View, by_producer: dict[int, str]) -> Iterator[dict[str, Any] | None]:
    shown = 0
    for number, (where, replica) in enumerate(view.replicas.all(), 1):
        if number % PIECE == 0:
            yield None
        log = replica.log
        if replica.leading is None or log.last_stable_offset >= log.high_watermark:
            continue
        yield _partition(where, replica, by_producer)
        shown += 1
        if shown == _MOST:
            return


def _partition(where: TopicPartition, replica: Replica, by_producer: dict[int, str]) -> dict[str, Any]:
    log = replica.log
    first = next(iter(log.producers.open.items()), None)
    producer = None
    if first is not None and first[0] == log.last_stable_offset:
        state = log.producers.states.get(first[1])
        producer = {
            "producer_id": first[1],
            # Another broker may coordinate it.
            "transactional_id": by_producer.get(first[1]),
            "last_write_ms": None if state is None else state.last_timestamp,
        }
    return {
        "topic": where.topic,
        "partition": where.partition,
        "stable": log.last_stable_offset,
        "end": log.high_watermark,
        "records": log.high_watermark - log.last_stable_offset,
        "open": len(log.producers.open),
        "producer": producer,
    }
