"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups of the consumer protocol (KIP-848)."""

from typing import Final

from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.groups import handler_for
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_protocol.registry import ApiKey

ROUTES: Final = (
    Route(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        handler_for(GroupCoordinator.consumer_heartbeat),
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the request names topics"),
        ),
    ),
    Route(
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        handler_for(GroupCoordinator.consumer_describe),
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the response names topics"),
        ),
    ),
)
