"""Publishes group events: to ``__group_events``, to the metrics, and to a short history in memory. A shell.

This never delays a response: records are encoded in a later iteration of the loop. If events come faster than they can
be written, the oldest ones are dropped and counted.
"""

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from barnabas_broker.coordinators.ports import Scheduler
from barnabas_broker.groups.ports import EventsLog
from barnabas_broker.log_throttle import FoldedLines
from barnabas_broker.logs import logger
from barnabas_broker.recent import Newest
from barnabas_explain.catalog import GroupEvent, RebalanceOver, Started
from barnabas_explain.records import encode_event
from barnabas_explain.storm_score import Score, StormScore
from barnabas_explain.storms import StormDetector
from barnabas_protocol.records import build_batch

log = logger("coordinator")

#: Maximum number of events that wait to be written.
_MAX_WAITING: Final = 20_000
#: Events that are written in one iteration of the loop.
_EVENTS_PER_STEP: Final = 200
#: Bytes of a batch.
_BATCH_BYTES: Final = 512 * 1024
#: The history in memory: events per group, and groups.
_MAX_EVENTS: Final = 32
_MAX_GROUPS: Final = 500
#: Upper bounds of the buckets of the histogram of rebalance durations, in seconds.
BUCKETS: Final = (0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class GroupMetrics:
    """The metrics that are derived from group events since the broker started.

    Attributes:
        events: number of events by type.
        rebalances: number of rebalances by cause, which is an event type.
        durations: number of completed rebalances by the smallest of :data:`BUCKETS` that is not exceeded, else inf.
        duration_sum: seconds of all completed rebalances.
        dropped: events that were not written because there were too many.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.rebalances: Counter[str] = Counter()
        self.durations: Counter[float] = Counter()
        self.duration_sum = 0.0
        self.dropped = 0

    def count(self, event: GroupEvent) -> None:
        """Count an event."""
        self.events[event.type] += 1
        if isinstance(event, Started):
            self.rebalances[event.cause] += 1
        elif isinstance(event, RebalanceOver):
            took = event.took_ms / 1000
            self.duration_sum += took
            self.durations[next((bound for bound in BUCKETS if took <= bound), float("inf"))] += 1


class Journal:
    """Publishes group events.

    Args:
        events_log: the log of ``__group_events``; None writes no events.
        partition_for: the partition of a group, the same as in ``__consumer_offsets``.
        now: seconds on a monotonic clock.
        wall_ms: the time of day, in ms since 1970.
        loop: the event loop.

    Attributes:
        metrics: the metrics derived from the events.
    """

    def __init__(
        self,
        events_log: EventsLog | None,
        partition_for: Callable[[str], int],
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        loop: Scheduler,
    ) -> None:
        self.metrics = GroupMetrics()
        self._log = events_log
        self._partition_for = partition_for
        self._now = now
        self._wall_ms = wall_ms
        self._loop = loop
        self._storms = StormDetector()
        self._waiting: deque[GroupEvent] = deque()
        #: The last events of each group, and its storm score; the group whose newest event is the oldest comes first.
        self._groups: Newest[str, tuple[deque[GroupEvent], StormScore]] = Newest(_MAX_GROUPS)
        self._scheduled = False
        self._storm_lines = FoldedLines(now, "group")

    def add(self, event: GroupEvent) -> bool:
        """Publish an event, which has its group and its time.

        Returns:
            Whether its log line goes to the debug level, because of a rebalance storm.
        """
        self.metrics.count(event)
        if not event.recorded:
            return False
        quiet = self._storms.is_storm(event.group)
        self._enqueue(event)
        storm = self._storms.add(event, self._now())
        if storm is not None:
            self.metrics.count(storm)
            self._enqueue(storm)
            line = storm.line("")
            pairs = {name: value for name, value in line.pairs.items() if name != "group"}
            self._storm_lines.add(log.warning, line.event, event.group, **pairs)
        return quiet

    def tick(self) -> None:
        """Write how often lines were repeated whose time is over."""
        self._storm_lines.tick()

    @property
    def groups(self) -> list[str]:
        """The groups with events in memory, those that were removed included."""
        return list(dict.fromkeys([*self._groups, *(event.group for event in self._waiting)]))

    def recent(self, group_id: str) -> list[GroupEvent]:
        """The last events of a group, oldest first, as far as they are in memory; ``__group_events`` has all of them.

        Events that are not written yet are included.
        """
        waiting = (event for event in reversed(self._waiting) if event.group == group_id)
        newest = [event.decoded() for event in islice(waiting, _MAX_EVENTS)]
        written, _ = self._groups.get(group_id, ((), None))
        return [*written, *reversed(newest)][-_MAX_EVENTS:]

    def is_flapping(self, group_id: str) -> bool:
        """Whether the group is in a rebalance storm now."""
        return self._storms.is_storm_at(group_id, self._now())

    def storm_score(self, group_id: str) -> Score:
        """The storm score of a group now, from its events since this broker coordinates it."""
        _, score = self._groups.get(group_id, ((), StormScore()))
        return score.at(self._wall_ms())

    def flush(self) -> None:
        """Write all events that wait."""
        while self._waiting:
            self._write(len(self._waiting))

    def _enqueue(self, event: GroupEvent) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._waiting.popleft()
            self.metrics.dropped += 1
        self._waiting.append(event)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        self._write(_EVENTS_PER_STEP)
        if self._waiting:
            self._scheduled = True
            self._loop.call_soon(self._step)

    def _write(self, count: int) -> None:
        batches: dict[int, list[tuple[bytes, bytes, tuple[()], int]]] = {}
        sizes: Counter[int] = Counter()
        partitions: dict[str, int] = {}
        while self._waiting and count:
            count -= 1
            event = self._waiting.popleft().decoded()
            group_id = event.group
            self._remember(event)
            if self._log is None:
                continue
            partition = partitions.get(group_id)
            if partition is None:
                partition = partitions[group_id] = self._partition_for(group_id)
            value = encode_event(event)
            if sizes[partition] and sizes[partition] + len(value) > _BATCH_BYTES:
                self._append(partition, batches.pop(partition))
                sizes[partition] = 0
            sizes[partition] += len(value)
            batches.setdefault(partition, []).append((group_id.encode(), value, (), event.time))
        for partition, records in batches.items():
            self._append(partition, records)

    def _append(self, partition: int, records: list[tuple[bytes, bytes, tuple[()], int]]) -> None:
        if self._log is None:
            return
        try:
            self._log.append(partition, build_batch(records))
        except Exception:
            # Events must not stop the group that they are about.
            self.metrics.dropped += len(records)
            log.exception("group events cannot be written", partition=partition, events=len(records))

    def _remember(self, event: GroupEvent) -> None:
        known = self._groups.get(event.group) or (deque(maxlen=_MAX_EVENTS), StormScore())
        recent, score = self._groups[event.group] = known
        recent.append(event)
        score.add(event)
