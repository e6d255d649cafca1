"""Building batches record by record."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_protocol.records import decode_records
from barnabas_protocol.records.batches import HEADER_SIZE, check_batch, read_header
from barnabas_protocol.records.builder import BatchBuilder, build_batch
from barnabas_protocol.records.fields import VARINTS, Headers, long_varint


def test_size_is_that_of_the_batch_before_compression() -> None:
    builder, twin = BatchBuilder(compression="gzip"), BatchBuilder()
    assert builder.size == HEADER_SIZE
    for n in range(100):
        builder.append(b"key", b"value" * 10, [("h", None)], n)
        twin.append(b"key", b"value" * 10, [("h", None)], n)
    size = builder.size
    assert builder.count == 100
    assert len(twin.close()) == size
    assert len(builder.close()) < size


@settings(max_examples=100)
@given(
    batch_size=st.integers(100, 2000),
    records=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=300),
            st.none() | st.binary(max_size=300),
            st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=2),
        ),
        max_size=30,
    ),
)
def test_a_record_with_room_fits(batch_size: int, records: list[tuple[bytes | None, bytes | None, Headers]]) -> None:
    builder = BatchBuilder(batch_size)
    for key, value, headers in records:
        if builder.has_room(key, value, headers):
            builder.append(key, value, headers, 10**15 - 10**14 * builder.count)
            assert builder.count == 1 or builder.size <= batch_size


def test_the_first_record_always_has_room() -> None:
    builder = BatchBuilder(100)
    assert builder.has_room(None, bytes(1000), ())
    builder.append(None, bytes(1000), (), 0)
    assert not builder.has_room(None, b"", ())


def test_a_batch_is_filled() -> None:
    builder = BatchBuilder(1000)
    while builder.has_room(None, b"x" * 50, ()):
        builder.append(None, b"x" * 50, (), 0)
    assert builder.size > 900


def test_closing_with_a_producers_identity() -> None:
    builder = BatchBuilder(transactional=True)
    builder.append(None, b"v", (), 5)
    batch = builder.close(77, 3, 1000, base_offset=9, leader_epoch=2)
    header = read_header(batch)
    check_batch(header, batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 3, 1000)
    assert (header.base_offset, header.leader_epoch, header.is_transactional) == (9, 2, True)


def test_closing_twice_or_empty() -> None:
    builder = BatchBuilder()
    with pytest.raises(ValueError, match="without records"):
        builder.close()
    builder.append(None, b"v", (), 5)
    builder.close()
    with pytest.raises(ValueError, match="closed"):
        builder.close()
    with pytest.raises(ValueError, match="without records"):
        build_batch([])


def test_codecs_and_levels_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match="none, gzip, snappy, lz4, zstd"):
        BatchBuilder(compression="brotli")
    with pytest.raises(ValueError, match="gzip level 10: 1 to 9"):
        build_batch([(None, b"v", (), 5)], compression="gzip", compression_level=10)


def test_a_batch_may_be_written_to() -> None:
    batch = build_batch([(b"k", b"v", (), 5)], compression="lz4")
    assert type(batch) is bytearray
    batch.append(0)  # nothing holds a view of it
    assert decode_records(batch[:-1])[0].value == b"v"


def test_precomputed_varints_are_exact() -> None:
    assert list(VARINTS) == [long_varint(value) for value in range(8192)]
