"""Chooses the partition of a record for which the program gives none. Pure: random numbers come from the caller.

A record with a key gets the partition that Java's producer chooses: murmur2 of the key's bytes, modulo the number of
partitions. Records without a key get the same partition until they fill a batch, then another one that has a leader
(KIP-480, KIP-794): that fills batches, and over time each partition gets as many bytes. Source:
``BuiltInPartitioner.java``, ``Utils.murmur2``.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Compute Java's ``Utils.murmur2``, as an unsigned 32-bit number."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        h = h * _M & _MASK ^ (k ^ k >> 24) * _M & _MASK
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=16_384)
def positive_hash(key: bytes) -> int:
    """Compute ``Utils.toPositive(Utils.murmur2(key))``; cached, because keys repeat and hashing takes microseconds."""
    return murmur2(key) & 0x7FFFFFFF


class StickyPartitioner:
    """Chooses the partitions of one topic's records without a key.

    Args:
        batch_size: bytes after which to choose another partition.
        choose: returns a random number from 0 to its argument, exclusive.
    """

    __slots__ = ("_choose", "_left", "_size", "partition")

    def __init__(self, batch_size: int, choose: Callable[[int], int]) -> None:
        self._size = batch_size
        self._choose = choose
        self._left = 0
        self.partition = -1

    def next(self, available: Sequence[int], size: int) -> int:
        """Choose the partition of the next record.

        Args:
            available: the partitions to choose from, not empty.
            size: of the record in bytes.
        """
        if self._left <= 0 or self.partition not in available:
            others = [number for number in available if number != self.partition] or available
            self.partition = others[self._choose(len(others))]
            self._left = self._size
        self._left -= size
        return self.partition
