"""What a handler knows about the request it answers, and the services it may use."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas_broker.config.config import Config
from barnabas_broker.groups.coordinator.partitions import GroupPartitions
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.server.server import Peer

if TYPE_CHECKING:
    from barnabas_broker.cluster.metadata import ClusterMetadata
    from barnabas_broker.replication.manager import ReplicaManager
    from barnabas_broker.replication.sessions import FetchSessionCache


@dataclass(slots=True)
class Services:
    """What the broker consists of. Wired once, in the composition root."""

    config: Config
    node_id: int
    cluster: "ClusterMetadata"
    replicas: "ReplicaManager"
    fetch_sessions: "FetchSessionCache"
    groups: GroupCoordinator
    group_partitions: GroupPartitions
    wall_ms: Callable[[], int]


@dataclass(slots=True)
class RequestContext:
    """One request: who asks, in which version, and what may be used to answer.

    Attributes:
        services: the broker's parts.
        peer: the connection's other end.
        version: the version of the API that the client speaks.
        client_id: what the client calls itself, "" if nothing.
        principal: whom the client was authenticated as.
    """

    services: Services
    peer: Peer
    version: int
    client_id: str
    principal: str = "User:ANONYMOUS"

    @property
    def listener(self) -> str:
        """The name of the listener that the client came in by."""
        return self.peer.listener
