"""Sends the requests of the machines of group members."""

from barnabas_client.membership.effects import Send
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
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
