"""The thread of a group membership.

It runs a :class:`~barnabas_client.membership.classic.ClassicMember`, or a
:class:`~barnabas_client.membership.consumer_member.ConsumerMember`, on an event loop and with connections of its own,
so that a program that blocks its event loop stays a member (until `max_poll_interval_ms`).

**Thread and program exchange messages and one snapshot.** The program sends with :meth:`MemberThread.post`, the thread
with `notify`; both are the other loop's ``call_soon_threadsafe``, so messages arrive in the order in which they were
sent, and what they carry is immutable. The snapshot is :attr:`MemberThread.view`, which the thread replaces before it
sends what follows from the change: most changes need nothing of the program, and do not wake it. Assignors run on the
thread.

**Polls.** The thread learns whether the program polls by pinging its loop
(:mod:`barnabas_client.membership.loop_watch`). A poll that finds a message waiting gives its loop a turn before it
returns records, so a program that polls without ever waiting answers as well. A poll may come right after an answer:
therefore the time that a member has between polls begins one ping interval later, and a member never leaves too early.

The loop ends with :meth:`MemberThread.stop`, or when the program's loop turns out to be closed; in both cases the
thread leaves the group if it can. The thread is a daemon: it does not keep the program from ending.
"""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Protocol

from barnabas_client.assignors import Assignor
from barnabas_client.config import Address, ClientConfig
from barnabas_client.logs import logger
from barnabas_client.membership.classic import ClassicMember
from barnabas_client.membership.effects import (
    Assign,
    Coordinator,
    CountPartitions,
    Disconnect,
    Effect,
    Fail,
    NameTopics,
    Note,
    Revoke,
    Send,
)
from barnabas_client.membership.exchange import response_to
from barnabas_client.membership.loop_watch import LoopWatch, location
from barnabas_client.membership.member import MemberConfig
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter
from barnabas_client.network.versions import ApiRange, prepare
from barnabas_client.program import loop_for_thread
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.fetch import FetchRequest
from barnabas_protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from barnabas_protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from barnabas_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from barnabas_protocol.uuids import uuid_text

if TYPE_CHECKING:
    from barnabas_client.membership.consumer_member import ConsumerMember

_log: Final = logger("barnabas_client.membership")

#: Seconds that a LeaveGroup may take to be sent when the thread is stopped without waiting for it.
_LAST_REQUESTS: Final = 0.2
#: What is sent and received between the first response to JoinGroup and the first record.
_SOON: Final = (
    SyncGroupRequest,
    SyncGroupResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    FetchRequest,
)


class MemberThreadOwner(Protocol):
    """Receives the messages of the thread. Every method is called on the program's loop."""

    def coordinator_changed(self) -> None:
        """The coordinator was found or lost, or the membership has failed, or the program asked whether it has."""

    def rebalance(self, effect: Revoke | Assign) -> None:
        """Partitions are revoked or assigned."""

    def membership_failed(self, error: KafkaError) -> None:
        """The membership failed for good."""

    def pinged(self, sent: float) -> None:
        """Answer with :meth:`MemberThread.ponged`; the ping was sent at `sent` on the monotonic clock."""

    def ended(self) -> None:
        """The thread sends no more messages."""


