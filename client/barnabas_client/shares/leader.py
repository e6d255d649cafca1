"""Fetches from one leader for a share group, and sends it what the program has acknowledged.

One request is in flight at a time: a ShareFetch while a poll waits for records, which takes acknowledgements along;
otherwise a ShareAcknowledge, a moment after the first acknowledgement, so that many go together.
"""

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from barnabas_client.errors import KafkaConnectionError, error_for
from barnabas_client.membership.heartbeats import Partitions, TopicIdPartition
from barnabas_client.network.connection import Connection
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.shares.session import INITIAL_EPOCH, LeaderSession, Limits, Run
from barnabas_client.tasks import end, reject, resolve
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from barnabas_protocol.messages.share_fetch import ShareFetchResponse

#: Seconds that acknowledgements wait for others.
_LINGER: Final = 0.05


class LeaderOwner(Protocol):
    """The consumer that fetches."""

    #: Whether a poll waits for records.
    hungry: bool
    #: Of the next fetch.
    limits: Limits

    def partitions(self, node_id: int) -> Partitions:
        """The assigned partitions that a broker leads."""

    def arrived(self, leader: "Leader", response: ShareFetchResponse) -> None:
        """A fetch was answered."""

    def refused(self, refused: Mapping[TopicIdPartition, KafkaError]) -> None:
        """Acknowledgements were refused, or lost."""

    def raise_once(self, error: KafkaError) -> None:
        """Have the next poll raise an error."""


class Leader:
    """One broker that leads partitions of a share group.

    Args:
        node_id: of the broker.
        network: connected.
        session: with the broker.
        owner: the consumer.
    """

    def __init__(self, node_id: int, network: Network, session: LeaderSession, owner: LeaderOwner) -> None:
        self.session = session
        self._node_id = node_id
        self._network = network
        self._owner = owner
        self._backoff = retry_backoff(network.config)
        self._connection: Connection | None = None
        self._wake, self._hurry = asyncio.Event(), asyncio.Event()
        self._urgent = False
        self._waiters: list[tuple[int, TopicIdPartition | None, asyncio.Future[None]]] = []
        self._task = asyncio.get_running_loop().create_task(self._run(), name="barnabas-share-leader")
        self._task.add_done_callback(self._ended)

    def wake(self) -> None:
        """A poll waits for records, or the assignment has changed."""
        self._wake.set()
        self._hurry.set()

    def acknowledge(self, where: TopicIdPartition, run: Run) -> int:
        """Send an acknowledgement soon; see :meth:`LeaderSession.acknowledge`."""
        self._wake.set()
        return self.session.acknowledge(where, run)

    async def flushed(self, where: TopicIdPartition | None = None) -> None:
        """Send what was acknowledged now, and wait for the answer.

        Raises:
            KafkaError: an acknowledgement of the partition `where` was refused.
        """
        if self.session.settled >= self.session.handed:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((self.session.handed, where, waiter))
        self._urgent = True
        self.wake()
        await waiter

    async def close(self) -> None:
        """Send what was acknowledged, and end the session, which gives back the other records."""
        await self.cancel()
        connection = self._connection
        if connection is None or connection.closed or self.session.epoch == INITIAL_EPOCH:
            return
        try:
            response = await connection.ask(
                self.session.flush(final=True), ShareAcknowledgeResponse, timeout=self._network.config.request_timeout
            )
        except KafkaError as error:
            self._settle(self.session.lost(error))
        else:
            self._settle(self.session.acknowledged(response))

    async def cancel(self) -> None:
        """Stop, and end the calls that wait for answers."""
        await end(self._task)
        waiters, self._waiters = self._waiters, []
        for _, _, waiter in waiters:
            reject(waiter, KafkaConnectionError("this share consumer was stopped"))

    async def _run(self) -> None:
        session = self.session
        while True:
            self._wake.clear()
            fetches = self._owner.hungry and bool(self._owner.partitions(self._node_id))
            if fetches and not session.renews and not (session.pending and self._urgent):
                self._hurry.clear()
                await self._exchange(fetches=True)
            elif session.pending:
                if not (session.renews or self._urgent or self._hurry.is_set()):
                    await self._linger()
                    continue
                self._hurry.clear()
                self._urgent = False
                await self._exchange(fetches=False)
            else:
                self._urgent = False
                self._hurry.clear()
                await self._wake.wait()

    async def _linger(self) -> None:
        try:
            async with asyncio.timeout(_LINGER):
                await self._hurry.wait()
        except TimeoutError:
            self._hurry.set()

    async def _exchange(self, *, fetches: bool) -> None:
        session, owner, config = self.session, self._owner, self._network.config
        try:
            connection = await self._network.connection(self._node_id, Purpose.FETCH)
            if connection is not self._connection:
                self._connection = connection
                if session.epoch != INITIAL_EPOCH:
                    self._settle(session.lost(KafkaConnectionError(f"the connection to broker {self._node_id} broke")))
            if fetches:
                limits = owner.limits
                request = session.fetch(owner.partitions(self._node_id), limits)
                wait = limits.max_wait_ms / 1000 + config.request_timeout
                response = await connection.ask(request, ShareFetchResponse, timeout=wait)
                self._settle(session.fetched(response))
                code, message = ErrorCode.of(response.error_code), response.error_message
            elif session.epoch == INITIAL_EPOCH:
                self._settle(session.lost(KafkaConnectionError("there is no session")))
                return
            else:
                answer = await connection.ask(session.flush(), ShareAcknowledgeResponse, timeout=config.request_timeout)
                self._settle(session.acknowledged(answer))
                code, message = ErrorCode.of(answer.error_code), answer.error_message
        except KafkaError as error:
            self._settle(session.lost(error))
            if not error.code.retriable:
                owner.raise_once(error)
            await self._pause()
            return
        if code != ErrorCode.NONE:
            if not code.retriable:
                owner.raise_once(error_for(code, "fetch from the share group", message))
            await self._pause()
        elif not fetches:
            self._backoff.succeeded()
        else:
            owner.arrived(self, response)
            if any(part.error_code != ErrorCode.NONE for topic in response.responses for part in topic.partitions):
                await self._pause()
            else:
                self._backoff.succeeded()

    async def _pause(self) -> None:
        """Wait after an error, which may mean that another broker leads."""
        self._network.want_refresh()
        await asyncio.sleep(self._backoff.failed())

    def _settle(self, refused: Mapping[TopicIdPartition, KafkaError]) -> None:
        if refused:
            self._owner.refused(refused)
        waiting, self._waiters = self._waiters, []
        for target, where, waiter in waiting:
            if target > self.session.settled:
                self._waiters.append((target, where, waiter))
            elif where is not None and where in refused:
                reject(waiter, refused[where])
            else:
                resolve(waiter, None)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            failure = KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"fetching from broker {self._node_id} failed: {error!r}"
            )
            failure.__cause__ = error
            self._settle(self.session.lost(failure))
            self._owner.raise_once(failure)
