"""The APIs of the group coordinator. Each handler passes the request and its sender on to the coordinator."""

from asyncio import Future
from collections.abc import Callable, Mapping
from typing import Any, Final

from barnabas_broker.groups.coordinator.offset_service import BUMPS_EPOCH
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.groups.effects import Caller
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Handler, Route
from barnabas_broker.handlers.lane import Handled
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps
from barnabas_broker.storage import TopicPartition
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.hot import decode_offset_commit, encode_offset_commit
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response

#: A method of the coordinator. What takes longer with more in the request is a generator of steps.
Method = Callable[[GroupCoordinator, Any, int, Caller], Response | Future[Any] | Steps[Any]]

_ANSWERS: Final = (Response, Future)


def handler_for(method: Method) -> Handler:
    """A handler that calls `method` of the coordinator."""

    def handle(context: RequestContext, request: Any) -> Handled:
        services = context.services
        if not services.cluster.may_serve():
            services.group_partitions.reconcile()  # Unloads all partitions: the answer is NOT_COORDINATOR.
        caller = Caller(context.client_id, f"/{context.peer.host}")
        handled = method(services.groups, request, context.version, caller)
        return handled if isinstance(handled, _ANSWERS) else services.lane.respond(handled, context.peer)

    return handle


def handle_txn_offset_commit(context: RequestContext, request: TxnOffsetCommitRequest) -> Handled:
    """Answer TxnOffsetCommit, after the coordinator of the transaction has confirmed that it is ongoing."""
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

    return handler_for(commit)(context, request)


ROUTES: Final = (
    Route(
        ApiKey.OFFSET_COMMIT,
        handler_for(GroupCoordinator.commit_offsets),
        (
            requires((acls.READ, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
        decode=decode_offset_commit,
        encode=encode_offset_commit,
    ),
    Route(
        ApiKey.OFFSET_FETCH,
        handler_for(GroupCoordinator.fetch_offsets),
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
    Route(ApiKey.JOIN_GROUP, handler_for(GroupCoordinator.join), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.HEARTBEAT, handler_for(GroupCoordinator.heartbeat), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.LEAVE_GROUP, handler_for(GroupCoordinator.leave), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.SYNC_GROUP, handler_for(GroupCoordinator.sync), (requires((acls.READ, acls.GROUP)),)),
    Route(ApiKey.DESCRIBE_GROUPS, handler_for(GroupCoordinator.describe), (requires((acls.DESCRIBE, acls.GROUP)),)),
    Route(
        ApiKey.LIST_GROUPS,
        handler_for(GroupCoordinator.list_groups),
        (requires((acls.DESCRIBE, acls.CLUSTER), (acls.DESCRIBE, acls.GROUP)),),
    ),
    Route(ApiKey.DELETE_GROUPS, handler_for(GroupCoordinator.delete_groups), (requires((acls.DELETE, acls.GROUP)),)),
    Route(
        ApiKey.OFFSET_DELETE,
        handler_for(GroupCoordinator.delete_offsets),
        (
            requires((acls.DELETE, acls.GROUP)),
            requires((acls.READ, acls.TOPIC)),
        ),
    ),
)
