"""A group as it was at a time in the past, from the records of ``__consumer_offsets`` until then.

Compaction keeps the newest record of each key. What is found is therefore right, but what is not found may have been
there: its record was compacted because a newer one exists.
"""

from argparse import Namespace

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, MemberDescription, OffsetSpec
from barnabas_client.cli import clients
from barnabas_client.cli.failures import CommandError
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.history.sources import RebuiltHistory, locate_offsets, topic_names
from barnabas_client.history.view import GroupView, Row
from barnabas_client.structs import TopicPartition
from barnabas_explain.rebuild.values import RebuiltEvents
from barnabas_explain.words import moment
from barnabas_protocol.counts import counted


async def look_back(arguments: Namespace, admin: Admin, group: str, at: int, output: Output) -> GroupView:
    """Look up the members, committed offsets and end offsets of a group at a time in ms since 1970.

    The end of a partition is the first offset whose record has a later time.

    Raises:
        CommandError: no record of the group is that old.
        KafkaError: the records or offsets cannot be read.
    """
    rebuilt = RebuiltEvents(group, await topic_names(admin))
    where = await locate_offsets(admin, group, OffsetSpec.EARLIEST, at)
    history = RebuiltHistory(clients.connect(arguments), where, rebuilt, until=at)
    with bar(output, "Reading", history.size, unit="records") as advance:
        async for _ in history.read(advance):
            output.check()
    if rebuilt.generation is None and not rebuilt.offsets:
        raise CommandError(
            f"group {group!r} has no record of {moment(at)} or before"
            + (f", but {counted(rebuilt.holes, 'record')} of this time are compacted" if rebuilt.holes else "")
            + ". To do: name a later time, or check its name with `barnabas groups list`"
        )
    members = _members(rebuilt)
    committed = {TopicPartition(*name): offset for name, offset in rebuilt.offsets.items()}
    owners = {tp: member for member in members for tp in member.partitions}
    partitions = sorted({*committed, *owners})
    ends = await _ends(admin, partitions, at)
    rows = [Row(tp, committed.get(tp), ends.get(tp), owners.get(tp)) for tp in partitions]
    rows += [Row(None, None, None, member) for member in members if not member.partitions]
    note = f"As of {moment(at)}"
    if rebuilt.generation is not None:
        note += f", generation {rebuilt.generation}"
    if rebuilt.holes:
        note += (
            f"; {counted(rebuilt.holes, 'older record')} {'is' if rebuilt.holes == 1 else 'are'} compacted, so members "
            "and offsets that have changed since may be missing"
        )
    output.note(f"{note}.")
    state = rebuilt.state if rebuilt.generation is not None else ""
    description = GroupDescription(group, state=state, protocol=rebuilt.protocol, members=tuple(members))
    return GroupView(description, rows, at / 1000)


def _members(rebuilt: RebuiltEvents) -> list[MemberDescription]:
    members = [
        MemberDescription(
            one.member_id,
            one.instance_id,
            one.client_id,
            one.host,
            tuple(sorted(TopicPartition(topic, partition) for topic, partition in one.partitions)),
            tuple(sorted(one.topics or ())),
        )
        for one in rebuilt.members
    ]
    return sorted(members, key=lambda member: (member.client_id, member.member_id))


async def _ends(admin: Admin, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """The first offsets with a later time; the ends where there is none. Deleted partitions are left out."""
    if not partitions:
        return {}
    later = await admin.list_offsets(dict.fromkeys(partitions, at + 1), raise_errors=False)
    found = {tp: one.offset for tp, one in later.items() if one.error is None}
    unchanged = [tp for tp, offset in found.items() if offset < 0]
    if unchanged:
        latest = await admin.list_offsets(dict.fromkeys(unchanged, OffsetSpec.LATEST), raise_errors=False)
        found.update((tp, one.offset) for tp, one in latest.items())
        found = {tp: offset for tp, offset in found.items() if tp not in latest or latest[tp].error is None}
    return found
