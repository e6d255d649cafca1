"""Sends the requests of the machines of group members."""

import asyncio

from barnabas_client.membership.effects import Coordinator, Send
from barnabas_client.network.connection import Connection
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Response


async def response_to(send: Send, network: Network) -> Response:
    """Send a request to its coordinator, or to any broker, and wait for the response.

    Raises:
        KafkaError: there is none.
    """
    answer = api(ApiKey(send.request.API_KEY)).response
    if send.to is None:
        return await network.ask_any(send.request, answer, purpose=Purpose.GROUP, timeout=send.timeout)
    connection = await network.connections.open((send.to.host, send.to.port), Purpose.GROUP)
    return await connection.ask(send.request, answer, timeout=send.timeout)


class EarlySearch:
    """Asks for the coordinator of a group together with the first metadata, so that a member does not wait for it.

    If this finds nothing, the member searches, and says why it does not find the coordinator.

    Args:
        group_id: the group.
        timeout: seconds to wait for the response.
    """

    def __init__(self, group_id: str, timeout: float) -> None:
        self._request = FindCoordinatorRequest(coordinator_keys=[group_id])
        self._timeout = timeout
        self._asked: asyncio.Future[FindCoordinatorResponse] | None = None

    def ask(self, connection: Connection) -> None:
        """Send the request."""
        try:
            self._asked = connection.asked(self._request, FindCoordinatorResponse, timeout=self._timeout)
        except KafkaError:
            return
        self._asked.add_done_callback(_ignore)

    @property
    def coordinator(self) -> Coordinator | None:
        """The coordinator; None if it is not known."""
        asked = self._asked
        if asked is None or not asked.done() or asked.cancelled() or asked.exception() is not None:
            return None
        for found in asked.result().coordinators:
            if found.error_code == ErrorCode.NONE:
                return Coordinator(found.node_id, found.host, found.port)
        return None


def _ignore(asked: "asyncio.Future[FindCoordinatorResponse]") -> None:
    """Read the error of a response that nothing waits for, so that asyncio does not report it."""
    if not asked.cancelled():
        asked.exception()
