"""Runs the machine of a share group member in the program's event loop.

A program that blocks its loop for longer than the group's session timeout (45 s by default) loses its membership, as
it would lose the locks of its records (30 s) before.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from barnabas_client.logs import logger
from barnabas_client.membership.effects import Disconnect, Effect, Fail, Note, Send
from barnabas_client.membership.exchange import response_to
from barnabas_client.membership.heartbeats import Partitions
from barnabas_client.membership.member import MemberConfig
from barnabas_client.network.connections import Purpose
from barnabas_client.network.network import Network
from barnabas_client.network.retries import jitter
from barnabas_client.shares.member import ShareMember
from barnabas_client.tasks import BackgroundTasks
from barnabas_protocol.errors import ErrorCode, KafkaError

_log: Final = logger("barnabas_client.shares")


class ShareMembership:
    """A member of a share group.

    Args:
        network: connected.
        config: the group and its timeouts.
        member_id: of the member.
        changed: called when the assignment may have changed.
        failed: called if the membership failed for good.
    """

    def __init__(
        self,
        network: Network,
        config: MemberConfig,
        member_id: str,
        changed: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._network = network
        self._config = config
        self._changed = changed
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._machine = ShareMember(config, member_id, jitter)
        self._tasks = BackgroundTasks(self._task_failed)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def assigned(self) -> Partitions:
        """The partitions to fetch from."""
        return self._machine.assigned

    def subscribe(self, topics: Iterable[str]) -> None:
        """Join the group, or change the subscription."""
        self._apply(self._machine.subscribe(topics, self._loop.time()))

    async def leave(self) -> None:
        """Leave the group, and wait for the answer."""
        before = set(self._tasks)
        self._apply(self._machine.leave(self._loop.time()))
        leaving = set(self._tasks) - before
        if leaving:
            await asyncio.wait(leaving)

    async def close(self) -> None:
        """Stop."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()

    def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._tasks.spawn(self._send(effect), name="barnabas-share-heartbeat")
            elif isinstance(effect, Disconnect):
                address = effect.coordinator.host, effect.coordinator.port
                self._network.connections.disconnect(address, Purpose.GROUP, effect.reason)
            elif isinstance(effect, Fail):
                _log.error("the group membership failed", group=self._config.group_id, reason=str(effect.error))
                self._failed(effect.error)
            elif isinstance(effect, Note):
                log = _log.warning if effect.warns else _log.info
                log(effect.event, group=self._config.group_id, **effect.fields)
        if self._timer is not None:
            self._timer.cancel()
        deadline = self._machine.standing.next_deadline()
        self._timer = None if deadline is None else self._loop.call_at(deadline, self._tick)
        self._changed()

    def _tick(self) -> None:
        self._apply(self._machine.standing.tick(self._loop.time()))

    async def _send(self, effect: Send) -> None:
        try:
            response = await response_to(effect, self._network)
        except KafkaError as error:
            self._apply(self._machine.failed(effect.ticket, error, self._loop.time()))
        else:
            self._apply(self._machine.answered(effect.ticket, response, self._loop.time()))

    def _task_failed(self, error: BaseException) -> None:
        _log.error("the membership failed", group=self._config.group_id, exc_info=error)
        what = f"the membership of share group {self._config.group_id!r} failed: {error!r}"
        self._failed(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, what))
