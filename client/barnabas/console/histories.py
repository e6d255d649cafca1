"""The events of the groups that pages show.

They are read where `barnabas groups explain` reads them: from ``__group_events`` if the brokers have it, otherwise
rebuilt from ``__consumer_offsets``, otherwise from descriptions of the group. What cannot be read is a gap among them,
with its reason.
"""

import asyncio
import traceback
from argparse import Namespace
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.failures import CommandError
from barnabas_client.history.sources import History, Newest, PolledHistory, find_history
from barnabas_client.logs import logger
from barnabas_explain.catalog import EpochBumped, HistoryGap, RebalanceStarted, Started
from barnabas_explain.chart import chart
from barnabas_explain.records import decode_event, encode_event
from barnabas_explain.storm_score import Score, StormScore
from barnabas_explain.storms import CALM_SECONDS, STORM_REBALANCES, STORM_SECONDS
from barnabas_protocol.errors import KafkaError

log = logger("barnabas_client.console")

#: Seconds after the last request for which the events of a group are read on. Descriptions cannot be read again later.
_IDLE: Final = 60.0
_IDLE_POLLED: Final = 3_600.0
#: Groups whose events are kept; beyond that the one that was asked for least recently is dropped.
_MOST: Final = 16
#: Seconds between attempts to read events: the first pause, and the longest.
_BACKOFF: Final = (0.5, 30.0)
#: Seconds between descriptions of a group.
_INTERVAL: Final = 1.0
_STARTED: Final = (RebalanceStarted.type.encode(), EpochBumped.type.encode())


