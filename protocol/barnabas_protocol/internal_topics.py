"""The internal topics of a broker, and the partition of an internal topic that a key belongs to.

Source: Kafka's ``Topic``, ``GroupCoordinatorService.partitionFor``, ``Utils.abs``, Java's ``String.hashCode``.
"""

import struct
from typing import Final

#: Groups and committed offsets; the leader of a group's partition is its coordinator.
OFFSETS_TOPIC: Final = "__consumer_offsets"
#: Transactional ids and the states of their transactions.
TRANSACTIONS_TOPIC: Final = "__transaction_state"
#: The state of share groups (KIP-932).
SHARE_GROUPS_TOPIC: Final = "__share_group_state"
#: Events of groups and their causes. Apache Kafka has no such topic.
EVENTS_TOPIC: Final = "__group_events"
#: Events of transactions that take long or are aborted. Apache Kafka has no such topic.
TRANSACTION_EVENTS_TOPIC: Final = "__transaction_events"

#: The metadata log in directories of Apache Kafka. It is not a topic to clients, and its name is reserved.
METADATA_TOPIC: Final = "__cluster_metadata"

INTERNAL_TOPICS: Final = frozenset(
    (OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_GROUPS_TOPIC, EVENTS_TOPIC, TRANSACTION_EVENTS_TOPIC)
)


def java_string_hash(text: str) -> int:
    """Java's ``String.hashCode`` over UTF-16 code units, as an unsigned 32-bit number."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value


def partition_for(key: str, partitions: int) -> int:
    """The partition of an internal topic that a group or a transactional id belongs to.

    Args:
        key: the group id or the transactional id.
        partitions: the number of partitions of the topic.
    """
    value = java_string_hash(key)
    if value & 0x80000000:
        # Java's int is signed, and the smallest one has no absolute value: Kafka uses 0.
        value = (1 << 32) - value if value != 0x80000000 else 0
    return value % partitions
