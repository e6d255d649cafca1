"""The search for the coordinator of a member's group. Pure.

A part of every machine of a member (:mod:`barnabas_client.membership.classic`,
:mod:`barnabas_client.membership.consumer_member`, :mod:`barnabas_client.shares.member`): it asks any broker with
FindCoordinator, keeps the answer until the coordinator is lost, and backs off between attempts. Times and effects are
those of the machine.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas_client.errors import error_for
from barnabas_client.membership.effects import Coordinator, Disconnect, Outbox
from barnabas_client.membership.member import MemberConfig
from barnabas_protocol.backoff import Backoff, Jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse

#: The coordinator is another broker, or unknown.
COORDINATOR_GONE: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
#: After these errors a request will never succeed.
HOPELESS: Final = (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REQUEST)


class NotFound(NamedTuple):
    """An attempt that did not find the coordinator.

    Attributes:
        reason: for the log.
        error: why no attempt will; None if another one may.
    """

    reason: str
    error: KafkaError | None


class CoordinatorSearch:
    """The coordinator, or the search for it.

    Args:
        config: the group, and the back-off.
        out: of the machine.
        subscribed: whether the member needs the coordinator, to join or to stay in the group.
        jitter: for the back-off.
    """

    def __init__(self, config: MemberConfig, out: Outbox, subscribed: Callable[[], bool], jitter: Jitter) -> None:
        #: None while it is not known.
        self.coordinator: Coordinator | None = None
        #: Whether the program has asked for it: then it is found without a subscription, too.
        self.wanted = False
        #: The ticket of the request in flight.
        self.ticket: int | None = None
        self._config = config
        self._out = out
        self._subscribed = subscribed
        self._backoff = Backoff(config.retry_backoff, config.retry_backoff_max, jitter)
        self._at = 0.0  # the next attempt
        self._found_at = 0.0

    def due(self) -> float | None:
        """When the next request is due; None if there is nothing to ask for, or one is in flight."""
        needed = self.coordinator is None and self.ticket is None and (self.wanted or self._subscribed())
        return self._at if needed else None

    def ask(self, _: float) -> None:
        """Send the request."""
        request = FindCoordinatorRequest(coordinator_keys=[self._config.group_id])
        self.ticket = self._out.send(request, None, self._config.request_timeout)

    def answered(self, response: FindCoordinatorResponse, now: float) -> NotFound | None:
        """The response has come; returns None if it has the coordinator."""
        self.ticket = None
        found = response.coordinators[0] if response.coordinators else None
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE if found is None else ErrorCode.of(found.error_code)
        if found is not None and code == ErrorCode.NONE:
            self.found(Coordinator(found.node_id, found.host, found.port), now)
            return None
        if code.retriable:
            self._at = now + self._backoff.failed()
            return NotFound(f"FindCoordinator was answered {code.name}", None)
        error = error_for(code, f"find the coordinator of group {self._config.group_id!r}")
        return NotFound(str(error), error)

    def found(self, coordinator: Coordinator, now: float) -> None:
        """This is the coordinator."""
        self._found_at = now
        self.coordinator = coordinator
        address = f"{coordinator.host}:{coordinator.port}"
        self._out.note("found the coordinator", node=coordinator.node_id, address=address)

    def failed(self, error: KafkaError, now: float) -> NotFound:
        """The request got no response."""
        self.ticket = None
        self._at = now + self._backoff.failed()
        return NotFound(str(error), error if error.code in HOPELESS else None)

    def lose(self, reason: str, now: float) -> None:
        """The coordinator does not answer, or is another broker by now: look for it again, after a pause."""
        lost, self.coordinator = self.coordinator, None
        if lost is not None:
            if now - self._found_at > 2 * self._config.retry_backoff_max:
                self._backoff.succeeded()  # it worked; two brokers that name each other are lost sooner
            self._out.put(Disconnect(lost, reason))
            self._out.note("lost the coordinator", node=lost.node_id, reason=reason)
        self._at = max(self._at, now + self._backoff.failed())
