"""What a handler knows about the request that it answers, and the services that it may use."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.lane import Lane
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.sessions import FetchSessionCache
from barnabas_broker.security.principals import Principal
from barnabas_broker.server.budget import Budget
from barnabas_broker.server.connection import Peer
from barnabas_broker.server.refusals import Feature, Refusals
from barnabas_broker.transactions.coordinator import TransactionCoordinator
from barnabas_protocol.messages.api_versions import ApiVersion


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
        wall_ms: the time of day, in ms since 1970.
        lane: runs what takes long, a slice at a time.
        responses: counts the bytes of responses that are not sent.
        api_versions: what ApiVersions answers, in ascending order of the keys.
        refusals: warns about what is not served.
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
    wall_ms: Callable[[], int]
    lane: Lane
    responses: Budget
    api_versions: list[ApiVersion]
    refusals: Refusals


@dataclass(slots=True)
class RequestContext:
    """One request: the client, the version, and the services.

    Attributes:
        services: the broker's parts.
        peer: the client's end of the connection.
        version: the version of the API in the request.
        client_id: the client id in the request's header, "" if there is none.
    """

    services: Services
    peer: Peer
    version: int
    client_id: str

    @property
    def principal(self) -> Principal:
        """Who the client is."""
        return self.peer.principal

    def warn_not_served(self, feature: Feature) -> None:
        """Log, once for this client, that it asks for something that the broker does not serve."""
        self.services.refusals.warn(feature, self.peer.host, self.client_id)

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the client's connection."""
        return self.peer.listener

    @property
    def by(self) -> dict[str, str]:
        """The client, for the log lines of changes that it asked for."""
        return {"client_id": self.client_id, "peer": str(self.peer)}
