"""AddPartitionsToTxn (key 24), versions 0-5, flexible from 3.

Adds partitions to a transaction. Versions 4 and 5 are what brokers send to the coordinator (KIP-890): several
transactions, each verified or added. Version 5 is for transactions of version 2.
"""

from typing import Final

from barnabas_protocol.schema import BOOLEAN, INT16, INT32, INT64, STRING, Api, Request, Response, Struct, array, field


class AddPartitionsToTxnTopic(Struct):
    name: str = field(STRING)
    partitions: list[int] = field(array(INT32))


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: str = field(STRING, "4+", default="")
    producer_id: int = field(INT64, "4+", default=0)
    producer_epoch: int = field(INT16, "4+", default=0)
    verify_only: bool = field(BOOLEAN, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+", default=[])


class AddPartitionsToTxnRequest(Request, api_key=24, versions="0-5", flexible="3+"):
    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), "4+", default=[])
    v3_and_below_transactional_id: str = field(STRING, "0-3", default="")
    v3_and_below_producer_id: int = field(INT64, "0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "0-3", default=[])


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: int = field(INT32)
    partition_error_code: int = field(INT16)


class AddPartitionsToTxnTopicResult(Struct):
    name: str = field(STRING)
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(array(AddPartitionsToTxnPartitionResult))


class AddPartitionsToTxnResult(Struct):
    transactional_id: str = field(STRING, "4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult), "4+", default=[])


class AddPartitionsToTxnResponse(Response, api_key=24, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, "4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), "4+", default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3", default=[]
    )


API: Final = Api(AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
