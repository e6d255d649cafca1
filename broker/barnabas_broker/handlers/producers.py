"""DescribeProducers: the active producers of partitions (KIP-664)."""

from functools import partial
from typing import Final

from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.handlers.topic_names import missing_code
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from barnabas_protocol.registry import ApiKey


@stepwise
def handle_describe_producers(
    context: RequestContext, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    """Answer DescribeProducers, each partition on its own. One that is named more than once is described once."""
    named: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
        yield
    response = DescribeProducersResponse(topics=[])
    refused = yield from split(context, named, acls.READ)
    for name, indexes in named.items():
        yield
        partitions = yield from each(indexes, _refused if name in refused else partial(_producers, context, name))
        response.topics.append(TopicResponse(name=name, partitions=partitions))
    return response


def _refused(index: int) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, active_producers=[]
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


ROUTES: Final = (Route(ApiKey.DESCRIBE_PRODUCERS, handle_describe_producers, (requires((acls.READ, acls.TOPIC)),)),)
