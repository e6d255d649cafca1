"""Charges a request to the quotas of its client, and computes how long the client has to wait.

As in Kafka, the response is sent at once and says how long that is; the connection is muted meanwhile. The bytes of a
Produce request count when it starts, so that the requests after it wait; those of a Fetch response when it is ready
(:mod:`barnabas_broker.handlers.fetch`); the time of a request when its handler has returned.
"""

from copy import copy

from barnabas_broker.handlers.context import RequestContext
from barnabas_broker.quotas.clients import milliseconds
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Response


class Charge:
    """The use of one request, while there are quotas.

    Args:
        context: the request.
        key: its API.
        size: its bytes.
    """

    __slots__ = ("_client", "_context", "_exempt", "_key", "_produce")

    def __init__(self, context: RequestContext, key: ApiKey, size: int) -> None:
        self._context = context
        self._key = key
        self._client = context.principal.name, context.client_id
        self._exempt = True
        #: Seconds that the client has to wait for what it has produced.
        self._produce = 0.0
        if key is ApiKey.PRODUCE:
            services = context.services
            self._produce = services.quotas.produces.record(*self._client, size, services.now())
            if self._produce > 0:
                context.peer.mute(self._produce)

    def handled(self, seconds: float, *, exempt: bool) -> None:
        """The handler has returned after `seconds`. The time of an exempt request does not count."""
        self._exempt = exempt
        if not exempt:
            services = self._context.services
            services.quotas.requests.record(*self._client, 100 * seconds, services.now())

    def answer(self, response: Response | None) -> Response | None:
        """Mute the connection for as long as the client has to wait, and state that in the response.

        Args:
            response: the response, with what its handler makes the client wait for; None if there is none.
        """
        services, peer = self._context.services, self._context.peer
        quotas, now = services.quotas, services.now()
        spent, peer.spent = peer.spent, 0.0
        waits = {quotas.produces: self._produce}
        if not self._exempt:
            # Over its quota, a consumer gets no records, which is decided before: what it spends counts the next time.
            wait = quotas.requests.record(*self._client, 100 * spent, now)
            waits[quotas.requests] = 0.0 if self._key is ApiKey.FETCH else wait
        by_handler: int = getattr(response, "throttle_time_ms", 0)
        kind = max(waits, key=lambda each: waits[each])
        wait_ms = milliseconds(waits[kind])
        if by_handler > wait_ms:
            peer.mute(by_handler / 1000)
            if self._key is not ApiKey.FETCH:
                quotas.mutations.count(by_handler / 1000)
            return response
        if wait_ms <= 0:
            return response
        kind.count(wait_ms / 1000)
        peer.mute(wait_ms / 1000)
        if hasattr(response, "throttle_time_ms"):
            response = copy(response)  # a handler may give the same one to several clients
            setattr(response, "throttle_time_ms", wait_ms)  # noqa: B010 not every response has it
        return response
