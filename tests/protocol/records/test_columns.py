"""Records in columns: the same bytes as record by record."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_protocol.records import BatchBuilder, Headers, RecordColumns, build_batch

Content = tuple[bytes | None, bytes | None, Headers, int]

TEXTS = st.one_of(st.none(), st.binary(max_size=200), st.sampled_from([b"", b"same", b"x" * 70, b"y" * 9_000]))
HEADERS = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), st.none() | st.binary(max_size=80)), max_size=3
)
TIMES = st.integers(0, 2**63 - 1) | st.integers(1_700_000_000_000, 1_700_000_000_100)


@st.composite
def contents(draw: st.DrawFn) -> list[Content]:
    """Records of which some columns vary and others do not."""
    count = draw(st.integers(1, 140))
    times = draw(st.just(st.just(draw(TIMES))) | st.just(TIMES))
    keys = draw(st.sampled_from([st.none(), TEXTS, st.just(b"k"), st.binary(min_size=16, max_size=16)]))
    values = draw(st.sampled_from([TEXTS, st.just(b"v"), st.binary(min_size=60, max_size=64)]))
    headers = draw(st.sampled_from([st.just(()), HEADERS]))
    # Few different records, repeated: drawing each costs more than the test is worth.
    some = draw(st.lists(st.tuples(keys, values, headers, times), min_size=1, max_size=12))
    return (some * count)[:count]


def columns(records: Sequence[Content]) -> RecordColumns:
    """Columns as short as possible."""
    keys, values, headers, times = zip(*records, strict=True)
    return RecordColumns(
        values,
        None if set(keys) == {None} else keys,
        headers if any(headers) else None,
        times[0] if len(set(times)) == 1 else times,
    )


def closed(builder: BatchBuilder) -> bytes:
    return bytes(builder.close(7, 1, 5))


def one_by_one(records: Sequence[Content]) -> bytes:
    return bytes(build_batch(records, producer_id=7, producer_epoch=1, base_sequence=5))


@given(contents())
def test_the_bytes_are_those_of_single_records(records: list[Content]) -> None:
    builder = BatchBuilder(1 << 40)
    assert builder.extend(columns(records), 0, len(records)) == len(records)
    assert closed(builder) == one_by_one(records)


@given(contents(), st.integers(0, 140), st.integers(0, 140))
def test_columns_after_single_records_and_before_others(records: list[Content], one: int, other: int) -> None:
    begin, end = sorted((min(one, len(records)), min(other, len(records))))
    builder = BatchBuilder(1 << 40)
    for record in records[:begin]:
        builder.append(*record)
    if begin < end:
        assert builder.extend(columns(records), begin, end) == end - begin
    for record in records[end:]:
        builder.append(*record)
    assert closed(builder) == one_by_one(records)


@given(contents(), st.lists(st.integers(0, 139), min_size=1, max_size=20))
def test_some_of_the_records(records: list[Content], drawn: list[int]) -> None:
    places = [place % len(records) for place in drawn]
    builder = BatchBuilder(1 << 40)
    picked = columns(records).pick(places)
    assert len(picked) == len(places)
    builder.extend(picked, 0, len(places))
    assert closed(builder) == one_by_one([records[place] for place in places])


@given(contents(), st.integers(61, 3_000))
def test_batches_are_not_larger_than_their_limit(records: list[Content], limit: int) -> None:
    made = columns(records)
    at = 0
    while at < len(records):
        builder = BatchBuilder(limit)
        taken = builder.extend(made, at, len(records))
        assert taken >= 1
        assert taken == 1 or builder.size <= limit
        assert closed(builder) == one_by_one(records[at : at + taken])
        at += taken


def test_batches_are_filled() -> None:
    records: list[Content] = [(None, b"x" * 100, (), 5)] * 2_000
    builder = BatchBuilder(100_000)
    assert builder.extend(columns(records), 0, len(records)) > 900
    while builder.extend(columns(records), 0, len(records)):
        pass
    assert 99_890 < builder.size <= 100_000


@pytest.mark.parametrize("count", [63, 64, 65, 8_191, 8_192, 8_193, 20_000])
def test_offset_deltas_that_become_longer(count: int) -> None:
    records: list[Content] = [(None, b"x", (), 5)] * count
    for already in (0, 60, 8_190):
        builder = BatchBuilder(1 << 40)
        for record in records[:already]:
            builder.append(*record)
        builder.extend(columns(records), 0, count)
        assert closed(builder) == one_by_one(records[:already] + records)
