"""The recorded events of a group: of ``__group_events``, and those in memory that are not written yet."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from barnabas_broker.http.view import View
from barnabas_broker.storage.corruption import DamagedLog
from barnabas_broker.storage.slices import joined
from barnabas_explain.catalog import GroupEvent, HistoryGap
from barnabas_explain.records import decode_event, record_of
from barnabas_protocol.errors import DecodeError, KafkaError
from barnabas_protocol.internal_topics import EVENTS_TOPIC
from barnabas_protocol.records import decode_records, iter_batches
from barnabas_protocol.wire import Buffer

#: Bytes of a partition of ``__group_events`` that are read: the newest ones of those that were asked for.
MOST_BYTES: Final = 4 * 1024 * 1024
_CHUNK: Final = 256 * 1024


async def recorded(view: View, group_id: str, since_ms: int) -> list[GroupEvent]:
    """The events of a group since a time, oldest first. What cannot be had is a gap among them, with its reason.

    Each chunk is decoded in a thread, so that requests do not wait for it.

    Args:
        view: the broker's parts.
        group_id: the group.
        since_ms: in ms since 1970.
    """
    events: list[GroupEvent] = []
    gaps: list[str] = []
    key = group_id.encode("utf-8", "surrogatepass")
    log = view.log(EVENTS_TOPIC, view.groups.partition_for(group_id))
    if log is not None:
        try:
            found = await log.offset_for_timestamp(since_ms)
            offset, end = (log.high_watermark if found is None else found.offset), log.high_watermark
            while log.size_between(offset, end) > MOST_BYTES and end - offset > 1:
                offset += (end - offset + 1) // 2
                gaps = ["older events were not read: there are too many"]
            while offset < end:
                try:
                    data = joined(log.read(offset, _CHUNK, end, min_one=True))
                except DamagedLog as error:
                    gaps.append(f"records are damaged from offset {error.damage.offset} on")
                    offset = max(error.damage.next_offset, offset + 1)
                    continue
                if not data:
                    break
                offset, some = await log.disk.decode(partial(_decoded, data, key))
                events += some
        except (KafkaError, DecodeError) as error:
            gaps.append(f"events cannot be read: {error}")
    newest = view.history.recent(group_id)
    # An event in memory has more digits and longer lists than its record.
    known = {_identity(event) for event in events[-len(newest) - 64 :]} if newest else set()
    events += [each for each in newest if _identity(each) not in known]
    events = [each for each in events if each.time >= since_ms]
    return [*(_gap(group_id, events, since_ms, why) for why in gaps), *events]


def _identity(event: GroupEvent) -> str:
    return json.dumps(record_of(event), sort_keys=True)


def version_of(newest: Sequence[GroupEvent]) -> str:
    """Changes whenever a group has another event: its newest ones, in short."""
    if not newest:
        return "0"
    last = newest[-1]
    return f"{len(newest)}-{newest[0].time}-{last.time}-{last.type}-{last.generation}"


def _decoded(data: Buffer, key: bytes, stopped: Callable[[], bool]) -> tuple[int, list[GroupEvent]]:
    """The offset after some batches, and their events of one group."""
    events: list[GroupEvent] = []
    offset = 0
    for header, batch in iter_batches(data, partial_ok=True):
        offset = header.next_offset
        if stopped():
            break
        for record in decode_records(batch):
            if record.key == key and record.value is not None:
                event = decode_event(record.value)
                if event is not None:
                    events.append(event)
    return offset, events


def _gap(group_id: str, events: Sequence[GroupEvent], since_ms: int, why: str) -> GroupEvent:
    time = events[0].time if events else since_ms
    generation = events[0].generation if events else -1
    return HistoryGap(group=group_id, time=time, generation=generation, gap="not_read", reason=why)
