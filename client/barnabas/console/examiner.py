"""Examines groups of a cluster as `barnabas groups doctor` does, and keeps what it has found for some time."""

import asyncio
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

from barnabas.console.histories import Histories
from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription
from barnabas_client.cli import clients
from barnabas_client.history.present import is_absent, observed, recorded, without_members
from barnabas_explain.doctor import SINCE_MS, Diagnosis, Present, examine
from barnabas_explain.records import decode_event
from barnabas_protocol.errors import KafkaError

#: Groups whose diagnoses are kept; beyond that those that were asked for least recently are dropped.
_MOST: Final = 1_000
#: Groups that are examined at the same time.
_AT_ONCE: Final = 4


class Examiner:
    """Examines groups, a few at a time, while pages are answered with what was found last.

    Args:
        arguments: of the command; they name the brokers.
        admin: of the brokers.
        histories: the events of groups, as far as pages follow them; those of others are read.
        now: a monotonic clock, in seconds.
        wall_ms: the time of day, in ms since 1970.
    """

    def __init__(
        self,
        arguments: Namespace,
        admin: Admin,
        histories: Histories,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._arguments, self._admin, self._histories = arguments, admin, histories
        self._now, self._wall_ms = now, wall_ms
        self._found: OrderedDict[str, tuple[float, Sequence[Diagnosis]]] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, group: GroupDescription, seconds: float) -> None:
        """Examine a group, if it was not examined within so many seconds, and if not too many are being examined."""
        name, known = group.group_id, self._found.get(group.group_id)
        if (known is not None and self._now() - known[0] <= seconds) or name in self._tasks:
            return
        if len(self._tasks) < _AT_ONCE:
            task = self._tasks[name] = asyncio.get_running_loop().create_task(self._examine(group))
            task.add_done_callback(lambda done: self._tasks.pop(name, None))

    def stop(self) -> None:
        """Do not wait for the brokers any more."""
        for task in self._tasks.values():
            task.cancel()

    def known(self, group_id: str) -> Sequence[Diagnosis]:
        """The diagnoses of a group, worst first; none if it was not examined."""
        known = self._found.get(group_id)
        return () if known is None else known[1]

    async def _examine(self, group: GroupDescription) -> None:
        found: Sequence[Diagnosis] = ()  # of a group that cannot be examined
        with suppress(KafkaError):
            found = await self._diagnoses(group)
        self._found[group.group_id] = self._now(), found
        self._found.move_to_end(group.group_id)
        if len(self._found) > _MOST:
            self._found.popitem(last=False)

    async def _diagnoses(self, group: GroupDescription) -> Sequence[Diagnosis]:
        now = self._wall_ms()
        since = now - SINCE_MS
        connect = clients.connect(self._arguments)
        values = self._histories.values(group.group_id)
        if values is None:
            values = await recorded(self._admin, group.group_id, connect, since)
        known = await observed(self._admin, group, connect)
        found = await asyncio.to_thread(_examined, known, values, now, since)
        if is_absent(found):
            found = await without_members(self._admin, connect, {group.group_id: known}, now, since)
        return found


def _examined(known: Present, values: Iterable[bytes], now: int, since: int) -> list[Diagnosis]:
    return examine(known, [event for event in map(decode_event, values) if event is not None], now, since)
