"""Groups as they are now, and their events, for `barnabas groups doctor`, `explain` and :mod:`barnabas.explain`."""

import time
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, OffsetSpec
from barnabas_client.history.located import locate, transaction_events
from barnabas_client.history.ports import Connect
from barnabas_client.history.reading import read
from barnabas_client.history.sources import Newest, RecordedHistory
from barnabas_client.history.view import GroupView, Row, look, waiting
from barnabas_client.structs import TopicPartition
from barnabas_explain import transactions
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.doctor import (
    MOST_MARKERS,
    NO_MEMBERS,
    SINCE_MS,
    Diagnosis,
    Present,
    Reader,
    examine,
    examine_past,
    notes,
    read_again,
    with_aborts,
)
from barnabas_explain.group_ids import Left, OneLife, Sign, meant, sign, spelling, together, with_together
from barnabas_explain.members import Member, Partition
from barnabas_explain.records import decode_event
from barnabas_explain.waits import Waiting, long_waits
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.subscriptions import CONSUMER, read_topics

#: Polls of a consumer that looks whether there are records, and the ms of each.
_MOST_POLLS: Final = 5
_POLL_MS: Final = 200
#: The largest lag of members that may be a marker.
MOST_OF_MARKERS: Final = 1
#: Groups among which that of a program with another group.id is looked for.
_MOST_DESCRIBED: Final = 1_000


class Examination(NamedTuple):
    """A group as it is now.

    Attributes:
        diagnoses: what is wrong with it, worst first.
        notes: what is not known of it, and which lag is none.
    """

    diagnoses: list[Diagnosis]
    notes: Sequence[str] = ()


async def examined(
    admin: Admin,
    connect: Connect,
    group: str,
    past: Collection[GroupEvent],
    since_ms: int | None,
    told: Collection[int | None] = (),
) -> Examination:
    """Find out what is wrong with a group now, and was lately; from its events alone if it cannot be described.

    Args:
        admin: of its brokers.
        connect: creates consumers of its cluster.
        group: its id.
        past: its events, oldest first.
        since_ms: what happened earlier does not count, in ms since 1970; None for an hour.
        told: the ids of producers of which it is known that their transactions are open for long.
    """
    now = time.time_ns() // 1_000_000
    since = now - SINCE_MS if since_ms is None else since_ms
    try:
        (described,) = await admin.describe_consumer_groups([group], raise_errors=False)
        if described.error is not None:
            return Examination(examine_past(group, past, now, since))
        known = await observed(admin, described, connect, told)
        own = [each for each in [sign(known, past)] if each is not None]
        signs = [*own, *(await like(admin, group) if known.readers else ())]
        signs += await successors(admin, connect, own)
    except KafkaError:
        return Examination(examine_past(group, past, now, since))
    diagnoses = await of_all_brokers(admin, connect, examine(known, past, now, since), past, since)
    if since_ms is not None and is_absent(diagnoses):
        diagnoses = await without_members(admin, connect, {group: known}, now, since)
    of_several = together(signs).get(group)
    if of_several is not None:
        diagnoses = [*with_together(diagnoses, {group: of_several}), of_several]
    return Examination(diagnoses, notes(known))


def is_absent(diagnoses: Iterable[Diagnosis]) -> bool:
    """Whether a group has no members, and records to read."""
    return any(each.kind == NO_MEMBERS for each in diagnoses)


async def without_members(
    admin: Admin, connect: Connect, groups: Mapping[str, Present], now_ms: int, since_ms: int
) -> list[Diagnosis]:
    """Find out what is wrong with groups that have no members, from all of their events.

    A job that runs once an hour, or once a day, is known as one only from its earlier runs.

    Args:
        admin: of their brokers.
        connect: creates consumers of the cluster.
        groups: the groups as they are now, by id.
        now_ms: the time, in ms since 1970.
        since_ms: what happened earlier is no finding of its own, in ms since 1970.

    Raises:
        KafkaError: the events cannot be read.
    """
    found = {group.encode(): Newest() for group in groups}
    where = await locate(admin, groups, 0) if groups else []
    ends = {one.partition: one.end for one in where}
    async for records in read(connect, {one.partition: one.start for one in where}, ends):
        for record in records:
            if record.value is not None and record.key in found:
                found[record.key].add([record.value])
    diagnoses: list[Diagnosis] = []
    for group, known in groups.items():
        past = map(decode_event, found[group.encode()].values())
        diagnoses += examine(known, filter(None, past), now_ms, since_ms)
    return diagnoses


async def of_all_brokers(
    admin: Admin, connect: Connect, diagnoses: list[Diagnosis], past: Iterable[GroupEvent], since: int
) -> list[Diagnosis]:
    """Diagnoses of a group with what other brokers than its coordinator know: transactions that were aborted."""
    if not read_again(diagnoses):
        return diagnoses
    with suppress(KafkaError):  # What the coordinator knows is known without it.
        values = await transaction_events(connect, admin, since) or ()
        return with_aborts(diagnoses, past, filter(None, map(transactions.decode_event, values)))
    return diagnoses


