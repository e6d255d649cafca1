"""`barnabas groups doctor`: what is wrong with groups, worst first, with evidence and remedy."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import ConfigResource, GroupDescription, OffsetSpec, ResourceType
from barnabas_client.cli import clients
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_since
from barnabas_client.cli.failures import DONE, FAILED, USAGE
from barnabas_client.cli.output import Output, Style
from barnabas_client.cli.view import GroupView, Row, look, waiting
from barnabas_client.history.located import locate
from barnabas_client.history.sources import Newest, RecordedHistory
from barnabas_client.structs import TopicPartition
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.doctor import (
    MOST_MARKERS,
    PATIENCE_MS,
    SEVERITIES,
    SINCE_MS,
    Diagnosis,
    Present,
    Reader,
    examine,
    examine_missing,
    too_early,
)
from barnabas_explain.group_ids import Left, OneLife, Sign, Spelling, meant, sign, spelling, together, with_together
from barnabas_explain.members import Member
from barnabas_explain.records import decode_event
from barnabas_explain.waits import Waiting, long_waits
from barnabas_explain.words import ms
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.subscriptions import CONSUMER, read_topics

#: The setting of brokers after which offsets that stand still are reported.
_PATIENCE: Final = "group.stuck.offset.ms"
#: Polls of a consumer that looks whether there are records, and the ms of each.
_MOST_POLLS: Final = 5
_POLL_MS: Final = 200
#: Groups among which that of a program with another group.id is looked for.
_MOST_DESCRIBED: Final = 1_000


async def doctor(arguments: Namespace, output: Output) -> int:
    """Print what is wrong with groups; the status is 1 if anything is, 2 if a group could not be examined."""
    try:
        return await _doctor(arguments, output)
    except KafkaError as error:
        output.error(for_command_line(error) + arguments.servers.note(error))
        return USAGE


async def _doctor(arguments: Namespace, output: Output) -> int:
    now = time.time_ns() // 1_000_000
    since = now - SINCE_MS if arguments.since is None else arguments.since.ms(now)
    diagnoses: list[Diagnosis] = []
    signs: list[Sign] = []
    early: list[int] = []
    failed = False
    given: list[str] = list(dict.fromkeys(arguments.group))
    async with clients.admin(arguments) as admin:
        patience_ms = await _patience(admin)
        listed = await admin.list_consumer_groups()
        shares = [one.group_id for one in listed if "share" in (one.type, one.protocol_type)]
        if given:
            shares = [name for name in shares if name in given]
        for name in shares:
            found = await _of_shares(admin, name, arguments, now, since)
            if found is None:
                output.note(f"{name} is a share group, of which the brokers record no events: `barnabas shares stuck`.")
            diagnoses += found or ()
        names = given or sorted(one.group_id for one in listed)
        names = [name for name in names if name not in shares]
        described = await admin.describe_consumer_groups(names, raise_errors=False) if names else []
        for group in described:
            try:
                if group.error is not None:
                    found = await _without_group(admin, group, arguments, now, since)
                    if given:
                        await note_meant(admin, group.group_id, output)
                    if not found:
                        raise group.error
                    diagnoses += found
                    continue
                found, of_group, joined = await _examined(admin, group, arguments, now, since, patience_ms)
                diagnoses += found
                if joined is not None and not found:
                    early.append(joined)
                if of_group is not None:
                    signs.append(of_group)
                if given and not group.members:
                    await note_meant(admin, group.group_id, output)
            except KafkaError as error:
                failed = True
                output.error(for_command_line(error))
            output.check()
        for name in given if any(isinstance(each, Spelling) for each in signs) else ():
            signs += [each for each in await like(admin, name) if each not in signs]
        signs += await successors(admin, arguments, signs, None if given else described)
    of_several = together(signs)
    diagnoses = [*with_together(diagnoses, of_several), *{each.group: each for each in of_several.values()}.values()]
    diagnoses.sort(key=lambda each: (-each.severity, -(each.time or now), each.group))
    if output.json:
        output.data([each.as_data() for each in diagnoses])
    else:
        for each in diagnoses:
            print_diagnosis(each, output)
        if not diagnoses and not failed:
            output.line(f"Nothing is wrong with {counted(len(names) + len(shares), 'group')}.")
    if early:
        output.note(_note_early(early, patience_ms))
    if failed:
        return USAGE
    return FAILED if diagnoses else DONE


def print_diagnosis(diagnosis: Diagnosis, output: Output) -> None:
    """Print what is wrong with a group, with evidence and remedy."""
    output.line(
        (diagnosis.group, Style.HEAD), f"  {SEVERITIES[diagnosis.severity]}, {diagnosis.sure}: {diagnosis.text}"
    )
    for line in diagnosis.evidence:
        output.line(f"    {line}")
    if diagnosis.remedy is not None:
        output.line(f"    To do: {diagnosis.remedy}")


async def _patience(admin: Admin) -> int:
    """``group.stuck.offset.ms`` of the brokers; the default of Barnabas where it is not known."""
    with suppress(KafkaError):
        for broker in (await admin.describe_cluster()).brokers[:1]:
            resource = ConfigResource(ResourceType.BROKER, str(broker.node_id))
            (found,) = await admin.describe_configs([resource], [_PATIENCE])
            entry = found.entries.get(_PATIENCE)
            return PATIENCE_MS if entry is None or entry.value is None else int(entry.value)
    return PATIENCE_MS


async def _examined(
    admin: Admin, group: GroupDescription, arguments: Namespace, now: int, since: int, patience_ms: int
) -> tuple[list[Diagnosis], Sign | None, int | None]:
    events = await _events(admin, group.group_id, arguments, since)
    known = await observed(admin, group, arguments)
    return examine(known, events, now, since), sign(known, events), too_early(known, events, now, patience_ms)


def _note_early(joined: Sequence[int], patience_ms: int) -> str:
    """The note about groups without findings whose members have joined so many milliseconds ago."""
    one = len(joined) == 1
    who = f"A member joined {ms(joined[0])} ago" if one else f"Members of {len(joined)} groups joined lately"
    text = f"{who}: offsets that stand still, and lag that grows, are found {ms(patience_ms)} after that"
    return f"{text} ({_PATIENCE}; later if max.poll.interval.ms is longer)."


async def observed(
    admin: Admin, group: GroupDescription, arguments: Namespace, told: Collection[int | None] = ()
) -> Present:
    """A group as it is now, as the doctor sees it.

    Args:
        admin: of its brokers.
        group: its description.
        arguments: of a command; they name the brokers.
        told: the ids of producers of which it is known that their transactions are open for long.

    Raises:
        KafkaError: its offsets cannot be read.
    """
    view = await look(admin, group)
    waits = [each for each in await waiting(admin, view.rows) if each.producer_id not in told]
    known = await present(admin, view, waits)
    if not known.readers and known.lags:
        known = replace(known, lags=await _with_records(arguments, view.rows))
    return known


async def _of_shares(admin: Admin, group: str, arguments: Namespace, now: int, since: int) -> list[Diagnosis] | None:
    """Examine a share group by its events; None if the brokers record none."""
    if not await locate(admin, [group], None):
        return None
    return examine(Present(group, ""), await _events(admin, group, arguments, since), now, since)


async def like(admin: Admin, group: str) -> list[Sign]:
    """The groups whose ids are those of a group in another spelling."""
    listed = [one.group_id for one in await admin.list_consumer_groups()]
    names = [name for name in listed if name != group and spelling(name) == spelling(group)]
    described = await admin.describe_consumer_groups(names, raise_errors=False) if names else []
    found = (sign(Present(one.group_id, one.state, readers(one)), ()) for one in described if one.error is None)
    return [each for each in found if each is not None]


async def successors(
    admin: Admin, arguments: Namespace, signs: Iterable[Sign], known: Iterable[GroupDescription] | None = None
) -> list[Sign]:
    """The groups in which the programs of groups without members may be now, with their beginning.

    Args:
        admin: of their brokers.
        arguments: of a command; they name the brokers.
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
            of_group = sign(one, await _events(admin, group.group_id, arguments, 0))
            found += () if of_group is None else (of_group,)
    return found


