"""Opens the quotas of users, clients and addresses, which follow the cluster image."""

from collections.abc import Sequence

from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.quotas import ClientQuotaRemoved, ClientQuotaSet
from barnabas_broker.config import Config
from barnabas_broker.config.keys import (
    CONTROLLER_QUOTA_WINDOW_NUM,
    CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS,
    QUOTA_WINDOW_NUM,
    QUOTA_WINDOW_SIZE_SECONDS,
)
from barnabas_broker.quotas.clients import ClientQuotas
from barnabas_broker.quotas.connections import ConnectionLimits, ConnectionQuotas
from barnabas_broker.quotas.rates import Window


def open_quotas(
    config: Config, cluster: ClusterMetadata, limits: ConnectionLimits
) -> tuple[ClientQuotas, ConnectionQuotas]:
    """The quotas of users and clients, and those of connections, which addresses have as well."""
    window = Window(config[QUOTA_WINDOW_NUM], config[QUOTA_WINDOW_SIZE_SECONDS])
    connections = ConnectionQuotas(limits, window)
    clients = ClientQuotas(
        window, Window(config[CONTROLLER_QUOTA_WINDOW_NUM], config[CONTROLLER_QUOTA_WINDOW_SIZE_SECONDS])
    )

    def change(image: Image, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, ClientQuotaSet | ClientQuotaRemoved):
                limit = image.quotas.get(event.entity, {}).get(event.key)
                clients.set(event.entity, event.key, limit)
                connections.set(event.entity, event.key, limit)

    cluster.feed(change)
    return clients, connections
