"""The async client: consumer, producer and admin, for Barnabas and Apache Kafka alike."""

from barnabas_client import errors
from barnabas_client.admin import Admin, ClusterDescription, NewTopic, TopicResult
from barnabas_client.assignors import (
    Assignor,
    MemberSubscription,
    RangeAssignor,
    RebalanceProtocol,
    RoundRobinAssignor,
)
from barnabas_client.consumer import Consumer
from barnabas_client.errors import ErrorCode, KafkaError
from barnabas_client.producer import Producer
from barnabas_client.rebalance import ConsumerRebalanceListener
from barnabas_client.structs import (
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TopicPartition,
)

__all__ = [
    "Admin",
    "Assignor",
    "ClusterDescription",
    "Consumer",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ErrorCode",
    "KafkaError",
    "MemberSubscription",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Producer",
    "RangeAssignor",
    "RebalanceProtocol",
    "RecordMetadata",
    "RoundRobinAssignor",
    "TopicPartition",
    "TopicResult",
    "errors",
]
