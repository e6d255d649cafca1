"""Idempotent producers: the rules of Kafka's ProducerStateManager and ProducerAppendInfo."""

import gc
import struct
import tracemalloc

import pytest

from barnabas_broker.storage.producer_state import CompletedTransaction, CorruptSnapshot, Producers, read_snapshot
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import BatchHeader, read_header
from tests.broker.storage.support import batch
from tests.protocol.reference import SNAPSHOT, load


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 5, transactional: bool = False
) -> BatchHeader:
    values = [b"v"] * count
    return read_header(batch(*values, producer=(producer_id, epoch, sequence), transactional=transactional))


def append(producers: Producers, what: BatchHeader, offset: int) -> None:
    verification = None
    if what.is_transactional:
        verification = producers.verify(
            what.producer_id, what.producer_epoch, what.base_sequence, 1000, "x", bumps_epoch=False
        )
    producers.check(what, sequence=True, verification=verification)
    producers.wrote(what, offset)


def end(
    producers: Producers, producer_id: int, offset: int, *, epoch: int = 0, coordinator: int = 1, aborted: bool = False
) -> CompletedTransaction | None:
    """A marker at `offset`."""
    marker = header(-1, producer_id=producer_id, epoch=epoch, transactional=True)
    return producers.ended(marker, offset, coordinator, 2000, aborted=aborted)


def refused(producers: Producers, what: BatchHeader, *, sequence: bool = True) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        producers.check(what, sequence=sequence)
    return caught.value.code


