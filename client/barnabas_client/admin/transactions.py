"""Transactions in the admin client: parts of requests and responses. Pure.

Source: KIP-664, ``TransactionsCommand.java``.
"""

from collections.abc import Iterable
from typing import Final

from barnabas_client.admin.types import PartitionProducer, PartitionProducers, TransactionDescription
from barnabas_client.structs import PreparedTransaction, TopicPartition
from barnabas_protocol.messages.describe_producers import ProducerState
from barnabas_protocol.messages.describe_transactions import TransactionState
from barnabas_protocol.messages.end_txn import EndTxnRequest
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest

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


def described(one: TransactionState, node: int) -> TransactionDescription:
    """A transaction that the broker `node` coordinates."""
    return TransactionDescription(
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


def producers(known: Iterable[ProducerState]) -> PartitionProducers:
    """The producers of a partition, by producer id."""
    return PartitionProducers(
        tuple(
            PartitionProducer(
                producer_id=one.producer_id,
                producer_epoch=one.producer_epoch,
                last_sequence=one.last_sequence,
                last_timestamp_ms=one.last_timestamp,
                coordinator_epoch=one.coordinator_epoch,
                transaction_start_offset=None if one.current_txn_start_offset < 0 else one.current_txn_start_offset,
            )
            for one in sorted(known, key=lambda one: one.producer_id)
        )
    )


def fence_request(transactional_id: str) -> InitProducerIdRequest:
    """The request that fences the producer of a transactional id."""
    return InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_FENCING_TIMEOUT_MS)
