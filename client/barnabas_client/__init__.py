"""The async client: consumer, producer and admin, for Barnabas and Apache Kafka alike.

Each name is imported when it is first used, so that a program that only consumes does not pay for the rest.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas_client import errors
    from barnabas_client.admin.admin import Admin
    from barnabas_client.admin.types import (
        AlterConfigOp,
        ClusterDescription,
        ConfigEntry,
        ConfigOp,
        ConfigResource,
        ConfigResult,
        ConfigSource,
        ConfigType,
        DeletedRecords,
        GroupDescription,
        GroupListing,
        GroupListings,
        GroupOffset,
        GroupResult,
        ListedOffset,
        MemberDescription,
        NewTopic,
        OffsetSpec,
        PartitionResult,
        ResourceType,
        TopicResult,
    )
    from barnabas_client.assignors import (
        Assignor,
        CooperativeStickyAssignor,
        MemberSubscription,
        PartitionCounts,
        RangeAssignor,
        RebalanceProtocol,
        RoundRobinAssignor,
        StickyAssignor,
    )
    from barnabas_client.consumer.consumer import Consumer
    from barnabas_client.consumer.rebalance import ConsumerRebalanceListener
    from barnabas_client.errors import ErrorCode, KafkaError
    from barnabas_client.producer.producer import Producer
    from barnabas_client.structs import (
        ConsumerRecord,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TopicPartition,
    )

__all__ = [
    "Admin",
    "AlterConfigOp",
    "Assignor",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResult",
    "ConfigSource",
    "ConfigType",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "CooperativeStickyAssignor",
    "DeletedRecords",
    "ErrorCode",
    "GroupDescription",
    "GroupListing",
    "GroupListings",
    "GroupOffset",
    "GroupResult",
    "KafkaError",
    "ListedOffset",
    "MemberDescription",
    "MemberSubscription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "PartitionCounts",
    "PartitionResult",
    "Producer",
    "RangeAssignor",
    "RebalanceProtocol",
    "RecordMetadata",
    "ResourceType",
    "RoundRobinAssignor",
    "StickyAssignor",
    "TopicPartition",
    "TopicResult",
    "errors",
]

#: Where each name is; the rest is in `admin.types`.
_PLACES: Final = {
    "admin.admin": ("Admin",),
    "assignors": (
        "Assignor",
        "CooperativeStickyAssignor",
        "MemberSubscription",
        "PartitionCounts",
        "RangeAssignor",
        "RebalanceProtocol",
        "RoundRobinAssignor",
        "StickyAssignor",
    ),
    "consumer.consumer": ("Consumer",),
    "errors": ("ErrorCode", "KafkaError"),
    "producer.producer": ("Producer",),
    "consumer.rebalance": ("ConsumerRebalanceListener",),
    "structs": ("ConsumerRecord", "OffsetAndMetadata", "OffsetAndTimestamp", "RecordMetadata", "TopicPartition"),
}
_MODULES: Final = {name: module for module, names in _PLACES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what is asked for (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'barnabas_client' has no attribute {name!r}")
    if name == "errors":
        return import_module("barnabas_client.errors")
    value: object = getattr(import_module(f"barnabas_client.{_MODULES.get(name, 'admin.types')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """What there is, imported or not."""
    return sorted({*globals(), *__all__})
