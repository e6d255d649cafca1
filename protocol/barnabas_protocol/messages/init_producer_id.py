"""InitProducerId (key 22), versions 0-5, flexible from 2.

Assigns a producer id and epoch. From version 3 a producer may send those it has, to get a new epoch (KIP-360).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, Api, Request, Response, field


class InitProducerIdRequest(Request, api_key=22, versions="0-5", flexible="2+"):
    transactional_id: str | None = field(STRING, nullable="0+")
    transaction_timeout_ms: int = field(INT32)
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)


class InitProducerIdResponse(Response, api_key=22, versions="0-5", flexible="2+"):
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16)


API: Final = Api(InitProducerIdRequest, InitProducerIdResponse)