class MemberThread:
    """The thread. The program calls `start`, `post`, `stop` and `join`; all other methods are messages.

    Args:
        config: of the member.
        assignors: of the classic protocol, in order of preference.
        client: the addresses of the brokers, and how to reach them.
        owner: receives the messages.
        notify: runs a call on the program's loop, soon. Raises RuntimeError if that loop is closed.

    Attributes:
        view: the member as it is now, for every thread.
    """

    def __init__(
        self,
        config: MemberConfig,
        assignors: Sequence[Assignor],
        client: ClientConfig,
        owner: MemberThreadOwner,
        notify: Callable[..., None],
    ) -> None:
        self._config = config
        self._owner = owner
        self._notify_program = notify
        self._program_thread = threading.get_ident()
        self._loop = loop_for_thread()
        self._loop.set_exception_handler(self._loop_raised)
        self._stopped = asyncio.Event()
        self._network = Network(client)
        self._network.listeners.append(self._cluster_changed)
        self._machine = _machine(config, assignors)
        self._watch = LoopWatch(config.heartbeat_interval, config.max_poll_interval)
        self._tasks = BackgroundTasks(self._task_raised)
        self._timer: asyncio.TimerHandle | None = None
        self._next_ping: asyncio.TimerHandle | None = None
        self._started = self._closing = False
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"barnabas-group-{config.group_id}")
        self.view = self._machine.view()

    # Calls of the program.

    def start(
        self, cluster: Cluster, versions: Mapping[Address, Mapping[int, ApiRange]], coordinator: Coordinator | None
    ) -> None:
        """Start the thread.

        Args:
            cluster: what the program knows of it.
            versions: of the brokers' APIs, as far as the program knows them.
            coordinator: of the group; None if it is not known.
        """
        self._known = cluster, dict(versions)
        if coordinator is not None:
            for effect in self._machine.standing.coordinator_found(coordinator, time.monotonic()):
                self._carry_out(effect)
            self.view = self._machine.view()
        self._started = True
        self._start()

    def _start(self) -> None:
        self._thread.start()

    def post(self, message: Callable[..., None], *arguments: Any) -> None:
        """Call a method of this object on the thread. Does nothing if the thread has ended."""
        try:
            self._loop.call_soon_threadsafe(message, *arguments)
        except RuntimeError:
            pass  # the loop is closed

    def stop(self) -> None:
        """End the thread soon; if it was not started, there is nothing to end but its loop."""
        if self._started:
            self.post(self._stopped.set)
        else:
            self._loop.close()
            self._owner.ended()

    def join(self, timeout: float) -> bool:
        """Wait for the end; whether the thread has ended. Returns at once after the message `ended`."""
        if self._started:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # Messages of the program.

    def subscribe(self, topics: frozenset[str], pattern: str | None, cluster: Cluster, waits: bool) -> None:
        """Become a member that reads `topics`, or those that the coordinator matches with `pattern`, which only the
        consumer protocol has; `cluster` is what the program knows of them, and `waits` whether it waits for its first
        assignment."""
        self.metadata_changed(cluster)
        now = time.monotonic()
        if isinstance(self._machine, ClassicMember):
            self._apply(self._machine.subscribe(topics, now, waits=waits))
        else:
            self._apply(self._machine.subscribe(topics, now, pattern))
        if self._next_ping is None:
            self._next_ping = self._loop.call_later(self._watch.interval, self._ping)

    def revoked(self, ticket: int) -> None:
        """A `Revoke` is done."""
        self._apply(self._machine.revoked(ticket, time.monotonic()))

    def rejoin(self, reason: str) -> None:
        """Start a rebalance because the program asked for one."""
        self._apply(self._machine.rejoin(reason, time.monotonic()))

    def find_coordinator(self) -> None:
        """Find the coordinator, if it is not known."""
        self._apply(self._machine.standing.find_coordinator(time.monotonic()), always_notify=True)

    def coordinator_lost(self, coordinator: Coordinator, reason: str) -> None:
        """The program got no answer from this coordinator."""
        lost = coordinator == self._machine.standing.coordinator
        self._apply(self._machine.coordinator_lost(reason, time.monotonic()) if lost else [], always_notify=True)

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit was answered with an error that may concern the membership."""
        self._apply(self._machine.commit_refused(code, generation, time.monotonic()))

    def metadata_changed(self, cluster: Cluster) -> None:
        """The program has new metadata. A leader watches the topics of all members, so it refreshes its own."""
        if self._machine.is_leader:
            self._network.want_refresh(urgent=True)
        else:
            self._network.watch(())
            self._network.learn(cluster)

    def leave(self, reason: str, timeout: float, done: Callable[[], None]) -> None:
        """Leave the group; call `done` on the program's loop afterwards, but after no more than `timeout` seconds."""
        if self._next_ping is not None:
            self._next_ping.cancel()
            self._next_ping = None
        before = set(self._tasks)
        self._apply(self._machine.leave(reason, time.monotonic()))
        self._network.watch(())
        self._tasks.spawn(self._after(set(self._tasks) - before, timeout, done))

    def ponged(self, lag: float, has_polled: bool) -> None:
        """The program's loop has answered after `lag` seconds; `has_polled`: it polls now, or has since the last
        answer."""
        warning = self._watch.answered(lag)
        if self._next_ping is None:
            return  # the member has left meanwhile
        self._next_ping.cancel()
        self._next_ping = self._loop.call_later(self._watch.interval, self._ping)
        if warning is not None:
            _log.warning(warning, group=self._config.group_id)
        if has_polled:
            self._apply(self._machine.standing.polled(time.monotonic() + self._watch.interval))

    # The program's loop.

    def _ping(self) -> None:
        now = time.monotonic()
        self._watch.asked(now)
        self._next_ping = self._loop.call_later(self._watch.threshold, self._inspect)
        self._notify(self._owner.pinged, now)

    def _inspect(self) -> None:
        self._watch.inspected(time.monotonic(), location(self._program_thread))

    def _notify(self, message: Callable[..., None], *arguments: Any) -> None:
        try:
            self._notify_program(message, *arguments)
        except RuntimeError:
            self._stopped.set()  # the program closed its loop without stopping the consumer

    # The machine's effects.

    def _apply(self, effects: list[Effect], *, always_notify: bool = False) -> None:
        """Show how the member is now, carry out the machine's effects, and set the timer."""
        # The view comes before the effects: a revocation compares its generation with that of the view.
        before, self.view = self.view, self._machine.view()
        if always_notify or (before.coordinator, before.error) != (self.view.coordinator, self.view.error):
            self._notify(self._owner.coordinator_changed)
        for effect in effects:
            self._carry_out(effect)
        if self.view.member_id and not before.member_id:
            # The coordinator has answered JoinGroup. While it answers the next request, there is time to prepare.
            self._loop.call_soon(self._prepare)
        if self._timer is not None:
            self._timer.cancel()
        deadline = None if self._closing else self._machine.standing.next_deadline()
        if deadline is not None:
            self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._tick)

    def _prepare(self) -> None:
        coordinator = self.view.coordinator
        if coordinator is not None:
            versions = self._network.connections.versions.get((coordinator.host, coordinator.port), {})
            prepare(_SOON, versions)

    def _tick(self) -> None:
        self._apply(self._machine.standing.tick(time.monotonic()))

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._tasks.spawn(self._send(effect))
        elif isinstance(effect, Revoke | Assign):
            self._notify(self._owner.rebalance, effect)
        elif isinstance(effect, CountPartitions):
            self._tasks.spawn(self._count(effect))
        elif isinstance(effect, NameTopics):
            self._tasks.spawn(self._name(effect))
        elif isinstance(effect, Disconnect):
            self._network.connections.disconnect(
                (effect.coordinator.host, effect.coordinator.port), Purpose.GROUP, effect.reason
            )
        elif isinstance(effect, Fail):
            _log.error("the group membership failed", group=self._config.group_id, reason=str(effect.error))
            self._notify(self._owner.membership_failed, effect.error)
        elif isinstance(effect, Note):
            place = self._watch.location
            blocked = {"event_loop_blocked": place} if effect.warns and place else {}
            log = _log.warning if effect.warns else _log.info
            log(effect.event, group=self._config.group_id, **effect.fields, **blocked)

    async def _send(self, effect: Send) -> None:
        try:
            response = await response_to(effect, self._network)
        except KafkaError as error:
            self._apply(self._machine.failed(effect.ticket, error, time.monotonic()))
        else:
            self._apply(self._machine.answered(effect.ticket, response, time.monotonic()))

    async def _count(self, effect: CountPartitions) -> None:
        """The leader watches the topics of all members, as Kafka's does (``ConsumerCoordinator.onLeaderElected``)."""
        cluster = self._network.cluster
        self._network.watch(effect.topics)
        if len(cluster.counts(effect.topics)) < len(effect.topics):
            try:
                cluster = await self._network.refresh()
            except KafkaError as error:
                # The assignment covers the topics that are known; when others appear, the leader rejoins.
                _log.warning("assigning without fresh metadata", reason=str(error))
        counts = cluster.counts(effect.topics)
        if isinstance(self._machine, ClassicMember):
            self._apply(self._machine.counted(effect.ticket, counts, time.monotonic()))

    async def _name(self, effect: NameTopics) -> None:
        """Look the names up in the metadata; ask for those that it does not have."""
        known = self._network.cluster.names
        names = {topic_id: known[topic_id] for topic_id in effect.topic_ids if topic_id in known}
        missing = effect.topic_ids - names.keys()
        if missing:
            try:
                names.update(await self._network.names_of(missing))
            except KafkaError as error:
                _log.info("no names of assigned topics", group=self._config.group_id, reason=str(error))
        if not isinstance(self._machine, ClassicMember):
            self._apply(self._machine.named(effect.ticket, names, time.monotonic()))

    def _cluster_changed(self, cluster: Cluster) -> None:
        if isinstance(self._machine, ClassicMember) and self._machine.is_leader:
            counts = cluster.counts(self._network.topics or ())
            self._apply(self._machine.metadata_changed(counts, time.monotonic()))

    async def _after(self, tasks: Iterable[asyncio.Task[None]], timeout: float, done: Callable[[], None]) -> None:
        waiting = set(tasks)
        if waiting:
            await asyncio.wait(waiting, timeout=timeout)
        self._notify(done)

    # The thread.

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._live())
        finally:
            self._loop.close()
            try:
                self._notify_program(self._owner.ended)
            except RuntimeError:
                pass  # the program's loop is closed

    async def _live(self) -> None:
        await self._network.start(*self._known)
        await self._stopped.wait()
        before = set(self._tasks)
        self._apply(self._machine.leave("the consumer has ended", time.monotonic()))
        leaving = set(self._tasks) - before
        if leaving:
            await asyncio.wait(leaving, timeout=_LAST_REQUESTS)
        self._closing = True
        for timer in (self._timer, self._next_ping):
            if timer is not None:
                timer.cancel()
        await self._tasks.close()
        await self._network.close(_LAST_REQUESTS)

    def _task_raised(self, error: BaseException) -> None:
        self._report_bug("a task raised", error)

    def _loop_raised(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        self._report_bug(str(context.get("message")), context.get("exception"))

    def _report_bug(self, what: str, error: BaseException | None) -> None:
        """Code that must not raise has raised: fail the membership rather than stop in the middle without a word."""
        if self._closing:
            return
        _log.error("the group membership broke", group=self._config.group_id, what=what, exc_info=error)
        message = f"the group membership broke: {what} ({error!r}). To do: report this as a bug"
        self._notify(self._owner.membership_failed, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, message))


def _machine(config: MemberConfig, assignors: Sequence[Assignor]) -> "ClassicMember | ConsumerMember":
    """Make the machine of the group's protocol. A member of the consumer protocol has a random id, in the form in which
    Kafka's clients print theirs."""
    if config.protocol == "classic":
        return ClassicMember(config, assignors, jitter)
    # Imported here: members of the classic protocol do not need it.
    member: ConsumerMember = import_module("barnabas_client.membership.consumer_member").ConsumerMember(
        config, uuid_text(os.urandom(16)), jitter
    )
    return member
