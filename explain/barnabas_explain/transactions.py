"""Transaction events as records of ``__transaction_events``, and what they say in sentences. Pure.

There are events of the transactions that make consumers wait or that did not end as their client wanted:
``transaction_slow`` when one is open for so long that a warning is logged, and ``transaction_ended`` when such a
transaction ends, or any other one is aborted by its timeout or by a new producer.

A record's key is the transactional id. Its value is JSON with ``"version": 1``, ``type``, ``time`` (ms since 1970),
``transactional_id``, ``producer_id``, ``producer_epoch``, ``client_id`` (that used the id last; "" if it is not known),
``open_ms``, ``timeout_ms``, ``partitions`` (by topic, at most :data:`MOST_PARTITIONS`) and ``partition_count``.
``transaction_ended`` also has ``committed`` and ``cause``: client, timeout or fenced.

The coordinator writes an event to a partition of the topic that its broker leads, whichever that is: readers read all
of them.
"""

import heapq
import json
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Any, Final, Protocol

from barnabas_protocol.counts import counted

#: The version of the JSON.
VERSION: Final = 1
SLOW: Final = "transaction_slow"
ENDED: Final = "transaction_ended"
#: Maximum number of partitions that one record lists.
MOST_PARTITIONS: Final = 200
#: Maximum number of partitions that one sentence names.
_MOST_NAMED: Final = 10

EventRecord = dict[str, Any]
#: A topic and the number of a partition.
Partition = tuple[str, int]


class Cause(Enum):
    """Why a transaction ended."""

    CLIENT = "client"
    TIMEOUT = "timeout"
    FENCED = "fenced"


class OpenTransaction(Protocol):
    """A transaction before its end."""

    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def start_ms(self) -> int: ...
    @property
    def partitions(self) -> Collection[Partition]: ...


class EndedTransaction(Protocol):
    """How a transaction ended, and what it was before."""

    @property
    def committed(self) -> bool: ...
    @property
    def cause(self) -> Cause: ...
    @property
    def before(self) -> OpenTransaction: ...


def slow_event(transactional_id: str, transaction: OpenTransaction, client_id: str, time_ms: int) -> EventRecord:
    """The event of a transaction that is open for long."""
    return _event(SLOW, transactional_id, transaction, client_id, time_ms)


def ended_event(transactional_id: str, ended: EndedTransaction, client_id: str, time_ms: int) -> EventRecord:
    """The event of the end of a transaction."""
    event = _event(ENDED, transactional_id, ended.before, client_id, time_ms)
    return event | {"committed": ended.committed, "cause": ended.cause.value}


def _event(kind: str, transactional_id: str, transaction: OpenTransaction, client_id: str, time_ms: int) -> EventRecord:
    partitions: dict[str, list[int]] = {}
    for topic, partition in heapq.nsmallest(MOST_PARTITIONS, transaction.partitions):
        partitions.setdefault(topic, []).append(partition)
    return {
        "version": VERSION,
        "type": kind,
        "time": time_ms,
        "transactional_id": transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "client_id": client_id,
        "open_ms": max(time_ms - transaction.start_ms, 0),
        "timeout_ms": transaction.timeout_ms,
        "partitions": partitions,
        "partition_count": len(transaction.partitions),
    }


def encode_event(event: EventRecord) -> bytes:
    """The value of a record."""
    return json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()


_FIELDS: Final = {
    "time": int,
    "transactional_id": str,
    "producer_id": int,
    "client_id": str,
    "open_ms": int,
    "timeout_ms": int,
    "partitions": dict,
    "partition_count": int,
}


