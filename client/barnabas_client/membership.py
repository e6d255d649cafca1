"""Runs a :class:`~barnabas_client.group.GroupMember`: sends its requests, brings it the answers, keeps its timer.

What has to do with the network happens here, what has to do with the program behind :class:`Host`: the two meet only in
its methods and in :meth:`Membership.released`, so that this part can run in a loop of its own. The machine learns
whether the program polls from :meth:`Host.polls`, a plain number that grows: the program's fast path never has to come
here.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final, Protocol, TypeVar

from barnabas_client.assignors import Assignor
from barnabas_client.errors import KafkaTimeoutError
from barnabas_client.group import GroupMember
from barnabas_client.group_types import (
    AskCluster,
    Assign,
    Coordinator,
    Disconnect,
    Effect,
    Fail,
    Identity,
    MemberConfig,
    Note,
    Revoke,
    Send,
)
from barnabas_client.logs import logger
from barnabas_client.metadata import Cluster
from barnabas_client.network import Network, Purpose, jitter
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_log: Final = logger("barnabas_client.group")


class Host(Protocol):
    """The program's side."""

    def polls(self) -> int:
        """Grows whenever the program polls, and stays -1 while it waits in a poll."""

    def rebalance(self, effect: Revoke | Assign) -> None:
        """Take partitions away or give them, in the order of the calls; for `Revoke`, call `released` in the end."""

    def failed(self, error: KafkaError) -> None:
        """The membership failed for good."""


class Membership:
    """A member of a group, or only someone who knows its coordinator."""

    def __init__(self, network: Network, config: MemberConfig, assignors: Sequence[Assignor], host: Host) -> None:
        self.machine = GroupMember(config, assignors, jitter)
        #: The topics that the leader watches beside those of its own subscription.
        self.group_topics: frozenset[str] = frozenset()
        self._network = network
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._polls = 0
        self._known: list[asyncio.Future[None]] = []
        self._closed = False
        network.listeners.append(self._metadata_changed)

    # From the program.

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group to read these topics."""
        self._do(lambda now: self.machine.subscribe(topics, now))

    def released(self, ticket: int) -> None:
        """A `Revoke` is done."""
        self._do(lambda now: self.machine.released(ticket, now))

    async def leave(self, reason: str, timeout: float) -> None:
        """Leave the group and wait for the answer, for at most `timeout` seconds."""
        before = set(self._tasks)
        self._do(lambda now: self.machine.leave(reason, now))
        self.group_topics = frozenset()
        goodbye = self._tasks - before
        if goodbye:
            await asyncio.wait(goodbye, timeout=timeout)

    async def close(self) -> None:
        """Stop everything. The group is not left."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # For commits.

    def identity(self) -> Identity:
        """With what a commit goes out; see :meth:`GroupMember.commit_identity`.

        Raises:
            KafkaError: not now, or never.
        """
        return self.machine.commit_identity()

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
                f"the coordinator of group {self.machine.config.group_id!r} was not found, or did not answer, within "
                f"{timeout:g} s. To do: check that the brokers are up and __consumer_offsets has leaders"
            ) from error

    async def _ask(self, coordinator: Coordinator, request: Request, answer: type[R]) -> R:
        try:
            connection = await self._network.connection_to((coordinator.host, coordinator.port), Purpose.GROUP)
            return await connection.ask(request, answer, timeout=self.machine.config.request_timeout)
        except KafkaError as error:
            if error.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                reason = str(error)
                self._do(lambda now: self.machine.coordinator_lost(reason, now))
            raise

    def commit_refused(self, code: ErrorCode, generation: int) -> None:
        """A commit was answered with an error that may tell something about the membership."""
        self._do(lambda now: self.machine.commit_refused(code, generation, now))

    async def _find(self) -> Coordinator:
        while (coordinator := self.machine.coordinator) is None:
            if self.machine.error is not None:
                raise self.machine.error.with_traceback(None)
            known: asyncio.Future[None] = self._loop.create_future()
            self._known.append(known)
            self._do(self.machine.want_coordinator)
            await known
        return coordinator

    # The machine's events and effects.

    def _do(self, event: Callable[[float], list[Effect]]) -> None:
        """Let something happen to the machine, do what it asks for, and set the timer anew."""
        if self._closed:
            return
        now = self._loop.time()
        effects: list[Effect] = []
        polls = self._host.polls()
        if polls != self._polls or polls < 0:
            self._polls = polls
            effects += self.machine.polled(now)
        effects += event(now)
        for effect in effects:
            self._carry_out(effect)
        if self._timer is not None:
            self._timer.cancel()
        deadline = self.machine.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._do, self.machine.tick)
        if self.machine.coordinator is not None or self.machine.error is not None:
            known, self._known = self._known, []
            for waiter in known:
                if not waiter.done():
                    waiter.set_result(None)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self._spawn(self._send(effect))
        elif isinstance(effect, Revoke | Assign):
            self._host.rebalance(effect)
        elif isinstance(effect, AskCluster):
            self._spawn(self._count(effect))
        elif isinstance(effect, Disconnect):
            self._network.disconnect((effect.coordinator.host, effect.coordinator.port), Purpose.GROUP, effect.reason)
        elif isinstance(effect, Fail):
            _log.error("the group membership failed", group=self.machine.config.group_id, reason=str(effect.error))
            self._host.failed(effect.error)
        elif isinstance(effect, Note):
            (_log.warning if effect.warns else _log.info)(
                effect.event, group=self.machine.config.group_id, **effect.fields
            )

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, effect: Send) -> None:
        answer = api(ApiKey(effect.request.API_KEY)).response
        try:
            if effect.to is None:
                response = await self._network.ask_any(effect.request, answer, timeout=effect.timeout)
            else:
                connection = await self._network.connection_to((effect.to.host, effect.to.port), Purpose.GROUP)
                response = await connection.ask(effect.request, answer, timeout=effect.timeout)
        except KafkaError as error:
            failure = error
            self._do(lambda now: self.machine.failed(effect.ticket, failure, now))
        else:
            self._do(lambda now: self.machine.answered(effect.ticket, response, now))

    async def _count(self, effect: AskCluster) -> None:
        """The leader watches the topics of all members, as Kafka's does (``ConsumerCoordinator.onLeaderElected``)."""
        self.group_topics = effect.topics
        cluster = self._network.cluster
        if self._network.watch_also(effect.topics) or len(cluster.counts(effect.topics)) < len(effect.topics):
            try:
                cluster = await self._network.refresh()
            except KafkaError as error:
                # The assignment is made for what is known; when more is, the leader rejoins.
                _log.warning("assigning without fresh metadata", reason=str(error))
        counts = cluster.counts(effect.topics)
        self._do(lambda now: self.machine.counted(effect.ticket, counts, now))

    def _metadata_changed(self, cluster: Cluster) -> None:
        if self.machine.leads:
            counts = cluster.counts(self.group_topics)
            self._do(lambda now: self.machine.metadata_changed(counts, now))
