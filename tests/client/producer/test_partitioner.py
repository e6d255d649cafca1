"""The choice of partitions: the hash compared with other clients, and the sticky partitioner."""

import random
from itertools import pairwise

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.producer.partitioner import StickyPartitioner, partitions_of, positive_hash
from barnabas_protocol.murmur2 import murmur2


def test_java_vectors() -> None:
    # UtilsTest.testMurmur2
    expected = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: (murmur2(key) ^ 0x80000000) - 0x80000000 for key in expected} == expected


@given(key=st.binary(max_size=64))
def test_the_hash_of_aiokafka(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_aiokafka(key) & 0xFFFFFFFF
    assert positive_hash(key) == murmur2(key) & 0x7FFFFFFF


@given(
    st.lists(st.one_of(st.binary(max_size=9), *(st.binary(min_size=n, max_size=n) for n in (4, 7, 36))), max_size=90)
)
def test_many_keys_at_once(keys: list[bytes]) -> None:
    partitions = (3, 1, 4, 0, 2)
    assert partitions_of(keys, partitions) == [partitions[positive_hash(key) % 5] for key in keys]


@pytest.mark.parametrize("length", range(41))
def test_many_keys_of_one_length(length: int) -> None:
    chance = random.Random(length)
    for count in (15, 16, 17, 40):
        keys = [chance.randbytes(length) for _ in range(count)]
        assert partitions_of(keys, range(1 << 20)) == [positive_hash(key) % (1 << 20) for key in keys]


def test_many_records_without_a_key_at_once() -> None:
    chosen = iter([1, 0])
    sticky = StickyPartitioner(100, lambda count: next(chosen))
    assert (sticky.room((0, 1, 2)), sticky.partition) == (100, 1)
    sticky.spend(60)
    assert (sticky.room((0, 1, 2)), sticky.partition) == (40, 1)
    sticky.spend(60)
    assert (sticky.room((0, 1, 2)), sticky.partition) == (100, 0)


def test_records_without_a_key_stay_until_a_batch_is_full() -> None:
    chosen = iter([1, 0, 1])
    sticky = StickyPartitioner(100, lambda count: next(chosen))
    assert [sticky.next((0, 1, 2), 50) for _ in range(6)] == [1, 1, 0, 0, 2, 2]


def test_another_partition_is_chosen_if_the_leader_is_lost() -> None:
    sticky = StickyPartitioner(1000, lambda count: 0)
    assert sticky.next((0, 1), 10) == 0
    assert sticky.next((1,), 10) == 1


def test_the_only_partition_is_chosen_again() -> None:
    sticky = StickyPartitioner(10, lambda count: count - 1)
    assert [sticky.next((4,), 50) for _ in range(3)] == [4, 4, 4]


@given(seed=st.integers(0, 1000), count=st.integers(2, 9))
def test_all_partitions_get_as_many_records(seed: int, count: int) -> None:
    sticky = StickyPartitioner(100, random.Random(seed).randrange)
    numbers = tuple(range(count))
    taken = [sticky.next(numbers, 100) for _ in range(count * 40)]
    assert set(taken) == set(numbers)
    assert all(one != other for one, other in pairwise(taken))
