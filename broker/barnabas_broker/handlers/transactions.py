"""Transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions.

The rules are in :mod:`barnabas_broker.transactions`; here requests and responses are translated. Clients that are older
than PRODUCER_FENCED get INVALID_PRODUCER_EPOCH for it (KIP-588).

Known deviations from Kafka: a pattern of ListTransactions that is too large is refused
(:mod:`barnabas_broker.regexes.regex`), and one that takes too long is answered with REQUEST_TIMED_OUT. Two-phase commit
(KIP-939) is not served. DescribeTransactions answers a transactional id that is named again only while the response is
short (:mod:`barnabas_broker.repeats`).
"""

import asyncio
from collections.abc import Awaitable, Collection, Sequence
from typing import Final

from barnabas_broker.handlers.authorization import split, take_out
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, stepwise
from barnabas_broker.regexes import InvalidRegexError, TooSlowError
from barnabas_broker.repeats import Repeats
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.server.connection import CloseConnection
from barnabas_broker.steps import Steps, distinct, release
from barnabas_broker.storage import TopicPartition
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_broker.transactions.transaction import NONE, SERVER_VERSION, TransactionState, TxnReply
from barnabas_protocol.acls import CLUSTER_NAME
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from barnabas_protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas_protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from barnabas_protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionListing,
)
from barnabas_protocol.registry import ApiKey

#: The first versions whose clients know PRODUCER_FENCED.
_INIT_KNOWS_FENCED: Final = 4
_OTHERS_KNOW_FENCED: Final = 2
#: The first version of AddPartitionsToTxn that brokers send, and the first of transactions of version 2.
_FROM_BROKERS: Final = 4
_ADD_SECOND: Final = 5
#: The first version of EndTxn of transactions of version 2.
_END_SECOND: Final = 5

#: Transactions that are answered in one turn of the event loop.
_STEP: Final = 100

_Codes = dict[TopicPartition, ErrorCode]


def _coordinator(context: RequestContext) -> TransactionCoordinator:
    """The coordinator; without its partitions while this broker's registration does not hold."""
    services = context.services
    if not services.cluster.may_serve():
        services.transaction_partitions.reconcile()  # Unloads all partitions: the answer is NOT_COORDINATOR.
    return services.transactions


def _code(error: ErrorCode, version: int, knows_fenced: int) -> ErrorCode:
    """The error code as clients of a version know it."""
    fenced = error is ErrorCode.PRODUCER_FENCED and version < knows_fenced
    return ErrorCode.INVALID_PRODUCER_EPOCH if fenced else error


def _in_time(reply: TxnReply) -> TxnReply:
    """The reply to a request that is not late.

    Raises:
        CloseConnection: it came on an old connection; a client that still uses that one repeats it on a new one.
    """
    if reply.error is ErrorCode.NETWORK_EXCEPTION:
        raise CloseConnection("a request about a transaction came after its client had gone on on a newer connection")
    return reply


# InitProducerId


