"""ListTransactions (key 66), versions 0-2, flexible from 0.

Lists the transactions that the broker coordinates (KIP-664). Version 1 filters by duration (KIP-994), version 2 by a
pattern of transactional ids (KIP-1152).
"""

from typing import Final

from barnabas_protocol.schema import INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class ListTransactionsRequest(Request, api_key=66, versions="0-2", flexible="0+"):
    state_filters: list[str] = field(array(STRING))
    producer_id_filters: list[int] = field(array(INT64))
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


class TransactionListing(Struct):
    transactional_id: str = field(STRING)
    producer_id: int = field(INT64)
    transaction_state: str = field(STRING)


class ListTransactionsResponse(Response, api_key=66, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    unknown_state_filters: list[str] = field(array(STRING))
    transaction_states: list[TransactionListing] = field(array(TransactionListing))


API: Final = Api(ListTransactionsRequest, ListTransactionsResponse)
