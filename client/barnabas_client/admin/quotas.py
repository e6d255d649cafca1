"""The requests about quotas (KIP-546), and what responses mean. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas_client.admin.refusals import failure
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterEntryData,
    OpData,
)
from barnabas_protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
)

#: The types of entities.
QUOTA_ENTITY_TYPES: Final = ("user", "client-id", "ip")
_EXACT, _DEFAULT, _ANY = 0, 1, 2


@dataclass(frozen=True, slots=True)
class ClientQuotas:
    """The quotas of a user, a client, a client of a user, or an address.

    Attributes:
        entity: its names by type, "user", "client-id" or "ip"; None for all that have no quota of their own.
        values: its quotas by key, "producer_byte_rate" for instance.
    """

    entity: dict[str, str | None]
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class ClientQuotaAlteration:
    """Sets and removes quotas of one entity.

    Args:
        entity: its names by type, "user", "client-id" or "ip"; None for all that have no quota of their own.
        values: the new quotas by key; None removes one.

    Raises:
        ValueError: the entity is empty, or has an unknown type.
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float | None]

    def __post_init__(self) -> None:
        check_entity(self.entity)


@dataclass(frozen=True, slots=True)
class ClientQuotaResult:
    """The result of changing the quotas of an entity.

    Attributes:
        entity: its names by type.
        error: None if they were changed.
    """

    entity: dict[str, str | None] = field(default_factory=dict)
    error: KafkaError | None = None


def check_entity(entity: Mapping[str, str | None]) -> None:
    """Check an entity.

    Raises:
        ValueError: it is empty, or has an unknown type.
    """
    wrong = [kind for kind in entity if kind not in QUOTA_ENTITY_TYPES]
    if wrong or not entity:
        given = f"has the type {wrong[0]!r}" if wrong else "is empty"
        raise ValueError(f"the entity {given}: give names for {', '.join(QUOTA_ENTITY_TYPES)}")


def shown_entity(entity: Mapping[str, str | None]) -> str:
    """An entity for people."""
    names = sorted(entity.items(), key=lambda item: QUOTA_ENTITY_TYPES.index(item[0]))
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name!r}" for kind, name in names)


def describe_quotas_request(
    entity: Mapping[str, str | None], any_of: Iterable[str], *, strict: bool
) -> DescribeClientQuotasRequest:
    """The request for quotas. The arguments are those of :meth:`.Admin.describe_client_quotas`."""
    components = [
        ComponentData(entity_type=kind, match_type=_DEFAULT if name is None else _EXACT, match=name)
        for kind, name in entity.items()
    ]
    components += [ComponentData(entity_type=kind, match_type=_ANY, match=None) for kind in any_of]
    return DescribeClientQuotasRequest(components=components, strict=strict)


def described_quotas(response: DescribeClientQuotasResponse) -> list[ClientQuotas]:
    """The quotas of each entity, by type and name."""
    found = [
        ClientQuotas(
            {part.entity_type: part.entity_name for part in entry.entity},
            dict(sorted((value.key, value.value) for value in entry.values)),
        )
        for entry in response.entries or ()
    ]
    return sorted(found, key=lambda one: sorted((kind, name is None, name or "") for kind, name in one.entity.items()))


def alter_quotas_request(
    alterations: Iterable[ClientQuotaAlteration], *, validate_only: bool
) -> AlterClientQuotasRequest:
    """The request that changes quotas."""
    return AlterClientQuotasRequest(
        entries=[
            AlterEntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one.entity.items()],
                ops=[
                    OpData(key=key, value=0.0 if value is None else float(value), remove=value is None)
                    for key, value in one.values.items()
                ],
            )
            for one in alterations
        ],
        validate_only=validate_only,
    )


def altered_quotas(response: AlterClientQuotasResponse) -> list[ClientQuotaResult]:
    """The result for each entity."""
    results = []
    for one in response.entries:
        entity = {part.entity_type: part.entity_name for part in one.entity}
        names = ", ".join(f"{kind} {name!r}" for kind, name in entity.items())
        results.append(ClientQuotaResult(entity, failure(one, f"change quotas of {names}")))
    return results
