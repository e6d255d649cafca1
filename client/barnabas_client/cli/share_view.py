"""Share groups on the command line: the output of kafka-share-groups, and the same as JSON data."""

from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, ShareGroupOffset
from barnabas_client.cli.failures import UsageError
from barnabas_client.cli.formats import shown
from barnabas_client.cli.output import STATES, Column, Output, Style, shown_cell
from barnabas_client.cli.values import TopicSpec, shown_partitions
from barnabas_client.cli.view import coordinator, coordinator_as_data, members_as_data
from barnabas_client.history.stuck import StuckRecord
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.printable import printable

_GROUP: Final = Column("GROUP")

ShareOffsets = Mapping[TopicPartition, ShareGroupOffset]


async def among(admin: Admin, groups: Iterable[GroupDescription]) -> dict[str, GroupDescription]:
    """The share groups among groups that were described as consumer groups, by name."""
    unknown = [
        one.group_id for one in groups if one.error is not None and one.error.code == ErrorCode.GROUP_ID_NOT_FOUND
    ]
    if not unknown:
        return {}
    found = await admin.describe_share_groups(unknown, raise_errors=False)
    return {one.group_id: one for one in found if one.error is None}


async def describe(admin: Admin, group: GroupDescription, arguments: Namespace, output: Output) -> dict[str, Any]:
    """Print offsets, members or state of a share group, unless --json is given; returns it as JSON data.

    Raises:
        KafkaError: the offsets cannot be read.
    """
    offsets: ShareOffsets = {}
    if output.json or not (arguments.members or arguments.state):
        offsets = await admin.list_share_group_offsets(group.group_id, raise_errors=False)
    if not output.json:
        if arguments.members:
            print_members(group, arguments.verbose, output)
        elif arguments.state:
            print_state(group, arguments.verbose, output)
        else:
            print_offsets(group.group_id, offsets, arguments.verbose, output)
        if not group.members:
            output.out.flush()
            output.note("")
            output.note(f"Share group '{group.group_id}' has no active members.")
    return as_data(group, offsets)


def print_offsets(group: str, offsets: ShareOffsets, verbose: bool, output: Output) -> None:
    """Print the start offset and the lag of each partition."""
    columns = [_GROUP, Column("TOPIC"), Column("PARTITION", 10)]
    columns += [Column("LEADER-EPOCH", 13)] if verbose else []
    columns += [Column("START-OFFSET", 13), Column("LAG", 0)]
    rows = []
    for tp, one in offsets.items():
        row: list[object] = [group, tp.topic, tp.partition]
        row += [None if one.start_offset is None else one.leader_epoch] if verbose else []
        row += [one.start_offset, (one.lag, Style.WARN) if one.lag else one.lag]
        rows.append(row)
    output.line()
    output.table(columns, rows)


def print_members(group: GroupDescription, verbose: bool, output: Output) -> None:
    """Print the members with their partitions."""
    columns = [_GROUP, Column("CONSUMER-ID"), Column("HOST"), Column("CLIENT-ID"), Column("#PARTITIONS", 12)]
    columns += [Column("MEMBER-EPOCH", 13)] if verbose else []
    columns += [Column("ASSIGNMENT", 0)]
    rows = []
    for member in group.members:
        row: list[object] = [group.group_id, member.member_id, member.host, member.client_id, len(member.partitions)]
        row += [member.epoch] if verbose else []
        row += [shown_partitions(member.partitions) or "-"]
        rows.append(row)
    output.line()
    output.table(columns, rows)


def print_state(group: GroupDescription, verbose: bool, output: Output) -> None:
    """Print the state and the coordinator."""
    columns = [_GROUP, Column("COORDINATOR (ID)", 25), Column("STATE")]
    columns += [Column("GROUP-EPOCH", 12), Column("ASSIGNMENT-EPOCH", 17)] if verbose else []
    columns += [Column("#MEMBERS", 0)]
    row: list[object] = [group.group_id, coordinator(group), (group.state, STATES.get(group.state, Style.WARN))]
    row += [group.epoch, group.assignment_epoch] if verbose else []
    output.line()
    output.table(columns, [[*row, len(group.members)]])


def offsets_as_data(offsets: ShareOffsets) -> list[dict[str, Any]]:
    """Convert start offsets to JSON data."""
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "start_offset": one.start_offset,
            "lag": one.lag,
            "leader_epoch": one.leader_epoch,
            "error": None if one.error is None else str(one.error),
        }
        for tp, one in offsets.items()
    ]


def as_data(group: GroupDescription, offsets: ShareOffsets) -> dict[str, Any]:
    """Convert a share group to JSON data."""
    lags = [one.lag for one in offsets.values() if one.lag is not None]
    return {
        "group": group.group_id,
        "error": None,
        "type": "share",
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignment_strategy": group.protocol,
        "coordinator": coordinator_as_data(group),
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": sum(lags) if lags else None,
        "offsets": offsets_as_data(offsets),
        "members": members_as_data(group.members),
    }


def print_stuck(stuck: Sequence[StuckRecord], output: Output) -> None:
    """Print records that come back again and again: in columns on a terminal, elsewhere separated by tabs."""
    columns = [Column("TOPIC"), Column("PARTITION", 10), Column("OFFSET", 10), Column("KEY"), Column("DELIVERIES", 11)]
    columns += [Column("STATE", 10), Column("LAST-MEMBER"), Column("DEAD-LETTER"), Column("REASON", 0)]
    rows: list[list[object]] = []
    for one in stuck:
        key = None if one.key is None else printable(one.key.decode(errors="backslashreplace"))
        where, reason = None, None
        if one.letter is not None:
            letter = one.letter
            where = f"{letter.partition.topic}-{letter.partition.partition}@{letter.offset}"
            reason = letter.header("message") or None
        style = Style.BAD if one.state == "archived" else Style.WARN
        row: list[object] = [one.partition.topic, one.partition.partition, one.offset, key, one.deliveries]
        rows.append([*row, (one.state, style), one.member, where, reason])
    if output.terminal:
        output.table(columns, rows)
        return
    output.line("\t".join(column.title for column in columns))
    for row in rows:
        output.line("\t".join(shown_cell(cell)[0] for cell in row))


def stuck_as_data(one: StuckRecord) -> dict[str, Any]:
    """Convert a record that comes back again and again to JSON data."""
    letter = one.letter
    return {
        "topic": one.partition.topic,
        "partition": one.partition.partition,
        "offset": one.offset,
        "key": shown(one.key),
        "deliveries": one.deliveries,
        "state": one.state,
        "last_member": one.member,
        "dead_letter": None
        if letter is None
        else {
            "topic": letter.partition.topic,
            "partition": letter.partition.partition,
            "offset": letter.offset,
            "headers": [[name, shown(content)] for name, content in letter.headers],
        },
    }


async def delete_offsets(
    admin: Admin, group: str, specs: Sequence[TopicSpec]
) -> list[tuple[str, str | None, KafkaError | None]]:
    """Delete what a share group knows of topics; returns group, topic and error of each.

    Raises:
        UsageError: partitions are named: only whole topics can be deleted.
    """
    if any(spec.partitions is not None for spec in specs):
        raise UsageError(f"{group!r} is a share group: its offsets are deleted by topic. Leave the partitions out")
    try:
        found = await admin.delete_share_group_offsets(group, [spec.topic for spec in specs], raise_errors=False)
    except KafkaError as error:
        return [(group, None, error)]
    return [(group, one.name, one.error) for one in found]
