"""Produce and InitProducerId.

A batch is checked (:mod:`barnabas_broker.storage.validate`) and appended as it is. With acks=0 there is no response,
and an error closes the connection (as in Kafka).

Clients write to no internal topic. Other brokers write to ``__group_events``: those that have events of groups whose
events this broker keeps.

Before a transaction begins on a partition, its coordinator is asked whether the partition belongs to it, and from
version 12 on to add it (KIP-890). Later batches of the transaction need no question.
"""

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.handlers.authorization import split
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.leader_hints import leader_hint
from barnabas_broker.handlers.markers import from_coordinator
from barnabas_broker.handlers.stepwise import Handled, respond
from barnabas_broker.handlers.topic_names import topic_name
from barnabas_broker.replication.durability import DelayedOperation
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.principals import ANONYMOUS
from barnabas_broker.server.connection import CloseConnection
from barnabas_broker.server.refusals import OLD_MESSAGE_FORMATS
from barnabas_broker.steps import Steps
from barnabas_broker.storage import AppendInfo, InvalidRecords, Log, MalformedBatch, TopicPartition, takes_long
from barnabas_broker.storage.producer_state import Producers, Verification
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.hot.produce import ProduceHead, ProduceTopic, decode_produce_request, encode_produce_response
from barnabas_protocol.internal_topics import EVENTS_TOPIC, INTERNAL_TOPICS
from barnabas_protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.records.batches import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL, read_header
from barnabas_protocol.records.compression import Codec
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request, Response
from barnabas_protocol.wire import MAX_REQUEST_ELEMENTS, Buffer

#: The first version with record batches of magic 2, the only format that is stored.
_FIRST_SERVED: Final = 3
_FIRST_WITH_ZSTD: Final = 7
#: The first version in which errors name the leader (KIP-951).
_FIRST_WITH_LEADERS: Final = 10
#: The first version whose clients know TRANSACTION_ABORTABLE (KIP-890), and the first that adds partitions to
#: transactions.
_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_THAT_ADDS: Final = 12
_NO_ID: Final = bytes(16)
#: Topics and partitions that are decoded at once; a thread decodes a request with more.
_FEW: Final = 5_000
#: Positions in a batch: its magic, and the byte of its attributes that has the codec and the transactional bit.
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22


#: No topics that the client may not write to.
_NOTHING: Final[Mapping[str | bytes, KafkaError]] = {}
#: Errors that Kafka answers without the log start offset, though it has found the partition.
_WITHOUT_START: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    }
)


class Produce(NamedTuple):
    """A Produce request: its head, and per topic (name, or from version 13 on id) the batches of its partitions."""

    head: ProduceHead
    topics: list[ProduceTopic]


def decode_produce(cls: type[Request], header: RequestHeader, frame: Buffer, most: int = _FEW) -> Produce:
    """Read a Produce request without copying its batches; of versions that are not served only the fields that a
    response needs.

    Raises:
        LongRequest: it has more than `most` topics and partitions.
        DecodeError: it is malformed.
    """
    if header.api_version >= _FIRST_SERVED:
        return Produce(*decode_produce_request(header.api_version, codec.body(cls, header, frame), most))
    old = codec.decode_request(ProduceRequest, header, frame)
    topics: list[ProduceTopic] = [(t.name, [(p.index, None) for p in t.partition_data]) for t in old.topic_data]
    return Produce(ProduceHead(None, old.acks, old.timeout_ms), topics)


#: A partition as a Produce request names it.
_Partition = tuple[str | bytes, int]
#: The partitions on which a transaction begins: what the coordinator confirmed, or why nothing is appended.
_Verified = Mapping[_Partition, Verification | KafkaError]

