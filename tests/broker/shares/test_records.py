"""Records of ``__share_group_state``: bytes as Kafka writes them, and what cannot be read."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.shares.ports import StateBatch
from barnabas_broker.shares.records import ShareKey, ShareReplay, read_record, record_of
from barnabas_broker.shares.state import SharePartitionState, Snapshot, StateRecord, Update
from barnabas_protocol.coordinator_records import CorruptRecord
from barnabas_protocol.records import build_batch

KEY = ShareKey("g", UUID(bytes=bytes(range(16))), 3)
ID = "000102030405060708090a0b0c0d0e0f"
BATCH = StateBatch(10, 12, 2, 1)
SNAPSHOT = Snapshot(4, 5, 6, 10, 3, (BATCH,), 100, 200)


def test_the_key_that_finds_the_coordinator() -> None:
    assert KEY.name == "g:AAECAwQFBgcICQoLDA0ODw:3"


def test_the_bytes_of_a_snapshot() -> None:
    key, value = record_of(KEY, SNAPSHOT)
    assert key == bytes.fromhex(f"0000 0001 67 {ID} 00000003")
    assert value == bytes.fromhex(
        "0000"  # version
        "00000004 00000005 00000006 000000000000000a"  # snapshot, state and leader epoch, start offset
        "0000000000000064 00000000000000c8"  # created, written
        "02 000000000000000a 000000000000000c 02 0001 00"  # a batch
        "01 00 04 00000003"  # one tagged field: the count of completed deliveries
    )


def test_the_bytes_of_an_update_and_of_a_tombstone() -> None:
    key, value = record_of(KEY, Update(4, 6, -1, -1, ()))
    assert key == bytes.fromhex(f"0001 0001 67 {ID} 00000003")
    assert value == bytes.fromhex("0000 00000004 00000006 ffffffffffffffff 01 00")
    assert record_of(KEY, None) == (bytes.fromhex(f"0000 0001 67 {ID} 00000003"), None)


int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**62)
batch = st.builds(
    lambda first, size, state, count: StateBatch(first, first + size, state, count),
    *(st.integers(0, 2**40), st.integers(0, 2**20), st.sampled_from([0, 2, 4]), st.integers(0, 2**15 - 1)),
)
records = st.one_of(
    st.none(),
    st.builds(Update, int32, int32, int64, int32, st.lists(batch, max_size=5).map(tuple)),
    st.builds(Snapshot, int32, int32, int32, st.just(-1), int32, st.lists(batch, max_size=1).map(tuple), int64, int64),
)
keys = st.builds(ShareKey, st.text(st.characters(exclude_categories=["Cs"]), max_size=20), st.uuids(), int32)


@given(keys, records)
def test_what_is_written_is_read(key: ShareKey, record: StateRecord) -> None:
    assert read_record(*record_of(key, record)) == (key, record)


@given(keys, records, st.data())
def test_what_is_cut_off_is_corrupt(key: ShareKey, record: StateRecord, data: st.DataObject) -> None:
    where, value = record_of(key, record)
    short = where[: data.draw(st.integers(0, len(where) - 1))]
    with pytest.raises(CorruptRecord):
        read_record(short, value)
    if value is not None:
        with pytest.raises(CorruptRecord):
            read_record(where, value[: data.draw(st.integers(0, len(value) - 1))])


def test_other_types_are_skipped_and_batches_that_end_before_they_begin_are_corrupt() -> None:
    assert read_record(bytes.fromhex("0007 00"), b"") is None
    where, value = record_of(KEY, Update(4, 6, -1, -1, (StateBatch(10, 9, 2, 1),)))
    with pytest.raises(CorruptRecord):
        read_record(where, value)
    with pytest.raises(CorruptRecord):
        read_record(None, value)


def test_a_replay_knows_the_offset_of_the_last_snapshot() -> None:
    other = KEY._replace(partition=4)
    written: list[tuple[ShareKey, StateRecord]] = [
        (KEY, SNAPSHOT),
        (other, SNAPSHOT),
        (KEY, Update(4, 6, 11, -1, ())),
        (KEY, SNAPSHOT),
        (KEY, Update(4, 6, 12, -1, ())),
        (other, None),
    ]
    rows = [(*record_of(*each), (), 0) for each in written]
    replay = ShareReplay(lambda offset, reason: pytest.fail(reason), 0, lambda: SharePartitionState(500))
    for _ in replay.feed(build_batch(rows)):
        pass
    ((key, (machine, offset)),) = replay.found.items()
    assert (key, offset) == (KEY, 3)
    assert machine.snapshot is not None and machine.snapshot.start_offset == 12 and machine.updates == 1
