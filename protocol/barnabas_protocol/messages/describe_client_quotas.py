"""DescribeClientQuotas (key 48), versions 0-1, flexible from 1.

Lists the quotas of users and clients that match a filter (KIP-546).
"""

from typing import Final

from barnabas_protocol.schema import (
    BOOLEAN,
    FLOAT64,
    INT8,
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


class ComponentData(Struct):
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(STRING, nullable="0+")


class DescribeClientQuotasRequest(Request, api_key=48, versions="0-1", flexible="1+"):
    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOLEAN)


class EntityData(Struct):
    entity_type: str = field(STRING)
    entity_name: str | None = field(STRING, nullable="0+")


class ValueData(Struct):
    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


class DescribeClientQuotasResponse(Response, api_key=48, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable="0+")
    entries: list[EntryData] | None = field(array(EntryData), nullable="0+")


API: Final = Api(DescribeClientQuotasRequest, DescribeClientQuotasResponse)
