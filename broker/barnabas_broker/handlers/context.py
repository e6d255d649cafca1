"""What a handler knows about the request that it answers, and the services that it may use."""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import Config
from barnabas_broker.groups.coordinator.partitions import GroupPartitions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.replication.sessions import FetchSessionCache
from barnabas_broker.server.connection import Peer
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
        wall_ms: the time of day, in ms since 1970.
        api_versions: what ApiVersions answers, in ascending order of the keys.
    """

    config: Config
    node_id: int
    cluster: ClusterMetadata
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinator
    group_partitions: GroupPartitions
    wall_ms: Callable[[], int]
    api_versions: list[ApiVersion]


@dataclass(slots=True)
class RequestContext:
    """One request: the client, the version, and the services.

    Attributes:
        services: the broker's parts.
        peer: the client's end of the connection.
        version: the version of the API in the request.
        client_id: the client id in the request's header, "" if there is none.
        principal: the principal that the client was authenticated as.
    """

    services: Services
    peer: Peer
    version: int
    client_id: str
    principal: str = "User:ANONYMOUS"

    @property
    def listener(self) -> str:
        """The name of the listener that accepted the client's connection."""
        return self.peer.listener
