"""Entities that have quotas, and the keys of quotas. Pure.

Sources: ``org.apache.kafka.common.quota.ClientQuotaEntity``, ``org.apache.kafka.server.config.QuotaConfig``.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

#: A user, a client, a client of a user, or an address: the types with their names, by type, ascending. The name None
#: stands for all that have no quota of their own.
QuotaEntity = tuple[tuple[str, str | None], ...]


class QuotaKey(StrEnum):
    """Resource that a quota limits."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


#: The largest value of keys that are whole numbers.
WHOLE: Final[Mapping[QuotaKey, tuple[int, str]]] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: (2**63 - 1, "a LONG"),
        QuotaKey.CONSUMER_BYTE_RATE: (2**63 - 1, "a LONG"),
        QuotaKey.CONNECTION_CREATION_RATE: (2**31 - 1, "an INT"),
    }
)

#: The quotas of each entity.
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


def entity_of(names: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """An entity of types and names; of a type that is given twice, the last name counts."""
    return tuple(sorted(dict(names).items()))


def describe(entity: QuotaEntity) -> str:
    """An entity as Kafka writes it."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity) + "}"