def test_duplicates_of_the_last_five_batches_are_detected() -> None:
    producers = Producers()
    for n in range(7):
        append(producers, header(n * 3, 3), 100 + n * 3)
    for n in range(2, 7):
        known = producers.duplicate_of(header(n * 3, 3))
        assert known is not None
        assert (known.first_offset, known.last_offset) == (100 + n * 3, 102 + n * 3)
    # Older ones, and ranges that were never a batch, are out of order.
    for strange in (header(3, 3), header(6, 2), header(7, 3), header(9, 6), header(0)):
        assert producers.duplicate_of(strange) is None
        assert refused(producers, strange) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_sequence_gap_is_rejected() -> None:
    producers = Producers()
    append(producers, header(0, 2), 0)
    assert refused(producers, header(3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    producers.check(header(2), sequence=True)


def test_an_unknown_producer_may_begin_with_any_sequence() -> None:
    producers = Producers()
    append(producers, header(1234), 0)  # KIP-360: its earlier records may have been deleted
    assert producers.states[5].last_sequence == 1234


def test_a_new_epoch_begins_with_zero_and_fences_the_old_one() -> None:
    producers = Producers()
    append(producers, header(0, 4), 0)
    assert refused(producers, header(4, epoch=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    append(producers, header(0, epoch=1), 4)
    assert refused(producers, header(4)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.duplicate_of(header(0, 4)) is None


def test_sequences_wrap_to_zero() -> None:
    producers = Producers()
    append(producers, header(2**31 - 2, 4), 0)  # ends at sequence 1
    assert producers.states[5].last_sequence == 1
    known = producers.duplicate_of(header(2**31 - 2, 4))
    assert known is not None
    assert known.first_sequence == 2**31 - 2
    append(producers, header(2, 1), 4)
    fresh = Producers()
    append(fresh, header(2**31 - 1), 0)
    append(fresh, header(0), 1)


def test_the_coordinators_batches_have_no_sequence_but_an_epoch() -> None:
    producers = Producers()
    append(producers, header(0, epoch=3), 0)
    producers.check(header(77, epoch=3), sequence=False)
    assert refused(producers, header(77, epoch=2), sequence=False) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_last_stable_offset_waits_for_the_transaction_marker() -> None:
    producers = Producers()
    append(producers, header(0, transactional=True), 10)
    append(producers, header(1, transactional=True), 11)
    append(producers, header(0, producer_id=6, transactional=True), 12)
    assert producers.first_unstable_offset() == 10
    assert refused(producers, header(2)) == ErrorCode.INVALID_TXN_STATE
    end(producers, 5, 20)
    assert producers.first_unstable_offset() == 10  # its marker may still be lost
    producers.replicated(20)
    assert producers.first_unstable_offset() == 10
    producers.replicated(21)
    assert producers.first_unstable_offset() == 12
    producers.expire(10**9, 1)
    assert set(producers.states) == {6}  # a producer with an open transaction does not expire


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_newer_transaction_does_not_commit_an_older_one_that_its_coordinator_has_lost(version: int) -> None:
    producers = Producers()
    append(producers, header(0, epoch=3, transactional=True), 10)
    newer = header(0, epoch=4, transactional=True)
    verified = producers.verify(5, 4, 0, 1000, "x", bumps_epoch=version == 2)
    assert verified is not None
    with pytest.raises(KafkaError, match="has a transaction of epoch 3 open") as caught:
        producers.check(newer, sequence=True, verification=verified)
    assert caught.value.code is ErrorCode.UNKNOWN_PRODUCER_ID
    own = 4 if version == 2 else 3
    for epoch in (own + 1, own + 2):
        with pytest.raises(KafkaError, match="its coordinator has lost it") as caught:
            producers.check_marker(5, epoch, 0, version, commit=True)
        assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
        producers.check_marker(5, epoch, 0, version, commit=False)  # as that of a fence
    producers.check_marker(5, own, 0, version, commit=True)
    end(producers, 5, 11, epoch=5, aborted=True)
    producers.check(header(0, epoch=5, transactional=True), sequence=False)
    producers.check_marker(5, 9, 1, version, commit=True)  # nothing is open here


def test_a_commit_with_the_largest_epoch_ends_its_transaction() -> None:
    producers = Producers()
    append(producers, header(0, epoch=2**15 - 1, transactional=True), 10)
    producers.check_marker(5, 2**15 - 1, 0, 2, commit=True)


def test_a_time_in_the_far_future_does_not_keep_a_producer_for_ever() -> None:
    producers = Producers()
    written = header(0)
    written.max_timestamp = 2**62
    append(producers, written, 0)
    producers.verify(6, 0, 0, 2**62, "x", bumps_epoch=False)  # the time of day is set back afterwards
    producers.expire(1_000, 100)
    assert set(producers.states) == {5}
    assert not producers.verifications
    producers.expire(1_100, 100)
    assert not producers.states


def test_records_with_sequences_of_an_ended_transaction_are_no_duplicates() -> None:
    producers = Producers()
    append(producers, header(0, transactional=True), 10)
    end(producers, 5, 11)
    append(producers, header(1, 3, transactional=True), 12)
    assert producers.duplicate_of(header(1, 3, transactional=True)) is not None
    end(producers, 5, 15, aborted=True)
    for again in (header(1, 3, transactional=True), header(1, transactional=True), header(2, 5, transactional=True)):
        assert producers.duplicate_of(again) is None
        verification = producers.verify(5, 0, again.base_sequence, 1000, "x", bumps_epoch=False)
        with pytest.raises(KafkaError, match="begin another one") as caught:
            producers.check(again, sequence=True, verification=verification)
        assert caught.value.code == ErrorCode.UNKNOWN_PRODUCER_ID
        assert verification is not None
        producers.not_verified(5, verification)
    append(producers, header(4, transactional=True), 16)
    # In its own transaction, a batch is still known again.
    known = producers.duplicate_of(header(4, transactional=True))
    assert known is not None
    assert known.first_offset == 16
    assert producers.duplicate_of(header(1, 3, transactional=True)) is None


# Owners


ADA, EVE = "User:ada", "User:eve"


def write(producers: Producers, what: BatchHeader, offset: int, principal: str | None = None, id: str = "x") -> None:
    """What the log does with a batch of a client, which the coordinator confirms if it is transactional."""
    verification = None
    if what.is_transactional:
        verification = producers.verify(
            what.producer_id, what.producer_epoch, what.base_sequence, 1000, id, bumps_epoch=False
        )
    producers.check_owner(what, principal)
    if producers.duplicate_of(what) is None:
        producers.check(what, sequence=True, verification=verification)
        producers.wrote(what, offset)
        producers.own(what, verification, principal)


def not_written(producers: Producers, what: BatchHeader, principal: str | None = None, id: str = "x") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        write(producers, what, 1000, principal, id)
    return caught.value.code


def test_another_principal_neither_continues_nor_blocks_the_sequence_of_an_idempotent_producer() -> None:
    producers = Producers()
    write(producers, header(0, 3), 0, ADA)
    for stolen in (header(3), header(0, 3), header(0, epoch=9), header(99)):
        for principal in (EVE, None):
            assert not_written(producers, stolen, principal) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    write(producers, header(3), 3, ADA)
    write(producers, header(0, epoch=1), 4, ADA)


def test_without_authentication_producer_ids_have_no_owners() -> None:
    producers = Producers()
    write(producers, header(0), 0)
    write(producers, header(1), 1, ADA)
    assert not_written(producers, header(2)) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_after_a_reload_the_first_principal_that_writes_is_the_owner() -> None:
    producers = Producers()
    write(producers, header(0), 0, EVE)
    producers.load(producers.snapshot(), 1)
    write(producers, header(1), 1, ADA)
    assert not_written(producers, header(2), EVE) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_another_transactional_id_does_not_write_to_an_open_transaction() -> None:
    producers = Producers()
    write(producers, header(0, transactional=True), 0, id="ada")
    assert not_written(producers, header(1, transactional=True), id="eve") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    write(producers, header(1, transactional=True), 1, id="ada")
    assert producers.verify(5, 0, 2, 1000, "ada", bumps_epoch=False) is None


def test_after_a_reload_the_coordinator_is_asked_whose_an_open_transaction_is() -> None:
    producers = Producers()
    write(producers, header(0, transactional=True), 0, id="ada")
    producers.load(producers.snapshot(), 1)
    asked = producers.verify(5, 0, 1, 1000, "eve", bumps_epoch=False)
    assert asked is not None
    producers.not_verified(5, asked)
    write(producers, header(1, transactional=True), 1, id="ada")
    assert not_written(producers, header(2, transactional=True), id="eve") is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_question_about_another_transactional_id_does_not_void_that_of_the_producer() -> None:
    producers = Producers()
    own = producers.verify(5, 0, 5, 1000, "ada", bumps_epoch=False)
    other = producers.verify(5, 0, 0, 1000, "eve", bumps_epoch=False)
    assert own is not None and other is not None
    producers.not_verified(5, other)
    producers.check(header(5, transactional=True), sequence=True, verification=own)


@pytest.mark.parametrize("aborted", [True, False])
def test_a_transactional_producer_writes_nothing_outside_of_transactions(aborted: bool) -> None:
    producers = Producers()
    write(producers, header(0, transactional=True), 0)
    assert not_written(producers, header(1), EVE) is ErrorCode.INVALID_TXN_STATE
    end(producers, 5, 1, aborted=aborted)
    for what in (header(1), header(0, epoch=1), header(0, epoch=32_767)):
        assert not_written(producers, what, EVE) is ErrorCode.INVALID_TXN_STATE
    write(producers, header(1, transactional=True), 2)


@pytest.mark.parametrize("stolen", [header(0, 3), header(7), header(0, epoch=32_767)])
def test_what_another_client_has_written_before_does_not_block_a_transactional_producer(stolen: BatchHeader) -> None:
    """The coordinator confirms the transaction, so that it is known who the producer is."""
    producers = Producers()
    write(producers, stolen, 0, EVE)
    assert refused(producers, header(0, transactional=True)) is ErrorCode.INVALID_TXN_STATE
    write(producers, header(0, transactional=True), 3)
    state = producers.states[5]
    assert (state.epoch, state.last_sequence, state.transaction_start, state.owner) == (0, 0, 3, "x")
    assert not_written(producers, header(1), EVE) is ErrorCode.INVALID_TXN_STATE


def test_idle_producers_expire() -> None:
    producers = Producers()
    append(producers, header(0), 0)  # at timestamp 1000
    producers.expire(1999, 1000)
    assert producers.states
    producers.expire(2000, 1000)
    assert not producers.states


def test_a_producer_takes_little_memory_until_it_expires() -> None:
    many, producers = 5_000, Producers()
    batches = [header(0, producer_id=10_000 + number) for number in range(many)]
    gc.collect()
    tracemalloc.start()
    try:
        for number, one in enumerate(batches):
            append(producers, one, 10_000 + number)
        assert tracemalloc.get_traced_memory()[0] / many < 600
        producers.expire(2000, 1000)
        assert tracemalloc.get_traced_memory()[0] / many < 100
    finally:
        tracemalloc.stop()


def test_a_snapshot_keeps_the_last_batch_of_each_producer() -> None:
    producers = Producers()
    for n in range(3):
        append(producers, header(n * 2, 2), n * 2)
    append(producers, header(0, producer_id=6, epoch=2, transactional=True), 6)
    again = Producers()
    again.load(producers.snapshot(), 7)
    assert again.end_offset == 7
    assert set(again.states) == {5, 6}
    assert again.states[5].last_sequence == 5
    assert again.duplicate_of(header(4, 2)) is not None
    assert again.duplicate_of(header(2, 2)) is None
    assert (again.states[6].epoch, again.states[6].transaction_start) == (2, 6)
    assert again.snapshot() == producers.snapshot()


def test_a_snapshot_with_any_corrupt_byte_is_rejected() -> None:
    producers = Producers()
    append(producers, header(0), 0)
    good = producers.snapshot()
    for at in range(len(good)):
        broken = bytearray(good)
        broken[at] ^= 0x41
        with pytest.raises(CorruptSnapshot):
            read_snapshot(broken)
        with pytest.raises(CorruptSnapshot):
            read_snapshot(good[:at])


def test_the_snapshot_has_the_fields_of_kafkas_schema() -> None:
    schema = next(each for each in load(SNAPSHOT)["schemas"] if each["name"] == "ProducerSnapshot")
    kinds = {"uint32": "I", "int64": "q", "int32": "i", "int16": "h"}
    assert schema["validVersions"] == "1"
    crc, entries = schema["fields"]
    layout = ">" + "".join(kinds[field["type"]] for field in entries["fields"])
    producers = Producers()
    append(producers, header(7), 30)
    content = producers.snapshot()
    assert struct.unpack_from(">h" + kinds[crc["type"]] + "i", content)[::2] == (1, 1)
    names = [field["name"] for field in entries["fields"]]
    entry = dict(zip(names, struct.unpack(layout, content[10:]), strict=True))
    assert entry == {
        "ProducerId": 5,
        "Epoch": 0,
        "LastSequence": 7,
        "LastOffset": 30,
        "OffsetDelta": 0,
        "Timestamp": 1000,
        "CoordinatorEpoch": -1,
        "CurrentTxnFirstOffset": -1,
    }
