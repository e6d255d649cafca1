"""Translates between the requests and responses about transactions and what :class:`~.admin.Admin` takes and returns.
Pure. Source: KIP-664, ``TransactionsCommand.java``.
"""

from collections.abc import Iterable
from typing import Final

from barnabas_client.admin.refusals import not_mentioned, refusal
from barnabas_client.admin.types import (
    FencedProducer,
    PartitionProducer,
    TransactionDescription,
    TransactionListing,
)
from barnabas_client.structs import PreparedTransaction, TopicPartition, by_topic
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicRequest,
)
from barnabas_protocol.messages.describe_transactions import DescribeTransactionsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.list_transactions import ListTransactionsResponse
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: Fencing begins no transaction, so its timeout does not matter; Kafka's admin client sends this as well.
_FENCING_TIMEOUT_MS: Final = 1


#: The newest version of EndTxn for a transaction of version 1.
_CLASSIC_END_TXN: Final = 4


def end_request(transaction: PreparedTransaction, *, committed: bool) -> tuple[EndTxnRequest, int | None]:
    """The request that ends a prepared transaction, and the newest version to send it in."""
    request = EndTxnRequest(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        committed=committed,
    )
    return request, _CLASSIC_END_TXN if transaction.version < 2 else None


def ended(transaction: PreparedTransaction, response: EndTxnResponse, *, committed: bool) -> bool | KafkaError:
    """True once the coordinator has decided it."""
    if response.error_code == ErrorCode.NONE:
        return True
    verb = "commit" if committed else "abort"
    return refusal(response.error_code, f"{verb} the prepared transaction of {transaction.transactional_id!r}")


def listed(node: int, response: ListTransactionsResponse) -> list[TransactionListing] | KafkaError:
    """The transactions that a broker coordinates."""
    what = f"list the transactions of broker {node}"
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, what)
    return [
        TransactionListing(one.transactional_id, one.producer_id, one.transaction_state, node)
        for one in response.transaction_states
    ]


def described(node: int, response: DescribeTransactionsResponse) -> dict[str, TransactionDescription | KafkaError]:
    """The transactions by their transactional ids."""
    found: dict[str, TransactionDescription | KafkaError] = {}
    for one in response.transaction_states:
        if one.error_code != ErrorCode.NONE:
            found[one.transactional_id] = refusal(one.error_code, f"describe transaction {one.transactional_id!r}")
            continue
        found[one.transactional_id] = TransactionDescription(
            transactional_id=one.transactional_id,
            state=one.transaction_state,
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            timeout_ms=one.transaction_timeout_ms,
            start_time_ms=None if one.transaction_start_time_ms < 0 else one.transaction_start_time_ms,
            partitions=tuple(
                sorted(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions)
            ),
            coordinator_id=node,
        )
    return found


def describe_producers_request(partitions: Iterable[TopicPartition]) -> DescribeProducersRequest:
    """The request for the producers of partitions."""
    return DescribeProducersRequest(
        topics=[
            DescribeProducersTopicRequest(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(partitions)
        ]
    )


def producers(response: DescribeProducersResponse) -> dict[TopicPartition, list[PartitionProducer] | KafkaError]:
    """The producers by partition."""
    found: dict[TopicPartition, list[PartitionProducer] | KafkaError] = {}
    for topic in response.topics:
        for one in topic.partitions:
            tp = TopicPartition(topic.name, one.partition_index)
            if one.error_code != ErrorCode.NONE:
                found[tp] = refusal(one.error_code, f"describe the producers of {tp}", one.error_message)
                continue
            found[tp] = [
                PartitionProducer(
                    producer_id=known.producer_id,
                    producer_epoch=known.producer_epoch,
                    last_sequence=known.last_sequence,
                    last_timestamp_ms=known.last_timestamp,
                    coordinator_epoch=known.coordinator_epoch,
                    transaction_start_offset=(
                        None if known.current_txn_start_offset < 0 else known.current_txn_start_offset
                    ),
                )
                for known in one.active_producers
            ]
    return found


def abort_request(
    tp: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> WriteTxnMarkersRequest:
    """The request for an ABORT marker."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        coordinator_epoch=max(coordinator_epoch, 0),
    )
    return WriteTxnMarkersRequest(markers=[marker])


def aborted(response: WriteTxnMarkersResponse) -> dict[TopicPartition, bool | KafkaError]:
    """True for each partition that has its marker."""
    return {
        TopicPartition(topic.name, one.partition_index): True
        if one.error_code == ErrorCode.NONE
        else refusal(one.error_code, f"abort the transaction in {topic.name}-{one.partition_index}")
        for marker in response.markers
        for topic in marker.topics
        for one in topic.partitions
    }


def fence_request(transactional_id: str) -> InitProducerIdRequest:
    """The request that fences the producer of a transactional id."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS)


def fenced(transactional_id: str, response: InitProducerIdResponse) -> FencedProducer | KafkaError:
    """The new epoch, which no producer has."""
    if response.error_code != ErrorCode.NONE:
        return refusal(response.error_code, f"fence the producer of {transactional_id!r}")
    if response.producer_id < 0:
        return not_mentioned(f"fence the producer of {transactional_id!r}")
    return FencedProducer(transactional_id, response.producer_id, response.producer_epoch)
