"""`barnabas groups list`, `describe`, `alter`, `delete` and `remove-member`.

`describe` has the output of kafka-consumer-groups, and for share groups that of kafka-share-groups.
"""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import AlterConfigOp, ConfigOp, ConfigResource, GroupDescription
from barnabas_client.cli import clients, share_view, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_pairs, add_topic_specs, checked
from barnabas_client.cli.configs import change_configs, print_changes
from barnabas_client.cli.failures import DONE, FAILED, UsageError
from barnabas_client.cli.output import STATES, Column, Output, Style
from barnabas_client.cli.past import look_back
from barnabas_client.cli.values import TopicSpec, shown_age, shown_partitions
from barnabas_client.cli.view import coordinator, coordinator_as_data, members_as_data
from barnabas_client.history.located import Revoking, revoking_members
from barnabas_client.history.present import MOST_OF_MARKERS, with_records
from barnabas_client.history.view import GroupView, Row, look, waiting
from barnabas_client.structs import TopicPartition
from barnabas_explain.doctor import of_markers
from barnabas_protocol.errors import KafkaError

OFFSET_COLUMNS: Final = (
    Column("GROUP"),
    Column("TOPIC"),
    Column("PARTITION", 10),
    Column("CURRENT-OFFSET"),
    Column("LOG-END-OFFSET"),
    Column("LAG"),
    Column("CONSUMER-ID"),
    Column("HOST"),
    Column("CLIENT-ID", 0),
)
_STATE_COLUMNS: Final = (
    Column("GROUP"),
    Column("COORDINATOR (ID)", 25),
    Column("ASSIGNMENT-STRATEGY", 20),
    Column("STATE", 20),
    Column("#MEMBERS", 0),
)
_LIST_COLUMNS: Final = (Column("GROUP", 25), Column("STATE", 20), Column("TYPE"), Column("PROTOCOL", 0))
#: The reason that the coordinator logs for a member that is removed.
_REMOVED: Final = "barnabas groups remove-member"
#: The states and types of groups, as ListGroups names them (``GroupState.java``, ``GroupType.java``).
GROUP_STATES: Final = (
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Empty",
    "Dead",
    "Assigning",
    "Reconciling",
    "NotReady",
)
GROUP_TYPES: Final = ("classic", "consumer", "share", "streams")


async def list_groups(arguments: Namespace, output: Output) -> int:
    """Print the names of groups."""
    async with clients.admin(arguments) as admin:
        groups = await admin.list_consumer_groups(arguments.state, arguments.type, raise_errors=False)
    if output.json:
        output.data(
            [
                {"group": one.group_id, "state": one.state, "type": one.type, "protocol": one.protocol_type}
                for one in groups
            ]
        )
    elif arguments.long:
        rows = [
            (one.group_id, (one.state or "-", _style(one.state)), one.type or "-", one.protocol_type or "-")
            for one in groups
        ]
        output.table(_LIST_COLUMNS, rows)
    else:
        for one in groups:
            output.line(one.group_id)
    for error in groups.errors:
        output.error(for_command_line(error))
    return FAILED if groups.errors else DONE


async def describe_groups(arguments: Namespace, output: Output) -> int:
    """Print groups: offsets, members or state."""
    if bool(arguments.groups) == arguments.all_groups:
        raise UsageError("name groups, or use --all-groups")
    if arguments.at is not None:
        return await _describe_past(arguments, output)
    status, data = DONE, []
    async with clients.admin(arguments) as admin:
        names = arguments.groups
        if arguments.all_groups:
            names = [one.group_id for one in await admin.list_consumer_groups()]
        described = await admin.describe_consumer_groups(names, raise_errors=False)
        shares = await share_view.among(admin, described)
        for group in described:
            try:
                if (share_group := shares.get(group.group_id)) is not None:
                    data.append(await share_view.describe(admin, share_group, arguments, output))
                    continue
                data.append(await _describe(admin, group, arguments, output))
            except KafkaError as error:
                status = FAILED
                output.error(for_command_line(error))
                data.append({"group": group.group_id, "error": for_command_line(error)})
    if output.json:
        output.data(data)
    return status


