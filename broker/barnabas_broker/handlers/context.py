"""Context of a handler: the request that it answers, and the services that it may use."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.conditions import Conditions
from barnabas_broker.config import Config
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.sightings import ClientAddress
from barnabas_broker.handlers.partition_lists import PartitionLists
from barnabas_broker.handlers.refused_batches import RefusedBatches
from barnabas_broker.quotas.clients import ClientQuotas, MutationQuota
from barnabas_broker.regexes import RegexSearch
from barnabas_broker.replication.fetch_sessions import FetchSessionCache
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.security.audit import Audit, Change
from barnabas_broker.security.authorizer import Access, Authorizer
from barnabas_broker.security.principals import ANONYMOUS, Principal
from barnabas_broker.server.certificates import Certificates
from barnabas_broker.server.connection import Peer
from barnabas_broker.server.limits import Limits
from barnabas_broker.server.memory_pool import Budget
from barnabas_broker.server.refusals import Feature, Refusals
from barnabas_broker.share_partitions.service import SharePartitions
from barnabas_broker.shares.persister import SharePersister
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.slicer import Slicer, Work
from barnabas_broker.steps import Steps
from barnabas_broker.telemetry import TelemetryClients
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.api_versions import ApiVersion

T = TypeVar("T")


@dataclass(slots=True)
class Services:
    """The parts of the broker that handlers use. The composition root builds them.

    Attributes:
        config: the broker's configuration.
        node_id: the broker's id.
        cluster: the cluster image and the way to change it.
        replicas: the partitions of this broker.
        fetch_sessions: the incremental fetch sessions (KIP-227).
        groups: the group coordinator.
        group_partitions: loads and unloads the coordinator's partitions.
        transactions: the transaction coordinator.
        transaction_partitions: loads and unloads its partitions.
        shares: the share coordinator, which keeps the state of share partitions.
        share_partitions: loads and unloads its partitions.
        persister: reads and writes that state, wherever its coordinator is.
        queues: the share partitions of this broker: what share groups fetch from.
        quotas: the quotas of users and clients.
        telemetry: the clients that push metrics.
        now: a monotonic clock in seconds, for the quotas.
        wall_ms: the time of day, in ms since 1970.
        regexes: matches names with the regular expressions of clients.
        slicer: runs what takes long, a slice in each turn of the event loop.
        responses: counts the bytes of responses that are not sent.
        api_versions: what ApiVersions answers, in ascending order of the keys.
        refusals: warns about what is not served.
        audit: writes to the audit log what clients repeat.
        authorizer: decides what clients may do; None if all may do everything.
        certificates: those of the listeners that speak TLS; None without any.
        limits: reads the limits of connections; None without listeners.
        conditions: what the broker cannot do now.
        partition_lists: the encoded partitions of large topics, for Metadata.
        refused_batches: those of idempotent producers that were refused for now.
    """

    config: Config
    node_id: int
    cluster: ClusterMetadata
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    group_partitions: CoordinatorPartitions
    transactions: TransactionCoordinator
    transaction_partitions: CoordinatorPartitions
    shares: ShareCoordinator
    share_partitions: CoordinatorPartitions
    persister: SharePersister
    queues: SharePartitions
    quotas: ClientQuotas
    telemetry: TelemetryClients
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    regexes: RegexSearch
    slicer: Slicer
    responses: Budget
    api_versions: list[ApiVersion]
    refusals: Refusals
    audit: Audit
    authorizer: Authorizer | None = None
    certificates: Certificates | None = None
    limits: Limits | None = None
    conditions: Conditions = field(default_factory=Conditions)
    partition_lists: PartitionLists = field(default_factory=PartitionLists)
    refused_batches: RefusedBatches = field(default_factory=RefusedBatches)


@dataclass(slots=True)
class RequestContext:
    """One request: the client, the version, and the services.

    Attributes:
        services: the broker's parts.
        peer: the client's end of the connection.
        version: the version of the API in the request.
        client_id: the client id in the request's header, "" if there is none.
        access: the client's permissions. None if no authorizer is configured: the client may then do everything.
        caller: the client, for the group coordinator; made for the first of its requests.
    """

    services: Services
    peer: Peer
    version: int
    client_id: str
    access: Access | None
    caller: Caller | None = None

    def sliced(self, steps: Steps[T]) -> Work[T]:
        """Run steps for the client, some in each of its turns: a future of their result."""
        return self.services.slicer.enqueue(steps, self.peer)

    def allows(self, operation: AclOperation, resource: AclResourceType, name: str, *, audit: bool = True) -> bool:
        """Whether the client may carry out an operation on a resource. A refusal is audited, unless it is not one."""
        access = self.access
        return access is None or access.allows(operation, resource, name, audit=audit)

    def allows_on_cluster(self, operation: AclOperation, *, audit: bool = True) -> bool:
        """Whether the client may carry out an operation on the cluster."""
        return self.allows(operation, AclResourceType.CLUSTER, CLUSTER_NAME, audit=audit)

    def require_on_cluster(self, operation: AclOperation) -> None:
        """Check that the client may carry out an operation on the cluster.

        Raises:
            KafkaError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.allows_on_cluster(operation):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")

    def mutation_quota(self, strict_since: int) -> MutationQuota:
        """The client's quota of creations and deletions; more is refused from version `strict_since` on."""
        strict = self.version >= strict_since
        return MutationQuota(self.services.quotas.mutations, self.principal.name, self.client_id, strict=strict)

    @property
    def principal(self) -> Principal:
        """The principal of the client."""
        return self.peer.principal

    def changed(self, change: Change, **what: object) -> None:
        """Write to the audit log that the client has changed something. The row of the API names the change."""
        self.services.audit.changed(self.principal, self.peer.host, change, **what, **self.by)

    def warn_not_served(self, feature: Feature) -> None:
        """Log, once for this client, that it asks for something that the broker does not serve."""
        self.services.refusals.warn(feature, self.peer.host, self.client_id)

    @property
    def client(self) -> ClientAddress:
        """The client, as the coordinators see it."""
        return ClientAddress(self.client_id, f"/{self.peer.host}")

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the client's connection."""
        return self.peer.listener

    @property
    def by(self) -> dict[str, str]:
        """The client, for the log lines of changes that it asked for."""
        by = {"client_id": self.client_id, "peer": str(self.peer)}
        return by if self.principal == ANONYMOUS else {"principal": str(self.principal), **by}
