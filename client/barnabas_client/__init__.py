"""The async client: consumer, producer and admin, for Barnabas and Apache Kafka alike.

Programs import from here. Imported by the pipeline; imports the protocol.
"""

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
from barnabas_client.consumer.listener import ConsumerRebalanceListener
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
