"""Transaction events: what records say, what is read of them, and the sentences."""

import json
from typing import Any

import pytest

from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.transaction import Ended, Metadata, TransactionState
from barnabas_explain.transactions import (
    MOST_PARTITIONS,
    Cause,
    EventRecord,
    decode_event,
    encode_event,
    ended_event,
    explain,
    explain_values,
    slow_event,
)

START = 1_000_000


def transaction(*partitions: TopicPartition) -> Metadata:
    return Metadata(TransactionState.ONGOING, 7, 3, 60_000, frozenset(partitions), START, START)


ORDERS = tuple(TopicPartition("orders", number) for number in range(3))


def ended(committed: bool, cause: Cause, client: str = "app", after: int = 45_500) -> EventRecord:
    return ended_event("pay", Ended(committed, cause, transaction(*ORDERS)), client, START + after)


SLOW = slow_event("pay", transaction(*ORDERS), "app", START + 31_000)


def test_a_record_is_read_as_it_was_written() -> None:
    for event in (SLOW, ended(True, Cause.CLIENT)):
        assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"type": "other"},
        {"time": "1"},
        {"time": True},
        {"partitions": ["orders"]},
        {"partitions": {"orders": 1}},
        {"partitions": {"orders": ["1"]}},
        {"partition_count": None},
        {"transactional_id": 1},
        {"type": "transaction_ended"},
    ],
)
def test_what_is_not_an_event_is_left_out(change: dict[str, Any]) -> None:
    assert decode_event(json.dumps(SLOW | change).encode()) is None


def test_odd_values_are_left_out() -> None:
    odd = [b"", b"[" * 100_000, b"\xff", b"null", b"[]"]
    assert explain_values([*odd, encode_event(SLOW)]) == explain([SLOW])


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            SLOW,
            "Transaction pay (producer id 7) of client app has been open for 31 s, with a timeout of 60 s: "
            "read_committed consumers wait at its beginning in orders-0, orders-1, orders-2.",
        ),
        (
            ended(True, Cause.CLIENT),
            "Transaction pay (producer id 7) of client app was committed after 45.5 s: read_committed consumers "
            "continue in orders-0, orders-1, orders-2.",
        ),
        (
            ended(False, Cause.CLIENT),
            "Transaction pay (producer id 7) was aborted after 45.5 s, by its client app: its records in orders-0, "
            "orders-1, orders-2 do not count.",
        ),
        (
            ended(False, Cause.TIMEOUT, client=""),
            "Transaction pay (producer id 7) was aborted after 45.5 s, because its timeout was over: its records in "
            "orders-0, orders-1, orders-2 do not count.",
        ),
        (
            ended(False, Cause.FENCED, client="new"),
            "Transaction pay (producer id 7) was aborted after 45.5 s, because a new producer of client new has taken "
            "over its transactional id: its records in orders-0, orders-1, orders-2 do not count.",
        ),
    ],
)
def test_sentences(event: EventRecord, text: str) -> None:
    (one,) = explain([event])
    assert one["text"] == text
    assert (one["time"], one["data"]) == (event["time"], [event])


def test_events_are_chosen_by_time_id_and_partition_and_sorted() -> None:
    end = ended(True, Cause.CLIENT)
    other = slow_event("other", transaction(TopicPartition("t", 0)), "", START + 40_000)
    events = [end, other, SLOW]
    assert [one["data"][0] for one in explain(events)] == [SLOW, other, end]
    assert [one["data"][0] for one in explain(events, since=START + 40_000)] == [other, end]
    assert [one["data"][0] for one in explain(events, transactional_ids={"other"})] == [other]
    found = explain(events, partitions={("orders", 1), ("t", 1)})
    assert [one["data"][0] for one in found] == [SLOW, end]
    assert found[0]["text"].endswith("wait at its beginning in orders-1."), "other partitions are not of interest"


def test_a_record_lists_so_many_partitions() -> None:
    partitions = [TopicPartition("t", number) for number in range(MOST_PARTITIONS + 50)]
    event = slow_event("pay", transaction(*partitions), "app", START + 31_000)
    assert event["partitions"] == {"t": list(range(MOST_PARTITIONS))}
    assert event["partition_count"] == MOST_PARTITIONS + 50
    (one,) = explain([event])
    assert one["text"].endswith(f"in {', '.join(f't-{n}' for n in range(10))}, {MOST_PARTITIONS + 40} more partitions.")
