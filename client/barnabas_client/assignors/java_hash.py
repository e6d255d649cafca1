"""The iteration order of Java's hash tables. Pure.

Kafka's sticky assignors iterate over members and partitions in this order where no other is needed, so it decides ties:
which of two equal members keeps one partition more. Buckets that Java turns into a tree, with nine collisions and more,
are not reproduced. Sources: ``HashMap.java``, ``String.hashCode``, ``TopicPartition.hashCode``.
"""

from collections.abc import Iterable

from barnabas_client.structs import TopicPartition
from barnabas_protocol.internal_topics import java_string_hash

_CAPACITY = 16


def hash_order(texts: Iterable[str]) -> list[str]:
    """`texts` in the iteration order of a ``HashMap`` with these keys, added one after the other."""
    given = list(texts)
    capacity = _CAPACITY
    while len(given) > capacity * 3 // 4:
        capacity *= 2
    return sorted(given, key=lambda text: _spread(java_string_hash(text)) & (capacity - 1))


class PartitionSet:
    """A ``HashSet<TopicPartition>`` of one topic, reduced to the question which partition is the first."""

    def __init__(self, topic: str) -> None:
        self._topic = java_string_hash(topic)
        self._hashes: dict[TopicPartition, int] = {}
        self._capacity = _CAPACITY

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def add(self, tp: TopicPartition) -> None:
        self._hashes[tp] = _spread((31 * (31 + tp.partition) + self._topic) & 0xFFFFFFFF)
        if len(self._hashes) > self._capacity * 3 // 4:
            self._capacity *= 2

    def remove(self, tp: TopicPartition) -> None:
        del self._hashes[tp]

    def first(self) -> TopicPartition:
        return min(self._hashes, key=lambda tp: self._hashes[tp] & (self._capacity - 1))


def _spread(value: int) -> int:
    return value ^ (value >> 16)
