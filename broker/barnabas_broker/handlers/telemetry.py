"""GetTelemetrySubscriptions and PushTelemetry (KIP-714): metrics that clients push.

The rules are in :mod:`barnabas_broker.telemetry`. As in Kafka, no permission is needed: a configuration of the cluster
says which clients push what.

Known deviations: the two APIs are listed in ApiVersions while there is a subscription, and not because a plugin is
configured. Counters are asked for as totals and not as differences, so that a lost push loses nothing.
"""

from functools import partial
from typing import Final

from barnabas_broker.config.keys import TELEMETRY_MAX_BYTES
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.steps import Steps
from barnabas_broker.telemetry import MalformedMetrics, PushingClient, TelemetryClients, points
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from barnabas_protocol.records import Codec, RecordsTooLarge, decompress
from barnabas_protocol.registry import ApiKey

#: The codecs, the preferred one first.
_ACCEPTED: Final = [Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY]


def handle_get_telemetry_subscriptions(
    context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Answer GetTelemetrySubscriptions: what the client shall push, and its id."""
    services = context.services
    try:
        client_instance_id, wanted = _clients(context).ask(_client(context, request.client_instance_id))
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(
            throttle_time_ms=0,
            error_code=error.code,
            client_instance_id=bytes(16),
            subscription_id=0,
            accepted_compression_types=[],
            push_interval_ms=0,
            telemetry_max_bytes=0,
            delta_temporality=False,
            requested_metrics=[],
        )
    _follow(context, client_instance_id)
    return GetTelemetrySubscriptionsResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        client_instance_id=client_instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=list(_ACCEPTED),
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=services.config[TELEMETRY_MAX_BYTES],
        delta_temporality=False,
        requested_metrics=list(wanted.metrics),
    )


@stepwise
def handle_push_telemetry(context: RequestContext, request: PushTelemetryRequest) -> Steps[PushTelemetryResponse]:
    """Answer PushTelemetry: the values are on ``/metrics`` from now on."""
    clients, most = _clients(context), context.services.config[TELEMETRY_MAX_BYTES]
    client = _client(context, request.client_instance_id)
    code = ErrorCode.NONE
    try:
        instance = clients.push(
            client,
            request.subscription_id,
            request.compression_type,
            len(request.metrics),
            most,
            terminating=request.terminating,
        )
        _follow(context, client.client_instance_id)
        try:
            data = decompress(request.compression_type, request.metrics, most) if request.metrics else b""
            for point in points(data):
                if point is not None:
                    clients.add(instance, point)
                yield
        except RecordsTooLarge:
            code = ErrorCode.TELEMETRY_TOO_LARGE
        except (MalformedMetrics, DecodeError):
            code = ErrorCode.INVALID_RECORD
        clients.finish(instance, code)
    except KafkaError as error:
        code = error.code
    return PushTelemetryResponse(throttle_time_ms=0, error_code=code)


def _clients(context: RequestContext) -> TelemetryClients:
    clients = context.services.telemetry
    clients.subscribed(context.services.cluster.image.client_metrics)
    return clients


def _client(context: RequestContext, client_instance_id: bytes) -> PushingClient:
    peer = context.peer
    return PushingClient.of(client_instance_id, context.client_id, peer.software, peer.host, peer.port)


def _follow(context: RequestContext, client_instance_id: bytes) -> None:
    """Notice when the connection of the client is lost."""
    clients, peer = context.services.telemetry, context.peer
    if clients.connected(peer.number, client_instance_id):
        peer.ended.add(partial(clients.gone, peer.number))


ROUTES: Final = (
    Route(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, handle_get_telemetry_subscriptions, ()),
    Route(ApiKey.PUSH_TELEMETRY, handle_push_telemetry, ()),
)
