"""A consumer's membership of a group, as the consumer sees it.

The membership itself lives on a thread (:mod:`barnabas_client.membership.thread`). Here is its other end, in the
program's loop: calls become messages to the thread, and what the thread tells arrives here, in order. Of the member
this end knows the last :class:`~barnabas_client.membership.view.MemberView` that it was told, which may be a moment
old: what goes to the coordinator with an outdated generation is refused by it.

Commits, and questions about them, go from here straight to the coordinator, on a connection of the program's network,
so that they never wait behind a JoinGroup.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeVar

from barnabas_client.assignors import Assignor
from barnabas_client.config import ClientConfig, ConsumerConfig
from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.logs import logger
from barnabas_client.membership.thread import MemberThread
from barnabas_client.membership.types import Assign, Coordinator, Identity, MemberConfig, Revoke
from barnabas_client.membership.view import MemberView
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_log: Final = logger("barnabas_client.membership.classic")

#: After these the coordinator is another one, or nowhere.
_GONE: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


class Host(Protocol):
    """The rest of the consumer."""

    def expect(self) -> None:
        """A message is on its way: the next poll gives the loop a turn before it returns records. Called on the
        membership's thread, so it does no more than to set a flag."""

    def polls(self) -> bool:
        """Whether the program is in a poll, or has been since the last call."""

    def rebalance(self, effect: Revoke | Assign) -> None:
        """Take partitions away or give them, in the order of the calls; for `Revoke`, call `released` in the end."""

    def failed(self, error: KafkaError) -> None:
        """The membership failed for good."""


