"""The program's side of a rebalance: partitions are taken away and given, between polls, and the listener is told.

Kafka's consumer rebalances inside of ``poll``, so a program has always processed what it was given before its
partitions go. Here the group protocol runs in the background, and the :class:`Gate` keeps that promise: partitions are
taken away only while the program waits in a poll, or when it comes to one. From that moment none of their records is
handed out any more; then what was read is committed (with ``enable_auto_commit``), the listener is called, and the
group is told. The partitions of a new assignment are fetched after the listener has returned, so that it can seek (K8).

Steps are taken one after the other, in the order of the group's decisions. A listener that raises stops nothing: its
error is raised by the next poll. Source: ``ConsumerCoordinator.java`` (onJoinPrepare, onJoinComplete), aiokafka's
``ConsumerRebalanceListener``.
"""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from barnabas_client.consumer.metrics import ConsumerMeters
from barnabas_client.consumer.subscription import Subscription
from barnabas_client.errors import IllegalStateError, RebalanceListenerError
from barnabas_client.logs import logger
from barnabas_client.membership.types import Assign, Revoke
from barnabas_client.structs import OffsetAndMetadata, TopicPartition
from barnabas_protocol.errors import KafkaError

_log: Final = logger("barnabas_client.consumer.consumer")


class ConsumerRebalanceListener:
    """Told when partitions come and go. Override what is of interest; each method may be a coroutine function.

    `on_partitions_lost` is called instead of `on_partitions_revoked` when others may have the partitions already: then
    nothing can be committed for them any more. Unless it is overridden it calls `on_partitions_revoked`, as in Kafka.
    """

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to go; what was read of them can still be committed."""

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are new here; nothing was fetched yet, so `seek` decides where they start."""

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are gone."""
        return self.on_partitions_revoked(lost)


class Gate:
    """Knows whether the program is in a poll, and who waits for that."""

    def __init__(self) -> None:
        #: Polls so far.
        self.count = 0
        #: Polls that are waiting now.
        self.inside = 0
        self._comes: list[asyncio.Future[None]] = []
        self._then: list[Callable[[], None]] = []

    @property
    def awaited(self) -> bool:
        """Whether someone waits for the program."""
        return any(not future.done() for future in self._comes)

    def enter(self) -> None:
        """The program polls. Whatever waited for that has happened when this returns."""
        self.count += 1
        self.inside += 1
        if self._then:
            then, self._then = self._then, []
            for action in then:
                action()
        if self._comes:
            comes, self._comes = self._comes, []
            for future in comes:
                if not future.done():
                    future.set_result(None)

    def leave(self) -> None:
        """The poll returns."""
        self.inside -= 1

    def then(self, action: Callable[[], None]) -> None:
        """When the program is in a poll, now or later, do this before the poll hands out anything more."""
        if self.inside:
            action()
        else:
            self._then.append(action)

    async def passed(self, action: Callable[[], None]) -> None:
        """Wait until the program is in a poll; `action` happens before that poll hands out anything more."""
        self.then(action)
        if self.inside:
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._comes.append(future)
        await future


class Group(Protocol):
    """What the program's side wants of the group's."""

    def generation(self) -> int:
        """The member's generation now."""

    def released(self, ticket: int) -> None:
        """Partitions were let go."""


Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class _Left:
    """The program unsubscribed."""

    offsets: Offsets
    then: Callable[[], Awaitable[None]]


