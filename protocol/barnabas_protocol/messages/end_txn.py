"""EndTxn (key 26), versions 0-5, flexible from 3.

Commits or aborts a transaction. Version 5 is for transactions of version 2 (KIP-890): the answer has the producer id
and epoch of the next transaction.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Api, Request, Response, field


class EndTxnRequest(Request, api_key=26, versions="0-5", flexible="3+"):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    committed: bool = field(BOOLEAN)


class EndTxnResponse(Response, api_key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)


API: Final = Api(EndTxnRequest, EndTxnResponse)
