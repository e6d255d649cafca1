"""The table of all APIs that the broker serves: the rows (``ROUTES``) of the handler modules, joined and checked.

Every API whose messages are declared (:data:`~barnabas_protocol.apis.APIS`) is served. A new one needs its message,
its handler and the handler's row; if one of them is missing, the broker does not start and names it.
"""

from collections.abc import Iterable
from types import ModuleType
from typing import Final

from barnabas_broker.handlers import (
    api_versions,
    configs,
    consumer_groups,
    envelopes,
    features,
    fetch,
    groups,
    list_offsets,
    log_dirs,
    markers,
    metadata,
    produce,
    producers,
    quotas,
    reassignments,
    security,
    share_acknowledge,
    share_fetch,
    share_groups,
    shares,
    telemetry,
    topics,
    transactions,
    users,
)
from barnabas_broker.handlers.dispatch import Route
from barnabas_protocol.apis import APIS
from barnabas_protocol.registry import ApiKey

MODULES: Final = (
    produce,
    fetch,
    list_offsets,
    metadata,
    groups,
    consumer_groups,
    topics,
    configs,
    reassignments,
    log_dirs,
    security,
    producers,
    transactions,
    share_groups,
    shares,
    share_fetch,
    share_acknowledge,
    users,
    quotas,
    markers,
    envelopes,
    features,
    telemetry,
    api_versions,
)


#: What needs no permission; every other row says what it authorizes.
PUBLIC: Final = frozenset(
    {
        ApiKey.API_VERSIONS,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
        ApiKey.PUSH_TELEMETRY,
    }
)


#: What brokers ask of each other alone, and ApiVersions does not list; Kafka lists it on its controllers only.
BETWEEN_BROKERS: Final = frozenset({ApiKey.ENVELOPE})


class TableError(Exception):
    """The rows of the handlers do not make a table; the text names the API or the module."""


def join(modules: Iterable[ModuleType] = MODULES, declared: Iterable[ApiKey] = APIS) -> dict[ApiKey, Route]:
    """Join the rows of the handler modules.

    Args:
        modules: each has its rows in ``ROUTES``.
        declared: the APIs that must have a row, no more and no less.

    Raises:
        TableError: a module has no rows, or an API has none, more than one, is not declared, or authorizes nothing.
    """
    declared = frozenset(declared)
    table: dict[ApiKey, Route] = {}
    found: dict[ApiKey, str] = {}
    for module in modules:
        rows: tuple[Route, ...] = getattr(module, "ROUTES", ())
        if not rows:
            raise TableError(f"{module.__name__} has no row: declare the APIs that it serves in ROUTES")
        for route in rows:
            if route.key in table:
                raise TableError(
                    f"{route.key.name} has two rows: in {found[route.key]} and in {module.__name__}; remove one"
                )
            if route.key not in declared:
                raise TableError(f"{route.key.name} has a row in {module.__name__}, but its messages are not declared")
            if not route.authorizes and route.key not in PUBLIC:
                raise TableError(
                    f"{route.key.name} authorizes nothing: state in its row in {module.__name__} what it requires"
                )
            table[route.key], found[route.key] = route, module.__name__
    missing = sorted(key for key in declared if key not in table)
    if missing:
        names = ", ".join(key.name for key in missing)
        raise TableError(f"{names}: no handler has a row for it; add one to ROUTES of a module of {__package__}")
    return table
