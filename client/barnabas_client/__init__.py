"""The async client: consumer, producer and admin, for Barnabas and Apache Kafka alike.

Programs import the same names from :mod:`barnabas`. Imported by that and by the pipeline; imports the protocol.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

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
from barnabas_client.config import (
    ConsumerSettings,
    Deserializer,
    Partitioner,
    ProducerSettings,
    Serializer,
    ShareConsumerSettings,
)
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.consumer.listener import ConsumerRebalanceListener
from barnabas_client.consumer.parallel.config import BatchHandler, Handler
from barnabas_client.errors import ErrorCode, KafkaError
from barnabas_client.network.metadata import Node, PartitionInfo, TopicInfo
from barnabas_client.program import run
from barnabas_client.serialization import SerializationContext
from barnabas_client.structs import (
    BatchMetadata,
    ConsumerGroupMetadata,
    ConsumerRecord,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PreparedTransaction,
    RecordMetadata,
    TopicPartition,
)
from barnabas_client.token_files import FileTokenProvider
from barnabas_client.tokens import AbstractTokenProvider, TokenProvider

if TYPE_CHECKING:
    from barnabas_client.admin.acls import AclBinding, AclBindingFilter, AclResult
    from barnabas_client.admin.admin import Admin
    from barnabas_client.admin.quotas import ClientQuotaAlteration, ClientQuotaResult, ClientQuotas
    from barnabas_client.admin.types import (
        AlterConfigOp,
        BrokerCondition,
        BrokerConditions,
        BrokerLogDirs,
        ClusterDescription,
        ConfigEntry,
        ConfigOp,
        ConfigResource,
        ConfigResult,
        ConfigSource,
        ConfigSynonym,
        ConfigType,
        DeletedRecords,
        ElectionType,
        EligibleLeaders,
        FencedProducer,
        GroupDescription,
        GroupListing,
        GroupListings,
        GroupOffset,
        GroupResult,
        ListedOffset,
        LogDir,
        MemberDescription,
        MemberResult,
        NewTopic,
        OffsetSpec,
        PartitionProducer,
        PartitionProducers,
        PartitionReassignment,
        PartitionResult,
        ResourceType,
        ShareGroupOffset,
        TopicResult,
        TransactionDescription,
        TransactionListing,
        TransactionListings,
    )
    from barnabas_client.admin.users import (
        UserResult,
        UserScramCredentialDeletion,
        UserScramCredentials,
        UserScramCredentialUpsertion,
    )
    from barnabas_client.producer.producer import Producer
    from barnabas_client.producer.receipts import BatchReceipt, Receipt
    from barnabas_client.shares.consumer import ShareConsumer
    from barnabas_client.shares.records import ShareRecord
    from barnabas_protocol.acls import AclOperation, AclPatternType, AclPermissionType, AclResourceType
    from barnabas_protocol.scram import ScramMechanism

__all__ = [
    "AbstractTokenProvider",
    "FileTokenProvider",
    "AclBinding",
    "AclBindingFilter",
    "AclOperation",
    "AclPatternType",
    "AclPermissionType",
    "AclResourceType",
    "AclResult",
    "ClientQuotaAlteration",
    "ClientQuotaResult",
    "ClientQuotas",
    "FencedProducer",
    "PartitionProducer",
    "PartitionProducers",
    "TransactionDescription",
    "TransactionListing",
    "TransactionListings",
    "Admin",
    "AlterConfigOp",
    "Assignor",
    "BrokerCondition",
    "BrokerConditions",
    "BrokerLogDirs",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigOp",
    "ConfigResource",
    "ConfigResult",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "Consumer",
    "ConsumerGroupMetadata",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerSettings",
    "CooperativeStickyAssignor",
    "DeletedRecords",
    "Deserializer",
    "ElectionType",
    "ErrorCode",
    "GroupDescription",
    "GroupListing",
    "GroupListings",
    "GroupOffset",
    "GroupResult",
    "Handler",
    "KafkaError",
    "ListedOffset",
    "MemberResult",
    "LogDir",
    "MemberDescription",
    "MemberSubscription",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OffsetSpec",
    "PartitionCounts",
    "EligibleLeaders",
    "PartitionReassignment",
    "PartitionResult",
    "PartitionInfo",
    "Partitioner",
    "PreparedTransaction",
    "Producer",
    "ProducerSettings",
    "RangeAssignor",
    "RebalanceProtocol",
    "BatchHandler",
    "BatchMetadata",
    "BatchReceipt",
    "Receipt",
    "RecordMetadata",
    "ResourceType",
    "RoundRobinAssignor",
    "ScramMechanism",
    "SerializationContext",
    "Serializer",
    "ShareGroupOffset",
    "ShareConsumer",
    "ShareConsumerSettings",
    "ShareRecord",
    "StickyAssignor",
    "TokenProvider",
    "TopicPartition",
    "TopicInfo",
    "TopicResult",
    "UserResult",
    "UserScramCredentialDeletion",
    "UserScramCredentialUpsertion",
    "UserScramCredentials",
    "run",
]

#: Modules that are imported when a program first uses one of their names, the smallest first.
_LATER: Final = (
    "producer.receipts",
    "producer.producer",
    "shares.records",
    "shares.consumer",
    "admin.types",
    "admin.acls",
    "admin.quotas",
    "admin.users",
    "admin.admin",
)

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import the admin or the producer when a program first uses one of their names (PEP 562).

        A consumer needs neither, and both together take as long to import as the consumer.
        """
        if name in __all__:
            for module in _LATER:
                found = vars(import_module(f"{__name__}.{module}")).get(name)
                if found is not None:
                    return globals().setdefault(name, found)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__():
        """List these names as well, for completion in a shell."""
        return sorted({*globals(), *__all__})
