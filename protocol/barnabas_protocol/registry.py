"""Which API has which key, and where its messages are declared. A module is imported when its API is first used.

Versions are stated once, on the message classes of :mod:`barnabas_protocol.messages`; everything that needs a range
reads it there.
"""

from enum import IntEnum
from functools import cache
from importlib import import_module
from typing import NamedTuple

from barnabas_protocol.schema import Request, Response, Versions


class ApiKey(IntEnum):
    """The APIs whose messages are declared here. A member's name in lower case is its module in `apis`."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


class Api(NamedTuple):
    """The two messages of an API."""

    request: type[Request]
    response: type[Response]

    @property
    def versions(self) -> Versions:
        """The versions that are declared, the same for both messages."""
        return self.request.VERSIONS


@cache
def api(key: ApiKey) -> Api:
    """The messages of an API."""
    name = key.name.lower()
    module = import_module(f"barnabas_protocol.messages.{name}")
    camel = "".join(part.capitalize() for part in name.split("_"))
    return Api(getattr(module, f"{camel}Request"), getattr(module, f"{camel}Response"))