class GroupHistory:
    """Reads and follows the events of a group until no page asks for them.

    Attributes:
        since: from when on, in ms since 1970.
        version: changes whenever anything has changed.
        asked: when a page asked for it last, by the monotonic clock.

    Args:
        arguments: of the command, with the group.
        admin: of the brokers.
        since: from when on, in ms since 1970.
        now: a monotonic clock, in seconds.
        wall_ms: the time of day, in ms since 1970.
    """

    def __init__(
        self,
        arguments: Namespace,
        admin: Admin,
        since: int,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._arguments, self._admin, self._now, self._wall_ms = arguments, admin, now, wall_ms
        self.since = since
        self.version = 0
        self.asked = now()
        self._events = Newest()
        self._history: History | None = None
        self._loaded = False
        self._read = 0
        self._error: str | None = None
        self._starts: deque[int] = deque(maxlen=STORM_REBALANCES)
        self._storm: StormScore | None = None
        self._settled = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def over(self) -> bool:
        """Whether it is not followed any more."""
        return self._task.done()

    def extend(self, since: int) -> None:
        """Read from an earlier time on. Until then it stays what it is."""
        self.since = since
        self.stop()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Do not follow it any more."""
        self._task.cancel()

    @property
    def generation(self) -> int | None:
        """The generation or epoch of the newest event; None if it is not known."""
        newest = self._events.newest
        event = None if newest is None else decode_event(newest)
        return event.generation if event is not None and event.generation >= 0 else None

    @property
    def is_flapping(self) -> bool:
        """Whether the group is in a rebalance storm now."""
        starts = self._starts
        if len(starts) < STORM_REBALANCES or self._wall_ms() - starts[-1] > CALM_SECONDS * 1000:
            return False
        return starts[-1] - starts[0] <= STORM_SECONDS * 1000

    @property
    def loaded(self) -> bool:
        """Whether all events until now were read."""
        return self._loaded

    async def settled(self, seconds: float) -> None:
        """Wait until all events were read, or reading has failed; at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()

    def values(self) -> list[bytes]:
        """Its events so far, as values of ``__group_events``, oldest first."""
        return list(self._events.values())

    def chart(self) -> Callable[[], dict[str, Any]]:
        """Return a function that makes the group's chart as it is now, to be called in a thread."""
        values, history = self.values(), self._history
        more = {
            "since": self.since,
            "source": {
                "note": None if history is None else history.note,
                "no_requests": "" if history is None else history.no_requests,
                "error": self._error,
                "loaded": self._loaded,
                "read": self._read,
                "size": 0 if history is None else history.size,
                "dropped": self._events.dropped,
            },
        }

        def draw() -> dict[str, Any]:
            events = [event for event in map(decode_event, values) if event is not None]
            self._storm = StormScore.of(events)
            return {**chart(events), **more}

        return draw

    @property
    def storm_score(self) -> Score | None:
        """The storm score of the group now, of the events of its last chart; None if they were not read yet."""
        return self._storm.at(self._wall_ms()) if self._loaded and self._storm is not None else None

    async def _run(self) -> None:
        shortest, longest = _BACKOFF
        wait = shortest
        while not self._idle():
            try:
                history = await find_history(
                    clients.connect(self._arguments),
                    self._admin,
                    self._arguments.group,
                    self.since,
                    source=self._arguments.source,
                    interval=self._arguments.interval,
                )
                await self._load(history)
                wait = shortest
                await self._follow(history)
                return
            except (KafkaError, CommandError) as error:
                self._failed(for_command_line(error))
            except Exception as error:
                # One group with records that nothing here expects must neither end the console nor be read in a loop.
                log.error("events cannot be read", group=self._arguments.group, reason=traceback.format_exc())
                self._failed(f"internal error of the console: {type(error).__name__}")
            await asyncio.sleep(wait)
            wait = min(wait * 2, longest)

    async def _load(self, history: History) -> None:
        """Read the events until now. The older ones stay in place until then, if there are any."""
        self._history, self._read = history, 0
        events = Newest()
        starts: deque[int] = deque(maxlen=STORM_REBALANCES)
        if not self._loaded:
            self._events, self._starts = events, starts
        async for found in history.read(self._advance):
            self._add(events, starts, found)
            self.version += 1
            if self._idle():
                return
        self._events, self._starts, self._loaded, self._error = events, starts, True, None
        self.version += 1
        self._settled.set()

    async def _follow(self, history: History) -> None:
        shortest, longest = _BACKOFF
        wait = shortest
        while not self._idle():
            try:
                async for found in history.follow():
                    wait = shortest
                    if found or self._error is not None:
                        self._error = None
                        self._add(self._events, self._starts, found)
                        self.version += 1
                    if self._idle():
                        return
            except KafkaError as error:
                if not isinstance(history, PolledHistory):
                    raise
                # What was seen cannot be read again: it is kept, and the time until the next answer is a gap.
                if self._error is None:
                    self._add(self._events, self._starts, [self._gap(for_command_line(error))])
                self._failed(for_command_line(error))
                await asyncio.sleep(wait)
                wait = min(wait * 2, longest)

    def _advance(self, records: int) -> None:
        self._read += records

    def _add(self, events: Newest, starts: deque[int], values: Iterable[bytes]) -> None:
        for value in values:
            events.add([value])
            if any(kind in value for kind in _STARTED):
                event = decode_event(value)
                if isinstance(event, Started):
                    starts.append(event.time)

    def _failed(self, reason: str) -> None:
        self._error = reason
        self.version += 1
        self._settled.set()

    def _gap(self, reason: str) -> bytes:
        return encode_event(
            HistoryGap(group=self._arguments.group, time=self._wall_ms(), generation=-1, gap="not_read", reason=reason)
        )

    def _idle(self) -> bool:
        limit = _IDLE_POLLED if isinstance(self._history, PolledHistory) else _IDLE
        return self._now() - self.asked > limit


class Histories:
    """The events of the groups that pages show.

    Args:
        arguments: of the command; `source` is one of :data:`~barnabas_client.history.sources.SOURCES`, or None.
        admin: of the brokers.
        now: a monotonic clock, in seconds.
        wall_ms: the time of day, in ms since 1970.
    """

    def __init__(
        self,
        arguments: Namespace,
        admin: Admin,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
    ) -> None:
        self._arguments, self._admin = arguments, admin
        self._now, self._wall_ms = now, wall_ms
        self._groups: OrderedDict[str, GroupHistory] = OrderedDict()

    def of(self, group: str, since: int) -> GroupHistory:
        """The events of a group; it begins to read them if no page has asked for them lately.

        Args:
            group: its name.
            since: from when on, in ms since 1970.
        """
        found = self._groups.get(group)
        if found is None or found.over:
            arguments = Namespace(**{**vars(self._arguments), "group": group, "interval": _INTERVAL})
            found = GroupHistory(arguments, self._admin, since, self._now, self._wall_ms)
            self._groups[group] = found
            if len(self._groups) > _MOST:
                self._groups.popitem(last=False)[1].stop()
        elif since < found.since and found.loaded:
            # A page that moves back in time asks for a little more each time: it gets twice as much.
            found.extend(max(min(since, 2 * found.since - self._wall_ms()), 0))
        found.asked = self._now()
        self._groups.move_to_end(group)
        return found

    def values(self, group: str) -> list[bytes] | None:
        """The events of a group that a page follows, oldest first; None for others, and before they were read."""
        found = self._groups.get(group)
        return None if found is None or found.over or not found.loaded else found.values()

    def generation(self, group: str) -> int | None:
        """The generation of a group, if its events are followed."""
        found = self._groups.get(group)
        return None if found is None or found.over else found.generation

    def is_flapping(self, group: str) -> bool:
        """Whether a group whose events are followed is in a rebalance storm now."""
        found = self._groups.get(group)
        return found is not None and not found.over and found.is_flapping

    def storm_score(self, group: str) -> Score | None:
        """The storm score of a group whose events are followed; None for others."""
        found = self._groups.get(group)
        return None if found is None or found.over else found.storm_score

    def stop(self) -> None:
        """Do not follow any group any more."""
        for each in self._groups.values():
            each.stop()