#: Retriable errors of a coordinator that producers would not repeat, or only after a metadata refresh.
_UNVERIFIED: Final = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
#: Errors after which the producer does not send the batch again, so that the question need not be remembered.
_FINAL: Final = frozenset(
    {
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

#: What a thread must look into before it is appended: the log, the batch, and what appends it and writes the answer.
_Check = tuple[Log, Buffer, Callable[[KafkaError | None], None]]


def handle_produce(context: RequestContext, request: Produce) -> Handled:
    """Append the batches, and answer when they are as durable as acks and the topic's configuration ask for.

    Raises:
        CloseConnection: an error of a request with acks=0, which has no response.
    """
    refusal = _refuse_request(context, request)
    if refusal is None and (_may_be_refused(context, request) or _may_be_transactional(request)):
        steps = _append_allowed(context, request)
    else:
        steps = _append_all(context, request, refusal, _NOTHING, {})
    return respond(context, steps)


def _may_be_refused(context: RequestContext, request: Produce) -> bool:
    """Whether it is not known of each topic that the client may write to it."""
    access = context.access
    if access is None:
        return False
    writable, names = access.writable, context.services.cluster.image.names
    return any(
        topic not in writable and (isinstance(topic, str) or names.get(topic) not in writable)
        for topic, _ in request.topics
    )


def _may_be_transactional(request: Produce) -> bool:
    """Whether the request or one of its batches says that it is part of a transaction; also if it has too many
    partitions to be looked at here."""
    if request.head.transactional_id is not None:
        return True
    looked_at = 0
    for _, partitions in request.topics:
        looked_at += 1 + len(partitions)
        if looked_at > _FEW:
            return True
        for _, records in partitions:
            if records is not None and len(records) >= HEADER_SIZE and records[_ATTRIBUTES] & TRANSACTIONAL:
                return True
    return False


def _append_allowed(context: RequestContext, request: Produce) -> Steps[Handled]:
    """Append the batches that the client may write, and those of a transaction once its coordinator confirms them.

    Raises:
        CloseConnection: an error of a request with acks=0.
    """
    refused = yield from _not_authorized(context, request)
    refusal: KafkaError | None = None
    verified: _Verified = {}
    if transactional := (yield from _transactional(request)):
        refusal = yield from _refuse_transactional(context, request, transactional)
        if refusal is None:
            wanted = [each for each in transactional if each[0][0] not in refused]
            asked, verified = yield from _ask(context, request.head.transactional_id or "", wanted)
            if asked:
                appending = context.services.slicer.start(
                    _verify_and_append(context, request, refused, asked, verified), context.peer
                )
                context.peer.hold(appending)
                return _respond_when(appending)
    return (yield from _append_all(context, request, refusal, refused, verified))


def _append_all(
    context: RequestContext,
    request: Produce,
    refusal: KafkaError | None,
    refused: Mapping[str | bytes, KafkaError],
    verified: _Verified,
) -> Steps[Handled]:
    """Append the batches of a request.

    Raises:
        CloseConnection: an error of a request with acks=0.
    """
    delayed: DelayedOperation[ProduceResponse] = DelayedOperation()
    response = ProduceResponse(responses=[], node_endpoints=[])
    checks: list[_Check] = []
    began = False
    for topic, partitions in request.topics:
        result = TopicProduceResponse(
            name=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else _NO_ID,
            partition_responses=[],
        )
        response.responses.append(result)
        if not partitions:
            yield
        why = refusal or (refused.get(topic) if refused else None)
        for index, records in partitions:
            if began:
                yield
            began = True
            answer = PartitionProduceResponse(index=index, error_code=ErrorCode.NONE, base_offset=-1)
            result.partition_responses.append(answer)
            allowed = verified.get((topic, index)) if verified else None
            _append(context, response, answer, topic, records, request.head.acks, why, delayed, checks, allowed)
    if checks:
        # Like all that takes long, it holds up the connection's other requests until it is appended.
        checking = context.services.slicer.start(_check_and_append(checks), context.peer)
        context.peer.hold(checking)
        return _respond_after(checking, request, response, delayed)
    return _respond(request, response, delayed)


class _Asked(NamedTuple):
    """A question to the coordinator: the partition and its name in the request, its producers, and the batch's."""

    partition: _Partition
    name: TopicPartition
    producers: Producers
    producer_id: int
    epoch: int
    verification: Verification


def _transactional(request: Produce) -> Steps[list[tuple[_Partition, Buffer]]]:
    """The batches that say that they are part of a transaction."""
    found: list[tuple[_Partition, Buffer]] = []
    for topic, partitions in request.topics:
        for index, records in partitions:
            if records is not None and len(records) >= HEADER_SIZE and records[_ATTRIBUTES] & TRANSACTIONAL:
                found.append(((topic, index), records))
            yield
        yield
    return found


def _refuse_transactional(
    context: RequestContext, request: Produce, transactional: list[tuple[_Partition, Buffer]]
) -> Steps[KafkaError | None]:
    """Why a request with such batches is refused; None if it is not."""
    transactional_id = request.head.transactional_id
    if transactional_id is None or not context.allows(acls.WRITE, acls.TRANSACTIONAL_ID, transactional_id):
        return KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = set()
    for _, records in transactional:
        if records[_MAGIC] == 2:
            header = read_header(records)
            if header.producer_id >= 0:
                producers.add((header.producer_id, header.producer_epoch))
        yield
    if len(producers) > 1:
        return KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
        )
    return None


def _ask(
    context: RequestContext, transactional_id: str, transactional: list[tuple[_Partition, Buffer]]
) -> Steps[tuple[list[_Asked], dict[_Partition, Verification | KafkaError]]]:
    """The questions to the coordinator before the batches are appended, and the partitions where that is not necessary
    because they are refused. A partition that is not here is refused when it is appended to."""
    services, asked = context.services, []
    refused: dict[_Partition, Verification | KafkaError] = {}
    now_ms = services.wall_ms()
    for partition, records in transactional:
        yield
        topic, index = partition
        try:
            header = read_header(records)
            name = topic if isinstance(topic, str) else topic_name(services.cluster.image, "", topic, by_id=True)
            producers = services.replicas.find(name, index).log.producers
        except (DecodeError, KafkaError):
            continue
        if header.producer_id < 0 or name in INTERNAL_TOPICS:
            continue
        try:
            verification = producers.verify(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                now_ms,
                transactional_id,
                bumps_epoch=context.version >= _FIRST_THAT_ADDS,
            )
        except KafkaError as error:
            refused[partition] = error.kept()
            continue
        if verification is not None:
            where = TopicPartition(name, index)
            asked.append(_Asked(partition, where, producers, header.producer_id, header.producer_epoch, verification))
    return asked, refused


async def _verify_and_append(
    context: RequestContext,
    request: Produce,
    refused: Mapping[str | bytes, KafkaError],
    asked: list[_Asked],
    verified: dict[_Partition, Verification | KafkaError],
) -> Handled:
    """Ask the coordinator, and append the batches of the partitions that belong to the transaction."""
    codes = await context.services.transactions.verify(
        request.head.transactional_id or "",
        asked[0].producer_id,
        asked[0].epoch,
        [each.name for each in asked],
        add=context.version >= _FIRST_THAT_ADDS,
    )
    for each in asked:
        code = codes.get(each.name, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if code is ErrorCode.NONE:
            verified[each.partition] = each.verification
            continue
        verified[each.partition] = _verification_error(code, context.version)
        if code in _FINAL:
            each.producers.not_verified(each.producer_id, each.verification)
    steps = _append_all(context, request, None, refused, verified)
    return await context.sliced(steps)


def _verification_error(code: ErrorCode, version: int) -> KafkaError:
    """The error of a partition that the coordinator has not confirmed, as clients of this version know it."""
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _FIRST_WITH_ABORTABLE:
        code = ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.INVALID_TXN_STATE:
        return KafkaError(code, "Partition was not added to the transaction")
    if code in _UNVERIFIED or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < _FIRST_THAT_ADDS):
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"Unable to verify the partition has been added to the transaction. Underlying error: {code.name}",
        )
    return KafkaError(code)


