"""The connections of one client, by address and purpose.

A connection is opened when it is first needed and shared by all callers with the same address and purpose. Each
:class:`Purpose` has a connection of its own, because a broker answers the requests of one connection in order: behind a
fetch that waits half a second for data, a heartbeat or a produce request would wait as well. Kafka's ``NetworkClient``
separates the coordinator's connection for the same reason.

An address that cannot be reached gets a back-off: until its pause is over, requests for it fail at once instead of
waiting, because another broker may do its work meanwhile. The API versions that a connection has learnt are reused by
the next one to the same address, which saves a round trip; they are forgotten when a connection to it breaks, because
the broker may have been restarted with another version.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple, TypeVar

from barnabas_client.config import Address, ClientConfig
from barnabas_client.errors import KafkaConnectionError
from barnabas_client.logs import logger
from barnabas_client.network.connection import Connection
from barnabas_client.network.retries import retry_backoff
from barnabas_client.network.versions import ApiRange
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.framing import ROOM

T = TypeVar("T")

_log: Final = logger("barnabas_client.network.connections")

#: Seconds without an answer after which :meth:`Connections.first_answer` asks the next broker as well.
_SILENCE: Final = 1.0


class Purpose(Enum):
    """Purpose of a connection."""

    #: Metadata, offsets, produce, and all that answers at once.
    DATA = "data"
    #: Fetches, which wait for data.
    FETCH = "fetch"
    #: Coordinators: of groups, and of transactions.
    GROUP = "group"


class _Unreachable(NamedTuple):
    """An address that could not be reached: why, and the time of the event loop until which it is not tried again."""

    backoff: Backoff
    until: float
    error: KafkaError


class Connections:
    """Opens, shares and closes connections.

    Args:
        config: addresses, timeouts, back-off, TLS.
    """

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._tls = config.tls
        #: The API versions of brokers, learnt by connections that have not broken since.
        self.versions: dict[Address, Mapping[int, ApiRange]] = {}
        self._open: dict[tuple[Address, Purpose], Connection] = {}
        self._locks: dict[tuple[Address, Purpose], asyncio.Lock] = {}
        self._unreachable: dict[Address, _Unreachable] = {}
        self._closing = BackgroundTasks(lambda error: _log.error("closing a connection failed", exc_info=error))
        self._received = bytearray(ROOM)  # all connections read into it
        self._closed = False

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open.values()))

    def get(self, address: Address, purpose: Purpose) -> Connection | None:
        """The connection to an address for a purpose, None if it is not open."""
        connection = self._open.get((address, purpose))
        return None if connection is None or connection.closed else connection

    async def open(self, address: Address, purpose: Purpose, *, at_once: bool = False) -> Connection:
        """The connection to an address for a purpose; opens it if necessary.

        Args:
            address: host and port.
            purpose: what it is used for.
            at_once: ignore the back-off of the address, because there may be no other one.

        Raises:
            KafkaError: the connection cannot be opened, or the address has a back-off.
        """
        connection = self.get(address, purpose)
        if connection is not None:
            return connection
        async with self._locks.setdefault((address, purpose), asyncio.Lock()):
            connection = self.get(address, purpose)
            if connection is not None:
                return connection
            if self._closed:
                raise KafkaConnectionError("this client was closed")
            pause = self.pause(address)
            if pause > 0 and not at_once:
                raise KafkaConnectionError(
                    f"{address[0]}:{address[1]} is tried again in {pause:.2f} s: {self._unreachable[address].error}"
                )
            return await self._connect(address, purpose)

    def pause(self, address: Address) -> float:
        """Seconds that are left of an address's back-off, 0 if it has none."""
        found = self._unreachable.get(address)
        return 0.0 if found is None else max(0.0, found.until - asyncio.get_running_loop().time())

    def failure(self, address: Address) -> KafkaError | None:
        """Why the last attempt to connect to an address failed, for whatever purpose; None if it did not."""
        found = self._unreachable.get(address)
        return None if found is None else found.error

    def silent(self, address: Address, purpose: Purpose) -> bool:
        """Whether a broker has not answered for half a second, or an address has a back-off."""
        connection = self.get(address, purpose)
        return self.pause(address) > 0 if connection is None else connection.silence >= _SILENCE / 2

    def ranked(self, addresses: Iterable[Address], purpose: Purpose) -> list[Address]:
        """Sort addresses: connected ones first, by requests in flight, then the others by their back-off."""

        def rank(address: Address) -> tuple[int, float]:
            connection = self.get(address, purpose)
            return (0, connection.in_flight) if connection is not None else (1, self.pause(address))

        return sorted(addresses, key=rank)

    async def first_answer(
        self, addresses: Collection[Address], purpose: Purpose, ask: Callable[[Connection], Awaitable[T]]
    ) -> tuple[T | None, list[KafkaError]]:
        """Ask one address after the other until one answers. Only for requests that may be answered twice.

        An address that is silent for a second does not delay the answer: the next one is asked as well. It gets a
        back-off if it is not even connected.

        Args:
            addresses: in the order to try them.
            purpose: of the connections.
            ask: sends the request and waits for the answer.

        Returns:
            The first answer, and the failures before it; None and all failures, at least one, if there is no answer.
        """

        async def connect_and_ask(address: Address) -> T:
            return await ask(await self.open(address, purpose, at_once=True))

        failures: list[KafkaError] = []
        tasks: list[asyncio.Task[T]] = []
        waiting: set[asyncio.Task[T]] = set()
        left = deque(addresses)
        try:
            while left or waiting:
                if left:
                    last = left.popleft()
                    tasks.append(asyncio.create_task(connect_and_ask(last)))
                    waiting.add(tasks[-1])
                done, waiting = await asyncio.wait(
                    waiting, timeout=_SILENCE if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                if not done and self.get(last, purpose) is None:
                    self._note_failure(last, KafkaConnectionError(f"no connection after {_SILENCE:g} s"))
                for one in done:
                    try:
                        return one.result(), failures
                    except KafkaError as error:
                        failures.append(error)
        finally:
            for one in waiting:
                one.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return None, failures or [KafkaConnectionError("no broker is known")]

    def disconnect(self, address: Address, purpose: Purpose, reason: str) -> None:
        """Abort a connection: its requests fail with `reason`, and the next caller of :meth:`open` opens a new one."""
        connection = self._open.pop((address, purpose), None)
        if connection is not None:
            self.versions.pop(address, None)
            connection.abort(reason)

    def close_idle(self) -> None:
        """Close connections that were not used for `connections_max_idle_ms`, and forget closed ones."""
        oldest = asyncio.get_running_loop().time() - self._config.connections_max_idle_ms / 1000
        for key, connection in list(self._open.items()):
            if connection.closed or (connection.last_used < oldest and not connection.in_flight):
                if connection.closed:
                    self.versions.pop(key[0], None)
                del self._open[key]
                self._closing.spawn(connection.close())

    def refuse(self) -> None:
        """Open no more connections."""
        self._closed = True

    async def close(self, patience: float) -> None:
        """Close all connections.

        Args:
            patience: seconds to wait until written requests have been sent.
        """
        self._closed = True
        await asyncio.gather(*self._closing, *(connection.close(patience) for connection in self))
        self._open.clear()

    async def _connect(self, address: Address, purpose: Purpose) -> Connection:
        if any(connection.closed for (other, _), connection in self._open.items() if other == address):
            self.versions.pop(address, None)  # the broker may have been restarted with another version
        try:
            connection = await Connection.open(
                *address,
                client_id=self._config.client_id,
                timeout=self._config.request_timeout,
                tls=self._tls,
                login=self._config.login,
                versions=self.versions.get(address),
                received=self._received,
            )
        except KafkaError as error:
            self.versions.pop(address, None)
            self._note_failure(address, error)
            raise
        if self._closed:
            connection.abort("this client was closed")
            raise KafkaConnectionError("this client was closed")
        self._unreachable.pop(address, None)
        self._open[address, purpose] = connection
        self.versions[address] = connection.versions
        return connection

    def _note_failure(self, address: Address, error: KafkaError) -> None:
        before = self._unreachable.get(address)
        backoff = retry_backoff(self._config) if before is None else before.backoff
        until = asyncio.get_running_loop().time() + backoff.failed()
        self._unreachable[address] = _Unreachable(backoff, until, error)
