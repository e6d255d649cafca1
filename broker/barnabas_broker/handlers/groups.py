"""The APIs of the group coordinator. Each handler passes the request and its sender on to the coordinator.

With an authorizer it first takes out of the request what the client may not use, and puts an error for it into the
response.

Known deviation: OffsetFetch answers a group that is named again only while the response is short
(:mod:`barnabas_broker.repeats`).
"""

from asyncio import Future
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from types import GeneratorType
from typing import Any, Final

from barnabas_broker.groups.coordinator.inspection import failed_group
from barnabas_broker.groups.coordinator.offset_service import BUMPS_EPOCH, OffsetService
from barnabas_broker.groups.coordinator.responses import FetchedGroup, commit_error, fetch_response
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.errors import join_error, sync_error
from barnabas_broker.groups.sightings import MemberConnection
from barnabas_broker.handlers.authorization import take_out, topic_of
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
from barnabas_broker.handlers.stepwise import Handled, extended, respond, stepwise
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, distinct, each
from barnabas_broker.storage import TopicPartition
from barnabas_protocol.acls import AclOperation
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.hot.offset_commit import decode_offset_commit, encode_offset_commit
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response

#: A method of the coordinator. What takes longer with more in the request is a generator of steps.
Method = Callable[[GroupCoordinator, Any, int, Caller], Response | Awaitable[Any] | Steps[Any]]

#: The first version of JoinGroup in which a response may have no protocol.
_NULL_PROTOCOL: Final = 7


def handler_for(method: Method) -> Handler:
    """A handler that calls `method` of the coordinator."""

    def handle(context: RequestContext, request: Any) -> Handled:
        handled: Any = method(coordinator_of(context), request, context.version, caller_of(context))
        if isinstance(handled, GeneratorType):  # not whether it is Awaitable: an abstract class takes ten times as long
            return respond(context, handled)
        answer: Handled = handled
        return answer

    return handle


def _of_offsets(method: Callable[[OffsetService, Any, int, Caller], Steps[Any]]) -> Method:
    """A method of the coordinator's offsets as one of the coordinator."""
    return lambda groups, request, version, caller: method(groups.offsets, request, version, caller)


def call(context: RequestContext, method: Method, request: Any) -> Steps[Handled]:
    """The answer of `method` of the coordinator, as a part of a handler that does more."""
    handled = method(coordinator_of(context), request, context.version, caller_of(context))
    return handled if isinstance(handled, Response | Awaitable) else (yield from handled)


def coordinator_of(context: RequestContext) -> GroupCoordinator:
    """The coordinator; without its partitions while this broker's registration does not hold."""
    services = context.services
    if not services.cluster.may_serve():
        services.group_partitions.reconcile()  # Unloads all partitions: the answer is NOT_COORDINATOR.
    return services.groups


def caller_of(context: RequestContext) -> Caller:
    """The client, as the coordinators of groups see it."""
    caller = context.caller
    if caller is None:
        access = context.access
        # Nothing here refers to the context, so that it is freed with its connection, without the collector.
        may_describe = None if access is None else partial(access.allows, acls.DESCRIBE, acls.TOPIC, audit=False)
        peer, client, principal = context.peer, context.client, context.principal
        audit = partial(context.services.audit.offsets_set, principal, peer.host, client.client_id)
        connection = peer.seen
        if not isinstance(connection, MemberConnection):
            connection = peer.seen = context.services.groups.connected(client, peer.software, peer.listener)
        caller = context.caller = Caller(*client, may_describe, str(principal), connection, audit)
    return caller


def member_handler(method: Method, refused: Callable[[ErrorCode, int], Response]) -> Handler:
    """A handler of a member's request, which needs READ on its group.

    Args:
        method: of the coordinator.
        refused: makes the response with an error, in the shape of a version.
    """
    handle = handler_for(method)

    def check(context: RequestContext, request: Any) -> Handled:
        access, group_id = context.access, request.group_id
        if access is not None and group_id not in access.groups and not access.allows(acls.READ, acls.GROUP, group_id):
            context.services.groups.denied(group_id, caller_of(context))
            return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, context.version)
        return handle(context, request)

    return check


def _names(context: RequestContext, by_id_from: int) -> Mapping[bytes, str] | None:
    """The names of topics by id, if the version of the request has ids."""
    return context.services.cluster.image.names if context.version >= by_id_from else None


