"""The APIs of the group coordinator. Each handler passes the request and its sender on to the coordinator.

With an authorizer it first takes out of the request what the client may not use, and puts an error for it into the
response.
"""

from asyncio import Future
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from barnabas_broker.groups.coordinator.inspection import failed_group
from barnabas_broker.groups.coordinator.offset_service import BUMPS_EPOCH
from barnabas_broker.groups.coordinator.responses import FetchedGroup, commit_error, fetch_response
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.groups.errors import join_error, sync_error
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
from barnabas_broker.handlers.lane import Handled
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.security import acls, operations
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.security.authorizer import Access
from barnabas_broker.steps import Steps, each
from barnabas_broker.storage import TopicPartition
from barnabas_protocol.acls import AclOperation
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.hot import decode_offset_commit, encode_offset_commit
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from barnabas_protocol.messages.heartbeat import HeartbeatResponse
from barnabas_protocol.messages.leave_group import LeaveGroupResponse
from barnabas_protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from barnabas_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
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
Method = Callable[[GroupCoordinator, Any, int, Caller], Response | Future[Any] | Steps[Any]]
#: Puts the errors for what was taken out of a request into its response.
Extend = Callable[[Any], None]

_ANSWERS: Final = (Response, Future)
#: The first version of JoinGroup in which a response may have no protocol.
_NULL_PROTOCOL: Final = 7


def handler_for(method: Method) -> Handler:
    """A handler that calls `method` of the coordinator."""

    def handle(context: RequestContext, request: Any) -> Handled:
        handled = method(_coordinator(context), request, context.version, _caller(context))
        return handled if isinstance(handled, _ANSWERS) else context.services.lane.respond(handled, context.peer)

    return handle


def _coordinator(context: RequestContext) -> GroupCoordinator:
    """The coordinator; without its partitions while this broker's registration does not hold."""
    services = context.services
    if not services.cluster.may_serve():
        services.group_partitions.reconcile()  # Unloads all partitions: the answer is NOT_COORDINATOR.
    return services.groups


def _caller(context: RequestContext) -> Caller:
    caller = context.caller
    if caller is None:
        access = context.access
        # Nothing here refers to the context, so that it is freed with its connection, without the collector.
        may_describe = None if access is None else partial(_describes, access)
        caller = context.caller = Caller(context.client_id, f"/{context.peer.host}", may_describe)
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
            return refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, context.version)
        return handle(context, request)

    return check


def extended(handled: Handled, extend: Extend) -> Handled:
    """The same response, now or later, with errors for what was taken out of the request."""
    if handled is None or isinstance(handled, Response):
        extend(handled)
        return handled

    async def respond() -> Response | None:
        response = await handled
        extend(response)
        return response

    return respond()


def _take_out(
    access: Access, operation: AclOperation, topics: list[Any], names: Mapping[bytes, str] | None
) -> list[Any]:
    """Remove the topics of a request on which an operation is not allowed, and return them.

    Args:
        access: what the client may do.
        operation: the operation.
        topics: of the request.
        names: by topic id, if the request has ids. A topic of an unknown id stays, and is answered as unknown.
    """

    def allowed(topic: Any) -> bool:
        name = topic.name if names is None else names.get(topic.topic_id)
        return name is None or access.allows(operation, acls.TOPIC, name)

    refused = [topic for topic in topics if not allowed(topic)]
    if refused:
        out = set(map(id, refused))
        topics[:] = [topic for topic in topics if id(topic) not in out]
    return refused


def _names(context: RequestContext, by_id_from: int) -> Mapping[bytes, str] | None:
    """The names of topics by id, if the version of the request has ids."""
    return context.services.cluster.image.names if context.version >= by_id_from else None


# OffsetCommit

#: The first version of OffsetCommit and OffsetFetch that names topics by their ids.
_TOPIC_IDS: Final = 10
_commit_offsets: Final = handler_for(GroupCoordinator.commit_offsets)


def handle_offset_commit(context: RequestContext, request: OffsetCommitRequest) -> Handled:
    """Answer OffsetCommit."""
    access = context.access
    handled = _commit_offsets(context, request) if access is None else _commit_allowed(context, request, access)
    if request.generation_id_or_member_epoch >= 0 or request.member_id:
        return handled
    return extended(handled, partial(_audit_commit, context, request.group_id))


