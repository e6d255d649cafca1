"""A consumer's membership of a group, as the consumer holds it.

The membership itself lives on a thread (:mod:`barnabas_client.membership.thread`). Here is its other end, in the
program's event loop: calls become messages to the thread, and messages of the thread arrive here, in order. This end
reads how the member is from the thread's :class:`~barnabas_client.membership.member.MemberView`, which may change at
any moment: the coordinator refuses requests with an outdated generation.

Commits, and requests for committed offsets, go from here straight to the coordinator, on connections of the program's
network, so that they never wait behind a JoinGroup. Commits have a connection of their own, because a coordinator
answers them when they are durable, and other requests would wait behind them.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from barnabas_client.assignors import Assignor
from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.logs import logger
from barnabas_client.membership.effects import Assign, Coordinator, Revoke
from barnabas_client.membership.member import NO_GENERATION, CommitIdentity, MemberConfig, MemberState, MemberView
from barnabas_client.membership.search import COORDINATOR_GONE
from barnabas_client.membership.thread import MemberThread
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.tasks import BackgroundTasks, resolve
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_log: Final = logger("barnabas_client.membership")


class MembershipOwner(Protocol):
    """The consumer that a membership belongs to."""

    def message_coming(self) -> None:
        """A message of the thread is on its way: the next poll gives the loop a turn before it returns records. Called
        on the membership's thread, so it may only set a flag."""

    def has_polled(self) -> bool:
        """Whether the program is in a poll, or has been since the last call."""

    def rebalance(self, effect: Revoke | Assign) -> None:
        """Revoke or assign partitions, in the order of the calls; a `Revoke` ends with :meth:`Membership.revoked`."""

    def membership_failed(self, error: KafkaError) -> None:
        """The membership failed for good."""


