"""The hash of the topics that a group subscribes to (KIP-1101), as in ``ConsumerGroupMetadataValue``. Pure.

The coordinator persists one hash for all topics of a group. A different one shows that a topic was created or deleted,
has more partitions, or has replicas in other racks. The values are those of Kafka 4.3.1, so that a group's records are
as good on either broker: XXH3 (64 bits, seed 0) over integers in little-endian order and strings in UTF-16, each string
followed by its length.

Source: Kafka's ``Utils.computeTopicHash`` and ``computeGroupHash``, hash4j's ``HashStream64``.
"""

from collections.abc import Mapping
from struct import Struct, pack
from typing import Final

from xxhash import xxh3_64_digest

from barnabas_broker.groups.consumer.assignment import Topic

#: The version of the hash function: the first byte of what is hashed for a topic.
MAGIC: Final = 0

_ID: Final = Struct(">qq")
_HEAD: Final = Struct("<Bqq")
_INT: Final = Struct("<i")
_RESULT: Final = Struct(">q")


def topic_hash(topic: Topic) -> int:
    """The hash of one topic, a signed 64-bit integer. A topic that does not exist has the hash 0."""
    name = _utf16(topic.name)
    parts = [_HEAD.pack(MAGIC, *_ID.unpack(topic.topic_id)), name, _length(name), _INT.pack(topic.partitions)]
    for partition in range(topic.partitions):
        parts.append(_INT.pack(partition))
        if topic.racks:
            for rack in sorted(topic.racks[partition], key=_in_java_order):
                value = _utf16(rack)
                parts += (_length(value), value, _length(value))
    return _hash(b"".join(parts))


def group_hash(topic_hashes: Mapping[str, int]) -> int:
    """The hash of a group, a signed 64-bit integer, over its topics in the order of their names; 0 without topics.

    Args:
        topic_hashes: the hash of each topic by name, for topics that exist.
    """
    if not topic_hashes:
        return 0
    names = sorted(topic_hashes) if all(map(str.isascii, topic_hashes)) else sorted(topic_hashes, key=_in_java_order)
    return _hash(pack(f"<{len(names)}q", *map(topic_hashes.__getitem__, names)))


def _hash(data: bytes) -> int:
    (value,) = _RESULT.unpack(xxh3_64_digest(data))
    return int(value)


def _utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


def _length(encoded: bytes) -> bytes:
    return _INT.pack(len(encoded) // 2)


def _in_java_order(text: str) -> bytes:
    # Java compares strings by UTF-16 units.
    return text.encode("utf-16-be", "surrogatepass")
