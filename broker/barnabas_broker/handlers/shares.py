"""The state of share partitions (KIP-932), which brokers ask of its coordinator: InitializeShareGroupState,
ReadShareGroupState, WriteShareGroupState, DeleteShareGroupState, ReadShareGroupStateSummary.

The rules are in :mod:`barnabas_broker.shares`; here requests and responses are translated. A request may name several
share partitions, each of which is answered on its own. A share partition that a request names again is refused, as the
answers could not be told apart.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.shares.ports import MOST_BATCHES, StateBatch
from barnabas_broker.shares.records import ShareKey
from barnabas_broker.shares.service import ShareCoordinator
from barnabas_broker.shares.state import TOO_MANY_BATCHES, Answer
from barnabas_broker.steps import Steps, consumed, release
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages import delete_share_group_state as delete
from barnabas_protocol.messages import initialize_share_group_state as initialize
from barnabas_protocol.messages import read_share_group_state as read
from barnabas_protocol.messages import read_share_group_state_summary as summary
from barnabas_protocol.messages import write_share_group_state as write
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response, Struct

#: An answer, or the future of one.
_Given = Answer | asyncio.Future[Answer]


class _Api(NamedTuple):
    """How an API is translated.

    Attributes:
        ask: asks the coordinator about one share partition of the request.
        partition: the answer of one share partition.
        topic: the answers of a topic's share partitions.
        response: the response.
        fields: what the answer of one share partition has beside its error.
    """

    ask: Callable[[ShareCoordinator, ShareKey, Any], _Given]
    partition: Callable[..., Struct]
    topic: Callable[..., Struct]
    response: Callable[..., Response]
    fields: Callable[[Answer], dict[str, Any]] = lambda answer: {}


def _write(coordinator: ShareCoordinator, key: ShareKey, asked: write.WriteStatePartitionData) -> _Given:
    if len(asked.state_batches) > MOST_BATCHES:
        return TOO_MANY_BATCHES
    return coordinator.write(
        key,
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.delivery_complete_count,
        [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in asked.state_batches
        ],
    )


def _state(answer: Answer) -> dict[str, Any]:
    state = answer.state
    batches = () if state is None else state.batches
    return {
        "state_epoch": 0 if state is None else state.state_epoch,
        "start_offset": 0 if state is None else state.start_offset,
        "state_batches": [
            read.ReadStateBatch(
                first_offset=each.first_offset,
                last_offset=each.last_offset,
                delivery_state=each.state,
                delivery_count=each.delivery_count,
            )
            for each in batches
        ],
    }


def _state_summary(answer: Answer) -> dict[str, Any]:
    state = answer.state
    return {
        "state_epoch": 0 if state is None else state.state_epoch,
        "leader_epoch": answer.leader_epoch,
        "start_offset": 0 if state is None else state.start_offset,
        "delivery_complete_count": -1 if state is None else state.delivery_complete_count,
    }


_INITIALIZE: Final = _Api(
    lambda coordinator, key, asked: coordinator.initialize(key, asked.state_epoch, asked.start_offset),
    initialize.InitializeStatePartitionResult,
    initialize.InitializeStateResult,
    initialize.InitializeShareGroupStateResponse,
)
_READ: Final = _Api(
    lambda coordinator, key, asked: coordinator.read(key, asked.leader_epoch),
    read.ReadStatePartitionResult,
    read.ReadStateResult,
    read.ReadShareGroupStateResponse,
    _state,
)
_WRITE: Final = _Api(
    _write, write.WriteStatePartitionResult, write.WriteStateResult, write.WriteShareGroupStateResponse
)
_DELETE: Final = _Api(
    lambda coordinator, key, asked: coordinator.delete(key),
    delete.DeleteStatePartitionResult,
    delete.DeleteStateResult,
    delete.DeleteShareGroupStateResponse,
)
_SUMMARY: Final = _Api(
    lambda coordinator, key, asked: coordinator.summary(key),
    summary.ReadStateSummaryPartitionResult,
    summary.ReadStateSummaryResult,
    summary.ReadShareGroupStateSummaryResponse,
    _state_summary,
)


def _handler(api: _Api) -> Callable[[RequestContext, Any], Handled]:
    """Make the handler of an API."""

    @stepwise
    def handle(context: RequestContext, request: Any) -> Steps[Handled]:
        services = context.services
        if not services.cluster.may_serve():
            services.share_partitions.reconcile()  # unloads all partitions: the answer is NOT_COORDINATOR
        allowed = context.allows_on_cluster(acls.CLUSTER_ACTION)
        given: list[tuple[bytes, list[tuple[int, _Given]]]] = []
        waiting: list[asyncio.Future[Answer]] = []
        named: set[tuple[bytes, int]] = set()
        for topic in request.topics:
            topic_id = bytes(topic.topic_id)
            of_topic: list[tuple[int, _Given]] = []
            given.append((topic_id, of_topic))
            for asked in topic.partitions:
                if not allowed:
                    answer: _Given = Answer(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
                elif (topic_id, asked.partition) in named:
                    answer = Answer(ErrorCode.INVALID_REQUEST, "The request names the share partition twice.")
                else:
                    named.add((topic_id, asked.partition))
                    key = ShareKey(request.group_id, UUID(bytes=topic_id), asked.partition)
                    answer = api.ask(services.shares, key, asked)
                of_topic.append((asked.partition, answer))
                if not isinstance(answer, Answer):
                    waiting.append(answer)
                yield
            yield
        yield from release(named)
        return _responded(context, api, given, waiting)

    return handle


async def _responded(
    context: RequestContext,
    api: _Api,
    given: list[tuple[bytes, list[tuple[int, _Given]]]],
    waiting: Iterable[asyncio.Future[Answer]],
) -> Response:
    """The response, when all share partitions are answered."""
    for answer in waiting:
        await answer
    return await context.sliced(_response(api, given))


def _response(api: _Api, given: list[tuple[bytes, list[tuple[int, _Given]]]]) -> Steps[Response]:
    """The response to answers that are there, which it consumes."""
    results = []
    for topic_id, of_topic in consumed(given):
        partitions = []
        for partition, answer in consumed(of_topic):
            one = answer if isinstance(answer, Answer) else answer.result()
            message = None if one.error is ErrorCode.NONE else one.message or one.error.name
            partitions.append(
                api.partition(partition=partition, error_code=one.error, error_message=message, **api.fields(one))
            )
            yield
        results.append(api.topic(topic_id=topic_id, partitions=partitions))
        yield
    return api.response(results=results)


#: Brokers ask, and administrators do not.
_AUTHORIZES: Final = (requires((acls.CLUSTER_ACTION, acls.CLUSTER)),)

ROUTES: Final = (
    Route(ApiKey.INITIALIZE_SHARE_GROUP_STATE, _handler(_INITIALIZE), _AUTHORIZES, exempt=lambda request: True),
    Route(ApiKey.READ_SHARE_GROUP_STATE, _handler(_READ), _AUTHORIZES, exempt=lambda request: True),
    Route(ApiKey.WRITE_SHARE_GROUP_STATE, _handler(_WRITE), _AUTHORIZES, exempt=lambda request: True),
    Route(ApiKey.DELETE_SHARE_GROUP_STATE, _handler(_DELETE), _AUTHORIZES, exempt=lambda request: True),
    Route(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, _handler(_SUMMARY), _AUTHORIZES, exempt=lambda request: True),
)