class Rebalancer:
    """Carries out the group's decisions.

    Args:
        subscription: the partitions.
        gate: the program's polls.
        group: to be told.
        commit: commits where partitions stand that go, if that is to happen by itself; does not raise.
        changed: called when the assignment has changed.
        attention: called when the program is wanted at the gate, so that its next poll goes there.
        meters: measure how long it takes.
    """

    def __init__(
        self,
        subscription: Subscription,
        gate: Gate,
        group: Group,
        commit: Callable[[Offsets], Awaitable[None]],
        changed: Callable[[], None],
        attention: Callable[[], None],
        meters: ConsumerMeters,
    ) -> None:
        self.listener: ConsumerRebalanceListener | None = None
        #: Raised by the next poll.
        self.error: KafkaError | None = None
        #: Set while the first assignment is still to come.
        self.assigned = asyncio.Event()
        self._subscription = subscription
        self._gate = gate
        self._group = group
        self._commit = commit
        self._changed = changed
        self._attention = attention
        self._meters = meters
        self._began: float | None = None  # when the round began that is under way
        self._queue: asyncio.Queue[Revoke | Assign | _Left] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        self._task = asyncio.create_task(self._run(), name="barnabas-rebalance")

    async def stop(self) -> None:
        """End. What was not begun is dropped."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def put(self, effect: Revoke | Assign) -> None:
        """The group decided something. What goes is not handed out any more from the next poll on, even if that comes
        before the effect has its turn."""
        if isinstance(effect, Revoke):
            self._began = self._began or time.monotonic()
            self._gate.then(lambda: self._hold(effect.partitions))
        self._queue.put_nowait(effect)
        self._attention()

    def refuse_inside_listener(self, what: str) -> None:
        """Raise in a listener, where `what` would wait for the listener itself.

        Raises:
            IllegalStateError: this is the listener's call.
        """
        if self._task is not None and asyncio.current_task() is self._task:
            raise IllegalStateError(
                f"a rebalance listener cannot {what}: that would wait for the listener to return. To do: commit or "
                "seek in the "
                f"listener, and {what} outside of it"
            )

    def leave(self, offsets: Offsets, then: Callable[[], Awaitable[None]]) -> None:
        """The program unsubscribed, its partitions are gone already: commit where they stood, tell the listener, then
        go on."""
        self._queue.put_nowait(_Left(offsets, then))

    async def give_up(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        """Take partitions from the program: it gets no more of their records."""
        if not partitions:
            return
        self._hold(partitions)
        if not lost:
            await self._commit(self._subscription.positions(partitions))
        await self._tell_gone(partitions, lost=lost)
        self._subscription.remove(partitions)
        self._changed()

    async def _tell_gone(self, partitions: Collection[TopicPartition], *, lost: bool) -> None:
        listener = self.listener
        if listener is None or not partitions:
            return
        # A listener written for aiokafka does not know that partitions can be lost.
        if lost and hasattr(listener, "on_partitions_lost"):
            await self._call(listener.on_partitions_lost, partitions)
        else:
            await self._call(listener.on_partitions_revoked, partitions)

    async def _run(self) -> None:
        while True:
            effect = await self._queue.get()
            try:
                if isinstance(effect, Revoke):
                    await self._revoke(effect)
                elif isinstance(effect, Assign):
                    await self._assign(effect)
                else:
                    await self._commit(effect.offsets)
                    await self._tell_gone(list(effect.offsets), lost=False)
                    await effect.then()
            except Exception as error:
                # Nothing above is expected to raise; if it does, polls must say so instead of waiting for ever.
                _log.exception("a rebalance failed")
                self.error = RebalanceListenerError(f"a rebalance failed: {error!r}")
                self._attention()

    async def _revoke(self, effect: Revoke) -> None:
        if not self._gate.inside:
            self._attention()
        await self._gate.passed(lambda: self._hold(effect.partitions))
        # Meanwhile the membership may have been lost.
        lost = effect.lost or self._group.generation() != effect.generation
        if lost and effect.partitions:
            self._meters.failed_rebalances += 1
        held = [tp for tp in sorted(effect.partitions) if tp in self._subscription.states]
        await self.give_up(held, lost=lost)
        self._group.released(effect.ticket)

    async def _assign(self, effect: Assign) -> None:
        now = time.monotonic()
        self._meters.rebalanced_at = now
        self._meters.rebalance_latency.add(now - (self._began or now), now)
        self._began = None
        self._subscription.keep(effect.partitions)
        self._subscription.add(effect.partitions, active=False)
        self._changed()
        if self.listener is not None:
            await self._call(self.listener.on_partitions_assigned, sorted(effect.added))
        for tp in effect.partitions:
            state = self._subscription.states.get(tp)
            if state is not None:
                state.active = True
        self.assigned.set()
        self._changed()

    def _hold(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            state = self._subscription.states.get(tp)
            if state is not None:
                state.revoking = True

    async def _call(self, method: Callable[[Any], Any], partitions: Collection[TopicPartition]) -> None:
        try:
            result = method(list(partitions))
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            # The program's own code; Kafka's consumer, too, finishes the rebalance and raises afterwards.
            failure = RebalanceListenerError(
                f"the rebalance listener's {method.__name__} raised {type(error).__name__}: {error}. To do: repair "
                "the listener"
            )
            failure.__cause__ = error
            _log.warning("a rebalance listener raised", reason=str(failure))
            self.error = self.error or failure
            self._attention()
