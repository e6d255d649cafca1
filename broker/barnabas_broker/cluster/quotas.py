"""The quotas in the cluster image: the events that change them, and their stored form. Pure.

Kafka's record for the same is ``ClientQuotaRecord``.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from barnabas_broker.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, QuotaKey, Quotas, entity_of

_TYPES: Final = frozenset((USER, CLIENT_ID, IP))


@dataclass(frozen=True, slots=True)
class ClientQuotaSet:
    """A quota of an entity was set, in place of the one before."""

    entity: QuotaEntity
    key: str
    value: float


@dataclass(frozen=True, slots=True)
class ClientQuotaRemoved:
    """An entity has no quota for this key any more."""

    entity: QuotaEntity
    key: str


QuotaEvent = ClientQuotaSet | ClientQuotaRemoved
QUOTA_EVENTS: Final = frozenset(each.__name__ for each in (ClientQuotaSet, ClientQuotaRemoved))


def quota_difference(old: Quotas, new: Quotas) -> Iterator[QuotaEvent]:
    """Events that turn `old` into `new`."""
    for entity, values in old.items():
        left = new.get(entity, {})
        yield from (ClientQuotaRemoved(entity, key) for key in values if key not in left)
    for entity, values in new.items():
        had = old.get(entity, {})
        yield from (ClientQuotaSet(entity, key, value) for key, value in values.items() if had.get(key) != value)


# The stored form


def quota_event_to_fields(event: QuotaEvent) -> dict[str, Any]:
    """The fields of an event."""
    fields: dict[str, Any] = {"entity": dict(event.entity), "key": event.key}
    if isinstance(event, ClientQuotaSet):
        # JSON has no infinity.
        fields["value"] = event.value if math.isfinite(event.value) else str(event.value)
    return fields


def quota_event_from_fields(name: str, fields: Mapping[str, Any]) -> QuotaEvent:
    """Read what :func:`quota_event_to_fields` wrote.

    Args:
        name: of the event, one of :data:`QUOTA_EVENTS`.
        fields: of the event.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: the fields are not those of the event.
    """
    entity = entity_of(fields["entity"].items())
    if not entity or not all(kind in _TYPES and isinstance(each, str | None) for kind, each in entity):
        raise ValueError(f"the entity of a quota is {fields['entity']!r}")
    key = QuotaKey(fields["key"]).value
    if name == ClientQuotaRemoved.__name__:
        return ClientQuotaRemoved(entity, key)
    value = float(fields["value"])
    if not value > 0:
        raise ValueError(f"a quota is {value}")
    return ClientQuotaSet(entity, key, value)
