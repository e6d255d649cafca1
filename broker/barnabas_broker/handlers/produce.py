"""Produce and InitProducerId.

A batch is opaque: it is checked as a whole and appended; nothing is done per record. With acks=0 there is no response,
and an error closes the connection (as in Kafka).
"""

import asyncio
from functools import partial
from typing import Final, NamedTuple

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.topic_names import topic_name
from barnabas_broker.replication.durability import DelayedOperation
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.server.connection import CloseConnection
from barnabas_broker.storage import AppendInfo
from barnabas_protocol import codec
from barnabas_protocol.codec import RequestHeader
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot import ProduceHead, ProduceTopic, decode_produce_request
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from barnabas_protocol.records.batches import CODEC_MASK, HEADER_SIZE, TRANSACTIONAL
from barnabas_protocol.records.compression import Codec
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from barnabas_protocol.wire import Buffer

#: The first version with record batches of magic 2, the only format that is stored.
_FIRST_SERVED: Final = 3
_FIRST_WITH_ZSTD: Final = 7
_NO_ID: Final = bytes(16)
#: The position of the byte of a batch's attributes that has its codec and the transactional bit.
_ATTRIBUTES: Final = 22


class Produce(NamedTuple):
    """A Produce request: its head, and per topic (name, or from version 13 on id) the batches of its partitions."""

    head: ProduceHead
    topics: list[ProduceTopic]


def decode_produce(cls: type[Request], header: RequestHeader, frame: Buffer) -> Produce:
    """Read a Produce request without copying its batches; of versions that are not served only the fields that a
    response needs.

    Raises:
        DecodeError: it is malformed.
    """
    if header.api_version >= _FIRST_SERVED:
        return Produce(*decode_produce_request(header.api_version, codec.body(cls, header, frame)))
    old = codec.decode_request(ProduceRequest, header, frame)
    topics: list[ProduceTopic] = [(t.name, [(p.index, None) for p in t.partition_data]) for t in old.topic_data]
    return Produce(ProduceHead(None, old.acks, old.timeout_ms), topics)


def handle_produce(
    context: RequestContext, request: Produce
) -> "ProduceResponse | asyncio.Future[ProduceResponse] | None":
    """Append the batches, and answer when they are as durable as acks and the topic's configuration ask for.

    Raises:
        CloseConnection: an error of a request with acks=0, which has no response.
    """
    refusal = _refuse_request(context, request)
    delayed: DelayedOperation[ProduceResponse] = DelayedOperation()
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic if isinstance(topic, str) else "",
                topic_id=topic if isinstance(topic, bytes) else _NO_ID,
                partition_responses=[
                    _append(context, topic, index, records, request.head.acks, refusal, delayed)
                    for index, records in partitions
                ],
            )
            for topic, partitions in request.topics
        ]
    )
    if request.head.acks == 0:
        for topic in response.responses:
            for partition in topic.partition_responses:
                if partition.error_code != ErrorCode.NONE:
                    code = ErrorCode.of(partition.error_code).name
                    raise CloseConnection(f"Produce with acks=0 to {topic.name}-{partition.index} failed: {code}")
        return None
    # Only acks=all is bounded by the request's timeout: an fsync ends by itself.
    return delayed.respond(response, request.head.timeout_ms / 1000 if request.head.acks == -1 else None)


def _refuse_request(context: RequestContext, request: Produce) -> KafkaError | None:
    """Why the whole request is refused; None if it is not."""
    if context.version < _FIRST_SERVED:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION, "Message formats before version 2 are not served (KIP-896).")
    if request.head.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={request.head.acks}: must be -1, 0 or 1.")
    return None


def _check_batch(records: Buffer, version: int) -> None:
    """Check that this request may carry a batch of this type.

    Raises:
        KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED (there are no transactions) or UNSUPPORTED_COMPRESSION_TYPE.
    """
    if len(records) < HEADER_SIZE:
        return  # the append refuses it as corrupt
    attributes = records[_ATTRIBUTES]
    if attributes & TRANSACTIONAL:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "This broker has no transactions.")
    if version < _FIRST_WITH_ZSTD and attributes & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {version} has no zstd, only {_FIRST_WITH_ZSTD} and newer (KIP-110).",
        )


def _append(
    context: RequestContext,
    topic: str | bytes,
    index: int,
    records: Buffer | None,
    acks: int,
    refusal: KafkaError | None,
    delayed: DelayedOperation[ProduceResponse],
) -> PartitionProduceResponse:
    try:
        if refusal is not None:
            raise refusal
        services = context.services
        name = topic if isinstance(topic, str) else topic_name(services.cluster.image, "", topic, by_id=True)
        replica = services.replicas.find(name, index)
        if name in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {name}")
        if records is None:
            raise KafkaError(ErrorCode.INVALID_RECORD, "A produce request must carry exactly one batch per partition.")
        _check_batch(records, context.version)
        if acks == -1:
            replica.check_isr()
        info: AppendInfo = replica.append(records, services.wall_ms())
    except KafkaError as error:
        return PartitionProduceResponse(
            index=index, error_code=error.code, base_offset=-1, error_message=error.message or None
        )
    answer = PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.NONE,
        base_offset=info.first_offset,
        log_append_time_ms=info.log_append_time,
        log_start_offset=info.log_start_offset,
    )
    delayed.add(replica.unacknowledged(info.last_offset, acks_all=acks == -1), partial(_acknowledge, answer))
    return answer


def _acknowledge(answer: PartitionProduceResponse, error: KafkaError | None) -> None:
    """Write the outcome of waiting for durability into a partition's answer."""
    if error is not None:
        answer.error_code, answer.error_message, answer.base_offset = error.code, error.message or None, -1


async def handle_init_producer_id(context: RequestContext, request: InitProducerIdRequest) -> InitProducerIdResponse:
    """Allocate a producer id that was never used; a producer that sends its current id gets a new one, too, which is
    safe."""
    code = ErrorCode.NONE
    producer_id = -1
    if request.transactional_id == "" or (request.producer_id == -1) is not (request.producer_epoch == -1):
        code = ErrorCode.INVALID_REQUEST
    elif request.transactional_id is not None:
        code = ErrorCode.UNSUPPORTED_VERSION  # there are no transactions
    else:
        try:
            producer_id = await context.services.cluster.next_producer_id()
        except KafkaError:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE  # retriable, and what Kafka answers when no block can be had
    return InitProducerIdResponse(
        error_code=code, producer_id=producer_id, producer_epoch=0 if code is ErrorCode.NONE else -1
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
    ),
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
)
