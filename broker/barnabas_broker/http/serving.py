"""Serves an application over HTTP, within limits of connections and of time. It needs aiohttp.

Clients that connect and send nothing, or their requests byte by byte, would otherwise take all descriptors of the
process, and those of files with them. So a server has few connections. It closes those that are not in use:

- if there is no place for another one, the one that has carried out no request for longest;
- if the head of a request does not arrive in :data:`HEAD_SECONDS` after the connection was opened, or in
  :data:`IDLE_SECONDS` after the last response;
- if the client reads nothing of a response for :data:`STALLED_SECONDS`.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.metrics import Traffic
from barnabas_broker.quotas.connections import ConnectionLimits, ConnectionQuotas
from barnabas_broker.quotas.rates import Window
from barnabas_broker.resource_errors import share_of_descriptors
from barnabas_broker.server.acceptor import Acceptor, ConnectionSlot, Evictable, RefusedConnections

log = logger("http")

#: Seconds from the connection to the end of its first request's head, TLS included.
HEAD_SECONDS: Final = 10.0
#: Seconds from a response to the end of the next request's head.
IDLE_SECONDS: Final = 60.0
#: Seconds in which a client reads nothing of a response.
STALLED_SECONDS: Final = 60.0
#: Maximum seconds between two log lines that say how often something was repeated.
TICK_SECONDS: Final = 5.0
#: Connections: a part of all descriptors, and the fewest.
_SHARE: Final = 16, 4
#: Connections that may wait to be accepted.
_BACKLOG: Final = 128
#: Seconds that a stop waits for responses that are not sent yet.
_GRACE: Final = 1.0
#: Bytes of a request line: a group id has up to 32,767, percent-encoded three times as many.
_LONGEST_LINE: Final = 100 * 1024
#: The name of the listener in log lines.
_NAME: Final = "HTTP"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpServer:
    """Serves an application.

    Args:
        app: the application.
        listener: a bound socket.
        context: of TLS; None for plain HTTP.
        most: connections at a time, and no more than a share of the descriptors of this process.
        key: what sets `most`, for log lines.

    Attributes:
        traffic: the counters of its connections.
    """

    def __init__(
        self, app: web.Application, listener: socket.socket, context: ssl.SSLContext | None, most: int, key: str
    ) -> None:
        app.middlewares.insert(0, self._carry_out)
        self.traffic = Traffic()
        self._loop = asyncio.get_running_loop()
        self._malformed = Folded(log.warning, "HTTP request refused", "HTTP requests refused", self._loop.time)
        # Without a log of requests, and with long names of groups.
        self._runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_GRACE,
            max_line_size=_LONGEST_LINE,
            logger=_Errors(self._malformed),
        )
        self._listener = listener
        self._context = context
        limits = ConnectionLimits(connections=share_of_descriptors(*_SHARE, most), key=key)
        self._quotas = ConnectionQuotas(limits, Window())
        self._refused = RefusedConnections(self.traffic, self._loop.time)
        self._evictable = Evictable()
        self._acceptor: Acceptor | None = None
        self._ticks: asyncio.TimerHandle | None = None
        self._connections: dict[asyncio.BaseProtocol, _Connection] = {}
        self._beginning: set[asyncio.Task[None]] = set()

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return self._quotas.total

    async def start(self) -> None:
        """Start to answer."""
        await self._runner.setup()
        self._acceptor = Acceptor(
            self._listener, _NAME, self._quotas, self._refused, self._evictable, self._loop.time, self._begin, _BACKLOG
        )
        self._tick()

    async def stop(self) -> None:
        """Stop to answer."""
        if self._acceptor is not None:
            self._acceptor.close()
        if self._ticks is not None:
            self._ticks.cancel()
        for task in self._beginning:
            task.cancel()
        await self._runner.cleanup()

    def _tick(self) -> None:
        self._refused.tick()
        self._malformed.tick()
        self._ticks = self._loop.call_later(TICK_SECONDS, self._tick)

    def _begin(self, accepted: socket.socket, peer: str, place: ConnectionSlot) -> None:
        task = self._loop.create_task(self._connect(accepted, place))

        def drop() -> None:
            task.cancel()

        place.offer(drop)
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _connect(self, accepted: socket.socket, place: ConnectionSlot) -> None:
        server = self._runner.server
        assert server is not None
        connection = _Connection(server(), place, self._connections)
        try:
            async with asyncio.timeout(HEAD_SECONDS):
                await self._loop.connect_accepted_socket(lambda: connection, accepted, ssl=self._context)
        except (OSError, TimeoutError):  # the peer is gone already, or the handshake has failed
            accepted.close()
        finally:
            if not connection.made:
                place.leave()

    @web.middleware
    async def _carry_out(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Keep the connection of a request until its response is made."""
        connection = self._connections.get(cast(asyncio.BaseProtocol, request.protocol))
        if connection is None:  # it is lost already
            return await handler(request)
        connection.begin()
        try:
            return await handler(request)
        finally:
            connection.end()


class _Errors(logging.Logger):
    """The logger of aiohttp. It would write a traceback for each request that cannot be read.

    Args:
        malformed: logs such requests.
    """

    def __init__(self, malformed: Folded) -> None:
        super().__init__("barnabas_broker.http.protocol")
        self.parent = logging.getLogger("barnabas_broker.http")
        self._malformed = malformed

    def handle(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError) and isinstance(record.args, tuple):
            self._malformed.add(str(record.args[0]), reason=error.message.partition("\n")[0].rstrip(":"))
        else:
            super().handle(record)


class _Connection(asyncio.Protocol):
    """A connection, in front of the protocol of aiohttp.

    Args:
        inner: the protocol of aiohttp.
        place: its place in the counts.
        connections: all connections, by their `inner`.

    Attributes:
        made: whether it was ever open.
    """

    def __init__(
        self, inner: asyncio.Protocol, place: ConnectionSlot, connections: "dict[asyncio.BaseProtocol, _Connection]"
    ) -> None:
        self.made = False
        self._inner = inner
        self._place = place
        self._connections = connections
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        #: Ends the connection, unless a request arrives, or the client reads on.
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's, they only have the same methods.
        self._transport = cast(asyncio.Transport, transport)
        self.made = True
        self._connections[self._inner] = self
        self._inner.connection_made(transport)
        self._offer(HEAD_SECONDS)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._expect(None)
        del self._connections[self._inner]
        self._place.leave()
        self._inner.connection_lost(error)

    def data_received(self, data: bytes) -> None:
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._expect(STALLED_SECONDS)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._expect(None)
        self._inner.resume_writing()

    def begin(self) -> None:
        """A request is carried out."""
        self._place.keep()
        self._expect(None)

    def end(self) -> None:
        """The response to the request is made."""
        if self._transport is not None:
            self._offer(IDLE_SECONDS)

    def _offer(self, seconds: float) -> None:
        self._place.offer(self._abort)
        self._expect(seconds)

    def _expect(self, seconds: float | None) -> None:
        """Abort the connection after `seconds`; None ends that."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self._loop.call_later(seconds, self._abort)

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
