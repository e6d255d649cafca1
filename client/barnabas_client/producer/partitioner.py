"""Chooses the partition of a record for which the program gives none. Pure: random numbers come from the caller.

A record with a key gets the partition that Java's producer chooses: murmur2 of the key's bytes, modulo the number of
partitions. Records without a key get the same partition until they fill a batch, then another one that has a leader
(KIP-480, KIP-794): that fills batches, and over time each partition gets as many bytes. Source:
``BuiltInPartitioner.java``, ``Utils.murmur2``.
"""

import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from barnabas_protocol.murmur2 import SEED, M, murmur2

#: Fewer keys of one length are hashed one by one.
_FEW: Final = 16


@lru_cache(maxsize=16_384)
def positive_hash(key: bytes) -> int:
    """Compute ``Utils.toPositive(Utils.murmur2(key))``; cached, because keys repeat and hashing takes microseconds."""
    return murmur2(key) & 0x7FFFFFFF


def partitions_of(keys: Iterable[bytes], partitions: Sequence[int]) -> list[int]:
    """Choose the partitions of many keys, as :func:`positive_hash` does for each: faster, because those of one length
    are hashed together.

    Args:
        keys: of the records.
        partitions: of the topic.
    """
    keys = list(keys)
    by_length: defaultdict[int, list[bytes]] = defaultdict(list)
    for key in set(keys):
        by_length[len(key)].append(key)
    count = len(partitions)
    chosen: dict[bytes, int] = {}
    for some in by_length.values():
        hashes = map(positive_hash, some) if len(some) < _FEW else _positive_hashes(some)
        chosen.update(zip(some, [partitions[one % count] for one in hashes], strict=True))
    return list(map(chosen.__getitem__, keys))


def _positive_hashes(keys: Sequence[bytes]) -> Sequence[int]:
    """Compute :func:`positive_hash` of keys of one length, at once: one large integer has a lane of 64 bits for each
    key, of which the hash takes the lower half, so that no product leaves its lane."""
    count, size = len(keys), len(keys[0])
    padding = bytes(-size % 4)
    joined = padding.join(keys) + padding
    low = int.from_bytes(b"\xff\xff\xff\xff\0\0\0\0" * count, "little")
    even = low >> 64 * (count // 2)
    h = int.from_bytes(struct.pack("<Q", SEED ^ size) * count, "little")
    if joined:
        words = memoryview(joined).cast("I")
        step = len(words) // count
        for at in range(step):
            # Words of 32 bits into lanes of 64: first those with an even place, then the others.
            word = int.from_bytes(words[at::step].tobytes(), "little")
            k = word & even | (word >> 32 & even) << 64 * ((count + 1) // 2)
            if at < size // 4:
                k = k * M & low
                h = h * M & low ^ ((k ^ k >> 24) & low) * M & low
            else:
                h = (h ^ k) * M & low
    h = ((h ^ h >> 13) & low) * M & low
    h = (h ^ h >> 15) & low
    lanes = struct.unpack(f"<{count}Q", h.to_bytes(8 * count, "little"))
    hashes = [0] * count
    hashes[::2] = lanes[: (count + 1) // 2]
    hashes[1::2] = lanes[(count + 1) // 2 :]
    return [one & 0x7FFFFFFF for one in hashes]


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
        self.room(available)
        self._left -= size
        return self.partition

    def room(self, available: Sequence[int]) -> int:
        """Choose the partition of the next records, from `available`; return how many bytes it gets before another one
        is chosen. The caller then says with :meth:`spend` how many were sent."""
        if self._left <= 0 or self.partition not in available:
            others = [number for number in available if number != self.partition] or available
            self.partition = others[self._choose(len(others))]
            self._left = self._size
        return self._left

    def spend(self, size: int) -> None:
        """Count records of so many bytes, sent to :attr:`partition`."""
        self._left -= size
