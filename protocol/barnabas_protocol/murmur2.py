"""The hash with which Kafka's producers choose the partition of a key.

Source: ``org.apache.kafka.common.utils.Utils``.
"""

from typing import Final

MASK: Final = 0xFFFFFFFF
M: Final = 0x5BD1E995
SEED: Final = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Compute Java's ``Utils.murmur2``, as an unsigned 32-bit number."""
    size = len(data)
    h = SEED ^ size
    whole = size & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * M & MASK
        h = h * M & MASK ^ (k ^ k >> 24) * M & MASK
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * M & MASK
    h = (h ^ h >> 13) * M & MASK
    return h ^ h >> 15
