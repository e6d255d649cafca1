"""The thread of a group membership: it runs a :class:`~barnabas_client.membership.classic.GroupMember` on an event loop
and with connections of its own, so that a program that blocks its event loop stays a member (until
`max_poll_interval_ms`).

**Messages, and nothing else, pass between thread and program.** The program's go in with :meth:`MemberThread.post`, the
thread's come out through `tell`; both are the other loop's ``call_soon_threadsafe``, so they arrive in the order in
which they were sent, and what they carry is immutable. The thread starts no I/O for the program, and the program none
for the thread. Assignors run here.

**Whether the program polls** the thread learns by asking its loop (:mod:`barnabas_client.membership.loop_watch`). A
poll that finds a message waiting gives its loop a turn before it returns records, so a program that polls but never
waits answers as well. As a poll may have come right after the answer, the time that the member allows between polls
begins one `interval` later: it is never thrown out early.

The loop ends with :meth:`MemberThread.stop`, or when the program's loop is found to be closed; in both cases the group
is left, if the coordinator can be told. The thread is a daemon: it keeps no program from ending.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from barnabas_client.assignors import Assignor
from barnabas_client.logs import logger
from barnabas_client.membership.classic import GroupMember
from barnabas_client.membership.loop_watch import LoopWatch, place
from barnabas_client.membership.types import (
    AskCluster,
    Assign,
    Coordinator,
    Disconnect,
    Effect,
    Fail,
    MemberConfig,
    Note,
    Revoke,
    Send,
)
from barnabas_client.membership.view import MemberView
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.registry import ApiKey, api

_log: Final = logger("barnabas_client.membership.classic")

#: Seconds that a LeaveGroup may take to get out when the thread is told to stop without waiting.
_LAST_WORDS: Final = 0.2


class Program(Protocol):
    """Whom the thread tells things. Every method is called on the program's loop."""

    def viewed(self, view: MemberView) -> None:
        """The member has changed."""

    def decided(self, effect: Revoke | Assign) -> None:
        """Partitions go or come."""

    def failed(self, error: KafkaError) -> None:
        """The membership failed for good."""

    def asked(self, sent: float) -> None:
        """Answer with :meth:`MemberThread.alive`; the question was sent at `sent` on the monotonic clock."""

    def ended(self) -> None:
        """The thread has nothing more to say."""


