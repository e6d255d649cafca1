"""The user data of the sticky assignors, byte by byte, and the order of Java's hash tables."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas_client.assignors.java_hash import PartitionSet, hash_order
from barnabas_client.assignors.user_data import Claim, decode_claim, decode_generation, encode_claim, encode_generation
from barnabas_client.structs import TopicPartition
from barnabas_protocol.internal_topics import java_string_hash as string_hash
from tests.lots import in_lots

CLAIM = b"\0\0\0\1" + b"\0\1t" + b"\0\0\0\2" + b"\0\0\0\0\0\0\0\3"  # t-0 and t-3, version 0


def test_the_data_of_sticky() -> None:
    assert encode_claim([TopicPartition("t", 0), TopicPartition("t", 3)], 5) == CLAIM + b"\0\0\0\5"


def test_data_of_version_0_has_no_generation() -> None:
    claim = Claim([TopicPartition("t", 0), TopicPartition("t", 3)], -1)
    assert decode_claim(CLAIM) == claim
    assert decode_claim(CLAIM + b"\0\0\0\5") == claim._replace(generation=5)


def test_trailing_bytes_are_ignored() -> None:
    assert decode_claim(CLAIM + b"\0\0\0\5more").generation == 5


@given(
    partitions=st.lists(st.builds(TopicPartition, st.text("abc", min_size=1), st.integers(0, 99)), unique=True),
    generation=st.integers(-1, 2**31 - 1),
)
def test_claims_survive_encoding(partitions: list[TopicPartition], generation: int) -> None:
    claim = decode_claim(encode_claim(partitions, generation))
    assert sorted(claim.partitions) == sorted(partitions)
    assert claim.generation == generation


@in_lots("size", range(len(CLAIM)))
def test_a_truncated_claim_is_no_claim(size: int) -> None:
    assert decode_claim(CLAIM[:size]) == Claim()


def test_the_data_of_cooperative_sticky() -> None:
    assert encode_generation(7) == b"\0\0\0\7"
    assert decode_generation(b"\0\0\0\7") == 7
    assert [decode_generation(blob) for blob in (None, b"", b"\0\0\7")] == [-1, -1, -1]


def test_hashes_of_strings() -> None:
    # As jshell prints them, modulo 2**32.
    assert string_hash("") == 0
    assert string_hash("hello") == 99162322
    assert string_hash("polygenelubricants") == 2**31
    assert string_hash("\U0001f600") == 1772899


def test_the_order_of_a_hash_map() -> None:
    # new HashMap<String, ..>() with these keys put in this order, printed by jshell.
    assert hash_order(["consumer-b", "consumer-a", "Aa", "BB"]) == ["Aa", "BB", "consumer-b", "consumer-a"]
    numbers = [5, 6, 3, 13, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0]
    assert hash_order(f"member-{number}" for number in range(14)) == [f"member-{number}" for number in numbers]
    assert hash_order(["BB", "Aa"]) == ["BB", "Aa"], "equal hashes stay in the order they came in"


def test_a_set_knows_its_first_partition() -> None:
    partitions = PartitionSet("t")
    assert not partitions
    for number in (5, 2, 9):
        partitions.add(TopicPartition("t", number))
    first = partitions.first()
    partitions.remove(first)
    assert partitions.first() != first