async def _describe_past(arguments: Namespace, output: Output) -> int:
    """Print groups as they were at a time."""
    at = arguments.at.ms(time.time_ns() // 1_000_000)
    data = []
    if arguments.all_groups:
        raise UsageError("--at needs the names of groups: those of the past are not listed")
    async with clients.admin(arguments) as admin:
        for name in arguments.groups:
            view = await look_back(arguments, admin, name, at, output)
            data.append({"time": at, **as_data(view)})
            if not output.json:
                _print(view, arguments, output)
    if output.json:
        output.data(data)
    return DONE


def _print(view: GroupView, arguments: Namespace, output: Output) -> None:
    """Print offsets, members or state of a group."""
    group = view.group
    output.line()
    if arguments.members:
        _print_members(group, arguments.verbose, output)
    elif arguments.state:
        _print_state(group, arguments.verbose, output)
    else:
        output.table(OFFSET_COLUMNS, [offset_cells(group.group_id, row) for row in view.rows])
        if arguments.verbose and group.members:
            output.line()
            _print_members(group, True, output)


async def _describe(admin: Admin, group: GroupDescription, arguments: Namespace, output: Output) -> dict[str, Any]:
    """Print one group, unless --json is given.

    Raises:
        KafkaError: the group cannot be described.
    """
    if group.error is not None:
        raise group.error
    whole = not (arguments.members or arguments.state)
    view = await look(admin, group) if whole or output.json else GroupView(group, [])
    waits = await waiting(admin, view.rows)
    if not output.json:
        _print(view, arguments, output)
        if arguments.verbose:
            revokes = any(member.to_revoke for member in group.members)
            since = await revoking_members(clients.connect(arguments), admin, group.group_id) if revokes else {}
            for line in still_to_do(group, since, time.time_ns() // 1_000_000):
                output.line(line)
        if not group.members:
            output.out.flush()
            output.note("")
            output.note(f"Consumer group '{group.group_id}' has no active members.")
        for one in waits:
            output.note(one.text)
        if whole and 0 < max((row.lag or 0 for row in view.rows), default=0) <= MOST_OF_MARKERS:
            _, markers = await with_records(clients.connect(arguments), view.rows)
            if markers:
                output.note(of_markers(markers))
    return {**as_data(view), "waits_for_transactions": [one.as_data() for one in waits]}


def offset_cells(group_id: str, row: Row) -> Sequence[object]:
    """Return the cells of a row."""
    tp, member = row.partition, row.member
    return (
        group_id,
        None if tp is None else tp.topic,
        None if tp is None else tp.partition,
        row.committed,
        row.end,
        (row.lag, Style.WARN) if row.lag else row.lag,
        None if member is None else member.member_id,
        None if member is None else member.host,
        None if member is None else member.client_id,
    )


def still_to_do(group: GroupDescription, revoking: Mapping[str, Revoking], now_ms: int) -> list[str]:
    """Lines about members of a group of the consumer protocol that have to revoke partitions or wait for them.

    Args:
        group: the group.
        revoking: since when members have been revoking, by member id, as far as that is known.
        now_ms: the time of day, in ms since 1970.
    """
    lines = []
    names = {member.member_id: f"{member.client_id} ({member.member_id})" for member in group.members}
    owners = {tp: names[member.member_id] for member in group.members for tp in member.partitions}
    for member in group.members:
        name = names[member.member_id]
        known = revoking.get(member.member_id)
        if member.to_revoke and known is not None:
            passed = shown_age(now_ms - known.since_ms)
            limit = f"it may take {shown_age(known.timeout_ms)}"
            lines.append(f"{name} has been revoking {shown_partitions(member.to_revoke)} for {passed}, {limit}")
        elif member.to_revoke:
            lines.append(f"{name} has to revoke {shown_partitions(member.to_revoke)}")
        waits: dict[str, list[TopicPartition]] = {}
        for tp in member.to_get:
            waits.setdefault(owners.get(tp, ""), []).append(tp)
        for owner, partitions in sorted(waits.items()):
            if owner:
                lines.append(f"{name} waits for {shown_partitions(partitions)} of {owner}")
            else:
                lines.append(f"{name} gets {shown_partitions(partitions)} with its next heartbeat")
    return lines


def _print_state(group: GroupDescription, verbose: bool, output: Output) -> None:
    state = (group.state, _style(group.state))
    row = (group.group_id, coordinator(group), group.protocol or "-", state, len(group.members))
    if not verbose or group.epoch is None:
        output.table(_STATE_COLUMNS, [row])
        return
    epochs = (Column("GROUP-EPOCH"), Column("TARGET-ASSIGNMENT-EPOCH", 25))
    columns = (*_STATE_COLUMNS[:-1], *epochs, _STATE_COLUMNS[-1])
    output.table(columns, [(*row[:-1], group.epoch, group.assignment_epoch, row[-1])])


def _print_members(group: GroupDescription, verbose: bool, output: Output) -> None:
    if verbose and group.epoch is not None:
        _print_epochs(group, output)
        return
    static = any(member.instance_id for member in group.members)
    columns = [Column("GROUP"), Column("CONSUMER-ID")]
    columns += [Column("GROUP-INSTANCE-ID")] if static else []
    # Kafka's tool ends the line with a space, too.
    columns += [Column("HOST"), Column("CLIENT-ID"), Column("#PARTITIONS", 15 if verbose else 16)]
    columns += [Column("ASSIGNMENT")] if verbose else []
    rows = []
    for member in group.members:
        row: list[object] = [group.group_id, member.member_id]
        row += [member.instance_id] if static else []
        row += [member.host, member.client_id, len(member.partitions)]
        row += [shown_partitions(member.partitions) or "-"] if verbose else []
        rows.append(row)
    output.table(columns, rows)


def _print_epochs(group: GroupDescription, output: Output) -> None:
    """The members of a group of the consumer protocol with their epochs, as Kafka's tool prints them."""
    static = any(member.instance_id for member in group.members)
    rows: list[list[object]] = []
    for member in group.members:
        row: list[object] = [group.group_id, member.member_id]
        row += [member.instance_id] if static else []
        row += [member.host, member.client_id, len(member.partitions)]
        row += [member.epoch, shown_partitions(member.partitions) or "-"]
        row += [group.assignment_epoch, shown_partitions(member.target or ()) or "-"]
        rows.append(row)
    columns = [Column("GROUP"), Column("CONSUMER-ID")]
    columns += [Column("GROUP-INSTANCE-ID")] if static else []
    columns += [Column("HOST"), Column("CLIENT-ID"), Column("#PARTITIONS")]
    columns += [Column("CURRENT-EPOCH"), Column("CURRENT-ASSIGNMENT", 20), Column("TARGET-EPOCH")]
    columns += [Column("TARGET-ASSIGNMENT", 20)]
    output.table(columns, rows)


def as_data(view: GroupView) -> dict[str, Any]:
    """Convert a group to JSON data."""
    group = view.group
    return {
        "group": group.group_id,
        "error": None,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignment_strategy": group.protocol,
        "coordinator": coordinator_as_data(group),
        "epoch": group.epoch,
        "assignment_epoch": group.assignment_epoch,
        "lag": view.lag,
        "uncommitted": view.uncommitted,
        "offsets": [row.as_data() for row in view.rows],
        "members": members_as_data(group.members),
    }


async def alter_group(arguments: Namespace, output: Output) -> int:
    """Change the configuration of a group, which need not exist."""
    name, dry_run = arguments.group, arguments.dry_run
    changes = [
        *(AlterConfigOp(key, value) for key, value in arguments.set),
        *(AlterConfigOp(key, None, ConfigOp.DELETE) for key in arguments.unset),
    ]
    if not changes:
        raise UsageError("there is nothing to change: give --set or --unset")
    async with clients.admin(arguments) as admin:
        done, unchanged = await change_configs(admin, ConfigResource.group(name), changes, dry_run=dry_run)
    print_changes(output, "group", name, done, unchanged, dry_run=dry_run)
    return DONE


async def delete_groups(arguments: Namespace, output: Output) -> int:
    """Delete groups, or their committed offsets for some topics."""
    rows: list[tuple[str, str | None, KafkaError | None]] = []
    async with clients.admin(arguments) as admin:
        if not arguments.topics:
            results = await admin.delete_consumer_groups(arguments.groups, raise_errors=False)
            rows = [(one.group_id, None, one.error) for one in results]
        else:
            described = await admin.describe_consumer_groups(arguments.groups, raise_errors=False)
            shares = await share_view.among(admin, described)
        for group in arguments.groups if arguments.topics else ():
            if group in shares:
                rows += await share_view.delete_offsets(admin, group, arguments.topics)
                continue
            partitions = await selected_partitions(admin, arguments.topics)
            try:
                found = await admin.delete_consumer_group_offsets(group, partitions, raise_errors=False)
                rows.extend((group, str(tp), one.error) for tp, one in found.items())
            except KafkaError as error:
                rows.append((group, None, error))
    if output.json:
        output.data(
            [
                {"group": group, "partition": partition, "error": None if error is None else for_command_line(error)}
                for group, partition, error in rows
            ]
        )
    for group, partition, refusal in rows:
        if refusal is not None:
            output.error(for_command_line(refusal))
        elif not output.json:
            output.line(f"{group}: {'deleted' if partition is None else f'offset of {partition} deleted'}")
    return FAILED if any(refusal is not None for _, _, refusal in rows) else DONE


async def remove_members(arguments: Namespace, output: Output) -> int:
    """Remove members from a group."""
    group = arguments.group
    async with clients.admin(arguments) as admin:
        results = await admin.remove_group_members(group, arguments.members, reason=_REMOVED, raise_errors=False)
    if output.json:
        output.data(
            [
                {"group": group, "member": one.member, "error": one.error and for_command_line(one.error)}
                for one in results
            ]
        )
    for one in results:
        if one.error is not None:
            output.error(for_command_line(one.error))
        elif not output.json:
            output.line(f"{group}: {one.member} removed")
    return FAILED if any(one.error is not None for one in results) else DONE


async def selected_partitions(admin: Admin, specs: Sequence[TopicSpec]) -> list[TopicPartition]:
    """Return the selected partitions: named ones, or all of a named topic.

    Raises:
        KafkaError: a topic does not exist.
    """
    whole = [spec.topic for spec in specs if spec.partitions is None]
    topics = {topic.name: topic for topic in await admin.describe_topics(whole)} if whole else {}
    chosen: dict[TopicPartition, None] = {}
    for spec in specs:
        numbers = sorted(topics[spec.topic].partitions) if spec.partitions is None else spec.partitions
        chosen.update(dict.fromkeys(TopicPartition(spec.topic, number) for number in numbers))
    return list(chosen)


def _style(state: str) -> Style:
    return STATES.get(state, Style.WARN)


def _list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-l", "--long", action="store_true", help="include state, type and protocol")
    for name, known, what in (("--state", GROUP_STATES, "in this state"), ("--type", GROUP_TYPES, "of this type")):
        parser.add_argument(
            name,
            action="append",
            default=[],
            type=values.any_case(known),
            choices=known,
            metavar=name[2:].upper(),
            help=f"only groups {what}: {', '.join(known)}; repeatable",
        )


def _describe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true", help="describe all groups")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="print offsets and lag (the default)")
    what.add_argument("--members", action="store_true", help="print the members")
    what.add_argument("--state", action="store_true", help="print state and coordinator")
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="include the members' partitions; of the consumer protocol their epochs and targets, too",
    )
    parser.add_argument(
        "--at",
        type=checked(values.since),
        metavar="TIME",
        help="as it was at a time such as 10:02, or a duration ago such as 1h, from the records of __consumer_offsets",
    )


def _alter_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_pairs(parser, "--set", dest="set", help="set a key, such as consumer.session.timeout.ms=50000; repeatable")
    parser.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="reset a key to the broker's value; repeatable"
    )
    parser.add_argument("--dry-run", action="store_true", help="only check whether the group could be changed")


def _delete_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    add_topic_specs(parser, "delete only the committed offsets of this topic, or of these partitions of it; repeatable")


def _remove_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "members",
        nargs="+",
        metavar="MEMBER",
        help="a group.instance.id, or a member id (CONSUMER-ID of `groups describe --members`)",
    )


LIST: Final = Command(
    path=("groups", "list"), help="print the names of groups", add_arguments=_list_arguments, run=list_groups
)
DESCRIBE: Final = Command(
    path=("groups", "describe"),
    help="print offsets, lag and members",
    add_arguments=_describe_arguments,
    run=describe_groups,
)
ALTER: Final = Command(
    path=("groups", "alter"),
    help="change the configuration of a consumer group or a share group",
    add_arguments=_alter_arguments,
    run=alter_group,
)
DELETE: Final = Command(
    path=("groups", "delete"),
    help="delete groups, or some of their committed offsets",
    add_arguments=_delete_arguments,
    run=delete_groups,
)
REMOVE: Final = Command(
    path=("groups", "remove-member"),
    help="remove members whose programs have ended for good, so that others get their partitions",
    add_arguments=_remove_arguments,
    run=remove_members,
)
