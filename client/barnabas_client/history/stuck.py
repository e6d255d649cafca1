"""Finds the records of a share group that come back again and again.

Delivery counts are read from ``__share_group_state``, of Barnabas and of Apache Kafka alike; keys from the topics; dead
letters from the topic that the group's ``errors.deadletterqueue.topic.name`` names. The last member is known only to
Barnabas, which records it in ``__group_events``.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import ConfigResource
from barnabas_client.errors import TopicAuthorizationFailedError
from barnabas_client.history.located import locate, partition_count, ranges
from barnabas_client.history.ports import Connect
from barnabas_client.history.reading import read
from barnabas_client.history.share_states import DeliveryState, ShareStates, state_key
from barnabas_client.history.sources import Advance, RecordedHistory
from barnabas_client.membership.heartbeats import TopicIdPartition
from barnabas_client.structs import Headers, TopicPartition
from barnabas_explain.catalog import ShareRecords
from barnabas_explain.records import decode_event
from barnabas_protocol.internal_topics import SHARE_GROUPS_TOPIC, partition_for

#: The key of a group's configuration that names its topic for dead letters (KIP-1191).
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
#: The newest records of each partition of that topic which are read.
_MOST_LETTERS: Final = 10_000
_HEADER: Final = "__dlq.errors."


@dataclass(slots=True)
class DeadLetter:
    """A dead letter: where it is, and its headers."""

    partition: TopicPartition
    offset: int
    headers: Headers
    key: bytes | None

    def header(self, name: str) -> str:
        """One of Kafka's headers, such as "group" or "message"; empty if it is missing."""
        return (dict(self.headers).get(_HEADER + name) or b"").decode(errors="backslashreplace")


@dataclass(slots=True)
class StuckRecord:
    """A record that comes back again and again, or was given up.

    Attributes:
        partition: its partition.
        offset: its offset.
        deliveries: how often it was delivered; a delivery that goes on now does not count.
        state: "available" (it is delivered again, or with a member now) or "archived" (it is not delivered any more).
        key: its key; None if it has none, or the record is gone.
        member: the name of the member that had it last; None if that is not known.
        letter: its dead letter, if there is one.
    """

    partition: TopicPartition
    offset: int
    deliveries: int
    state: str
    key: bytes | None = None
    member: str | None = None
    letter: DeadLetter | None = None


_Found = dict[tuple[TopicPartition, int], StuckRecord]


async def find_stuck(connect: Connect, admin: Admin, group: str, advance: Advance) -> list[StuckRecord]:
    """The records that were delivered again and again, and the dead letters, those with the most deliveries first.

    Args:
        connect: creates the consumers that read.
        admin: of the brokers.
        group: the share group.
        advance: called with the number of records that were read since the last call.

    Raises:
        KafkaError: the group does not exist, or something cannot be read.
    """
    await admin.describe_share_groups([group])
    found = {(one.partition, one.offset): one for one in await _redelivered(connect, admin, group, advance)}
    await _add_keys(connect, admin, found, advance)
    for letter in await _dead_letters(connect, admin, group, advance):
        _add_letter(found, letter)
    await _add_members(connect, admin, group, found, advance)
    return sorted(found.values(), key=lambda one: (-one.deliveries, one.partition, one.offset))


async def _redelivered(connect: Connect, admin: Admin, group: str, advance: Advance) -> list[StuckRecord]:
    partitions = await admin.list_share_group_offsets(group, raise_errors=False)
    if not partitions:
        return []
    (topic,) = await admin.describe_topics([SHARE_GROUPS_TOPIC])
    topics = await admin.describe_topics({tp.topic for tp in partitions}, raise_errors=False)
    ids = {one.name: one.id for one in topics if one.partitions}
    names = {TopicIdPartition(ids[tp.topic], tp.partition): tp for tp in partitions if tp.topic in ids}
    numbers = {partition_for(state_key(group, where), len(topic.partitions)) for where in names}
    states = ShareStates(group)
    places = await ranges(admin, [TopicPartition(SHARE_GROUPS_TOPIC, number) for number in sorted(numbers)], None)
    starts, ends = {one.partition: one.start for one in places}, {one.partition: one.end for one in places}
    async for records in read(connect, starts, ends):
        advance(len(records))
        for record in records:
            states.add(record.key, record.value)
    return [
        StuckRecord(names[where], offset, one.deliveries, DeliveryState(one.state).name.lower())
        for where, offset, one in states.stuck()
        if where in names
    ]


