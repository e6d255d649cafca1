"""ElectLeaders, AlterPartitionReassignments, ListPartitionReassignments: leaders and replicas of partitions."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import ElectionType
from barnabas_broker.cluster.image import Event, Image, TopicInfo
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, each, release
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
    ReassignableTopicResponse,
)
from barnabas_protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from barnabas_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from barnabas_protocol.registry import ApiKey

#: From this version on, ElectLeaders answers have an error of their own.
_FIRST_WITH_ERROR: Final = 1
#: Partitions whose leaders are elected by one change of the metadata, in about 5 ms.
_AT_ONCE: Final = 5_000


async def handle_elect_leaders(context: RequestContext, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Answer ElectLeaders: so many elections in one change as one turn of the event loop has time for."""
    try:
        context.require_on_cluster(acls.ALTER)
    except KafkaError as error:
        return await _not_elected(context, request, error)
    if request.election_type not in tuple(ElectionType):
        return ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST, replica_election_results=[])
    kind = ElectionType(request.election_type)
    everything, cluster = request.topic_partitions is None, context.services.cluster
    naming = _partitions(request.topic_partitions) if request.topic_partitions is not None else _all(cluster.image)
    asked = await context.sliced(naming)
    answers: dict[tuple[str, int], ErrorCode] = {}
    try:
        for at in range(0, max(len(asked), 1), _AT_ONCE):
            some = await cluster.change(partial(_elect, kind, asked[at : at + _AT_ONCE]))
            answers |= _needed(some) if everything else some
            await asyncio.sleep(0)
    except KafkaError as error:
        if context.version >= _FIRST_WITH_ERROR:
            return ElectLeadersResponse(error_code=error.code, replica_election_results=[])
        if not everything:  # as in Kafka: each partition that the request names has the error
            await context.sliced(_answer_others(answers, asked, error.code))
    await context.sliced(_audit(context, kind, answers))
    response = await context.sliced(_elected(answers))
    await context.sliced(release(asked))
    return response


def _elect(
    kind: ElectionType, partitions: Sequence[tuple[str, int]], image: Image
) -> tuple[list[Event], dict[tuple[str, int], ErrorCode]]:
    return controller.elect_leaders(image, kind, partitions)


async def _not_elected(
    context: RequestContext, request: ElectLeadersRequest, error: KafkaError
) -> ElectLeadersResponse:
    """The response with an error for all, and for each partition that the request names."""
    asked = await context.sliced(_partitions(request.topic_partitions or ()))
    answers: dict[tuple[str, int], ErrorCode] = {}
    await context.sliced(_answer_others(answers, asked, error.code))
    response = await context.sliced(_elected(answers))
    response.error_code = error.code if context.version >= _FIRST_WITH_ERROR else ErrorCode.NONE
    await context.sliced(release(asked))
    return response


def _answer_others(
    answers: dict[tuple[str, int], ErrorCode], asked: Iterable[tuple[str, int]], code: ErrorCode
) -> Steps[None]:
    """Give an error to the partitions that have no answer."""
    for where in asked:
        answers.setdefault(where, code)
        yield


def _audit(context: RequestContext, kind: ElectionType, answers: Mapping[tuple[str, int], ErrorCode]) -> Steps[None]:
    for (name, index), code in answers.items():
        if code is ErrorCode.NONE:
            context.changed(Change.LEADER_ELECTED, partition=f"{name}-{index}", election=kind.name.lower())
        yield


def _partitions(topics: Iterable[TopicPartitions]) -> Steps[list[tuple[str, int]]]:
    """The partitions that a request names, some per step."""
    named: list[tuple[str, int]] = []
    for topic in topics:
        for index in topic.partitions:
            named.append((topic.topic, index))
            yield
        yield
    return named


def _all(image: Image) -> Steps[list[tuple[str, int]]]:
    """All partitions, those of a topic per step."""
    named: list[tuple[str, int]] = []
    for topic in image.topics.values():
        named += ((topic.name, index) for index in range(len(topic.partitions)))
        yield
    return named


def _needed(answers: Mapping[tuple[str, int], ErrorCode]) -> dict[tuple[str, int], ErrorCode]:
    """The answers of partitions that needed an election: as in Kafka, if the request names none.

    A topic may be deleted while the request is carried out.
    """
    not_needed = ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {where: code for where, code in answers.items() if code not in not_needed}


def _elected(answers: dict[tuple[str, int], ErrorCode]) -> Steps[ElectLeadersResponse]:
    """The response, one partition per step; `answers` are released."""
    topics: dict[str, list[PartitionResult]] = {}
    for (name, index), code in answers.items():
        message = None if code is ErrorCode.NONE else _WHY.get(code, code.name)
        topics.setdefault(name, []).append(PartitionResult(partition_id=index, error_code=code, error_message=message))
        yield
    yield from release(answers)
    found = yield from each(topics.items(), lambda of: ReplicaElectionResult(topic=of[0], partition_result=of[1]))
    return ElectLeadersResponse(replica_election_results=found)


