"""AddOffsetsToTxn (key 25), versions 0-4, flexible from 3.

Adds the partition of ``__consumer_offsets`` of a group to a transaction, for offsets that are committed in it.
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, Api, Request, Response, field


class AddOffsetsToTxnRequest(Request, api_key=25, versions="0-4", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    group_id: str = field(STRING)


class AddOffsetsToTxnResponse(Response, api_key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)


API: Final = Api(AddOffsetsToTxnRequest, AddOffsetsToTxnResponse)