class MemberThread:
    """The thread. Methods that the program calls are `start`, `post`, `stop` and `join`; all others are messages.

    Args:
        config: the member's.
        assignors: in order of preference.
        network: the program's. What it knows is taken over, so that nothing is asked twice; it is not used.
        program: to be told things.
        tell: runs a call on the program's loop, soon. Raises RuntimeError if that is closed.
    """

    def __init__(
        self,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        network: Network,
        program: Program,
        tell: Callable[..., None],
    ) -> None:
        self._config = config
        self._known = network.cluster, dict(network.connections.versions)
        self._program = program
        self._tell_program = tell
        self._program_thread = threading.get_ident()
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(self._broken)
        self._stopped = asyncio.Event()
        self._network = Network(network.config)
        self._network.listeners.append(self._metadata_changed)
        self._machine = GroupMember(config, assignors, jitter)
        self._view = self._machine.view()
        self._watch = LoopWatch(config.heartbeat_interval, config.max_poll_interval)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | None = None
        self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"barnabas-group-{config.group_id}")

    # For the program.

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def post(self, message: Callable[..., None], *arguments: Any) -> None:
        """Have a method of this object called on the thread. Nothing happens if it has ended."""
        try:
            self._loop.call_soon_threadsafe(message, *arguments)
        except RuntimeError:
            pass  # the loop is closed

    def stop(self) -> None:
        """End the thread, soon."""
        self.post(self._stopped.set)

    def join(self, timeout: float) -> bool:
        """Wait for the end; whether it has come. It takes no time once the program was told `ended`."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # Messages from the program.

    def subscribe(self, topics: frozenset[str], cluster: Cluster) -> None:
        """Be a member that reads `topics`; `cluster` is what the program knows of them."""
        self.look_again(cluster)
        self._happened(self._machine.subscribe(topics, time.monotonic()))
        if self._asking is None:
            self._ask()

    def released(self, ticket: int) -> None:
        """A `Revoke` is done."""
        self._happened(self._machine.released(ticket, time.monotonic()))

    def rejoin(self, reason: str) -> None:
        """Begin a rebalance because the program wants one."""
        self._happened(self._machine.rejoin(reason, time.monotonic()))

    def want_coordinator(self) -> None:
        """Look for the coordinator, if it is not known."""
        self._happened(self._machine.want_coordinator(time.monotonic()), always=True)

    def coordinator_lost(self, coordinator: Coordinator, reason: str) -> None:
        """The program got no answer from there."""
        lost = coordinator == self._machine.coordinator
        self._happened(self._machine.coordinator_lost(reason, time.monotonic()) if lost else [], always=True)

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit was answered with an error that may tell something about the membership."""
        self._happened(self._machine.commit_refused(code, generation, time.monotonic()))

    def look_again(self, cluster: Cluster) -> None:
        """The program has seen that topics have changed. A leader, who watches those of all members, asks himself."""
        if self._machine.leads:
            self._network.want_refresh(urgent=True)
        else:
            self._network.watch(())
            self._network.learn(cluster)

    def leave(self, reason: str, timeout: float, done: Callable[[], None]) -> None:
        """Leave the group; then, but after no more than `timeout` seconds, tell the program `done`."""
        if self._asking is not None:
            self._asking.cancel()
            self._asking = None
        before = set(self._tasks)
        self._happened(self._machine.leave(reason, time.monotonic()))
        self._network.watch(())
        self._spawn(self._after(self._tasks - before, timeout, done))

    def alive(self, lag: float, polls: bool) -> None:
        """The program's loop has answered after `lag` seconds; it polls now, or has since the last answer."""
        warning = self._watch.answered(lag)
        if self._asking is None:
            return  # it has left meanwhile
        self._asking.cancel()
        self._asking = self._loop.call_later(self._watch.interval, self._ask)
        if warning is not None:
            _log.warning(warning, group=self._config.group_id)
        if polls:
            self._happened(self._machine.polled(time.monotonic() + self._watch.interval))

    # The program's loop.

    def _ask(self) -> None:
        now = time.monotonic()
        self._watch.asked(now)
        self._asking = self._loop.call_later(self._watch.threshold, self._look)
        self._tell(self._program.asked, now)

    def _look(self) -> None:
        self._watch.looked(time.monotonic(), place(self._program_thread))

    def _tell(self, message: Callable[..., None], *arguments: Any) -> None:
        try:
            self._tell_program(message, *arguments)
        except RuntimeError:
            self._stopped.set()  # the program's loop was closed without a stop of the consumer

    # The machine's effects.

    def _happened(self, effects: list[Effect], *, always: bool = False) -> None:
        """Do what the machine asks for, tell what has changed, and set the timer anew."""
        view = self._machine.view()
        if always or view != self._view:
            # Before the effects: who is told to let go of partitions must know the generation.
            self._view = view
            self._tell(self._program.viewed, view)
        for effect in effects:
            self._carry_out(effect)
        if self._timer is not None:
            self._timer.cancel()
        deadline = None if self._closing else self._machine.next_deadline()
        if deadline is not None:
            self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._tick)

    def _tick(self) -> None:
        self._happened(self._machine.tick(time.monotonic()))

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._spawn(self._send(effect))
        elif isinstance(effect, Revoke | Assign):
            self._tell(self._program.decided, effect)
        elif isinstance(effect, AskCluster):
            self._spawn(self._count(effect))
        elif isinstance(effect, Disconnect):
            self._network.connections.disconnect(
                (effect.coordinator.host, effect.coordinator.port), Purpose.GROUP, effect.reason
            )
        elif isinstance(effect, Fail):
            _log.error("the group membership failed", group=self._config.group_id, reason=str(effect.error))
            self._tell(self._program.failed, effect.error)
        elif isinstance(effect, Note):
            blocked = {"event_loop_blocked": self._watch.place} if effect.warns and self._watch.place else {}
            (_log.warning if effect.warns else _log.info)(
                effect.event, group=self._config.group_id, **effect.fields, **blocked
            )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, effect: Send) -> None:
        answer = api(ApiKey(effect.request.API_KEY)).response
        try:
            if effect.to is None:
                response = await self._network.ask_any(
                    effect.request, answer, purpose=Purpose.GROUP, timeout=effect.timeout
                )
            else:
                connection = await self._network.connections.open((effect.to.host, effect.to.port), Purpose.GROUP)
                response = await connection.ask(effect.request, answer, timeout=effect.timeout)
        except KafkaError as error:
            self._happened(self._machine.failed(effect.ticket, error, time.monotonic()))
        else:
            self._happened(self._machine.answered(effect.ticket, response, time.monotonic()))

    async def _count(self, effect: AskCluster) -> None:
        """The leader watches the topics of all members, as Kafka's does (``ConsumerCoordinator.onLeaderElected``)."""
        cluster = self._network.cluster
        self._network.watch(effect.topics)
        if len(cluster.counts(effect.topics)) < len(effect.topics):
            try:
                cluster = await self._network.refresh()
            except KafkaError as error:
                # The assignment is made for what is known; when more is, the leader rejoins.
                _log.warning("assigning without fresh metadata", reason=str(error))
        counts = cluster.counts(effect.topics)
        self._happened(self._machine.counted(effect.ticket, counts, time.monotonic()))

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self._machine.leads:
            counts = cluster.counts(self._network.topics or ())
            self._happened(self._machine.metadata_changed(counts, time.monotonic()))

    async def _after(self, goodbye: Iterable[asyncio.Task[None]], timeout: float, done: Callable[[], None]) -> None:
        waiting = set(goodbye)
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)
        self._tell(done)

    # The thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            try:
                self._tell_program(self._program.ended)
            except RuntimeError:
                pass  # there is nobody left to be told

    async def _live(self) -> None:
        await self._network.start(*self._known)
        await self._stopped.wait()
        before = set(self._tasks)
        self._happened(self._machine.leave("the consumer has ended", time.monotonic()))
        goodbye = self._tasks - before
        if goodbye:
            await asyncio.wait(goodbye, timeout=_LAST_WORDS)
        self._closing = True
        for timer in (self._timer, self._asking):
            if timer is not None:
                timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._network.close(_LAST_WORDS)

    def _broken(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        """Something raised that must not: a member that has stopped in the middle would be worse than one that says."""
        error = context.get("exception")
        if self._closing:
            return
        _log.error(
            "the group membership broke", group=self._config.group_id, what=context.get("message"), exc_info=error
        )
        self._tell(
            self._program.failed,
            KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"the group membership broke: {context.get('message')} ({error!r}). To do: report this as a bug",
            ),
        )
