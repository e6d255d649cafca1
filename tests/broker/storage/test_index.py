"""The sparse indexes, compared with a plain search."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_broker.storage.index import CorruptIndex, OffsetIndex, TimeIndex, TimestampOffset

BASE = 5_000_000_000


@st.composite
def entries(draw: st.DrawFn) -> list[tuple[int, int]]:
    steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 9000)), max_size=40))
    out, offset, position = [], BASE - 1, 0
    for more_offset, more_position in steps:
        offset, position = offset + more_offset, position + more_position
        out.append((offset, position))
    return out


@given(entries(), st.integers(BASE - 2, BASE + 2500), st.integers(0, 400_000))
def test_the_offset_index_agrees_with_a_linear_search(found: list[tuple[int, int]], offset: int, position: int) -> None:
    index = OffsetIndex(BASE)
    for entry in found:
        index.append(*entry)
    on_disk = OffsetIndex(BASE, memoryview(index.content()))
    for each in (index, on_disk):
        each.check()
        assert each.count == len(found)
        assert each.last() == (found[-1] if found else (BASE, 0))
        assert each.position_before(offset) == max((p for o, p in found if o <= offset), default=0)
        assert each.before_position(position)[1] == max((p for _, p in found if p <= position), default=0)
    on_disk.truncate(position)
    assert [on_disk.entry(n) for n in range(on_disk.count)] == [entry for entry in found if entry[1] < position]


@given(st.lists(st.sampled_from([1, 1, 1, 3, 200, 50_000]), min_size=1, max_size=300), st.integers(1, 9))
def test_a_search_finds_every_entry_however_unevenly_they_are_spaced(steps: list[int], factor: int) -> None:
    index, offset, position = OffsetIndex(BASE), BASE, 0
    entries = []
    for n, step in enumerate(steps):
        offset, position = offset + step, position + step * factor + n
        index.append(offset, position)
        entries.append((offset, position))
    for each in (index, OffsetIndex(BASE, memoryview(index.content()))):
        for n, (offset, position) in enumerate(entries):
            assert each.before(offset) == each.before_position(position) == (offset, position)
            earlier = entries[n - 1] if n else (BASE, 0)
            assert each.before(offset - 1) == each.before_position(position - 1) == earlier
            assert each.offset_from(position) == offset
            assert each.offset_from(position + 1) == (entries[n + 1][0] if n + 1 < len(entries) else None)


@given(entries(), entries(), st.integers(0, 400_000))
def test_an_index_from_a_file_goes_on_in_memory(
    found: list[tuple[int, int]], more: list[tuple[int, int]], position: int
) -> None:
    index = OffsetIndex(BASE)
    for entry in found:
        index.append(*entry)
    index = OffsetIndex(BASE, memoryview(index.content()))
    index.truncate(position)
    kept = [entry for entry in found if entry[1] < position]
    offset, end = index.last()
    added = [(offset + each - BASE + 1, end + size + 1) for each, size in more]
    for entry in added:
        index.append(*entry)
    assert [index.entry(n) for n in range(index.count)] == kept + added
    index.check()
    for start in (0, len(kept), index.count):
        assert OffsetIndex(BASE, memoryview(index.content(start))).count == index.count - start
    assert index.before(BASE + 10**6) == index.last()


@given(entries(), st.integers(0, 400_000), st.integers(BASE - 2, BASE + 2500))
def test_the_time_index_agrees_with_a_linear_search(found: list[tuple[int, int]], timestamp: int, offset: int) -> None:
    index = TimeIndex(BASE)
    pairs = [TimestampOffset(position, offset) for offset, position in found]
    for pair in pairs:
        index.maybe_append(*pair)
        index.maybe_append(pair.timestamp, pair.offset + 1)  # not later: no entry
    index.check()
    before = [pair for pair in pairs if pair.timestamp <= timestamp]
    assert index.before(timestamp) == (before[-1] if before else TimestampOffset(-1, BASE))
    assert index.last() == (pairs[-1] if pairs else TimestampOffset(-1, BASE))
    index.truncate(offset)
    assert [index.entry(n) for n in range(index.count)] == [pair for pair in pairs if pair.offset < offset]


def test_preallocated_zeros_are_not_entries() -> None:
    index = OffsetIndex(BASE)
    index.append(BASE + 3, 4100)
    assert OffsetIndex(BASE, memoryview(index.content() + bytes(800))).last() == (BASE + 3, 4100)
    assert OffsetIndex(BASE, memoryview(bytes(800))).count == 0
    times = TimeIndex(BASE)
    times.maybe_append(17, BASE + 3)
    assert TimeIndex(BASE, memoryview(times.content() + bytes(1200))).last() == (17, BASE + 3)
    assert TimeIndex(BASE, memoryview(bytes(1200))).count == 0


def test_a_corrupt_index_is_rejected() -> None:
    with pytest.raises(CorruptIndex):
        OffsetIndex(0, memoryview(bytes(9)))
    with pytest.raises(CorruptIndex):
        TimeIndex(0, memoryview(bytes(13)))
    with pytest.raises(CorruptIndex):
        OffsetIndex(0, memoryview(bytes.fromhex("00000002000000100000000100000020"))).check()
    with pytest.raises(CorruptIndex):
        TimeIndex(0, memoryview(bytes.fromhex("000000000000000200000001000000000000000100000002"))).check()