async def _respond_when(appending: "asyncio.Future[Handled]") -> Response | None:
    try:
        handled = await appending
    finally:
        del appending  # the traceback of its error has this frame
    return handled if isinstance(handled, Response | None) else await handled


async def _check_and_append(checks: list[_Check]) -> None:
    for log, records, append in checks:
        try:
            await log.check_keys(records)
        except KafkaError as error:
            append(error)
        else:
            append(None)


async def _respond_after(
    checking: "asyncio.Future[None]",
    request: Produce,
    response: ProduceResponse,
    delayed: DelayedOperation[ProduceResponse],
) -> ProduceResponse | None:
    try:
        await checking
    finally:
        del checking  # the traceback of its error has this frame
    answer = _respond(request, response, delayed)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _respond(
    request: Produce, response: ProduceResponse, delayed: DelayedOperation[ProduceResponse]
) -> "ProduceResponse | asyncio.Future[ProduceResponse] | None":
    """The response, when it is as durable as the request asks for.

    Raises:
        CloseConnection: an error of a request with acks=0.
    """
    if request.head.acks == 0:
        for result in response.responses:
            for partition in result.partition_responses:
                if partition.error_code != ErrorCode.NONE:
                    code = ErrorCode.of(partition.error_code).name
                    raise CloseConnection(f"Produce with acks=0 to {result.name}-{partition.index} failed: {code}")
        return None
    # Only acks=all is bounded by the request's timeout: an fsync ends by itself.
    return delayed.respond(response, request.head.timeout_ms / 1000 if request.head.acks == -1 else None)