# OffsetCommit

#: The first version of OffsetCommit and OffsetFetch that names topics by their ids.
_TOPIC_IDS: Final = 10
#: The first version of TxnOffsetCommit that does.
_TRANSACTIONAL_TOPIC_IDS: Final = 6
_COMMIT: Final = _of_offsets(OffsetService.commit)


def handle_offset_commit(context: RequestContext, request: OffsetCommitRequest) -> Handled:
    """Answer OffsetCommit."""
    if context.access is None:
        # As handler_for, written out: consumers may commit for every record.
        offsets = coordinator_of(context).offsets
        return respond(context, offsets.commit(request, context.version, caller_of(context)))
    return _commit(context, request)


@stepwise
def _commit(context: RequestContext, request: OffsetCommitRequest) -> Steps[Handled]:
    if not context.allows(acls.READ, acls.GROUP, request.group_id):
        return (yield from commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    refused = yield from take_out(context, request.topics, topic_of(_names(context, _TOPIC_IDS)), acls.READ)
    handled: Handled
    if refused and not request.topics:
        handled = OffsetCommitResponse(topics=[])
    else:
        handled = yield from call(context, _COMMIT, request)
    if not refused:
        return handled

    def extend(response: OffsetCommitResponse) -> Steps[None]:
        for topic in refused:
            failed = yield from each(topic.partitions, _not_committed)
            response.topics.append(
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=failed)
            )
            yield

    return (yield from extended(context, handled, extend))


def _not_committed(asked: OffsetCommitRequestPartition) -> OffsetCommitResponsePartition:
    return OffsetCommitResponsePartition(
        partition_index=asked.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


# OffsetFetch

#: The first version of OffsetFetch that asks for several groups.
_GROUPS: Final = 8
_FETCH: Final = _of_offsets(OffsetService.fetch)
_fetch_offsets: Final = handler_for(_FETCH)


def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Handled:
    """Answer OffsetFetch."""
    if context.access is None:
        return _fetch_offsets(context, request)
    return _fetch_of_group(context, request) if context.version < _GROUPS else _fetch_of_groups(context, request)


@stepwise
def _fetch_of_group(context: RequestContext, request: OffsetFetchRequest) -> Steps[Handled]:
    """Answer a version that asks for one group."""
    if not context.allows(acls.DESCRIBE, acls.GROUP, request.group_id):
        failed = [FetchedGroup(request.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, [])]
        return (yield from fetch_response(request, context.version, failed))
    refused: list[OffsetFetchRequestTopic] = []
    if request.topics is not None:
        refused = yield from take_out(context, request.topics, topic_of(None), acls.DESCRIBE)

    def extend(response: OffsetFetchResponse) -> Steps[None]:
        if request.topics is None:
            yield from take_out(context, response.topics, topic_of(None), acls.DESCRIBE, audit=False)
        for topic in refused:
            partitions = yield from each(
                topic.partition_indexes, lambda index: OffsetFetchResponsePartition(**_not_fetched(index))
            )
            response.topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=partitions))
            yield

    handled = yield from call(context, _FETCH, request)
    return (yield from extended(context, handled, extend))


@stepwise
def _fetch_of_groups(context: RequestContext, request: OffsetFetchRequest) -> Steps[Handled]:
    """Answer a version that asks for several groups."""
    name_of = topic_of(_names(context, _TOPIC_IDS))
    refused = yield from take_out(context, request.groups, lambda group: group.group_id, acls.DESCRIBE, acls.GROUP)
    taken_out: dict[str, list[OffsetFetchRequestTopics]] = {}
    everything: set[str] = set()
    for group in request.groups:
        yield
        if group.topics is None:
            everything.add(group.group_id)
        elif out := (yield from take_out(context, group.topics, name_of, acls.DESCRIBE)):
            taken_out.setdefault(group.group_id, []).extend(out)

    def extend(response: OffsetFetchResponse) -> Steps[None]:
        for answer in response.groups:
            yield
            if answer.group_id in everything:
                yield from take_out(context, answer.topics, name_of, acls.DESCRIBE, audit=False)
            if answer.error_code == ErrorCode.NONE:
                for topic in taken_out.pop(answer.group_id, ()):
                    partitions = yield from each(
                        topic.partition_indexes, lambda index: OffsetFetchResponsePartitions(**_not_fetched(index))
                    )
                    answer.topics.append(
                        OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
                    )
                    yield
        response.groups += yield from each(refused, _group_not_fetched)

    handled = yield from call(context, _FETCH, request)
    return (yield from extended(context, handled, extend))


