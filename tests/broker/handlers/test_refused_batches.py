"""A later batch does not take the place of one that was refused for now."""

import pytest

from barnabas_broker.handlers import refused_batches
from barnabas_broker.handlers.refused_batches import RefusedBatches
from barnabas_broker.storage.producer_state import Producers
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import build_batch, read_header

ONE, OTHER = "User:one", "User:two"


def batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> bytearray:
    return build_batch([(None, b"v", (), 0)], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)


@pytest.fixture
def refused() -> RefusedBatches:
    found = RefusedBatches()
    found.add(ONE, "t", 0, batch(5))
    assert found
    return found


def taken(
    refused: RefusedBatches,
    records: bytes | bytearray,
    partition: int = 0,
    known: Producers | None = None,
    principal: str = ONE,
) -> bool:
    try:
        refused.check(principal, "t", partition, records, known or Producers())
    except KafkaError as error:
        return error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    return True


def test_a_later_batch_waits_for_the_one_that_was_refused(refused: RefusedBatches) -> None:
    assert not taken(refused, batch(6))
    refused.add(ONE, "t", 0, batch(6))  # refused as well: that changes nothing
    assert not taken(refused, batch(6))
    assert taken(refused, batch(5))
    assert taken(refused, batch(6))
    assert not refused


@pytest.mark.parametrize("records", [batch(4), batch(6, epoch=1), batch(6, producer=8), batch(-1, producer=-1), b"x"])
def test_nothing_else_waits(refused: RefusedBatches, records: bytes | bytearray) -> None:
    assert taken(refused, records)


def test_another_partition_takes_the_batch(refused: RefusedBatches) -> None:
    assert taken(refused, batch(6), partition=1)


def test_another_principal_is_not_delayed(refused: RefusedBatches) -> None:
    assert taken(refused, batch(6), principal=OTHER)
    assert not taken(refused, batch(6))


def test_a_partition_that_knows_the_producer_checks_the_sequence_itself(refused: RefusedBatches) -> None:
    known = Producers()
    known.wrote(read_header(batch(6)), 0)
    assert taken(refused, batch(6), known=known)
    assert not refused


def test_sequence_numbers_wrap() -> None:
    refused = RefusedBatches()
    refused.add(ONE, "t", 0, batch(2**31 - 1))
    assert not taken(refused, batch(0))
    refused.add(ONE, "t", 0, batch(2**31 - 2))
    assert not taken(refused, batch(2**31 - 1))
    assert taken(refused, batch(2**31 - 2))


@pytest.mark.parametrize("records", [None, b"", batch(-1, producer=-1)])
def test_what_has_no_sequence_is_not_remembered(records: bytes | None) -> None:
    refused = RefusedBatches()
    refused.add(ONE, "t", 0, records)
    assert not refused


def test_a_bounded_number_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "MOST", 2)
    refused = RefusedBatches()
    for partition in range(3):
        refused.add(ONE, "t", partition, batch(0))
    assert [taken(refused, batch(1), partition) for partition in range(3)] == [True, False, False]


def test_a_name_that_no_topic_can_have_is_not_remembered() -> None:
    refused = RefusedBatches()
    refused.add(ONE, "t" * 250, 0, batch(0))
    assert not refused
    refused.add(ONE, "t" * 249, 0, batch(0))
    assert refused
