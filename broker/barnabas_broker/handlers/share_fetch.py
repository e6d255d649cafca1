"""ShareFetch: a member of a share group acquires records, and acknowledges earlier ones on the way (KIP-932).

The acknowledgements come first. Then records are acquired from the partitions of the member's session, beginning with
another one each time; if there are none, the request waits. A request with epoch -1 ends the session, and gives back
what the member has not acknowledged. So does the end of its connection.

A request that renews locks fetches nothing, as in Kafka.

Deviation: a request is answered as soon as there are records, whatever its min bytes are.
"""

from collections.abc import Awaitable, Iterable
from functools import partial
from itertools import chain
from typing import Final

from barnabas_broker.config.keys import FETCH_MAX_BYTES, SHARE_ISOLATION_LEVEL
from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.share_acknowledge import acknowledge, check_member, outcomes, place
from barnabas_broker.handlers.stepwise import Handled, complete, stepwise
from barnabas_broker.quotas.clients import milliseconds
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.share_partitions.hosted import Delivery, Wanted
from barnabas_broker.share_partitions.incidents import Place
from barnabas_broker.share_partitions.service import Found
from barnabas_broker.share_partitions.sessions import FINAL_EPOCH, INITIAL_EPOCH, ShareSession, Where
from barnabas_broker.steps import Steps, each
from barnabas_explain.members import Member
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_fetch import (
    AcquiredRecords,
    ShareFetchableTopicResponse,
    ShareFetchLeader,
    ShareFetchRequest,
    ShareFetchResponse,
    SharePartitionData,
)
from barnabas_protocol.registry import ApiKey

#: Acquire modes (KIP-1206).
_BATCH_OPTIMIZED, _RECORD_LIMIT = 0, 1


def _refused(error: KafkaError) -> ShareFetchResponse:
    return ShareFetchResponse(
        error_code=error.code,
        error_message=error.message or None,
        acquisition_lock_timeout_ms=0,
        responses=[],
        node_endpoints=[],
    )


def _session(context: RequestContext, request: ShareFetchRequest, group: str, member: str) -> Steps[ShareSession]:
    """The session of a request, with the partitions that it adds and forgets.

    Raises:
        KafkaError: there is no such session, or the request makes no sense.
    """
    shares, peer = context.services.queues, context.peer
    named: dict[Where, None] = {}
    acknowledges = False
    for topic in request.topics:
        for part in topic.partitions:
            named[Where(topic.topic_id, part.partition_index)] = None
            acknowledges = acknowledges or bool(part.acknowledgement_batches)
            yield
    forgotten: list[Where] = []
    for forgot in request.forgotten_topics_data:
        forgotten += yield from each(forgot.partitions, partial(Where, forgot.topic_id))
    if request.share_session_epoch == FINAL_EPOCH:
        return shares.sessions.find(group, member, FINAL_EPOCH)
    if request.share_session_epoch == INITIAL_EPOCH:
        if acknowledges:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The first request of a session cannot acknowledge records.")
        identity = Member(member, context.client_id, f"/{peer.host}")
        session = shares.begin(group, identity, named)

        def end() -> None:
            shares.end(session)

        peer.ended.add(end)
        session.ended = lambda: peer.ended.discard(end)
        return session
    session = shares.sessions.find(group, member, request.share_session_epoch)
    shares.sessions.update(session, named, forgotten)
    return session


