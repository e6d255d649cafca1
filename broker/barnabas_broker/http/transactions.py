"""Transactions as JSON: those that are open, and the partitions in which ``read_committed`` consumers wait for them."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from barnabas_broker.http.text import PIECE, listing
from barnabas_broker.http.view import Position, View
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import Log, TopicPartition
from barnabas_broker.transactions.service import HostedTransaction, TransactionCoordinator
from barnabas_explain.waits import Waiting, idle_ms
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Open transactions, blocked partitions, and partitions of a transaction that are shown.
_MOST: Final = 1_000
_MOST_PARTITIONS: Final = 200


def all_transactions(view: View) -> Iterator[str]:
    """``/transactions``: the open transactions that this broker coordinates, the oldest first, and the partitions that
    it leads whose records are not stable."""
    hosted = _opened(view)
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


def _opened(view: View) -> list[HostedTransaction]:
    """The open transactions that this broker coordinates."""
    return [each for home in view.transactions.runtime.partitions.values() for each in home.open.values()]


def waits(view: View, blocked: Iterable[Position]) -> list[Waiting]:
    """The transactions that ``read_committed`` consumers of a group wait for.

    Args:
        view: the broker's parts.
        blocked: where the group stands, at the last stable offset.
    """
    opened = {each.machine.metadata.producer_id: each for each in _opened(view)}
    found, now = [], view.wall_ms()
    for each in blocked:
        log = view.log(each.topic, each.partition)
        if log is None or each.stable is None or each.end is None:
            continue
        producer_id = _blocking(log)
        transaction = None if producer_id is None else opened.get(producer_id)
        metadata = None if transaction is None else transaction.machine.metadata
        open_ms = None if metadata is None else max(now - metadata.start_ms, 0)
        state = None if producer_id is None else log.producers.states.get(producer_id)
        found.append(
            Waiting(
                (each.topic, each.partition),
                each.stable,
                each.end - each.stable,
                producer_id,
                None if transaction is None else transaction.name,
                open_ms,
                None if metadata is None else metadata.timeout_ms,
                None if state is None else idle_ms(state.last_timestamp, open_ms, now),
            )
        )
    return found


def _blocking(log: Log) -> int | None:
    """The id of the producer whose transaction begins at the last stable offset of a log; None if it is not known."""
    first = next(iter(log.producers.open.items()), None)
    return first[1] if first is not None and first[0] == log.last_stable_offset else None


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
    blocking, producer = _blocking(log), None
    if blocking is not None:
        state = log.producers.states.get(blocking)
        producer = {
            "producer_id": blocking,
            # Another broker may coordinate it.
            "transactional_id": by_producer.get(blocking),
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
