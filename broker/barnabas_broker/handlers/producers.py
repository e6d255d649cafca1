"""DescribeProducers, DescribeTransactions, ListTransactions: active producers and transactions (KIP-664)."""

from typing import Final

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.topic_names import missing_code
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from barnabas_protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas_protocol.registry import ApiKey

#: The states that ListTransactions can filter by.
_STATES: Final = frozenset(
    {
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    }
)


def handle_describe_producers(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Answer DescribeProducers, each partition on its own."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_producers(context, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _producers(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    answer = PartitionResponse(partition_index=index, error_code=ErrorCode.NONE, active_producers=[])
    try:
        states = context.services.replicas.find(topic, index).log.producers.states
    except KafkaError as error:
        missing = error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer.error_code = missing_code(topic) if missing else error.code
        answer.error_message = error.message or None
        return answer
    answer.active_producers = [
        ProducerState(
            producer_id=state.producer_id,
            producer_epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.last_timestamp,
            coordinator_epoch=state.coordinator_epoch,
            current_txn_start_offset=state.transaction_start,
        )
        for state in states.values()
    ]
    return answer


def handle_describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Answer DescribeTransactions: no transactional id exists."""
    return DescribeTransactionsResponse(
        throttle_time_ms=0,
        transaction_states=[
            TransactionState(
                error_code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if name else ErrorCode.INVALID_REQUEST,
                transactional_id=name,
                transaction_state="",
                transaction_timeout_ms=0,
                transaction_start_time_ms=0,
                producer_id=0,
                producer_epoch=0,
                topics=[],
            )
            for name in request.transactional_ids
        ],
    )


def handle_list_transactions(context: RequestContext, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """Answer ListTransactions: no transaction exists."""
    return ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=[state for state in request.state_filters if state not in _STATES],
        transaction_states=[],
    )


ROUTES: Final = (
    Route(ApiKey.DESCRIBE_PRODUCERS, handle_describe_producers, (requires((acls.READ, acls.TOPIC)),)),
    Route(
        ApiKey.DESCRIBE_TRANSACTIONS,
        handle_describe_transactions,
        (
            requires((acls.DESCRIBE, acls.TRANSACTIONAL_ID)),
            requires((acls.DESCRIBE, acls.TOPIC), when="the response names the topics of a transaction"),
        ),
    ),
    Route(ApiKey.LIST_TRANSACTIONS, handle_list_transactions, (requires((acls.DESCRIBE, acls.TRANSACTIONAL_ID)),)),
)
