"""ShareAcknowledge: what a member of a share group says of the records that it has acquired (KIP-932).

Each partition is answered when what was said of it is durable. A request with epoch -1 ends the session, and gives back
what the member has not acknowledged.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Final, Protocol

from barnabas_broker.config.keys import SHARE_RENEW_ACKNOWLEDGE_ENABLE
from barnabas_broker.groups.share.partition import Acknowledged, Acknowledgement
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, complete, stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.share_partitions.incidents import Place
from barnabas_broker.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH, Where
from barnabas_broker.steps import Steps, each
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgedPartition,
    ShareAcknowledgeLeader,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from barnabas_protocol.registry import ApiKey

#: Batches of acknowledgements that are checked in one step.
_PER_STEP: Final = 200
#: Versions from which locks can be renewed.
_RENEWS: Final = 2


class Batch(Protocol):
    """A batch of acknowledgements in a request."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def check_member(group: str | None, member: str | None) -> tuple[str, str]:
    """The group and the member of a request.

    Raises:
        KafkaError: INVALID_REQUEST, one of them is missing.
    """
    if not group or not member:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The group id and the member id must not be empty.")
    return group, member


def place(context: RequestContext, group: str, where: Where) -> Place:
    """The share partition that a request names.

    Raises:
        KafkaError: UNKNOWN_TOPIC_ID; UNKNOWN_TOPIC_OR_PARTITION.
    """
    image = context.services.cluster.image
    name = image.names.get(where.topic_id)
    if name is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    if not 0 <= where.partition < len(image.topics[name].partitions):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    return Place(group, name, where.topic_id, where.partition)


def check_batches(context: RequestContext, group: str, batches: Sequence[Batch], *, renews: bool) -> Steps[None]:
    """Check the form of the acknowledgements of a partition, as Kafka does.

    Args:
        context: the request.
        group: its group.
        batches: they must be in ascending order.
        renews: whether the request says that it renews locks.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    highest = Acknowledgement.REJECT
    if renews and context.version >= _RENEWS:
        highest = Acknowledgement.RENEW
        if not context.services.queues.configuration(group)[SHARE_RENEW_ACKNOWLEDGE_ENABLE]:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Renew acknowledgements are not enabled for this group.")
    end = -1
    for number, batch in enumerate(batches, 1):
        types = batch.acknowledge_types
        size = batch.last_offset - batch.first_offset + 1
        if batch.first_offset < 0 or size < 1 or batch.first_offset < end:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The acknowledgement batches must be in ascending order.")
        if not types or len(types) not in (1, size):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "There must be one acknowledge type, or one for each offset.")
        if min(types) < Acknowledgement.GAP or max(types) > highest:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The acknowledge type is not known in this version.")
        end = batch.last_offset
        if not number % _PER_STEP:
            yield


def acknowledge(
    context: RequestContext,
    group: str,
    member: str,
    wanted: Iterable[tuple[Where, Sequence[Batch]]],
    *,
    renews: bool,
) -> Steps[dict[Where, KafkaError | Awaitable[None] | None]]:
    """Take the acknowledgements of a request.

    Returns:
        For each partition the error, or what to wait for. A partition of which nothing is said has only errors.
    """
    services = context.services
    answers: dict[Where, KafkaError | Awaitable[None] | None] = {}
    named = yield from each(wanted, lambda one: one)
    names = services.cluster.image.names
    refused = yield from split(context, (names.get(where.topic_id) for where, _ in named), acls.READ)
    for where, batches in named:
        try:
            if where in answers:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "The request names a partition twice.")
            at = place(context, group, where)
            if at.topic in refused:
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if not batches:
                continue
            yield from check_batches(context, group, batches, renews=renews)
            said = [Acknowledged(one.first_offset, one.last_offset, one.acknowledge_types) for one in batches]
            answers[where] = asyncio.ensure_future(services.queues.acknowledge(member, at, said))
        except KafkaError as error:
            answers[where] = error.with_traceback(None)  # which has this frame, and so the answers
        yield
    return answers


async def outcomes(answers: "Mapping[Where, KafkaError | Awaitable[None] | None]") -> dict[Where, KafkaError | None]:
    """The errors of partitions, when all of them are known."""
    known: dict[Where, KafkaError | None] = {}
    for where, answer in answers.items():
        if answer is None or isinstance(answer, KafkaError):
            known[where] = answer
            continue
        try:
            await answer
        except KafkaError as error:
            known[where] = error.with_traceback(None)  # which has this frame, and so the answers
        else:
            known[where] = None
    return known


@stepwise
def handle_share_acknowledge(context: RequestContext, request: ShareAcknowledgeRequest) -> Steps[Handled]:
    """Answer ShareAcknowledge."""
    try:
        group, member = check_member(request.group_id, request.member_id)
        if not context.allows(acls.READ, acls.GROUP, group):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        if request.share_session_epoch == INITIAL_EPOCH:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = context.services.queues.sessions.find(group, member, request.share_session_epoch)
    except KafkaError as error:
        return ShareAcknowledgeResponse(
            error_code=error.code,
            error_message=error.message or None,
            acquisition_lock_timeout_ms=0,
            responses=[],
            node_endpoints=[],
        )
    answers = yield from acknowledge(
        context,
        group,
        member,
        (
            (Where(topic.topic_id, partition.partition_index), partition.acknowledgement_batches)
            for topic in request.topics
            for partition in topic.partitions
        ),
        renews=request.is_renew_ack,
    )

    async def respond() -> ShareAcknowledgeResponse:
        said = await outcomes(answers)
        responses = await complete(context, _topics(said))
        if request.share_session_epoch == FINAL_EPOCH:
            context.services.queues.end(session)
        return ShareAcknowledgeResponse(
            error_code=ErrorCode.NONE,
            acquisition_lock_timeout_ms=context.services.queues.lock_ms(group) if context.version >= _RENEWS else 0,
            responses=responses,
            node_endpoints=[],
        )

    return respond()


def _topics(said: Mapping[Where, KafkaError | None]) -> Steps[list[ShareAcknowledgeTopicResponse]]:
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for where, error in said.items():
        topic = topics.get(where.topic_id)
        if topic is None:
            topic = topics[where.topic_id] = ShareAcknowledgeTopicResponse(topic_id=where.topic_id, partitions=[])
        topic.partitions.append(
            AcknowledgedPartition(
                partition_index=where.partition,
                error_code=ErrorCode.NONE if error is None else error.code,
                error_message=None if error is None else error.message or None,
                current_leader=ShareAcknowledgeLeader(leader_id=0, leader_epoch=0),
            )
        )
        yield
    return list(topics.values())


ROUTES: Final = (
    Route(
        ApiKey.SHARE_ACKNOWLEDGE,
        handle_share_acknowledge,
        (requires((acls.READ, acls.GROUP)), requires((acls.READ, acls.TOPIC))),
    ),
)
