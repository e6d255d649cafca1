"""The program's side of a rebalance: partitions are revoked and assigned between polls, and the listener is called.

Kafka's consumer rebalances inside of ``poll``, so a program has always processed the records of a partition before it
is revoked. Here the group protocol runs in the background, and the :class:`Gate` keeps that promise: partitions are
revoked only while the program waits in a poll, or when it comes to one. From then on, no poll returns their records;
what was read is committed (with ``enable_auto_commit``), the listener is called, and the coordinator hears of it. The
partitions of a new assignment are fetched after the listener has returned, so that the listener can seek.

Steps are taken one after the other, in the order of the group's decisions. A listener that raises stops nothing: the
next poll raises its error. Source: ``ConsumerCoordinator.java`` (onJoinPrepare, onJoinComplete).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

from barnabas_client.consumer.attention import Attention
from barnabas_client.consumer.listener import ListenerMethod, call_listener, lost_method
from barnabas_client.consumer.metrics import ConsumerMeters
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import IllegalStateError, RebalanceListenerError
from barnabas_client.logs import logger
from barnabas_client.membership.effects import Assign, Revoke
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_client.tasks import BackgroundTasks, resolve

_log: Final = logger("barnabas_client.consumer")

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Gate:
    """Knows whether the program is in a poll, and lets others wait until it is."""

    def __init__(self) -> None:
        #: Polls so far.
        self.count = 0
        #: Polls that are in progress now.
        self.inside = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._actions: list[Callable[[], None]] = []

    @property
    def awaited(self) -> bool:
        """Whether a rebalance waits for the program to poll."""
        return any(not future.done() for future in self._waiters)

    def enter(self) -> None:
        """A poll begins. Actions that waited for it have run when this returns."""
        self.count += 1
        self.inside += 1
        if self._actions:
            actions, self._actions = self._actions, []
            for action in actions:
                action()
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for future in waiters:
                resolve(future, None)

    def leave(self) -> None:
        """A poll returns."""
        self.inside -= 1

    def run_in_poll(self, action: Callable[[], None]) -> None:
        """Run `action` while the program is in a poll, now or later, before that poll returns more records."""
        if self.inside:
            action()
        else:
            self._actions.append(action)

    async def wait_for_poll(self, action: Callable[[], None]) -> None:
        """Wait until the program is in a poll; `action` runs before that poll returns more records."""
        self.run_in_poll(action)
        if self.inside:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(future)
        await future


def inside_listener(what: str) -> IllegalStateError:
    """The error of a call that would wait for the listener that makes it."""
    return IllegalStateError(
        f"a rebalance listener cannot {what}: that would wait for the listener to return. To do: commit or seek in the "
        f"listener, and {what} outside of it"
    )


class RebalanceMembership(Protocol):
    """The part of the group membership that a rebalancer uses."""

    def has_lost(self, revoke: Revoke) -> bool:
        """Whether another member may own these partitions by now."""

    def revoked(self, ticket: int) -> None:
        """A `Revoke` is done."""


class _Unsubscribed(NamedTuple):
    """The program unsubscribed; `offsets` are the positions at that moment."""

    offsets: Offsets
    then: Callable[[], Awaitable[None]]


class Rebalancer:
    """Carries out the group's decisions.

    Args:
        subscription: the partitions and the listener.
        gate: the program's polls.
        membership: is notified when a revocation is done.
        commit: commits positions of revoked partitions, with `enable_auto_commit`; does not raise.
        changed: called when the assignment has changed.
        attention: of the program's polls.
        meters: measure how long rebalances take.
    """

    def __init__(
        self,
        subscription: Subscription,
        gate: Gate,
        membership: RebalanceMembership,
        commit: Callable[[Offsets], Awaitable[None]],
        changed: Callable[[], None],
        attention: Attention,
        meters: ConsumerMeters,
    ) -> None:
        #: Set when the first assignment is complete.
        self.assigned = asyncio.Event()
        self._subscription = subscription
        self._gate = gate
        self._membership = membership
        self._commit = commit
        self._changed = changed
        self._attention = attention
        self._meters = meters
        self._began: float | None = None  # when the rebalance in progress began
        self._queue: asyncio.Queue[Revoke | Assign | _Unsubscribed] = asyncio.Queue()
        self._tasks = BackgroundTasks(self._failed)

    def start(self) -> None:
        """Start to work."""
        self._tasks.spawn(self._run(), name="barnabas-rebalance")

    async def stop(self) -> None:
        """Stop. Decisions that are still queued are dropped."""
        await self._tasks.close()

    def begins(self) -> None:
        """A rebalance begins, and is measured from now on."""
        self._began = self._began or time.monotonic()

    def put(self, effect: Revoke | Assign) -> None:
        """Queue a decision of the group. From the next poll on, records of revoked partitions are not returned, even if
        that poll comes before the decision has its turn."""
        if isinstance(effect, Revoke):
            self.begins()
            self._gate.run_in_poll(lambda: self._mark_revoking(effect.partitions))
        self._queue.put_nowait(effect)
        self._attention.call()

    def refuse_inside_listener(self, what: str) -> None:
        """Refuse a call that would wait for the listener that makes it.

        Raises:
            IllegalStateError: a rebalance listener calls this.
        """
        if asyncio.current_task() in self._tasks:
            raise inside_listener(what)

    def unsubscribed(self, offsets: Offsets, then: Callable[[], Awaitable[None]]) -> None:
        """The program unsubscribed, and its partitions are gone already: commit their positions, call the listener,
        then `then`."""
        self._queue.put_nowait(_Unsubscribed(offsets, then))

    async def revoke(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Take partitions from the program: polls return no more of their records."""
        if not partitions:
            return
        self._mark_revoking(partitions)
        if not lost:
            await self._commit(self._subscription.positions(partitions))
        await self._call_revoked(partitions, lost=lost)
        self._subscription.remove(partitions)
        self._changed()

    async def _call_revoked(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        listener = self._subscription.listener
        if listener is not None and partitions:
            await self._call(lost_method(listener) if lost else listener.on_partitions_revoked, partitions)

    async def _run(self) -> None:
        while True:
            effect = await self._queue.get()
            try:
                if isinstance(effect, Revoke):
                    await self._revoke_in_poll(effect)
                elif isinstance(effect, Assign):
                    await self._assign(effect)
                else:
                    await self._commit(effect.offsets)
                    await self._call_revoked(list(effect.offsets), lost=False)
                    await effect.then()
            except Exception as error:
                # This code is not expected to raise; if it does, polls must raise instead of waiting for ever.
                self._failed(error)

    def _failed(self, error: BaseException) -> None:
        _log.error("a rebalance failed", exc_info=error)
        self._attention.raise_once(RebalanceListenerError(f"a rebalance failed: {error!r}"))

    async def _revoke_in_poll(self, effect: Revoke) -> None:
        if not self._gate.inside:
            self._attention.call()
        await self._gate.wait_for_poll(lambda: self._mark_revoking(effect.partitions))
        # The membership may have been lost while this waited.
        lost = self._membership.has_lost(effect)
        if lost and effect.partitions:
            self._meters.failed_rebalances += 1
        await self.revoke([tp for tp in sorted(effect.partitions) if tp in self._subscription.states], lost=lost)
        self._membership.revoked(effect.ticket)

    async def _assign(self, effect: Assign) -> None:
        now = time.monotonic()
        self._meters.rebalanced_at = now
        self._meters.rebalance_latency.add(now - (self._began or now), now)
        self._began = None
        self._subscription.keep(effect.partitions)
        self._subscription.add(effect.partitions, active=False)
        self._changed()
        if self._subscription.listener is not None:
            await self._call(self._subscription.listener.on_partitions_assigned, sorted(effect.added))
        for tp in effect.partitions:
            state = self._subscription.states.get(tp)
            if state is not None:
                state.active = True
        self.assigned.set()
        self._changed()

    def _mark_revoking(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            state = self._subscription.states.get(tp)
            if state is not None:
                state.revoking = True

    async def _call(self, method: ListenerMethod, partitions: Collection[TopicPartition]) -> None:
        try:
            await call_listener(method, partitions)
        except Exception as error:
            # The program's own code. Kafka's consumer also completes the rebalance and raises afterwards.
            name = getattr(method, "__name__", repr(method))
            failure = RebalanceListenerError(
                f"the rebalance listener's {name} raised {type(error).__name__}: {error}. To do: repair the listener"
            )
            failure.__cause__ = error
            _log.warning("a rebalance listener raised", reason=str(failure))
            self._attention.raise_once(failure)
