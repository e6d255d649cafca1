"""Which APIs are served, and in which module their handlers are. A module is imported when one of its APIs is first
asked for: a broker that has just begun answers sooner.

What is served is known without them, for ApiVersions is what nearly every client asks first. Minimums are low on
purpose: some clients look for them (see each API's module).
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from typing import Final

from barnabas_broker.handlers import api_versions
from barnabas_broker.handlers.dispatch import Route
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Versions

#: A module of this package and the keys of its ``ROUTES``.
_MODULES: Final = {
    "produce": (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID),
    "fetch": (ApiKey.FETCH,),
    "offsets": (ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS, ApiKey.OFFSET_FOR_LEADER_EPOCH),
    "metadata": (ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.DESCRIBE_CLUSTER),
    "groups": (
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.OFFSET_DELETE,
    ),
    "topics": (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS, ApiKey.CREATE_PARTITIONS),
    "configs": (
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.LIST_CONFIG_RESOURCES,
    ),
    "leaders": (ApiKey.ELECT_LEADERS, ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.LIST_PARTITION_REASSIGNMENTS),
    "descriptions": (ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_TOPIC_PARTITIONS, ApiKey.ALTER_REPLICA_LOG_DIRS),
    "security": (
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ),
    "producers": (ApiKey.DESCRIBE_PRODUCERS, ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS),
}
#: The versions that are served, where these are not all that are declared.
_VERSIONS: Final = {ApiKey.FETCH: "4-18"}
_MODULE_OF: Final = {key: module for module, keys in _MODULES.items() for key in keys}


class Handlers(Mapping[ApiKey, Route]):
    """The table of handlers."""

    def __init__(self) -> None:
        self._api_versions = Route(api_versions.handler_for(self.served))

    def served(self) -> dict[ApiKey, Versions]:
        """The versions of each API that is served."""
        given = {key: Versions.of(versions) for key, versions in _VERSIONS.items()}
        return {key: given.get(key) or api(key).versions for key in self}

    def __getitem__(self, key: ApiKey) -> Route:
        if key == ApiKey.API_VERSIONS:
            return self._api_versions
        routes: Mapping[ApiKey, Route] = import_module(f"{__package__}.{_MODULE_OF[key]}").ROUTES
        return replace(routes[key], versions=_VERSIONS.get(key))

    def __contains__(self, key: object) -> bool:
        return key in _MODULE_OF or key == ApiKey.API_VERSIONS

    def __iter__(self) -> Iterator[ApiKey]:
        yield from _MODULE_OF
        yield ApiKey.API_VERSIONS

    def __len__(self) -> int:
        return len(_MODULE_OF) + 1