async def observed(
    admin: Admin, group: GroupDescription, connect: Connect, told: Collection[int | None] = ()
) -> Present:
    """A group as it is now, as the doctor sees it.

    Args:
        admin: of its brokers.
        group: its description.
        connect: creates consumers of its cluster.
        told: the ids of producers of which it is known that their transactions are open for long.

    Raises:
        KafkaError: its offsets cannot be read.
    """
    view = await look(admin, group)
    waits = [each for each in await waiting(admin, view.rows) if each.producer_id not in told]
    known = await present(admin, view, waits)
    if not known.readers or MOST_OF_MARKERS >= max(known.lags.values(), default=0) > 0:
        lags, markers = await with_records(connect, view.rows)
        known = replace(known, lags=lags, markers=markers)
    return known


async def waited(admin: Admin, known: Present, since_ms: int) -> int:
    """The number of partitions of members in which records have waited since a time, in ms since 1970, and not for the
    end of a transaction at work.

    Raises:
        KafkaError: the offsets cannot be read.
    """
    owned = {place for reader in known.readers for place in reader.partitions}
    owned -= {each.partition for each in known.at_work}
    places = {TopicPartition(*place): known.committed[place] for place in owned if known.lags.get(place)}
    found = await admin.list_offsets(dict.fromkeys(places, since_ms), raise_errors=False) if places else {}
    return sum(one.error is None and not 0 <= one.offset <= places[tp] for tp, one in found.items())


async def present(admin: Admin, view: GroupView, waits: Sequence[Waiting]) -> Present:
    """The group as the doctor sees it.

    Args:
        admin: of its brokers.
        view: of the group.
        waits: the transactions that its members wait for.
    """
    members = view.group.members
    rows = {row.partition: row for row in view.rows if row.partition is not None}
    # With assign() there are no members.
    read = {tp.topic for tp in rows} if not members else {topic for member in members for topic in member.topics}
    read |= {tp.topic for tp, row in rows.items() if row.end is None}
    topics = sorted(read)
    described = await admin.describe_topics(topics, raise_errors=False) if topics else []
    counts = {one.name: len(one.partitions) for one in described if one.error in (None, ErrorCode.NONE)}
    partitions = [TopicPartition(name, number) for name, count in counts.items() for number in range(count)]
    ends = (
        await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), raise_errors=False) if partitions else {}
    )
    committed = {
        row.partition: (row.committed, row.end)
        for row in view.rows
        if row.partition is not None and row.committed is not None and row.end is not None
    }
    others = [tp for tp in partitions if tp not in rows or (rows[tp].committed is None and rows[tp].member is None)]
    wanted = dict.fromkeys([*committed, *others], OffsetSpec.EARLIEST)
    starts = await admin.list_offsets(wanted, raise_errors=False) if wanted else {}
    left_out = {
        (tp.topic, tp.partition): ends[tp].offset - starts[tp].offset
        for tp in others
        if ends[tp].error is None and starts[tp].error is None
    }
    outside = {
        (tp.topic, tp.partition): (committed[tp][0], one.offset, committed[tp][1])
        for tp, one in starts.items()
        if tp in committed and one.error is None and not one.offset <= committed[tp][0] <= committed[tp][1]
    }
    gone = {one.name for one in described if one.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    unseen = {
        (row.partition.topic, row.partition.partition)
        for row in view.rows
        if row.partition is not None and row.member and row.end is None and row.partition.topic not in gone
    }
    written = {tp.topic for tp, one in ends.items() if one.error is not None or one.offset > 0}
    unwritten = [topic for topic in topics if topic not in written] if members else []
    return Present(
        group=view.group.group_id,
        state=view.group.state,
        readers=readers(view.group),
        had_members=bool(view.group.protocol_type),
        lags={
            (row.partition.topic, row.partition.partition): row.lag
            for row in view.rows
            if row.partition is not None and row.lag is not None
        },
        committed={(tp.topic, tp.partition): offset for tp, (offset, _) in committed.items()},
        topics=counts,
        left_out=left_out,
        empty=frozenset(name for name in counts if name not in written),
        alike=await _alike(admin, unwritten, topics) if unwritten else {},
        outside=outside,
        unseen=frozenset(unseen),
        waits=long_waits(waits),
        at_work=[each for each in waits if each.is_at_work],
        assignor=view.group.protocol,
        has_epochs=view.group.epoch is not None,
    )


async def with_records(connect: Connect, rows: Iterable[Row]) -> tuple[dict[Partition, int], frozenset[Partition]]:
    """The lags of partitions in which a consumer gets records, and the partitions in which it gets none: their lags are
    markers at the end of transactions."""
    markers: set[Partition] = set()
    lags = {row.partition: row.lag for row in rows if row.partition is not None and row.lag}
    committed = {row.partition: row.committed for row in rows if row.partition in lags and row.committed is not None}
    if lags and max(lags.values()) <= MOST_MARKERS:
        read = connect(isolation_level="read_committed", auto_offset_reset="none")
        async with read:
            read.assign(committed)
            for tp, offset in committed.items():
                read.seek(tp, offset)
            unknown = dict(committed)
            with suppress(KafkaError):
                for _ in range(_MOST_POLLS):
                    got = await read.getmany(timeout_ms=_POLL_MS)
                    for tp, offset in list(unknown.items()):
                        if tp not in got and await read.position(tp) >= offset + lags[tp]:
                            del lags[tp]
                            markers.add((tp.topic, tp.partition))
                        elif tp not in got:
                            continue
                        del unknown[tp]
                    if not unknown:
                        break
    return {(tp.topic, tp.partition): lag for tp, lag in lags.items()}, frozenset(markers)


async def _alike(admin: Admin, topics: Iterable[str], known: Container[str]) -> dict[str, str]:
    """For topics without records those of nearly the same names that have some.

    Args:
        admin: of the brokers.
        topics: the topics.
        known: topics that are not meant.
    """
    described = {one.name: one for one in await admin.describe_topics(internal=False) if one.name not in known}
    found = {}
    for topic in topics:
        name = meant(topic, described)
        if name is not None:
            places = [TopicPartition(name, number) for number in range(len(described[name].partitions))]
            ends = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST), raise_errors=False)
            if any(one.error is None and one.offset for one in ends.values()):
                found[topic] = name
    return found