class Membership:
    """A member of a group. Before :meth:`subscribe` it only finds the coordinator, for commits.

    Args:
        network: of the program.
        config: names and timeouts.
        assignors: of the classic protocol, in order of preference; they run on the thread.
        owner: the consumer.
    """

    def __init__(
        self,
        network: Network,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        owner: MembershipOwner,
    ) -> None:
        #: Seconds that the program's loop took to answer the thread: the longest and the last time.
        self.longest_lag = self.last_lag = 0.0
        self._network = network
        self._config = config
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._connecting = BackgroundTasks(self._connecting_failed)
        self._subscribed = False
        self._connected_to: Coordinator | None = None
        #: A coordinator that does not answer, until the thread knows that.
        self._lost: Coordinator | None = None
        self._coordinator_waiters: list[asyncio.Future[None]] = []
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = MemberThread(config, assignors, network.config, self, self._from_thread)

    def _from_thread(self, message: Callable[..., None], *arguments: Any) -> None:
        """Call a method on the program's loop. The only code of this class that runs on the thread."""
        self._owner.message_coming()
        self._loop.call_soon_threadsafe(message, *arguments)

    # Calls of the consumer.

    @property
    def view(self) -> MemberView:
        """The member as it is now."""
        return self._thread.view

    @property
    def generation(self) -> int:
        """The member's generation, -1 while it is not a member."""
        return self.view.generation

    def has_lost(self, revoke: Revoke) -> bool:
        """Whether another member may own these partitions by now."""
        return self.view.has_lost(revoke)

    def begin(self, coordinator: Coordinator | None) -> None:
        """The network is connected. The coordinator is None if it is not known."""
        self._thread.start(self._network.cluster, self._network.connections.versions, coordinator)

    def subscribe(self, topics: Iterable[str], pattern: str | None = None, *, waits: bool = False) -> None:
        """Join the group to read these topics, or those that the coordinator matches with `pattern`.

        Args:
            topics: their names.
            pattern: of the consumer protocol only.
            waits: whether the program waits for its first assignment, so that there is nothing to revoke.
        """
        self._thread.post(self._thread.subscribe, frozenset(topics), pattern, self._network.cluster, waits)
        self._subscribed = True
        self._connect_early()

    def revoked(self, ticket: int) -> None:
        """A `Revoke` is done."""
        self._thread.post(self._thread.revoked, ticket)

    def rejoin(self, reason: str) -> None:
        """Start a rebalance."""
        self._thread.post(self._thread.rejoin, reason)

    def metadata_changed(self) -> None:
        """The partitions of subscribed topics have changed."""
        self._thread.post(self._thread.metadata_changed, self._network.cluster)

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group and wait for the response, for at most `timeout` seconds."""
        self._subscribed = False
        left: asyncio.Future[None] = self._loop.create_future()

        def done() -> None:
            resolve(left, None)

        self._thread.post(self._thread.leave, reason, timeout, done)
        await asyncio.wait((left, self._ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def abandon(self) -> None:
        """Stop the thread without waiting for its end."""
        self._thread.stop()

    async def close(self, timeout: float) -> None:
        """Stop the thread, which leaves the group if it is still a member, and wait up to `timeout` seconds for it."""
        self._thread.stop()
        self._connecting.cancel()
        await asyncio.wait((self._ended,), timeout=timeout)
        if not self._ended.done() or not self._thread.join(timeout):
            _log.warning(
                "the membership's thread has not ended yet: an assignor or a broker keeps it busy",
                group=self._config.group_id,
            )

    # Requests to the coordinator.

    def identity(self) -> CommitIdentity:
        """The identity that commits carry; see :meth:`MemberView.commit_identity`.

        Raises:
            KafkaError: this member cannot commit now, or ever.
        """
        return self.view.commit_identity()

    def outlived(self, identity: CommitIdentity) -> bool:
        """Whether this is still a member and a rebalance has ended, or is about to end, the generation of `identity`:
        a commit that was refused may succeed with the next generation."""
        view = self.view
        return view.generation != NO_GENERATION and (
            view.state in (MemberState.JOINING, MemberState.SYNCING) or view.generation != identity.generation
        )

    async def ask_coordinator(
        self,
        request: Request,
        answer: type[R],
        timeout: float,
        *,
        purpose: Purpose = Purpose.DATA,
        at_most: int | None = None,
    ) -> R:
        """Send a request to the coordinator, finding it first if it is not known; see :meth:`Connection.ask`.

        Raises:
            KafkaTimeoutError: it was not found, or did not answer, within `timeout` seconds.
            KafkaError: the connection failed, or the group may not be used.
        """
        try:
            async with asyncio.timeout(timeout):
                coordinator = await self._find()
                return await self._ask(coordinator, request, answer, purpose, at_most)
        except TimeoutError as error:
            why = f" ({self.view.obstacle})" if self.view.obstacle else ""
            raise KafkaTimeoutError(
                f"the coordinator of group {self._config.group_id!r} was not found, or did not answer, within "
                f"{timeout:g} s{why}. To do: check that the brokers are up and __consumer_offsets has leaders"
            ) from error

    async def _ask(
        self, coordinator: Coordinator, request: Request, answer: type[R], purpose: Purpose, at_most: int | None
    ) -> R:
        try:
            connection = await self._network.connections.open((coordinator.host, coordinator.port), purpose)
            return await connection.ask(request, answer, timeout=self._config.request_timeout, at_most=at_most)
        except KafkaError as error:
            if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                self._coordinator_lost(coordinator, str(error))
            raise

    def _connect_early(self) -> None:
        """Committed offsets are fetched as soon as partitions are assigned: be connected by then."""
        coordinator = self.view.coordinator if self._subscribed else None
        if coordinator == self._connected_to:
            return
        self._connected_to = coordinator
        if coordinator is not None and not self._network.connections.get(
            (coordinator.host, coordinator.port), Purpose.DATA
        ):
            self._connecting.cancel()
            self._connecting.spawn(self._connect(coordinator), name="barnabas-coordinator")

    async def _connect(self, coordinator: Coordinator) -> None:
        try:
            await self._network.connections.open((coordinator.host, coordinator.port), Purpose.DATA)
        except KafkaError as error:
            _log.debug("no connection to the coordinator yet", reason=str(error))

    def _connecting_failed(self, error: BaseException) -> None:
        _log.error("connecting to the coordinator failed", group=self._config.group_id, exc_info=error)

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit was answered with an error that may concern the membership."""
        coordinator = self.view.coordinator
        if code in COORDINATOR_GONE and coordinator is not None:
            self._coordinator_lost(coordinator, f"a commit was answered {code.name}")
        else:
            self._thread.post(self._thread.commit_refused, code, generation)

    def _coordinator_lost(self, coordinator: Coordinator, reason: str) -> None:
        self._lost = coordinator  # requests wait until the thread has found the coordinator again
        self._network.connections.disconnect((coordinator.host, coordinator.port), Purpose.GROUP, reason)
        self._thread.post(self._thread.coordinator_lost, coordinator, reason)

    async def _find(self) -> Coordinator:
        while (coordinator := self.view.coordinator) is None or coordinator == self._lost:
            if self.view.error is not None:
                raise self.view.error.with_traceback(None)
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._coordinator_waiters.append(waiter)
            self._thread.post(self._thread.find_coordinator)
            await waiter
        return coordinator

    # Messages of the thread; see :class:`~barnabas_client.membership.thread.MemberThreadOwner`.

    def coordinator_changed(self) -> None:
        """See :class:`MemberThreadOwner`."""
        self._lost = None
        self._connect_early()
        if self.view.coordinator is not None or self.view.error is not None:
            waiters, self._coordinator_waiters = self._coordinator_waiters, []
            for waiter in waiters:
                resolve(waiter, None)

    def rebalance(self, effect: Revoke | Assign) -> None:
        """See :class:`MemberThreadOwner`."""
        self._owner.rebalance(effect)

    def membership_failed(self, error: KafkaError) -> None:
        """See :class:`MemberThreadOwner`."""
        self._owner.membership_failed(error)

    def pinged(self, sent: float) -> None:
        """See :class:`MemberThreadOwner`."""
        self.last_lag = time.monotonic() - sent
        self.longest_lag = max(self.longest_lag, self.last_lag)
        self._thread.post(self._thread.ponged, self.last_lag, self._owner.has_polled())

    def ended(self) -> None:
        """See :class:`MemberThreadOwner`."""
        resolve(self._ended, None)