async def note_meant(admin: Admin, group: str, output: Output) -> None:
    """Note which group with members was perhaps meant in place of one that has none, or does not exist."""
    listed = await admin.list_consumer_groups()
    other = meant(group, (one.group_id for one in listed if one.state not in ("", "Empty", "Dead")))
    if other is not None:
        output.note(f"{group} has no members. Did you mean {other}, which has?")


async def _without_group(
    admin: Admin, group: GroupDescription, arguments: Namespace, now: int, since: int
) -> list[Diagnosis]:
    """Examine a group that does not exist by its events."""
    if group.error is None or group.error.code != ErrorCode.GROUP_ID_NOT_FOUND:
        return []
    events = await _events(admin, group.group_id, arguments, since)
    return examine_missing(group.group_id, events, now, since)


async def _events(admin: Admin, group: str, arguments: Namespace, since: int) -> list[GroupEvent]:
    values = await recorded(admin, group, arguments, since)
    return [event for event in map(decode_event, values) if event is not None]


async def recorded(admin: Admin, group: str, arguments: Namespace, since: int) -> list[bytes]:
    """The newest recorded events of a group, as values of ``__group_events``; nothing if the brokers record none.

    Args:
        admin: of the brokers.
        group: its id.
        arguments: of a command; they name the brokers.
        since: leave out events before this time, in ms since 1970.

    Raises:
        KafkaError: the events cannot be read.
    """
    found = Newest()
    for where in await locate(admin, [group], since):
        async for values in RecordedHistory(clients.connect(arguments), where, group).read(lambda count: None):
            found.add(values)
    return list(found.values())


async def _with_records(arguments: Namespace, rows: Iterable[Row]) -> dict[tuple[str, int], int]:
    """The lags of partitions in which a consumer gets records: markers at the end of transactions are none."""
    lags = {row.partition: row.lag for row in rows if row.partition is not None and row.lag}
    committed = {row.partition: row.committed for row in rows if row.partition in lags and row.committed is not None}
    if lags and max(lags.values()) <= MOST_MARKERS:
        read = clients.consumer(arguments, isolation_level="read_committed", auto_offset_reset="none")
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
                        elif tp not in got:
                            continue
                        del unknown[tp]
                    if not unknown:
                        break
    return {(tp.topic, tp.partition): lag for tp, lag in lags.items()}


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


async def present(admin: Admin, view: GroupView, waits: Iterable[Waiting]) -> Present:
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
    others = [tp for tp in partitions if tp not in rows] if not members else []
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
        waits=long_waits(waits),
        assignor=view.group.protocol,
        has_epochs=view.group.epoch is not None,
    )


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", nargs="*", metavar="GROUP", help="default: all groups")
    add_since(parser, "what happened since a time, or since a duration ago, such as 10m (default: 1h)")


COMMAND: Final = Command(
    path=("groups", "doctor"),
    help="find out what is wrong with groups, worst first; the status is 1 if anything is, 2 after an error",
    add_arguments=_arguments,
    run=doctor,
)