def _refuse_request(context: RequestContext, request: Produce) -> KafkaError | None:
    """Why the whole request is refused; None if it is not."""
    if context.version < _FIRST_SERVED:
        context.warn_not_served(OLD_MESSAGE_FORMATS)
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Message formats before version 2 are not served (KIP-896).")
    if request.head.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.head.acks}: must be -1, 0 or 1.")
    return None


def _not_authorized(context: RequestContext, request: Produce) -> Steps[dict[str | bytes, KafkaError]]:
    """The topics that the client may not write to, as the request names them."""
    names = context.services.cluster.image.names

    def name_of(topic: str | bytes) -> str | None:
        return topic if isinstance(topic, str) else names.get(topic)

    not_allowed = yield from split(context, (name_of(topic) for topic, _ in request.topics), acls.WRITE)
    refused: dict[str | bytes, KafkaError] = {}
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    for topic, _ in request.topics if not_allowed else ():
        if name_of(topic) in not_allowed:
            refused[topic] = error
        yield
    return refused


def _check_codec(records: Buffer, version: int) -> None:
    """Check that a request without zstd does not carry it.

    Raises:
        KafkaError: UNSUPPORTED_COMPRESSION_TYPE.
    """
    # The append refuses a batch without a whole header as corrupt.
    if len(records) >= HEADER_SIZE and records[_ATTRIBUTES] & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} has no zstd, only {_FIRST_WITH_ZSTD} and newer (KIP-110).",
        )


def _refuse(answer: PartitionProduceResponse, error: KafkaError, log_start_offset: int) -> None:
    """Answer an error. `log_start_offset` is -1 if the partition was not found."""
    answer.error_code, answer.error_message = error.code, error.message or None
    if not isinstance(error, MalformedBatch) and error.code not in _WITHOUT_START:
        answer.log_start_offset = log_start_offset
    if isinstance(error, InvalidRecords):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=record.place, batch_index_error_message=record.reason)
            for record in error.errors
        ]


