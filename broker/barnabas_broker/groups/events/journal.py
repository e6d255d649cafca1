"""The story of every group: notes become events of ``__group_events``, counters, and a short memory. A shell.

Never in the way of an answer: what a request causes is encoded in a later turn of the loop, and if more comes than
can be written, the oldest of it is dropped and counted.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from barnabas_broker.groups.effects import Kind, Note
from barnabas_broker.groups.events.events import UNTOLD, Event, encode_event, event_of
from barnabas_broker.groups.events.storms import StormWatch
from barnabas_broker.groups.ports import EventSink, Scheduler
from barnabas_broker.logs import logger
from barnabas_protocol.records import build_batch

log = logger("coordinator")

#: Notes that wait to be written at most.
_MOST_WAITING: Final = 20_000
#: Notes that are written in one turn of the loop.
_STEP: Final = 200
#: Bytes of a batch.
_BATCH_BYTES: Final = 512 * 1024
#: Events of a group, and groups, that are remembered without looking into the topic.
_MOST_EVENTS: Final = 32
_MOST_GROUPS: Final = 500
#: Upper bounds of the buckets that durations of rebalances are counted in, in seconds.
BUCKETS: Final = (0.1, 0.5, 1.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class GroupMetrics:
    """What the notes add up to since the broker started.

    Attributes:
        events: notes by type.
        rebalances: rebalances by cause, which is a type too.
        durations: finished rebalances by the smallest of :data:`BUCKETS` that holds them; inf for the rest.
        duration_sum: seconds of all finished rebalances.
        dropped: events that were not written because there were too many.
    """

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        self.rebalances: Counter[str] = Counter()
        self.durations: Counter[float] = Counter()
        self.duration_sum = 0.0
        self.dropped = 0

    def count(self, note: Note) -> None:
        """Take a note into account."""
        self.events[note.kind.value] += 1
        if note.kind is Kind.REBALANCE_STARTED:
            self.rebalances[note.data["cause"]] += 1
        elif note.kind is Kind.REBALANCE_OVER:
            took = note.data["join_took"] + note.data["sync_took"]
            self.duration_sum += took
            self.durations[next((bound for bound in BUCKETS if took <= bound), float("inf"))] += 1


class Journal:
    """Hears notes and writes them down.

    Args:
        sink: where events go; None keeps them in memory only.
        partition_for: the partition of a group, the same as in ``__consumer_offsets``.
        now: seconds on a clock that never goes back.
        wall_ms: the time of day, in ms since 1970.
        loop: for a later turn.
    """

    def __init__(
        self,
        sink: EventSink | None,
        partition_for: Callable[[str], int],
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        loop: Callable[[], Scheduler],
    ) -> None:
        self.metrics = GroupMetrics()
        self._sink = sink
        self._partition_for = partition_for
        self._now = now
        self._wall_ms = wall_ms
        self._loop = loop
        self._storms = StormWatch()
        self._waiting: deque[tuple[str, Note, int]] = deque()
        self._recent: OrderedDict[str, deque[Event]] = OrderedDict()
        self._scheduled = False

    def note(self, group_id: str, note: Note) -> bool:
        """Hear a note; whether the log shall be spared its line, because the group is in a storm."""
        self.metrics.count(note)
        if note.kind in UNTOLD:
            return False
        quiet = self._storms.is_storm(group_id)
        self._put(group_id, note)
        storm = self._storms.hear(group_id, note, self._now())
        if storm is not None:
            self.metrics.count(storm)
            self._put(group_id, storm)
            log.warning(
                f"Group {group_id} rebalanced {storm.data['rebalances']} times within {storm.data['seconds']:.0f} s,"
                f" mostly because of {storm.data['culprit']} ({storm.data['times']} times)."
                " Its further lines go to the debug log until it is calm."
            )
        return quiet

    def recent(self, group_id: str) -> list[Event]:
        """The last events of a group, oldest first, as far as they are remembered; ``__group_events`` has them all.

        Nothing is written for that: of the notes that wait only the last few of the group are looked at.
        """
        waiting = ((note, time_ms) for of, note, time_ms in reversed(self._waiting) if of == group_id)
        coming = [event_of(group_id, note, time_ms) for note, time_ms in islice(waiting, _MOST_EVENTS)]
        return [*self._recent.get(group_id, ()), *reversed(coming)][-_MOST_EVENTS:]

    def flush(self) -> None:
        """Write everything that waits."""
        while self._waiting:
            self._write(len(self._waiting))

    def _put(self, group_id: str, note: Note) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self.metrics.dropped += 1
        self._waiting.append((group_id, note, self._wall_ms()))
        if not self._scheduled:
            self._scheduled = True
            self._loop().call_soon(self._step)

    def _step(self) -> None:
        self._scheduled = False
        self._write(_STEP)
        if self._waiting:
            self._scheduled = True
            self._loop().call_soon(self._step)

    def _write(self, count: int) -> None:
        batches: dict[int, list[tuple[bytes, bytes, tuple[()], int]]] = {}
        sizes: Counter[int] = Counter()
        while self._waiting and count:
            count -= 1
            group_id, note, time_ms = self._waiting.popleft()
            event = event_of(group_id, note, time_ms)
            self._remember(group_id, event)
            if self._sink is None:
                continue
            partition = self._partition_for(group_id)
            value = encode_event(event)
            if sizes[partition] and sizes[partition] + len(value) > _BATCH_BYTES:
                self._send(partition, batches.pop(partition))
                sizes[partition] = 0
            sizes[partition] += len(value)
            batches.setdefault(partition, []).append((group_id.encode(), value, (), time_ms))
        for partition, records in batches.items():
            self._send(partition, records)

    def _send(self, partition: int, records: list[tuple[bytes, bytes, tuple[()], int]]) -> None:
        if self._sink is None:
            return
        try:
            self._sink.append(partition, build_batch(records))
        except Exception:
            # The story must not stop what it tells of.
            self.metrics.dropped += len(records)
            log.exception("events cannot be written", partition=partition, events=len(records))

    def _remember(self, group_id: str, event: Event) -> None:
        recent = self._recent.get(group_id)
        if recent is None:
            recent = self._recent[group_id] = deque(maxlen=_MOST_EVENTS)
            if len(self._recent) > _MOST_GROUPS:
                self._recent.popitem(last=False)
        else:
            self._recent.move_to_end(group_id)
        recent.append(event)