def _not_fetched(index: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }


def _group_not_fetched(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])


# TxnOffsetCommit


@stepwise
def handle_txn_offset_commit(context: RequestContext, request: TxnOffsetCommitRequest) -> Steps[Handled]:
    """Answer TxnOffsetCommit, after the coordinator of the transaction has confirmed that it is ongoing."""
    code = ErrorCode.NONE
    if not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.allows(acls.READ, acls.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if code is not ErrorCode.NONE:
        failed = TxnOffsetCommitResponse(throttle_time_ms=0, topics=[])
        yield from _add_not_committed(failed, request.topics, code)
        return failed
    refused = yield from take_out(
        context, request.topics, topic_of(_names(context, _TRANSACTIONAL_TOPIC_IDS)), acls.READ
    )
    services = context.services

    def verify(partition: int, done: Callable[[ErrorCode], None]) -> None:
        where = TopicPartition(OFFSETS_TOPIC, partition)
        verifying = services.transactions.verify(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            add=context.version >= BUMPS_EPOCH,
        )

        def verified(answered: "Future[Mapping[TopicPartition, ErrorCode]]") -> None:
            done(answered.result()[where])

        verifying.add_done_callback(verified)

    def commit(groups: GroupCoordinator, asked: TxnOffsetCommitRequest, version: int, caller: Caller) -> Steps[Any]:
        return groups.offsets.commit_transactional(asked, version, caller, verify)

    handled = yield from call(context, commit, request)
    if not refused:
        return handled

    def extend(response: TxnOffsetCommitResponse) -> Steps[None]:
        yield from _add_not_committed(response, refused, ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    return (yield from extended(context, handled, extend))


def _add_not_committed(
    response: TxnOffsetCommitResponse, topics: list[TxnOffsetCommitRequestTopic], code: ErrorCode
) -> Steps[None]:
    """Add topics to a response, each partition with the same error."""
    for topic in topics:
        failed = yield from each(
            topic.partitions,
            lambda asked: TxnOffsetCommitResponsePartition(partition_index=asked.partition_index, error_code=code),
        )
        response.topics.append(
            TxnOffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=failed)
        )
        yield


# OffsetDelete


@stepwise
def handle_offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> Steps[Handled]:
    """Answer OffsetDelete."""
    if not context.allows(acls.DELETE, acls.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    refused = yield from take_out(context, request.topics, topic_of(None), acls.READ)

    def extend(response: OffsetDeleteResponse) -> Steps[None]:
        if response.error_code != ErrorCode.NONE:
            return
        for topic in response.topics:
            deleted: list[int] = []
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE:
                    deleted.append(partition.partition_index)
                yield
            if deleted:
                what = {"group": printable(request.group_id), "topic": topic.name, "partitions": deleted}
                context.changed(Change.OFFSETS_DELETED, **what)
            yield
        for asked in refused:
            partitions = yield from each(asked.partitions, _not_deleted)
            response.topics.append(OffsetDeleteResponseTopic(name=asked.name, partitions=partitions))
            yield

    handled = yield from call(context, _of_offsets(OffsetService.delete), request)
    return (yield from extended(context, handled, extend))


def _not_deleted(asked: OffsetDeleteRequestPartition) -> OffsetDeleteResponsePartition:
    return OffsetDeleteResponsePartition(
        partition_index=asked.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
    )


# DescribeGroups, ListGroups, DeleteGroups


def take_out_groups(context: RequestContext, operation: AclOperation, group_ids: list[str]) -> Steps[Collection[str]]:
    """Remove the groups of a request on which an operation is not allowed, and return each once."""
    refused = yield from take_out(context, group_ids, str, operation, acls.GROUP)
    return (yield from distinct(refused))


@stepwise
def handle_describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Steps[Handled]:
    """Answer DescribeGroups."""
    refused = yield from take_out_groups(context, acls.DESCRIBE, request.groups)

    def extend(response: DescribeGroupsResponse) -> Steps[None]:
        for group in response.groups:
            if group.authorized_operations != operations.NOT_ASKED:
                group.authorized_operations = operations.authorized(context.access, acls.GROUP, group.group_id)
            yield
        response.groups += yield from each(
            refused, lambda name: failed_group(name, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        )

    handled = yield from call(context, GroupCoordinator.describe, request)
    return (yield from extended(context, handled, extend))


@stepwise
def handle_list_groups(context: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """Answer ListGroups: the groups that the client may describe."""
    response = yield from coordinator_of(context).list_groups(request, context.version, caller_of(context))
    if not context.allows_on_cluster(acls.DESCRIBE, audit=False):
        yield from take_out(
            context, response.groups, lambda group: group.group_id, acls.DESCRIBE, acls.GROUP, audit=False
        )
    return response


@stepwise
def handle_delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> Steps[Handled]:
    """Answer DeleteGroups."""
    refused = yield from take_out_groups(context, acls.DELETE, request.groups_names)

    def extend(response: DeleteGroupsResponse) -> Steps[None]:
        for result in response.results:
            if result.error_code == ErrorCode.NONE:
                context.changed(Change.GROUP_DELETED, group=printable(result.group_id))
            yield
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        response.results += yield from each(
            refused,
            lambda name: DeletableGroupResult(
                group_id=name, error_code=code, error_message="Group authorization failed."
            ),
        )

    handled = yield from call(context, GroupCoordinator.delete_groups, request)
    return (yield from extended(context, handled, extend))


def _join_refused(code: ErrorCode, version: int) -> Response:
    refused = join_error(code, "")
    if version < _NULL_PROTOCOL:
        refused.protocol_name = ""
    return refused


def _sync_refused(code: ErrorCode, version: int) -> Response:
    return sync_error(code)


def _heartbeat_refused(code: ErrorCode, version: int) -> Response:
    return HeartbeatResponse(error_code=code)


def _leave_refused(code: ErrorCode, version: int) -> Response:
    return LeaveGroupResponse(error_code=code)


ROUTES: Final = (
    Route(
        ApiKey.OFFSET_COMMIT,
        handle_offset_commit,
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
        decode=decode_offset_commit,
        encode=encode_offset_commit,
        changes=(Change.OFFSETS_SET,),
    ),
    Route(
        ApiKey.OFFSET_FETCH,
        handle_offset_fetch,
        (
            requires((acls.DESCRIBE, acls.GROUP)),
            requires((acls.DESCRIBE, acls.TOPIC)),
        ),
    ),
    Route(
        ApiKey.TXN_OFFSET_COMMIT,
        handle_txn_offset_commit,
        (
            requires((acls.WRITE, acls.TRANSACTIONAL_ID)),
            requires((acls.READ, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
        changes=(Change.OFFSETS_SET,),
    ),
    Route(
        ApiKey.JOIN_GROUP, member_handler(GroupCoordinator.join, _join_refused), (requires((acls.READ, acls.GROUP)),)
    ),
    Route(
        ApiKey.HEARTBEAT,
        member_handler(GroupCoordinator.heartbeat, _heartbeat_refused),
        (requires((acls.READ, acls.GROUP)),),
    ),
    Route(
        ApiKey.LEAVE_GROUP,
        member_handler(GroupCoordinator.leave, _leave_refused),
        (requires((acls.READ, acls.GROUP)),),
    ),
    Route(
        ApiKey.SYNC_GROUP, member_handler(GroupCoordinator.sync, _sync_refused), (requires((acls.READ, acls.GROUP)),)
    ),
    Route(ApiKey.DESCRIBE_GROUPS, handle_describe_groups, (requires((acls.DESCRIBE, acls.GROUP)),)),
    Route(
        ApiKey.LIST_GROUPS,
        handle_list_groups,
        (requires((acls.DESCRIBE, acls.CLUSTER), (acls.DESCRIBE, acls.GROUP)),),
    ),
    Route(
        ApiKey.DELETE_GROUPS,
        handle_delete_groups,
        (requires((acls.DELETE, acls.GROUP)),),
        changes=(Change.GROUP_DELETED,),
    ),
    Route(
        ApiKey.OFFSET_DELETE,
        handle_offset_delete,
        (
            requires((acls.DELETE, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
        changes=(Change.OFFSETS_DELETED,),
    ),
)