def decode_event(value: bytes) -> EventRecord | None:
    """Read the value of a record; None if it is not an event, or of an unknown version."""
    try:
        event = json.loads(value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("version") != VERSION or event.get("type") not in (SLOW, ENDED):
        return None
    fields = dict(_FIELDS) if event["type"] == SLOW else _FIELDS | {"committed": bool, "cause": str}
    if not all(type(event.get(name)) is kind for name, kind in fields.items()):
        return None
    lists = event["partitions"].values()
    valid = all(isinstance(each, list) and all(type(number) is int for number in each) for each in lists)
    return event if valid else None


def partitions_of(event: EventRecord) -> list[Partition]:
    """The partitions that an event lists."""
    return [(topic, number) for topic, numbers in event["partitions"].items() for number in numbers]


def explain_values(
    values: Iterable[bytes],
    *,
    since: int | None = None,
    transactional_ids: Collection[str] | None = None,
    partitions: Collection[Partition] | None = None,
) -> list[dict[str, Any]]:
    """Explain the values of records of ``__transaction_events``, as :func:`explain`; others are left out."""
    events = [event for event in map(decode_event, values) if event is not None]
    return explain(events, since=since, transactional_ids=transactional_ids, partitions=partitions)


def explain(
    events: Iterable[EventRecord],
    *,
    since: int | None = None,
    transactional_ids: Collection[str] | None = None,
    partitions: Collection[Partition] | None = None,
) -> list[dict[str, Any]]:
    """Explain events in sentences, oldest first, as data in the form of the explanations of group events.

    Args:
        events: in any order.
        since: only events at or after this time, in ms since 1970.
        transactional_ids: only events of these ids; None for all.
        partitions: only events of transactions with one of these partitions, of which only these are named; None for
            all.
    """
    found = []
    for event in sorted(events, key=lambda event: int(event["time"])):
        shown = (
            partitions_of(event) if partitions is None else [one for one in partitions_of(event) if one in partitions]
        )
        if (
            (since is None or event["time"] >= since)
            and (transactional_ids is None or event["transactional_id"] in transactional_ids)
            and (partitions is None or shown)
        ):
            more = event["partition_count"] - len(partitions_of(event)) if partitions is None else 0
            found.append(_explained(event, _named(shown, more)))
    return found


def _explained(event: EventRecord, partitions: str) -> dict[str, Any]:
    client = f" of client {event['client_id']}" if event["client_id"] else ""
    name = f"Transaction {event['transactional_id']} (producer id {event['producer_id']})"
    took, remedy = _seconds(event["open_ms"]), None
    if event["type"] == SLOW:
        text = (
            f"{name}{client} has been open for {took}, with a timeout of {_seconds(event['timeout_ms'])}:"
            f" read_committed consumers wait at its beginning in {partitions}."
        )
        remedy = (
            "Commit more often, or lower the producer's transaction.timeout.ms. If the producer is gone, start it"
            " again, or run `barnabas transactions abort`."
        )
    elif event["committed"]:
        text = f"{name}{client} was committed after {took}: read_committed consumers continue in {partitions}."
    else:
        causes = {
            Cause.CLIENT.value: f"by its client {event['client_id']}".rstrip(),
            Cause.TIMEOUT.value: "because its timeout was over",
            Cause.FENCED.value: f"because a new producer{client} has taken over its transactional id",
        }
        owner = client if event["cause"] == Cause.TIMEOUT.value else ""
        cause = causes.get(event["cause"], f"for the cause {event['cause']!r}")
        text = f"{name}{owner} was aborted after {took}, {cause}: its records in {partitions} do not count."
        if event["cause"] == Cause.TIMEOUT.value:
            remedy = "Look for errors of that producer. If its transactions need longer, raise transaction.timeout.ms."
    return {"time": event["time"], "generation": -1, "text": text, "remedy": remedy, "details": [], "data": [event]}


def _named(partitions: list[Partition], more: int) -> str:
    names = [f"{topic}-{number}" for topic, number in partitions[:_MOST_NAMED]]
    rest = len(partitions) - len(names) + more
    if rest:
        names.append(counted(rest, "more partition" if names else "partition"))
    return ", ".join(names) or "no partition"


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f} s".replace(".0 s", " s")
