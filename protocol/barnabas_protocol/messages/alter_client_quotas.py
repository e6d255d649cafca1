"""AlterClientQuotas (key 49), versions 0-1, flexible from 1.

Sets and removes the quotas of users, clients and IP addresses (KIP-546).
"""

from typing import Final

from barnabas_protocol.messages.describe_client_quotas import EntityData
from barnabas_protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    Api,
    Request,
    Response,
    Struct,
    array,
    field,
)


class OpData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)


class AlterEntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Request, api_key=49, versions="0-1", flexible="1+"):
    entries: list[AlterEntryData] = field(array(AlterEntryData))
    validate_only: bool = field(BOOLEAN)


class AlteredEntryData(Struct):
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(Response, api_key=49, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32)
    entries: list[AlteredEntryData] = field(array(AlteredEntryData))


API: Final = Api(AlterClientQuotasRequest, AlterClientQuotasResponse)
