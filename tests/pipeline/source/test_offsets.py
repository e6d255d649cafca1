"""Offsets as JSON, the limits of a micro-batch, and splitting, by the rules of Spark's Kafka connector."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client import TopicPartition
from barnabas_pipeline.source.offsets import (
    OffsetRange,
    SourceOffset,
    behind,
    limited,
    parse_partitions,
    parse_positions,
    split_ranges,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_an_offset_has_the_json_of_sparks_connector() -> None:
    offset = SourceOffset({B0: 3, TopicPartition("a", 10): 1, A1: 23})
    assert json.dumps(offset.to_json()) == '{"a": {"1": 23, "10": 1}, "b": {"0": 3}}'
    assert SourceOffset.of_json(offset.to_json()) == offset


def test_an_offset_has_topic_ids() -> None:
    offset = SourceOffset({A0: 3}, {"a": "ff", "gone": "00"})
    assert offset.to_json() == {"a": {"0": 3}, "#ids": {"a": "ff"}}
    assert SourceOffset.of_json(offset.to_json()) == SourceOffset({A0: 3}, {"a": "ff"})


@pytest.mark.parametrize(
    "text", ["", "[]", "7", '{"a": 7}', '{"a": {"x": 7}}', '{"a": {"0": "7"}}', '{"a": {"0": true}}']
)
def test_invalid_offsets_name_their_option(text: str) -> None:
    with pytest.raises(ValueError, match="option 'startingOffsets'"):
        parse_positions(text, "startingOffsets")


@pytest.mark.parametrize("text", ["", "[]", '{"a": {"0": 1}}', '{"a": ["0"]}', '{"a": [-1]}', '{"a": [true]}'])
def test_invalid_assignments_name_their_option(text: str) -> None:
    with pytest.raises(ValueError, match="option 'assign'"):
        parse_partitions(text, "assign")


def test_an_assignment_is_parsed() -> None:
    assert parse_partitions('{"b": [0, 0], "a": [1]}', "assign") == [A1, B0]


def test_partitions_are_limited_in_proportion() -> None:
    start, end = {A0: 0, A1: 100, B0: 7}, {A0: 900, A1: 200, B0: 7}
    assert limited(start, end, 100) == {A0: 90, A1: 110, B0: 7}


def test_small_partitions_do_not_starve() -> None:
    assert limited({A0: 0, A1: 0}, {A0: 100_000, A1: 1}, 10) == {A0: 9, A1: 1}


def test_the_limit_does_not_exceed_the_end() -> None:
    assert limited({A0: 0}, {A0: 5}, 100) == {A0: 5}
    assert limited({A0: 5}, {A0: 5}, 100) == {A0: 5}


def test_an_end_before_the_start_is_unchanged() -> None:
    assert limited({A0: 50, A1: 0}, {A0: 10, A1: 100}, 10) == {A0: 10, A1: 10}


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 10**6)), min_size=1, max_size=8), st.integers(1, 10**6))
def test_the_limit_holds_and_all_partitions_make_progress(sizes: list[tuple[int, int]], limit: int) -> None:
    start = {TopicPartition("a", number): first for number, (first, _) in enumerate(sizes)}
    end = {tp: first + sizes[tp.partition][1] for tp, first in start.items()}
    found = limited(start, end, limit)
    assert behind(start, found) <= limit + len(sizes)
    for tp in start:
        assert start[tp] <= found[tp] <= end[tp]
        assert (found[tp] > start[tp]) == (end[tp] > start[tp])


def test_empty_ranges_are_left_out() -> None:
    assert split_ranges([OffsetRange(A0, 5, 5), OffsetRange(A1, 0, 9)], None) == [OffsetRange(A1, 0, 9)]


def test_large_ranges_are_split_in_proportion() -> None:
    # The cases of Spark's KafkaOffsetRangeCalculatorSuite.
    assert split_ranges([OffsetRange(A0, 0, 10000), OffsetRange(B0, 0, 10)], 4) == [
        OffsetRange(A0, 0, 3333),
        OffsetRange(A0, 3333, 6666),
        OffsetRange(A0, 6666, 10000),
        OffsetRange(B0, 0, 10),
    ]
    assert split_ranges([OffsetRange(A0, 0, 5)], 4) == [
        OffsetRange(A0, 0, 1),
        OffsetRange(A0, 1, 2),
        OffsetRange(A0, 2, 3),
        OffsetRange(A0, 3, 5),
    ]
    assert len(split_ranges([OffsetRange(A0, 0, 100), OffsetRange(A1, 0, 100), OffsetRange(B0, 0, 100)], 3)) == 3


def test_no_task_exceeds_the_maximum_of_records() -> None:
    assert split_ranges([OffsetRange(A0, 0, 25), OffsetRange(A1, 0, 5)], None, 10) == [
        OffsetRange(A0, 0, 8),
        OffsetRange(A0, 8, 16),
        OffsetRange(A0, 16, 25),
        OffsetRange(A1, 0, 5),
    ]


@given(
    st.lists(st.integers(0, 10**5), min_size=1, max_size=10),
    st.none() | st.integers(1, 40),
    st.none() | st.integers(1, 10**5),
)
def test_splitting_keeps_all_offsets(sizes: list[int], wanted: int | None, most: int | None) -> None:
    ranges = [OffsetRange(TopicPartition("a", number), 7, 7 + size) for number, size in enumerate(sizes)]
    if most is not None and sum(sizes) / most > 1000:
        most = sum(sizes)
    found = split_ranges(ranges, wanted, most)
    for one in ranges:
        parts = [part for part in found if part.tp == one.tp]
        assert sum(part.size for part in parts) == one.size
        assert all(part.size > 0 for part in parts)
        assert all(left.end == right.start for left, right in pairwise(parts))
        assert most is None or all(part.size <= most for part in parts)