async def handle_init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Answer InitProducerId: a producer id that was never used, or for a transactional id the next epoch of its own.

    An idempotent producer that sends its current id gets a new one, which is safe.
    """
    if (request.producer_id == NONE) is not (request.producer_epoch == NONE) or request.transactional_id == "":
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=NONE)
    if request.transactional_id is None:
        if not _may_be_idempotent(context):
            return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, producer_epoch=NONE)
        try:
            producer_id = await context.services.cluster.next_producer_id()
        except KafkaError:
            # Retriable, and what Kafka answers when no block can be had.
            return InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, producer_epoch=NONE)
        return InitProducerIdResponse(error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0)
    if not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, request.transactional_id):
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return InitProducerIdResponse(error_code=code, producer_epoch=NONE)
    expected = None if request.producer_id == NONE else (request.producer_id, request.producer_epoch)
    reply = await _coordinator(context).init_producer_id(
        request.transactional_id,
        request.transaction_timeout_ms,
        expected,
        context.client_id,
        context.peer.number,
        f"/{context.peer.host}",
    )
    return InitProducerIdResponse(
        error_code=_code(reply.error, context.version, _INIT_KNOWS_FENCED),
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


def _may_be_idempotent(context: RequestContext) -> bool:
    """Whether a client may have a producer id: it is enough that it may write to some topic (KIP-679)."""
    access = context.access
    return (
        access is None
        or access.allows(acls.IDEMPOTENT_WRITE, acls.CLUSTER, CLUSTER_NAME, audit=False)
        or access.allows_any(acls.WRITE, acls.TOPIC)
        or access.allows(acls.IDEMPOTENT_WRITE, acls.CLUSTER, CLUSTER_NAME)
    )


# AddPartitionsToTxn, AddOffsetsToTxn


@stepwise
def handle_add_partitions(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> Steps[AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]]:
    """Answer AddPartitionsToTxn. Of one transaction all partitions are added, or none is."""
    if context.version >= _FROM_BROKERS:
        if not context.allows_on_cluster(acls.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(
                throttle_time_ms=0, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, results_by_transaction=[]
            )
        asked = list(request.transactions)
    else:
        asked = [
            AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )
        ]
    begun: list[tuple[str, _Codes | asyncio.Future[TxnReply], Sequence[TopicPartition]]] = []
    for transaction in asked:
        partitions: _Codes = {}
        refused: Collection[str] = ()
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if context.version < _FROM_BROKERS:
            names = yield from distinct(topic.name for topic in transaction.topics)
            if not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, transaction.transactional_id):
                refused, code = names, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            else:
                refused = yield from split(context, names, acls.WRITE)
        for topic in transaction.topics:
            yield
            for index in topic.partitions:
                where = TopicPartition(topic.name, index)
                partitions[where] = code if topic.name in refused else _addable(context, where)
                yield
        outcome: _Codes | asyncio.Future[TxnReply] = partitions
        if any(partitions.values()):
            for where, found in partitions.items():
                partitions[where] = found or ErrorCode.OPERATION_NOT_ATTEMPTED
                yield
        else:
            outcome = _begin(context, transaction, partitions)
        named = list(partitions) if isinstance(outcome, asyncio.Future) else ()
        begun.append((transaction.transactional_id, outcome, named))
        yield
    return _added(context, begun)


def _addable(context: RequestContext, where: TopicPartition) -> ErrorCode:
    """Whether a partition can be added to a transaction."""
    if context.version < _FROM_BROKERS and where.topic in INTERNAL_TOPICS:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.services.cluster.image.topics.get(where.topic)
    if topic is None or not 0 <= where.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _begin(
    context: RequestContext, asked: AddPartitionsToTxnTransaction, partitions: _Codes
) -> "_Codes | asyncio.Future[TxnReply]":
    """Start to add or verify the partitions of one transaction: the codes, or a future of one for all."""
    coordinator = _coordinator(context)
    who = asked.transactional_id, asked.producer_id, asked.producer_epoch
    if asked.verify_only:
        return coordinator.verify_here(*who, partitions)
    version = SERVER_VERSION if context.version >= _ADD_SECOND else 0
    # A broker is no client: the name of the client that used the transactional id stays.
    client, connection = (context.client_id, context.peer.number) if context.version < _FROM_BROKERS else ("", 0)
    return coordinator.add_partitions(*who, list(partitions), version, client, connection)


async def _added(
    context: RequestContext,
    begun: "Sequence[tuple[str, _Codes | asyncio.Future[TxnReply], Sequence[TopicPartition]]]",
) -> AddPartitionsToTxnResponse:
    results = []
    for number, (transactional_id, outcome, partitions) in enumerate(begun, 1):
        if isinstance(outcome, asyncio.Future):
            error = _in_time(await outcome).error
            outcome = dict.fromkeys(partitions, _code(error, context.version, _OTHERS_KNOW_FENCED))
        adding = context.services.slicer.run(_added_to(transactional_id, outcome), context.peer)
        results.append(adding if isinstance(adding, AddPartitionsToTxnResult) else await adding)
        if not number % _STEP:
            await asyncio.sleep(0)
    if context.version >= _FROM_BROKERS:
        return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results)
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results[0].topic_results)


def _added_to(transactional_id: str, codes: _Codes) -> Steps[AddPartitionsToTxnResult]:
    """The result of one transaction; `codes` are released."""
    topics: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        topics.setdefault(topic, []).append(result)
        yield
    yield from release(codes)
    return AddPartitionsToTxnResult(
        transactional_id=transactional_id,
        topic_results=[
            AddPartitionsToTxnTopicResult(name=name, results_by_partition=each) for name, each in topics.items()
        ],
    )


async def handle_add_offsets(context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
    """Answer AddOffsetsToTxn: adds the partition of ``__consumer_offsets`` that the group belongs to."""
    refused = ErrorCode.NONE
    if not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, request.transactional_id):
        refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not context.allows(acls.READ, acls.GROUP, request.group_id):
        refused = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if refused is not ErrorCode.NONE:
        return AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=refused)
    where = TopicPartition(OFFSETS_TOPIC, context.services.groups.partition_for(request.group_id))
    reply = _in_time(
        await _coordinator(context).add_partitions(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            [where],
            0,
            context.client_id,
            context.peer.number,
        )
    )
    return AddOffsetsToTxnResponse(
        throttle_time_ms=0, error_code=_code(reply.error, context.version, _OTHERS_KNOW_FENCED)
    )


# EndTxn


async def handle_end_txn(context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    """Answer EndTxn, when the decision is in the log. The markers follow."""
    if not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, request.transactional_id):
        return EndTxnResponse(throttle_time_ms=0, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    version = SERVER_VERSION if context.version >= _END_SECOND else 0
    reply = _in_time(
        await _coordinator(context).end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            version,
            context.client_id,
            context.peer.number,
        )
    )
    return EndTxnResponse(
        throttle_time_ms=0,
        error_code=_code(reply.error, context.version, _OTHERS_KNOW_FENCED),
        producer_id=reply.producer_id,
        producer_epoch=reply.producer_epoch,
    )


# DescribeTransactions, ListTransactions


@stepwise
def handle_describe_transactions(
    context: RequestContext, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    """Answer DescribeTransactions. One that is named again is described again, as far as that is bounded."""
    coordinator, ids = _coordinator(context), request.transactional_ids
    refused = yield from split(context, ids, acls.DESCRIBE, acls.TRANSACTIONAL_ID)
    states = []
    repeats = Repeats()
    for transactional_id in ids:
        if transactional_id in refused:
            state = _not_described(transactional_id, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
        elif repeats.refuses(transactional_id):
            state = _not_described(transactional_id, ErrorCode.INVALID_REQUEST)
        else:
            state = _described(coordinator, transactional_id)
            yield from take_out(context, state.topics, lambda each: each.topic, acls.DESCRIBE)
            repeats.answered(transactional_id, 1 + sum(len(topic.partitions) for topic in state.topics))
        states.append(state)
        yield
    return DescribeTransactionsResponse(throttle_time_ms=0, transaction_states=states)


def _not_described(transactional_id: str, code: ErrorCode) -> DescribedTransaction:
    return DescribedTransaction(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )


def _described(coordinator: TransactionCoordinator, transactional_id: str) -> DescribedTransaction:
    try:
        found = coordinator.describe(transactional_id)
    except KafkaError as error:
        return _not_described(transactional_id, error.code)
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(found.partitions):
        topics.setdefault(topic, []).append(index)
    return DescribedTransaction(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.value,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=name, partitions=indexes) for name, indexes in topics.items()],
    )


@stepwise
def handle_list_transactions(context: RequestContext, request: ListTransactionsRequest) -> Steps[Handled]:
    """Answer ListTransactions: the transactional ids that this broker coordinates."""
    names = {state.value: state for state in TransactionState}
    response = ListTransactionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        unknown_state_filters=[],
        transaction_states=[],
    )
    try:
        found = _coordinator(context).listed()
    except KafkaError as error:
        response.error_code = error.code
        return response
    states: set[TransactionState] = set()
    for name in request.state_filters:
        if name in names:
            states.add(names[name])
        else:
            response.unknown_state_filters.append(name)
        yield
    producer_ids = yield from distinct(request.producer_id_filters)
    started_before = context.services.wall_ms() - request.duration_filter if request.duration_filter >= 0 else None

    for transaction in found:
        metadata = transaction.metadata
        if (
            metadata.state is not TransactionState.DEAD
            and (not producer_ids or metadata.producer_id in producer_ids)
            and (not request.state_filters or metadata.state in states)
            and (started_before is None or metadata.start_ms < started_before)
            and context.allows(acls.DESCRIBE, acls.TRANSACTIONAL_ID, transaction.transactional_id, audit=False)
        ):
            response.transaction_states.append(
                TransactionListing(
                    transactional_id=transaction.transactional_id,
                    producer_id=metadata.producer_id,
                    transaction_state=metadata.state.value,
                )
            )
        yield
    pattern = request.transactional_id_pattern
    return _matching(context, pattern, response) if pattern else response


async def _matching(
    context: RequestContext, pattern: str, response: ListTransactionsResponse
) -> ListTransactionsResponse:
    """The response with the transactional ids that a pattern matches, which is found out in a thread."""
    listed, client = response.transaction_states, (str(context.principal), f"/{context.peer.host}")
    found: asyncio.Future[frozenset[str] | Exception] = asyncio.get_running_loop().create_future()

    def done(result: frozenset[str] | Exception) -> None:
        if not found.done():  # the connection may have ended
            found.set_result(result)

    context.services.regexes.filter(pattern, [each.transactional_id for each in listed], client, done)
    match await found:
        case frozenset() as matched:
            response.transaction_states = [each for each in listed if each.transactional_id in matched]
        case InvalidRegexError():
            response.error_code, response.transaction_states = ErrorCode.INVALID_REGULAR_EXPRESSION, []
        case TooSlowError():
            response.error_code, response.transaction_states = ErrorCode.REQUEST_TIMED_OUT, []
        case error:
            raise error
    return response


ROUTES: Final = (
    Route(
        ApiKey.INIT_PRODUCER_ID,
        handle_init_producer_id,
        (
            requires((acls.WRITE, acls.TRANSACTIONAL_ID), when="the request has a transactional id"),
            requires(
                (acls.IDEMPOTENT_WRITE, acls.CLUSTER),
                (acls.WRITE, acls.TOPIC),
                when="it has none; WRITE on any one topic is enough",
            ),
        ),
    ),
    Route(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        handle_add_partitions,
        (
            requires((acls.WRITE, acls.TRANSACTIONAL_ID), when="versions 0 to 3, of clients"),
            requires((acls.WRITE, acls.TOPIC), when="versions 0 to 3, of clients"),
            requires((acls.CLUSTER_ACTION, acls.CLUSTER), when="versions 4 and up, of brokers"),
        ),
        alone=True,
    ),
    Route(
        ApiKey.ADD_OFFSETS_TO_TXN,
        handle_add_offsets,
        (requires((acls.WRITE, acls.TRANSACTIONAL_ID)), requires((acls.READ, acls.GROUP))),
        alone=True,
    ),
    Route(ApiKey.END_TXN, handle_end_txn, (requires((acls.WRITE, acls.TRANSACTIONAL_ID)),), alone=True),
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
