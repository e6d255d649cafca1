"""Records of ``__transaction_state``: bytes as Kafka writes them, and what cannot be read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.records import (
    TransactionReplay,
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from barnabas_broker.transactions.transaction import Metadata, TransactionState
from barnabas_protocol.coordinator_records import CorruptRecord
from barnabas_protocol.records import build_batch, restamp

S = TransactionState
ONGOING = Metadata(
    S.ONGOING, 7, 3, 60_000, frozenset([TopicPartition("t", 1), TopicPartition("t", 0)]), 100, 200, version=2
)


def test_the_bytes_of_an_open_transaction() -> None:
    assert transaction_key("id") == bytes.fromhex("0000 0002 6964")
    assert transaction_value(ONGOING) == bytes.fromhex(
        "0001"  # version
        "0000000000000007 0003 0000ea60 01"  # producer id and epoch, timeout, status
        "02 0274 03 00000000 00000001 00"  # partitions
        "00000000000000c8 0000000000000064"  # updated, started
        "01 02 02 0002"  # one tagged field: the client's version
    )


def test_an_empty_state_has_no_partitions_and_a_complete_one_has_an_empty_list() -> None:
    plain = Metadata(S.EMPTY, 7, 3, 60_000, frozenset(), -1, 200)
    head = "0001 0000000000000007 0003 0000ea60"
    times = "00000000000000c8 ffffffffffffffff 00"
    assert transaction_value(plain) == bytes.fromhex(f"{head} 00 00 {times}")
    assert transaction_value(plain._replace(state=S.COMPLETE_ABORT)) == bytes.fromhex(f"{head} 05 01 {times}")


metadata = st.builds(
    Metadata,
    state=st.sampled_from([S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
    timeout_ms=st.integers(1, 2**31 - 1),
    partitions=st.frozensets(st.builds(TopicPartition, st.sampled_from("abc"), st.integers(0, 9))),
    start_ms=st.integers(-1, 2**62),
    updated_ms=st.integers(0, 2**62),
    last_epoch=st.just(-1),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    version=st.sampled_from([0, 2]),
)


@given(metadata)
def test_what_is_written_is_read(value: Metadata) -> None:
    if value.state is S.EMPTY:
        value = value._replace(partitions=frozenset())
    assert read_transaction_value(transaction_value(value)) == value


def test_values_of_version_0_are_read() -> None:
    data = bytes.fromhex(
        "0000 0000000000000007 0003 0000ea60 01 00000001 0001 74 00000001 00000000 00000000000000c8 0000000000000064"
    )
    assert read_transaction_value(data) == ONGOING._replace(partitions=frozenset([TopicPartition("t", 0)]), version=0)


def damaged(at: int, byte: int) -> bytes:
    data = bytearray(transaction_value(ONGOING))
    data[at] = byte
    return bytes(data)


@pytest.mark.parametrize(
    "value",
    [b"", b"\x00", b"\x00\x05", damaged(16, 6), damaged(16, 7), damaged(16, 99), damaged(2, 255), damaged(10, 255)],
)
def test_values_that_make_no_sense_are_corrupt(value: bytes) -> None:
    with pytest.raises(CorruptRecord):
        read_transaction_value(value)


def test_every_truncation_is_corrupt() -> None:
    data = transaction_value(ONGOING)
    for size in range(len(data)):
        with pytest.raises(CorruptRecord):
            read_transaction_value(data[:size])


@pytest.mark.parametrize("key", [None, b"", b"\x00", b"\x00\x00", b"\x00\x00\x00\x05ab", b"\x00\x00\x00\x01\xff"])
def test_keys_that_cannot_be_read(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        read_transaction_key(key)


def test_keys_of_other_types_are_skipped() -> None:
    assert read_transaction_key(b"\x00\x01abc") is None


def test_the_last_record_of_each_id_counts() -> None:
    later = ONGOING._replace(state=S.PREPARE_COMMIT)
    pairs: list[tuple[Any, Any]] = [
        (transaction_key("a"), transaction_value(ONGOING)),
        (transaction_key("b"), transaction_value(ONGOING)),
        (transaction_key("a"), transaction_value(later)),
        (transaction_key("b"), None),
        (transaction_key("c"), b"rubbish"),
        (b"\x00\x09", b""),
    ]
    reports: list[int] = []
    replay = TransactionReplay(lambda offset, reason: reports.append(offset), 0)
    batch = build_batch([(key, value, (), 0) for key, value in pairs])
    restamp(batch, 0, 0, 0)
    for _ in replay.feed(bytes(batch)):
        pass
    found = {name: machine.metadata for name, machine in replay.transactions.items()}
    assert (found, reports, replay.next_offset) == ({"a": later}, [4], 6)
