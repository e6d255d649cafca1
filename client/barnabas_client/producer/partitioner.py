"""Which partition a record goes to, when the program does not say. Pure: chance comes from outside.

A record with a key goes where Java's producer would put it: murmur2 of the key's bytes, modulo the number of
partitions. Records without a key stay with one partition until a batch's worth of bytes went there, then move on to
another one that has a leader (KIP-480, KIP-794): that fills batches, and comes to the same amount everywhere over time.
Source: ``BuiltInPartitioner.java``, ``Utils.murmur2``.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

_MASK: Final = 0xFFFFFFFF
_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Java's ``Utils.murmur2``, as an unsigned number of 32 bits."""
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
    """``Utils.toPositive(Utils.murmur2(key))``, remembered: keys come again, and hashing takes Python microseconds."""
    return murmur2(key) & 0x7FFFFFFF


class StickyPartitioner:
    """Where the next record of one topic without a key goes.

    Args:
        batch_size: bytes after which to move on.
        choose: picks a number from 0 to its argument, exclusive.
    """

    __slots__ = ("_choose", "_left", "_size", "partition")

    def __init__(self, batch_size: int, choose: Callable[[int], int]) -> None:
        self._size = batch_size
        self._choose = choose
        self._left = 0
        self.partition = -1

    def next(self, available: Sequence[int], size: int) -> int:
        """The partition for a record of `size` bytes.

        Args:
            available: the partitions to choose from, not empty.
            size: of this record; it counts towards moving on.
        """
        if self._left <= 0 or self.partition not in available:
            others = [number for number in available if number != self.partition] or available
            self.partition = others[self._choose(len(others))]
            self._left = self._size
        self._left -= size
        return self.partition
