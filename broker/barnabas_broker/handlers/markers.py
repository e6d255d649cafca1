"""WriteTxnMarkers: transaction coordinators end transactions on the partitions that this broker leads (KIP-98, KIP-664,
KIP-1228).

Each marker is appended with acks=all. A partition that is named twice for one producer is answered once, and so is a
producer: the last answer counts, as in Kafka.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from barnabas_broker.config.keys import CLUSTER_URL, INTER_BROKER_LISTENER_NAME, REQUEST_TIMEOUT_MS
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import Handled, extended, stepwise
from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.replication.durability import DelayedOperation
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.security.audit import Change
from barnabas_broker.steps import Steps, distinct, each
from barnabas_broker.storage.producer_state import ANY_PRODUCER_ID
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_protocol.registry import ApiKey

log = logger("transactions")

#: The response, or a future of it if markers wait for replicas.
Answer = WriteTxnMarkersResponse | asyncio.Future[WriteTxnMarkersResponse]


@stepwise
def handle_write_txn_markers(context: RequestContext, request: WriteTxnMarkersRequest) -> Steps[Handled]:
    """Append the markers of a coordinator on another broker."""
    services = context.services
    # As in Kafka: administrators may, and brokers.
    if not context.allows_on_cluster(acls.ALTER, audit=False) and not context.allows_on_cluster(acls.CLUSTER_ACTION):
        return (yield from _not_written(request))
    timeout = services.config[REQUEST_TIMEOUT_MS] / 1000
    now_ms, replicas, groups = services.wall_ms(), services.replicas, services.groups
    refused = services.transactions.refused_markers
    if from_coordinator(context):
        return (yield from write_markers(replicas, groups, now_ms, request, timeout, refused))
    limit = services.cluster.producer_id_limit(now_ms)
    answer = yield from write_markers(replicas, groups, now_ms, request, timeout, refused, limit)
    return (yield from extended(context, answer, partial(_audit, context, request)))


def from_coordinator(context: RequestContext) -> bool:
    """Whether a request comes from a coordinator on another broker, not from a client."""
    services, client_id = context.services, context.client_id
    return (
        bool(services.config[CLUSTER_URL])
        and context.listener == services.config[INTER_BROKER_LISTENER_NAME]
        and any(client_id == client_id_of_coordinator(node_id) for node_id in services.cluster.image.brokers)
    )


def client_id_of_coordinator(node_id: int) -> str:
    """The client id of the coordinators on a broker, at other brokers."""
    return f"broker-{node_id}-transactions"


def _audit(context: RequestContext, request: WriteTxnMarkersRequest, response: WriteTxnMarkersResponse) -> Steps[None]:
    """Audit the transactions that an administrator has ended."""
    written: set[tuple[int, str, int]] = set()
    for answered in response.markers:
        for topic in answered.topics:
            for partition in topic.partitions:
                if partition.error_code == ErrorCode.NONE:
                    written.add((answered.producer_id, topic.name, partition.partition_index))
                yield
    for marker in request.markers if written else ():
        change = Change.TRANSACTION_COMMITTED if marker.transaction_result else Change.TRANSACTION_ABORTED
        for named in marker.topics:
            producer_id, name = marker.producer_id, named.name
            partitions: list[int] = []
            for index in (yield from distinct(named.partition_indexes)):
                if (producer_id, name, index) in written:
                    partitions.append(index)
                yield
            if partitions:
                context.changed(change, producer_id=producer_id, topic=name, partitions=partitions)
            yield


def _not_written(request: WriteTxnMarkersRequest) -> Steps[WriteTxnMarkersResponse]:
    """The response to a client that may not write markers."""
    response = WriteTxnMarkersResponse(markers=[])
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id, topics=[])
        response.markers.append(result)
        for topic in marker.topics:
            refused = yield from each(
                topic.partition_indexes,
                lambda index: WritableTxnMarkerPartitionResult(
                    partition_index=index, error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                ),
            )
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=refused))
            yield
        yield
    return response


def write_markers(
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    now_ms: int,
    request: WriteTxnMarkersRequest,
    timeout: float,
    refused: Folded,
    producer_id_limit: int = ANY_PRODUCER_ID,
) -> Steps[Answer]:
    """Append markers to partitions that this broker leads, and answer when they are as durable as acks=all asks for.

    Args:
        replicas: the partitions of this broker.
        groups: commits or drops the offsets that are pending in the transactions.
        now_ms: the timestamp of the markers, in ms since 1970.
        request: the markers, of a coordinator on this broker or another one.
        timeout: seconds within which they must be replicated; those that are not get REQUEST_TIMED_OUT.
        refused: logs markers that are not written.
        producer_id_limit: a number above all producer ids that the cluster has allocated, for an administrator's
            markers. A coordinator knows its ids.
    """
    delayed: DelayedOperation[WriteTxnMarkersResponse] = DelayedOperation()
    answers: dict[int, dict[str, dict[int, WritableTxnMarkerPartitionResult]]] = {}
    for marker in request.markers:
        of_producer = answers.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            of_topic = of_producer.setdefault(topic.name, {})
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index, error_code=ErrorCode.NONE)
                of_topic[index] = answer
                _append(replicas, groups, now_ms, marker, topic.name, answer, delayed, producer_id_limit, refused)
                yield
            yield
        yield
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, topics in answers.items():
        named = yield from each(
            topics.items(),
            lambda one: WritableTxnMarkerTopicResult(name=one[0], partitions=list(one[1].values())),
        )
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=named))
        yield
    return delayed.respond(response, timeout)


def _append(
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    now_ms: int,
    marker: WritableTxnMarker,
    topic: str,
    answer: WritableTxnMarkerPartitionResult,
    delayed: DelayedOperation[WriteTxnMarkersResponse],
    producer_id_limit: int,
    refused: Folded,
) -> None:
    """Append a marker to a partition and complete its answer."""
    try:
        replica = replicas.find(topic, answer.partition_index)
        replica.check_isr()
        info = replica.append_marker(
            marker.producer_id,
            marker.producer_epoch,
            now_ms,
            commit=marker.transaction_result,
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
            producer_id_limit=producer_id_limit,
        )
        conditions = replica.unacknowledged(info.last_offset, acks_all=True)
    except KafkaError as error:
        refused.add(
            "",
            partition=f"{topic}-{answer.partition_index}",
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            error=error.code.name,
            reason=error.message or error.code.name,
        )
        answer.error_code = error.code
        return
    ended = None
    if topic == OFFSETS_TOPIC:
        ended = partial(
            groups.offsets.transaction_ended,
            answer.partition_index,
            marker.producer_id,
            marker.transaction_result,
            groups.next_position(),
        )
    if conditions:
        delayed.add(conditions, partial(_appended, answer, ended))
    else:
        _appended(answer, ended, None)


def _appended(
    answer: WritableTxnMarkerPartitionResult, ended: Callable[[], None] | None, error: KafkaError | None
) -> None:
    """Write the outcome of waiting for durability into a partition's answer; `ended` ends what is pending."""
    if error is not None:
        answer.error_code = error.code
    elif ended is not None:
        ended()


ROUTES: Final = (
    Route(
        ApiKey.WRITE_TXN_MARKERS,
        handle_write_txn_markers,
        (requires((acls.ALTER, acls.CLUSTER), (acls.CLUSTER_ACTION, acls.CLUSTER)),),
        changes=(Change.TRANSACTION_COMMITTED, Change.TRANSACTION_ABORTED),
        exempt=lambda request: True,
    ),
)
