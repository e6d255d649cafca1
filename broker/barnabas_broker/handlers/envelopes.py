"""Envelope: group coordinators ask other brokers for the Fetches that they see, and send what goes wrong with them.

Only other brokers of the cluster may. In Kafka an Envelope has a request of a client that a broker forwards to the
controller. Barnabas forwards none.
"""

from typing import Final

from barnabas_broker.groups.fetch_reports import VERSION, FetchMessage
from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.handlers.dispatch import Route
from barnabas_broker.handlers.markers import from_coordinator
from barnabas_broker.handlers.stepwise import stepwise
from barnabas_broker.security import acls
from barnabas_broker.security.acls import requires
from barnabas_broker.steps import Steps
from barnabas_protocol.codec import decode, encode
from barnabas_protocol.errors import DecodeError, ErrorCode
from barnabas_protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from barnabas_protocol.registry import ApiKey


@stepwise
def handle_envelope(context: RequestContext, request: EnvelopeRequest) -> Steps[EnvelopeResponse]:
    """Answer what this broker has seen of clients."""
    if not context.allows_on_cluster(acls.CLUSTER_ACTION) or not from_coordinator(context):
        return EnvelopeResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    try:
        message = decode(FetchMessage, VERSION, request.request_data)
    except DecodeError:
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
    report = yield from context.services.groups.fetches_seen(message)
    return EnvelopeResponse(response_data=encode(report, VERSION), error_code=ErrorCode.NONE)


ROUTES: Final = (
    Route(
        ApiKey.ENVELOPE,
        handle_envelope,
        (requires((acls.CLUSTER_ACTION, acls.CLUSTER)),),
        exempt=lambda request: True,
    ),
)