_WHY = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    ErrorCode.ELECTION_NOT_NEEDED: "Leader election not needed for topic partition.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not in sync, or not there.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica of the partition is there.",
}


async def handle_alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Answer AlterPartitionReassignments, each partition on its own."""
    try:
        context.require_on_cluster(acls.ALTER)
    except KafkaError as error:
        refused = await context.sliced(_not_reassigned(request, error))
        return AlterPartitionReassignmentsResponse(
            error_code=error.code, error_message=error.message, responses=refused
        )
    allowed = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=allowed,
        error_message=None,
        responses=[await _reassign_each(context, topic, allowed) for topic in request.topics],
    )


def _not_reassigned(
    request: AlterPartitionReassignmentsRequest, error: KafkaError
) -> Steps[list[ReassignableTopicResponse]]:
    """An error for each partition that the request names."""
    responses = []
    for topic in request.topics:
        partitions = yield from each(
            topic.partitions,
            lambda one: ReassignablePartitionResponse(
                partition_index=one.partition_index, error_code=error.code, error_message=error.message
            ),
        )
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=partitions))
        yield
    return responses


async def _reassign_each(
    context: RequestContext, topic: ReassignableTopic, allow_factor_change: bool
) -> ReassignableTopicResponse:
    await asyncio.sleep(0)
    partitions = [await _reassign(context, topic.name, one, allow_factor_change) for one in topic.partitions]
    return ReassignableTopicResponse(name=topic.name, partitions=partitions)


async def _reassign(
    context: RequestContext, name: str, asked: ReassignablePartition, allow_factor_change: bool
) -> ReassignablePartitionResponse:
    def decide(image: Image) -> tuple[Sequence[Event], None]:
        event = controller.reassign(
            image, name, asked.partition_index, asked.replicas, allow_factor_change=allow_factor_change
        )
        return [event], None

    code, message = ErrorCode.NONE, None
    await asyncio.sleep(0)  # what fails at once must not keep others waiting
    try:
        await context.services.cluster.change(decide)
    except KafkaError as error:
        code, message = error.code, error.message or None
    else:
        context.changed(
            Change.REPLICAS_REASSIGNED if asked.replicas is not None else Change.REASSIGNMENT_CANCELLED,
            partition=f"{name}-{asked.partition_index}",
            **({} if asked.replicas is None else {"replicas": list(asked.replicas)}),
        )
    return ReassignablePartitionResponse(partition_index=asked.partition_index, error_code=code, error_message=message)


@stepwise
def handle_list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    """Answer ListPartitionReassignments: the requested partitions whose replicas are being moved."""
    try:
        context.require_on_cluster(acls.DESCRIBE)
    except KafkaError as error:
        refused = yield from _none_shown(request)
        return ListPartitionReassignmentsResponse(error_code=error.code, error_message=error.message, topics=refused)
    image = context.services.cluster.image
    if request.topics is None:
        asked: Iterable[tuple[str, Iterable[int]]] = (
            (topic.name, range(len(topic.partitions))) for topic in image.topics.values()
        )
    else:
        asked = ((topic.name, topic.partition_indexes) for topic in request.topics)
    response = ListPartitionReassignmentsResponse(error_message=None, topics=[])
    for name, indexes in asked:
        yield
        topic = image.topics.get(name)
        moving = [] if topic is None else (yield from _moving(topic, indexes))
        if moving:
            response.topics.append(OngoingTopicReassignment(name=name, partitions=moving))
    return response


def _none_shown(request: ListPartitionReassignmentsRequest) -> Steps[list[OngoingTopicReassignment]]:
    """The partitions that the request names, without their replicas, for a client that may not know them."""
    topics = []
    for topic in request.topics or ():
        partitions = yield from each(
            topic.partition_indexes,
            lambda index: OngoingPartitionReassignment(
                partition_index=index, replicas=[], adding_replicas=[], removing_replicas=[]
            ),
        )
        topics.append(OngoingTopicReassignment(name=topic.name, partitions=partitions))
        yield
    return topics


def _moving(topic: TopicInfo, indexes: Iterable[int]) -> Steps[list[OngoingPartitionReassignment]]:
    moving = []
    for index in dict.fromkeys(indexes):
        yield
        if 0 <= index < len(topic.partitions) and controller.is_reassigning(partition := topic.partitions[index]):
            moving.append(
                OngoingPartitionReassignment(
                    partition_index=index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    return moving


ROUTES: Final = (
    Route(
        ApiKey.ELECT_LEADERS,
        handle_elect_leaders,
        (requires((acls.ALTER, acls.CLUSTER)),),
        changes=(Change.LEADER_ELECTED,),
    ),
    Route(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        handle_alter_partition_reassignments,
        (requires((acls.ALTER, acls.CLUSTER)),),
        changes=(Change.REPLICAS_REASSIGNED, Change.REASSIGNMENT_CANCELLED),
    ),
    Route(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        handle_list_partition_reassignments,
        (requires((acls.DESCRIBE, acls.CLUSTER)),),
    ),
)