class Membership:
    """A member of a group, or only someone who knows its coordinator."""

    def __init__(self, network: Network, config: MemberConfig, assignors: Sequence[Assignor], host: Host) -> None:
        self.view = MemberView(group_id=config.group_id, instance_id=config.instance_id)
        #: The longest that the program's loop kept the thread waiting, and the last time, in seconds.
        self.longest_lag = self.last_lag = 0.0
        self._network = network
        self._config = config
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._known: list[asyncio.Future[None]] = []
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = MemberThread(config, assignors, network, self, self._from_thread)
        self._thread.start()

    def _from_thread(self, message: Callable[..., None], *arguments: Any) -> None:
        """Runs on the thread: the only thing here that does."""
        self._host.expect()
        self._loop.call_soon_threadsafe(message, *arguments)

    # From the program.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group to read these topics."""
        self._thread.post(self._thread.subscribe, frozenset(topics), self._network.cluster)

    def released(self, ticket: int) -> None:
        """A `Revoke` is done."""
        self._thread.post(self._thread.released, ticket)

    def rejoin(self, reason: str) -> None:
        """Begin a rebalance."""
        self._thread.post(self._thread.rejoin, reason)

    def topics_changed(self) -> None:
        """Topics that are read have other partitions than before."""
        self._thread.post(self._thread.look_again, self._network.cluster)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group and wait for the answer, for at most `timeout` seconds."""
        left: asyncio.Future[None] = self._loop.create_future()

        def done() -> None:
            if not left.done():
                left.set_result(None)

        self._thread.post(self._thread.leave, reason, timeout, done)
        await asyncio.wait((left, self._ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def abandon(self) -> None:
        """End the thread without waiting for it."""
        self._thread.stop()

    async def close(self, timeout: float) -> None:
        """End the thread, which leaves the group if that was not done, and wait up to `timeout` seconds for it."""
        self._thread.stop()
        self._stop_connecting()
        await asyncio.wait((self._ended,), timeout=timeout)
        if not self._ended.done() or not self._thread.join(timeout):
            _log.warning(
                "the membership's thread has not ended yet: an assignor or a broker keeps it",
                group=self._config.group_id,
            )

    # For commits.

    def identity(self) -> Identity:
        """With what a commit goes out; see :meth:`MemberView.commit_identity`.

        Raises:
            KafkaError: not now, or never.
        """
        return self.view.commit_identity()

    async def ask_coordinator(self, request: Request, answer: type[R], timeout: float) -> R:
        """Ask the coordinator, looking for it first if need be.

        Raises:
            KafkaTimeoutError: it was not found within `timeout` seconds.
            KafkaError: it did not answer, or the group may not be used.
        """
        try:
            async with asyncio.timeout(timeout):
                coordinator = await self._find()
                return await self._ask(coordinator, request, answer)
        except TimeoutError as error:
            raise KafkaTimeoutError(
                f"the coordinator of group {self._config.group_id!r} was not found, or did not answer, within "
                f"{timeout:g} s. To do: check that the brokers are up and __consumer_offsets has leaders"
            ) from error

    async def _ask(self, coordinator: Coordinator, request: Request, answer: type[R]) -> R:
        try:
            connection = await self._network.connections.open((coordinator.host, coordinator.port), Purpose.GROUP)
            return await connection.ask(request, answer, timeout=self._config.request_timeout)
        except KafkaError as error:
            if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                self._lost(coordinator, str(error))
            raise

    async def _connect(self, coordinator: Coordinator) -> None:
        try:
            await self._network.connections.open((coordinator.host, coordinator.port), Purpose.GROUP)
        except KafkaError as error:
            _log.debug("no connection to the coordinator yet", reason=str(error))

    def _stop_connecting(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit was answered with an error that may tell something about the membership."""
        coordinator = self.view.coordinator
        if code in _GONE and coordinator is not None:
            self._lost(coordinator, f"a commit was answered {code.name}")
        else:
            self._thread.post(self._thread.commit_refused, code, generation)

    def _lost(self, coordinator: Coordinator, reason: str) -> None:
        if self.view.coordinator == coordinator:
            # The thread tells which one it is when it has looked; until then nobody asks the lost one again.
            self.view = replace(self.view, coordinator=None)
        self._network.connections.disconnect((coordinator.host, coordinator.port), Purpose.GROUP, reason)
        self._thread.post(self._thread.coordinator_lost, coordinator, reason)

    async def _find(self) -> Coordinator:
        while (coordinator := self.view.coordinator) is None:
            if self.view.error is not None:
                raise self.view.error.with_traceback(None)
            known: asyncio.Future[None] = self._loop.create_future()
            self._known.append(known)
            self._thread.post(self._thread.want_coordinator)
            await known
        return coordinator

    # From the thread; see :class:`~barnabas_client.membership.thread.Program`.

    def viewed(self, view: MemberView) -> None:
        """See :class:`Program`."""
        before, self.view = self.view.coordinator, view
        if view.coordinator is not None and view.coordinator != before:
            # What is committed will be asked for as soon as partitions come: be connected by then.
            self._stop_connecting()
            self._connecting = self._loop.create_task(self._connect(view.coordinator), name="barnabas-coordinator")
        if view.coordinator is not None or view.error is not None:
            known, self._known = self._known, []
            for waiter in known:
                if not waiter.done():
                    waiter.set_result(None)

    def decided(self, effect: Revoke | Assign) -> None:
        """See :class:`Program`."""
        self._host.rebalance(effect)

    def failed(self, error: KafkaError) -> None:
        """See :class:`Program`."""
        self._host.failed(error)

    def asked(self, sent: float) -> None:
        """See :class:`Program`."""
        self.last_lag = time.monotonic() - sent
        self.longest_lag = max(self.longest_lag, self.last_lag)
        self._thread.post(self._thread.alive, self.last_lag, self._host.polls())

    def ended(self) -> None:
        """See :class:`Program`."""
        if not self._ended.done():
            self._ended.set_result(None)


def member_config(config: ConsumerConfig, client: ClientConfig) -> MemberConfig:
    """A consumer's settings as its member takes them. It has a group."""
    assert config.group_id is not None
    return MemberConfig(
        group_id=config.group_id,
        instance_id=config.group_instance_id,
        session_timeout=config.session_timeout_ms / 1000,
        heartbeat_interval=config.heartbeat_interval_ms / 1000,
        max_poll_interval=config.max_poll_interval_ms / 1000,
        rebalance_timeout=(config.rebalance_timeout_ms or config.max_poll_interval_ms) / 1000,
        request_timeout=client.request_timeout,
        retry_backoff=client.retry_backoff_ms / 1000,
        retry_backoff_max=client.retry_backoff_max_ms / 1000,
        rack=config.client_rack or None,
    )
