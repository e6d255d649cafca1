"""A connection to another broker, for the Fetch requests of followers. Every request has a timeout."""

import asyncio
from typing import Final, cast

from barnabas_protocol.codec import encode_request
from barnabas_protocol.errors import DecodeError
from barnabas_protocol.exchange import Exchange
from barnabas_protocol.framing import Framer
from barnabas_protocol.schema import Request

#: The size of a response: ``replica.fetch.response.max.bytes``, or one batch that is larger.
_MOST_BYTES: Final = 256 * 1024 * 1024


class BrokerConnection(asyncio.BufferedProtocol):
    """One connection; see :meth:`open`.

    Args:
        client_id: the client id of this broker.
    """

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._framer = Framer(_MOST_BYTES)
        self._exchange: Exchange[asyncio.Future[bytes | bytearray]] = Exchange()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(cls, host: str, port: int, client_id: str, timeout: float) -> "BrokerConnection":
        """Connect.

        Raises:
            OSError: no connection, or not in time (TimeoutError).
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(lambda: cls(client_id), host, port)
        return connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are no subclass

    def get_buffer(self, sizehint: int) -> memoryview:
        """Called by the loop."""
        return self._framer.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """Called by the loop."""
        try:
            for frame in self._framer.received(nbytes):
                waiter = self._exchange.answered(frame)
                if not waiter.done():
                    waiter.set_result(frame)
        except DecodeError as error:
            self._end(ConnectionError(str(error)))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop."""
        self._end(ConnectionError("the connection was closed" if exc is None else str(exc)))

    def _end(self, error: ConnectionError) -> None:
        self.close()
        for waiter in self._exchange.abandon():
            if not waiter.done():
                waiter.set_exception(error)

    async def send(self, request: Request, version: int, timeout: float) -> bytes | bytearray:
        """Send a request and wait for the response, a frame.

        Raises:
            OSError: the connection was closed, or the response did not arrive in time (TimeoutError).
        """
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the connection was closed")
        waiter: asyncio.Future[bytes | bytearray] = asyncio.get_running_loop().create_future()
        correlation_id = self._exchange.sent(waiter)
        self._transport.write(encode_request(request, version, correlation_id, self._client_id))
        async with asyncio.timeout(timeout):
            return await waiter

    def close(self) -> None:
        """Close the connection at once."""
        if self._transport is not None:
            self._transport.abort()
