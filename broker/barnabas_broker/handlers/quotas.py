"""Quotas of users, clients and addresses are described, set and removed (KIP-546).

Deviation: at most :data:`MOST_CHANGES` quotas change with one request; Kafka accepts 10,000.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import QuotaAlteration
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.quotas import ClientQuotaSet, QuotaEvent
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, stepwise
from barnabas_broker.quotas.entities import CLIENT_ID, IP, USER, QuotaEntity, describe, entity_of
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredEntryData,
    AlterEntryData,
)
from barnabas_protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey

#: Quotas that one request may change, and entities that it may name.
MOST_CHANGES: Final = 1000
#: Parts of an entity in a request; valid ones have one or two.
MOST_PARTS: Final = 16
#: How a component of a filter matches.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class QuotaFilter:
    """Finds entities.

    Attributes:
        names: the name that an entity must have for a type; None for the default.
        types: the types of which it must have any.
        strict: whether it must have no others.
    """

    names: Mapping[str, str | None]
    types: frozenset[str]
    strict: bool

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether `entity` is found."""
        names = dict(entity)
        return (
            not (self.strict and len(names) != len(self.names) + len(self.types))
            and all(kind in names and names[kind] == name for kind, name in self.names.items())
            and self.types <= names.keys()
        )


def read_filter(components: Iterable[ComponentData], *, strict: bool) -> QuotaFilter:
    """Read a filter, as Kafka's ``ClientQuotasImage`` does.

    Raises:
        KafkaError: it is not valid.
    """
    names: dict[str, str | None] = {}
    types: set[str] = set()
    for one in components:
        kind = one.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in names or kind in types:
            message = f"Entity type {kind} cannot appear more than once in the filter."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        if kind not in (USER, CLIENT_ID, IP):
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        _add(one, names, types)
    given = names.keys() | types
    if IP in given and len(given) > 1:
        message = (
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    return QuotaFilter(names, frozenset(types), strict)


def _add(one: ComponentData, names: dict[str, str | None], types: set[str]) -> None:
    """Add what a component asks for.

    Raises:
        KafkaError: it is not valid.
    """
    if one.match_type == _EXACT:
        if one.match is None:
            message = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        names[one.entity_type] = one.match
        return
    if one.match_type not in (_DEFAULT, _SPECIFIED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {one.match_type}")
    if one.match is not None:
        title = "DEFAULT" if one.match_type == _DEFAULT else "SPECIFIED"
        message = f"Request specified MATCH_TYPE_{title}, but also specified a match string."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if one.match_type == _DEFAULT:
        names[one.entity_type] = None
    else:
        types.add(one.entity_type)


@stepwise
def handle_describe_client_quotas(
    context: RequestContext, request: DescribeClientQuotasRequest
) -> Steps[DescribeClientQuotasResponse]:
    """Answer DescribeClientQuotas: the quotas of the entities that the filter finds."""
    try:
        context.require_on_cluster(acls.DESCRIBE_CONFIGS)
        wanted = read_filter(request.components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(
            throttle_time_ms=0, error_code=error.code, error_message=error.message, entries=None
        )
    entries = []
    for entity, values in context.services.cluster.image.quotas.items():
        yield
        if wanted.matches(entity):
            entries.append(
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
                    values=[ValueData(key=key, value=value) for key, value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message="", entries=entries
    )


@stepwise
def handle_alter_client_quotas(context: RequestContext, request: AlterClientQuotasRequest) -> Steps[Handled]:
    """Answer AlterClientQuotas, each entity on its own."""
    try:
        context.require_on_cluster(acls.ALTER_CONFIGS)
        _check_size(request)
    except KafkaError as error:
        refused = error.kept()
        return AlterClientQuotasResponse(
            throttle_time_ms=0,
            entries=(yield from each(request.entries, lambda one: _result(_entity(one), refused))),
        )
    return _alter(context, request)


def _check_size(request: AlterClientQuotasRequest) -> None:
    """Check that a request can be decided on at once.

    Raises:
        KafkaError: it is too large.
    """
    entries = request.entries
    if len(entries) > MOST_CHANGES or sum(len(one.ops) for one in entries) > MOST_CHANGES:
        message = f"At most {MOST_CHANGES} quotas may change with one request"
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
    if any(len(one.entity) > MOST_PARTS for one in entries):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"An entity has at most {MOST_PARTS} parts")


async def _alter(context: RequestContext, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse:
    alterations = [
        QuotaAlteration(_entity(one), [(op.key, None if op.remove else op.value) for op in one.ops])
        for one in request.entries
    ]
    changed: list[QuotaEvent] = []

    def decide(image: Image) -> tuple[Sequence[Event], dict[QuotaEntity, KafkaError | None]]:
        nonlocal changed
        changed, outcome = controller.alter_quotas(image, alterations)
        return ([] if request.validate_only else changed), outcome

    try:
        outcome = await context.services.cluster.change(decide)
    except KafkaError as error:
        outcome = dict.fromkeys((each.entity for each in alterations), error.kept())
    else:
        if not request.validate_only:
            for event in changed:
                _log(context, event)
    return AlterClientQuotasResponse(
        throttle_time_ms=0, entries=[_result(entity, error) for entity, error in outcome.items()]
    )


def _log(context: RequestContext, event: QuotaEvent) -> None:
    entity = printable(describe(event.entity))
    if isinstance(event, ClientQuotaSet):
        context.changed(Change.QUOTA_SET, entity=entity, key=event.key, value=event.value)
    else:
        context.changed(Change.QUOTA_REMOVED, entity=entity, key=event.key)


def _entity(one: AlterEntryData) -> QuotaEntity:
    return entity_of((part.entity_type, part.entity_name) for part in one.entity[:MOST_PARTS])


def _result(entity: QuotaEntity, error: KafkaError | None) -> AlteredEntryData:
    return AlteredEntryData(
        error_code=ErrorCode.NONE if error is None else error.code,
        error_message=None if error is None else error.message or None,
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
    )


ROUTES: Final = (
    Route(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, handle_describe_client_quotas, (requires((acls.DESCRIBE_CONFIGS, acls.CLUSTER)),)
    ),
    Route(
        ApiKey.ALTER_CLIENT_QUOTAS,
        handle_alter_client_quotas,
        (requires((acls.ALTER_CONFIGS, acls.CLUSTER)),),
        changes=(Change.QUOTA_SET, Change.QUOTA_REMOVED),
    ),
)
