"""Connections to other brokers: of followers, of coordinators. Every request has a timeout."""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from barnabas_broker.security.tls import TlsContexts
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

    Attributes:
        lost: why it was closed; None while it is open.
        on_lost: called when it is closed.
    """

    def __init__(self, client_id: str) -> None:
        self.lost: ConnectionError | None = None
        self.on_lost: Callable[[], object] | None = None
        self._client_id = client_id
        self._framer = Framer(_MOST_BYTES)
        self._exchange: Exchange[asyncio.Future[bytes | bytearray]] = Exchange()
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def open(
        cls, host: str, port: int, client_id: str, timeout: float, tls: TlsContexts | None = None
    ) -> "BrokerConnection":
        """Connect.

        Args:
            host: the broker's address.
            port: its port.
            client_id: the client id of this broker.
            timeout: seconds for all of it.
            tls: the certificates of this broker; None for plain text.

        Raises:
            OSError: no connection, or not in time (TimeoutError).
        """
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout):
            _, connection = await loop.create_connection(
                lambda: cls(client_id), host, port, ssl=None if tls is None else tls.client
            )
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
        self.lost = self.lost or error
        if self.on_lost is not None:
            self.on_lost()
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


class BrokerConnections:
    """One connection to each broker that something is asked of, opened when it is first needed.

    Args:
        client_id: of this broker.
        address: finds the host and port of a broker; None while it is not registered.
        tls: the certificates of this broker; None for plain text.
    """

    def __init__(
        self, client_id: str, address: Callable[[int], tuple[str, int] | None], tls: TlsContexts | None = None
    ) -> None:
        self._client_id = client_id
        self._tls = tls
        self._address = address
        self._open: dict[int, tuple[tuple[str, int], asyncio.Task[BrokerConnection]]] = {}

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        """Send a request to a broker and wait for the response, a frame.

        Raises:
            OSError: the broker is not registered, cannot be reached, or does not answer in time (TimeoutError). The
                next request opens another connection.
        """
        address = self._address(node_id)
        if address is None:
            raise ConnectionError(f"broker {node_id} is not registered")
        known = self._open.get(node_id)
        if known is None or known[0] != address:
            self._drop(node_id, known)
            opening = BrokerConnection.open(*address, self._client_id, timeout, self._tls)
            known = self._open[node_id] = address, asyncio.get_running_loop().create_task(opening)
        try:
            # Others wait for the same connection: it goes on to be opened if this request is cancelled.
            connection = await asyncio.shield(known[1])
            return await connection.send(request, version, timeout)
        except OSError:
            self._drop(node_id, known)
            raise

    def _drop(self, node_id: int, known: "tuple[tuple[str, int], asyncio.Task[BrokerConnection]] | None") -> None:
        """Close a connection, if it is still the current one."""
        if known is not None and self._open.get(node_id) is known:
            del self._open[node_id]
            _close(known[1])

    async def close(self) -> None:
        """Close all connections."""
        opened, self._open = list(self._open.values()), {}
        for _, task in opened:
            _close(task)
        await asyncio.gather(*(task for _, task in opened), return_exceptions=True)


def _close(task: "asyncio.Task[BrokerConnection]") -> None:
    if not task.done():
        task.cancel()
    elif not task.cancelled() and task.exception() is None:
        task.result().close()