def _append(
    context: RequestContext,
    response: ProduceResponse,
    answer: PartitionProduceResponse,
    topic: str | bytes,
    records: Buffer | None,
    acks: int,
    refusal: KafkaError | None,
    delayed: DelayedOperation[ProduceResponse],
    checks: list[_Check] | None,
    allowed: Verification | KafkaError | None,
) -> None:
    """Append the batch of a partition and complete its answer.

    Args:
        context: the request.
        response: to it.
        answer: of the partition.
        topic: its name or id.
        records: the batch.
        acks: of the request.
        refusal: why nothing is appended.
        delayed: gets what the answer waits for.
        checks: gets a batch that a thread must look into first; None if one has.
        allowed: that its transaction may begin on the partition, or why not; None if it is part of none, or has begun.
    """
    log_start_offset = -1
    if refusal is not None:
        _refuse(answer, refusal, log_start_offset)
        return
    services = context.services
    try:
        name = topic if isinstance(topic, str) else topic_name(services.cluster.image, "", topic, by_id=True)
        replica = services.replicas.find(name, answer.index)
        if name in INTERNAL_TOPICS and not _may_append_events(context, name):
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A produce request must carry exactly one batch per partition.")
        if context.version < _FIRST_WITH_ZSTD:
            _check_codec(records, context.version)
        if isinstance(allowed, KafkaError):
            _refuse(answer, allowed, log_start_offset)
            return
        log_start_offset = replica.log.log_start_offset
        if acks == -1:
            replica.check_isr()
        settings = replica.log.settings
        if settings.compact and checks is not None and takes_long(records, settings):

            def append(error: KafkaError | None) -> None:
                if error is not None:
                    _refuse(answer, error, log_start_offset)
                else:
                    _append(context, response, answer, topic, records, acks, None, delayed, None, allowed)

            checks.append((replica.log, records, append))
            return
        if services.refused_batches:
            services.refused_batches.check(context.principal, topic, answer.index, records, replica.log.producers)
        now_ms = services.wall_ms()
        info: AppendInfo = replica.append(
            records,
            now_ms,
            keys_checked=checks is None,
            verification=allowed,
            principal=None if context.principal == ANONYMOUS else context.principal,
            producer_id_limit=services.cluster.producer_id_limit(now_ms),
        )
    except KafkaError as error:
        # Of a corrupt batch the header may be wrong.
        if error.retriable and error.code is not ErrorCode.CORRUPT_MESSAGE:
            services.refused_batches.add(context.principal, topic, answer.index, records)
        _refuse(answer, error, log_start_offset)
        _name_leader(context, response, topic, answer)
        return
    answer.base_offset = info.first_offset
    answer.log_append_time_ms, answer.log_start_offset = info.log_append_time, info.log_start_offset
    conditions = replica.unacknowledged(info.last_offset, acks_all=acks == -1)
    if conditions:
        delayed.add(conditions, partial(_acknowledge, context, response, topic, answer))


def _may_append_events(context: RequestContext, topic: str) -> bool:
    """Whether a topic has group events, and another broker writes them to this one."""
    # Not in the row of the API, which is for clients: of these, the topic refuses all.
    return topic == EVENTS_TOPIC and from_coordinator(context) and context.allows_on_cluster(acls.CLUSTER_ACTION)


def _acknowledge(
    context: RequestContext,
    response: ProduceResponse,
    topic: str | bytes,
    answer: PartitionProduceResponse,
    error: KafkaError | None,
) -> None:
    """Write the outcome of waiting for durability into a partition's answer."""
    if error is not None:
        answer.error_code, answer.error_message, answer.base_offset = error.code, error.message or None, -1
        _name_leader(context, response, topic, answer)


def _name_leader(
    context: RequestContext, response: ProduceResponse, topic: str | bytes, answer: PartitionProduceResponse
) -> None:
    """Say in a partition's error which broker leads it, if that is known."""
    hint = leader_hint(context, answer.error_code, topic, answer.index)
    if hint is None or context.version < _FIRST_WITH_LEADERS:
        return
    answer.current_leader = LeaderIdAndEpoch(leader_id=hint.node_id, leader_epoch=hint.epoch)
    if all(each.node_id != hint.node_id for each in response.node_endpoints):
        response.node_endpoints.append(
            NodeEndpoint(node_id=hint.node_id, host=hint.host, port=hint.port, rack=hint.rack)
        )


ROUTES: Final = (
    Route(
        ApiKey.PRODUCE,
        handle_produce,
        (
            requires((acls.WRITE, acls.TOPIC)),
            requires((acls.WRITE, acls.TRANSACTIONAL_ID), when="a batch is transactional"),
        ),
        decode=decode_produce,
        decode_long=partial(decode_produce, most=MAX_REQUEST_ELEMENTS),
        encode=encode_produce_response,
        exempt=lambda request: request.head.acks == 0,
    ),
)