def _audit_commit(context: RequestContext, group_id: str, response: OffsetCommitResponse) -> None:
    """Audit what is committed outside of the group's membership: a reset, or a consumer without a subscription."""
    if any(each.error_code == ErrorCode.NONE for topic in response.topics for each in topic.partitions):
        context.services.audit.offsets_set(context.principal, context.peer.host, group_id, context.client_id)


def _commit_allowed(context: RequestContext, request: OffsetCommitRequest, access: Access) -> Handled:
    if not access.allows(acls.READ, acls.GROUP, request.group_id):
        steps = commit_error(request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        return context.services.lane.respond(steps, context.peer)
    refused = _take_out(access, acls.READ, request.topics, _names(context, _TOPIC_IDS))
    if not refused:
        return _commit_offsets(context, request)

    def extend(response: OffsetCommitResponse) -> None:
        response.topics += [_not_committed(topic) for topic in refused]

    if not request.topics:
        return extended(OffsetCommitResponse(topics=[]), extend)
    return extended(_commit_offsets(context, request), extend)


def _not_committed(topic: OffsetCommitRequestTopic) -> OffsetCommitResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


# OffsetFetch

#: The first version of OffsetFetch that asks for several groups.
_GROUPS: Final = 8
_fetch_offsets: Final = handler_for(GroupCoordinator.fetch_offsets)


def handle_offset_fetch(context: RequestContext, request: OffsetFetchRequest) -> Handled:
    """Answer OffsetFetch."""
    access = context.access
    if access is None:
        return _fetch_offsets(context, request)
    if context.version < _GROUPS:
        return _fetch_of_group(context, request, access)
    return _fetch_of_groups(context, request, access)


def _fetch_of_group(context: RequestContext, request: OffsetFetchRequest, access: Access) -> Handled:
    """Answer a version that asks for one group."""
    if not access.allows(acls.DESCRIBE, acls.GROUP, request.group_id):
        failed = [FetchedGroup(request.group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED, [])]
        return context.services.lane.respond(fetch_response(request, context.version, failed), context.peer)
    refused = [] if request.topics is None else _take_out(access, acls.DESCRIBE, request.topics, None)

    def extend(response: OffsetFetchResponse) -> None:
        if request.topics is None:
            response.topics = [topic for topic in response.topics if _describes(access, topic.name)]
        response.topics += [
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(**_not_fetched(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                    for index in topic.partition_indexes
                ],
            )
            for topic in refused
        ]

    return extended(_fetch_offsets(context, request), extend)


def _fetch_of_groups(context: RequestContext, request: OffsetFetchRequest, access: Access) -> Handled:
    """Answer a version that asks for several groups."""
    names = _names(context, _TOPIC_IDS)
    refused: list[OffsetFetchRequestGroup] = []
    taken_out: dict[str, list[Any]] = {}
    everything: set[str] = set()
    for group in request.groups:
        if not access.allows(acls.DESCRIBE, acls.GROUP, group.group_id):
            refused.append(group)
        elif group.topics is None:
            everything.add(group.group_id)
        elif out := _take_out(access, acls.DESCRIBE, group.topics, names):
            taken_out.setdefault(group.group_id, []).extend(out)
    out_ids = set(map(id, refused))
    request.groups = [group for group in request.groups if id(group) not in out_ids]

    def extend(response: OffsetFetchResponse) -> None:
        for answer in response.groups:
            if answer.group_id in everything:
                answer.topics = [
                    topic
                    for topic in answer.topics
                    if _describes(access, topic.name if names is None else names.get(topic.topic_id, ""))
                ]
            if answer.error_code == ErrorCode.NONE:
                answer.topics += [
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetFetchResponsePartitions(**_not_fetched(index, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in taken_out.pop(answer.group_id, ())
                ]
        response.groups += [
            OffsetFetchResponseGroup(
                group_id=group.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[]
            )
            for group in refused
        ]

    return extended(_fetch_offsets(context, request), extend)


def _describes(access: Access, topic: str) -> bool:
    return access.allows(acls.DESCRIBE, acls.TOPIC, topic, audit=False)


def _not_fetched(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": code,
    }


# TxnOffsetCommit


def handle_txn_offset_commit(context: RequestContext, request: TxnOffsetCommitRequest) -> Handled:
    """Answer TxnOffsetCommit, after the coordinator of the transaction has confirmed that it is ongoing."""
    access = context.access
    refused: list[TxnOffsetCommitRequestTopic] = []
    if access is not None:
        code = ErrorCode.NONE
        if not access.allows(acls.WRITE, acls.TRANSACTIONAL_ID, request.transactional_id):
            code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        elif not access.allows(acls.READ, acls.GROUP, request.group_id):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if code is not ErrorCode.NONE:
            failed = [_not_committed_in_transaction(topic, code) for topic in request.topics]
            return TxnOffsetCommitResponse(throttle_time_ms=0, topics=failed)
        refused = _take_out(access, acls.READ, request.topics, None)
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
        return groups.commit_transactional_offsets(asked, version, caller, verify)

    def extend(response: TxnOffsetCommitResponse) -> None:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        response.topics += [_not_committed_in_transaction(topic, code) for topic in refused]

    handled = handler_for(commit)(context, request)
    return extended(handled, extend) if refused else handled


def _not_committed_in_transaction(topic: TxnOffsetCommitRequestTopic, code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


# OffsetDelete

_delete_offsets: Final = handler_for(GroupCoordinator.delete_offsets)


def handle_offset_delete(context: RequestContext, request: OffsetDeleteRequest) -> Handled:
    """Answer OffsetDelete."""
    if not context.allows(acls.DELETE, acls.GROUP, request.group_id):
        return OffsetDeleteResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[])
    access = context.access
    refused = [] if access is None else _take_out(access, acls.READ, request.topics, None)

    def extend(response: OffsetDeleteResponse) -> None:
        for topic in response.topics:
            deleted = [each.partition_index for each in topic.partitions if each.error_code == ErrorCode.NONE]
            if deleted and response.error_code == ErrorCode.NONE:
                what = {"group": printable(request.group_id), "topic": topic.name, "partitions": deleted}
                context.changed(Change.OFFSETS_DELETED, **what)
        if response.error_code == ErrorCode.NONE:
            response.topics += [_not_deleted(topic) for topic in refused]

    return extended(_delete_offsets(context, request), extend)


def _not_deleted(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
            for each in topic.partitions
        ],
    )


# DescribeGroups, ListGroups, DeleteGroups

_describe_groups: Final = handler_for(GroupCoordinator.describe)
_delete_groups: Final = handler_for(GroupCoordinator.delete_groups)


def take_out_groups(access: Access, operation: AclOperation, group_ids: list[str]) -> list[str]:
    """Remove the groups of a request on which an operation is not allowed, and return each once."""
    refused = {name: None for name in group_ids if not access.allows(operation, acls.GROUP, name)}
    if refused:
        group_ids[:] = [name for name in group_ids if name not in refused]
    return list(refused)


def handle_describe_groups(context: RequestContext, request: DescribeGroupsRequest) -> Handled:
    """Answer DescribeGroups."""
    access = context.access
    if access is None:
        return _describe_groups(context, request)
    refused = take_out_groups(access, acls.DESCRIBE, request.groups)

    def extend(response: DescribeGroupsResponse) -> None:
        for group in response.groups:
            if group.authorized_operations != operations.NOT_ASKED:
                group.authorized_operations = operations.authorized(access, acls.GROUP, group.group_id)
        response.groups += [failed_group(name, ErrorCode.GROUP_AUTHORIZATION_FAILED) for name in refused]

    return extended(_describe_groups(context, request), extend)


@stepwise
def handle_list_groups(context: RequestContext, request: ListGroupsRequest) -> Steps[ListGroupsResponse]:
    """Answer ListGroups: the groups that the client may describe."""
    response = yield from _coordinator(context).list_groups(request, context.version, _caller(context))
    if context.allows_on_cluster(acls.DESCRIBE, audit=False):
        return response
    shown = yield from each(
        response.groups, lambda group: context.allows(acls.DESCRIBE, acls.GROUP, group.group_id, audit=False)
    )
    response.groups = [group for group, allowed in zip(response.groups, shown, strict=True) if allowed]
    return response


def handle_delete_groups(context: RequestContext, request: DeleteGroupsRequest) -> Handled:
    """Answer DeleteGroups."""
    access = context.access
    refused = [] if access is None else take_out_groups(access, acls.DELETE, request.groups_names)

    def extend(response: DeleteGroupsResponse) -> None:
        for result in response.results:
            if result.error_code == ErrorCode.NONE:
                context.changed(Change.GROUP_DELETED, group=printable(result.group_id))
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        response.results += [DeletableGroupResult(group_id=name, error_code=code) for name in refused]

    return extended(_delete_groups(context, request), extend)


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