def _check(request: ShareFetchRequest) -> None:
    """Check the numbers of a request.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if request.share_acquire_mode not in (_BATCH_OPTIMIZED, _RECORD_LIMIT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The share acquire mode is not known.")
    limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
    if request.is_renew_ack and any(limits):
        text = "A request that renews locks fetches nothing: max wait, min bytes, max bytes and max records must be 0."
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    if min(limits) < 0 or request.batch_size < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Max wait, sizes and numbers of records must not be negative.")


@stepwise
def handle_share_fetch(context: RequestContext, request: ShareFetchRequest) -> Steps[Handled]:
    """Answer ShareFetch, at once or when there are records."""
    services = context.services
    try:
        group, member = check_member(request.group_id, request.member_id)
        if not context.allows(acls.READ, acls.GROUP, group):
            raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)
        _check(request)
        session = yield from _session(context, request, group, member)
    except KafkaError as error:
        return _refused(error)
    answers = yield from acknowledge(
        context,
        group,
        member,
        (
            (Where(topic.topic_id, part.partition_index), part.acknowledgement_batches)
            for topic in request.topics
            for part in topic.partitions
            if part.acknowledgement_batches
        ),
        renews=request.is_renew_ack,
    )
    found: dict[Where, Found] = {}
    places: dict[Where, Place] = {}
    if (
        request.share_session_epoch != FINAL_EPOCH
        and not request.is_renew_ack
        and request.max_records
        and request.max_bytes
    ):
        names = services.cluster.image.names
        partitions = list(session.partitions)
        refused = yield from split(context, (names.get(where.topic_id) for where in partitions), acls.READ)
        for where in partitions:
            try:
                at = place(context, group, where)
                if at.topic in refused:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                places[where] = at
            except KafkaError as error:
                found[where] = error.with_traceback(None)  # which has this frame, and so what was found
            yield
        session.rotate()
    fetching = services.slicer.start(_respond(context, request, session, answers, places, found), context.peer)
    context.peer.hold(fetching)
    return fetching


async def _respond(
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    answers: dict[Where, KafkaError | Awaitable[None] | None],
    places: dict[Where, Place],
    found: dict[Where, Found],
) -> ShareFetchResponse:
    """Fetch, and wait for what was acknowledged."""
    services, group = context.services, session.group
    quotas, limited = services.quotas, services.quotas.active
    most = min(request.max_bytes, services.config[FETCH_MAX_BYTES])
    if limited:
        most = int(min(most, quotas.fetches.most(context.principal.name, context.client_id)))
    if places:
        wanted = Wanted(
            session.member,
            most,
            request.max_records,
            request.batch_size,
            request.share_acquire_mode == _RECORD_LIMIT,
            services.queues.configuration(group)[SHARE_ISOLATION_LEVEL] == "read_committed",
            lambda: session.closed,
            context.peer,
        )
        wait = 0.0 if found else request.max_wait_ms / 1000
        found |= await services.queues.fetch(session, places, wanted, wait)
    said = await outcomes(answers)
    if request.share_session_epoch == FINAL_EPOCH:
        services.queues.end(session)
    elif request.share_session_epoch == INITIAL_EPOCH and not found:
        found = dict.fromkeys(places)
    responses = await complete(context, _topics(found, said))
    response = ShareFetchResponse(
        error_code=ErrorCode.NONE,
        acquisition_lock_timeout_ms=services.queues.lock_ms(group),
        responses=responses,
        node_endpoints=[],
    )
    size = sum(len(each.records) for each in found.values() if isinstance(each, Delivery))
    if limited:
        throttled = quotas.fetch(context.principal.name, context.client_id, size, services.now())
        # What was acquired is delivered in any case: it would be lost until its locks expire.
        response.throttle_time_ms = milliseconds(throttled) if throttled > 0 else 0
    return response


def _topics(
    found: dict[Where, Found], said: dict[Where, KafkaError | None]
) -> Steps[list[ShareFetchableTopicResponse]]:
    topics: dict[bytes, ShareFetchableTopicResponse] = {}
    for where in chain(found, (where for where in said if where not in found)):
        topic = topics.get(where.topic_id)
        if topic is None:
            topic = topics[where.topic_id] = ShareFetchableTopicResponse(topic_id=where.topic_id, partitions=[])
        topic.partitions.append(_partition(where, found.get(where), said.get(where)))
        yield
    return list(topics.values())


def _partition(where: Where, found: Found, said: KafkaError | None) -> SharePartitionData:
    data = SharePartitionData(
        partition_index=where.partition,
        error_code=ErrorCode.NONE,
        acknowledge_error_code=ErrorCode.NONE if said is None else said.code,
        acknowledge_error_message=None if said is None else said.message or None,
        current_leader=ShareFetchLeader(leader_id=0, leader_epoch=0),
        records=b"",
        acquired_records=[],
    )
    if isinstance(found, KafkaError):
        data.error_code, data.error_message = found.code, found.message or None
    elif found is not None:
        data.records = found.records
        data.acquired_records = list(_acquired(found))
    return data


def _acquired(delivery: Delivery) -> Iterable[AcquiredRecords]:
    for first, last, count in delivery.acquired:
        yield AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)


ROUTES: Final = (
    Route(
        ApiKey.SHARE_FETCH,
        handle_share_fetch,
        (requires((acls.READ, acls.GROUP)), requires((acls.READ, acls.TOPIC))),
    ),
)