def readers(group: GroupDescription) -> list[Reader]:
    """The members of a group as the doctor sees them."""
    return [
        Reader(
            Member(one.member_id, one.client_id, one.host, one.instance_id),
            frozenset(one.topics),
            frozenset((tp.topic, tp.partition) for tp in one.partitions),
            one.regex,
            is_known=group.protocol_type == CONSUMER
            and (one.epoch is not None or read_topics(one.metadata) is not None),
        )
        for one in group.members
    ]


async def like(admin: Admin, group: str) -> list[Sign]:
    """The groups whose ids are those of a group in another spelling."""
    listed = [one.group_id for one in await admin.list_consumer_groups()]
    names = [name for name in listed if name != group and spelling(name) == spelling(group)]
    described = await admin.describe_consumer_groups(names, raise_errors=False) if names else []
    found = (sign(Present(one.group_id, one.state, readers(one)), ()) for one in described if one.error is None)
    return [each for each in found if each is not None]


async def successors(
    admin: Admin, connect: Connect, signs: Iterable[Sign], known: Iterable[GroupDescription] | None = None
) -> list[Sign]:
    """The groups in which the programs of groups without members may be now, with their beginning.

    Args:
        admin: of their brokers.
        connect: creates consumers of its cluster.
        signs: of groups.
        known: all groups; None to ask for them.
    """
    lefts = [each.left if isinstance(each, OneLife) else each for each in signs]
    left_by = {spelling(each.client) for each in lefts if isinstance(each, Left)}
    if not left_by:
        return []
    if known is None:
        listed = [one.group_id for one in await admin.list_consumer_groups() if one.state not in ("", "Empty", "Dead")]
        names = listed[:_MOST_DESCRIBED]
        known = await admin.describe_consumer_groups(names, raise_errors=False) if names else ()
    found: list[Sign] = []
    for group in known:
        one = Present(group.group_id, group.state, readers(group) if group.error is None else ())
        if any(spelling(reader.member.client_id or "") in left_by for reader in one.readers):
            of_group = sign(one, await events(admin, group.group_id, connect, 0))
            found += () if of_group is None else (of_group,)
    return found


async def events(admin: Admin, group: str, connect: Connect, since: int) -> list[GroupEvent]:
    """The newest recorded events of a group; arguments and errors as of :func:`recorded`."""
    values = await recorded(admin, group, connect, since)
    return [event for event in map(decode_event, values) if event is not None]


async def recorded(admin: Admin, group: str, connect: Connect, since: int) -> list[bytes]:
    """The newest recorded events of a group, as values of ``__group_events``; nothing if the brokers record none.

    Args:
        admin: of the brokers.
        group: its id.
        connect: creates consumers of its cluster.
        since: leave out events before this time, in ms since 1970.

    Raises:
        KafkaError: the events cannot be read.
    """
    found = Newest()
    for where in await locate(admin, [group], since):
        async for values in RecordedHistory(connect, where, group).read(lambda count: None):
            found.add(values)
    return list(found.values())