async def _dead_letters(connect: Connect, admin: Admin, group: str, advance: Advance) -> list[DeadLetter]:
    (config,) = await admin.describe_configs([ConfigResource.group(group)], raise_errors=False)
    entry = config.entries.get(DEAD_LETTER_TOPIC)
    if entry is None or not entry.value:
        return []
    topic = entry.value
    partitions = [TopicPartition(topic, number) for number in range(await partition_count(admin, topic))]
    places = await ranges(admin, partitions, None)
    starts = {one.partition: max(one.start, one.end - _MOST_LETTERS) for one in places}
    letters = []
    async for records in read(connect, starts, {one.partition: one.end for one in places}):
        advance(len(records))
        letters += [DeadLetter(one.topic_partition, one.offset, one.headers, one.key) for one in records]
    return [letter for letter in letters if letter.header("group") == group]


def _add_letter(found: _Found, letter: DeadLetter) -> None:
    """Add a dead letter to its record. Headers are written by a broker, but any client may write to the topic."""
    numbers = [letter.header(name) for name in ("partition", "offset", "delivery.count")]
    if not all(text.isdecimal() and len(text) < 19 for text in numbers):
        return
    partition, offset, deliveries = map(int, numbers)
    where = TopicPartition(letter.header("topic"), partition)
    record = found.setdefault((where, offset), StuckRecord(where, offset, deliveries, "archived"))
    record.letter = letter
    record.key = letter.key if record.key is None else record.key


async def _add_keys(connect: Connect, admin: Admin, found: _Found, advance: Advance) -> None:
    """Read the keys of the records that are still there."""
    offsets = _offsets(found)
    places = await ranges(admin, list(offsets), None)
    starts = {one.partition: max(one.start, offsets[one.partition][0]) for one in places}
    ends = {one.partition: min(one.end, offsets[one.partition][-1] + 1) for one in places}
    async for records in read(connect, starts, ends):
        advance(len(records))
        for record in records:
            stuck = found.get((record.topic_partition, record.offset))
            if stuck is not None:
                stuck.key = record.key


async def _add_members(connect: Connect, admin: Admin, group: str, found: _Found, advance: Advance) -> None:
    """Read from the events, if the brokers record any and this client may read them, which member had each record."""
    with suppress(TopicAuthorizationFailedError):
        for where in await locate(admin, [group], None):
            await _read_members(RecordedHistory(connect, where, group), found, advance)


async def _read_members(history: RecordedHistory, found: _Found, advance: Advance) -> None:
    offsets = _offsets(found)
    async for values in history.read(advance):
        for value in values:
            event = decode_event(value)
            if not isinstance(event, ShareRecords) or event.owner is None:
                continue
            tp = TopicPartition(event.topic, event.partition)
            some = offsets.get(tp, [])
            first, last = bisect_left(some, event.first_offset), bisect_right(some, event.last_offset)
            for offset in some[first:last]:
                found[tp, offset].member = event.owner.name


def _offsets(found: Iterable[tuple[TopicPartition, int]]) -> Mapping[TopicPartition, list[int]]:
    """Offsets by partition, ascending."""
    offsets: dict[TopicPartition, list[int]] = {}
    for tp, offset in sorted(found):
        offsets.setdefault(tp, []).append(offset)
    return offsets
