"""Changes of quotas, as Kafka's ``ClientQuotaControlManager`` decides them. Pure.

Deviations: NaN is refused, which Kafka takes for a number above 0; an address must be a number, Kafka also looks up
names; names have at most :data:`LONGEST` bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.quotas import ClientQuotaRemoved, ClientQuotaSet, QuotaEvent
from barnabas_broker.quotas.entities import CLIENT_ID, IP, USER, WHOLE, QuotaEntity, QuotaKey, describe
from barnabas_protocol.errors import ErrorCode, KafkaError

#: Maximum bytes of a name; Kafka has no bound.
LONGEST: Final = 1024
#: How far a whole number may be from one.
_WHOLE: Final = 1e-6
_OF_ADDRESSES: Final = frozenset((QuotaKey.CONNECTION_CREATION_RATE,))
_OF_CLIENTS: Final = frozenset(QuotaKey) - _OF_ADDRESSES


@dataclass(frozen=True, slots=True)
class QuotaAlteration:
    """Changes of the quotas of an entity: the new value by key, None to remove it."""

    entity: QuotaEntity
    ops: Sequence[tuple[str, float | None]]


def alter_quotas(
    image: Image, alterations: Sequence[QuotaAlteration]
) -> tuple[list[QuotaEvent], dict[QuotaEntity, KafkaError | None]]:
    """Change quotas, each entity on its own: of one that is given twice, the first change counts, and is reported as
    refused, as in Kafka.

    Returns:
        The events, and for each entity the error; None without.
    """
    events: list[QuotaEvent] = []
    outcome: dict[QuotaEntity, KafkaError | None] = {}
    for each in alterations:
        keys = [key for key, _ in each.ops]
        if each.entity in outcome or len(set(keys)) < len(keys):
            outcome[each.entity] = _refused(
                f"Ignoring duplicate entity ClientQuotaEntity(entries={describe(each.entity)})"
            )
            continue
        try:
            events += _events(image, each)
            outcome[each.entity] = None
        except KafkaError as error:
            outcome[each.entity] = error.kept()
    return events, outcome


def _events(image: Image, alteration: QuotaAlteration) -> list[QuotaEvent]:
    """The events of a change.

    Raises:
        KafkaError: the change is refused.
    """
    entity = alteration.entity
    keys = _keys_of(entity)
    current = image.quotas.get(entity, {})
    events: list[QuotaEvent] = []
    for key, value in alteration.ops:
        if value is None:
            if key in current:
                events.append(ClientQuotaRemoved(entity, key))
            continue
        _check(keys, key, value)
        if current.get(key) != value:
            events.append(ClientQuotaSet(entity, key, value))
    return events


def _keys_of(entity: QuotaEntity) -> frozenset[QuotaKey]:
    """The keys that an entity may have.

    Raises:
        KafkaError: there is no such entity.
    """
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for kind, name in entity:
        if kind not in (USER, CLIENT_ID, IP):
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
        if name is not None and len(name.encode("utf-8", "replace")) > LONGEST:
            raise _refused(f"The name of a {kind} must have at most {LONGEST} bytes")
    names = dict(entity)
    if IP not in names:
        return _OF_CLIENTS
    if len(names) > 1:
        raise _refused("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    address = names[IP]
    if address is not None:
        try:
            ip_address(address)
        except ValueError:
            raise _refused(f"{address} is not a valid IP or resolvable host.") from None
    return _OF_ADDRESSES


def _check(keys: frozenset[QuotaKey], key: str, value: float) -> None:
    """Check a quota.

    Raises:
        KafkaError: the entity may not have this key, or the key not this value.
    """
    if key not in keys:
        raise _refused(f"Invalid configuration key {key}")
    if not 0 < value < math.inf:
        raise _refused(f"Quota {key} must be greater than 0, and finite")
    whole = WHOLE.get(QuotaKey(key))
    if whole is None:
        return
    most, kind = whole
    if value > float(most):
        raise _refused(f"Proposed value for {key} is too large for {kind}.")
    if math.fmod(value, 1.0) > _WHOLE:
        raise _refused(f"{key} cannot be a fractional value.")


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
