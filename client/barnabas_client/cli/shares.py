"""`barnabas shares`: share groups (KIP-932), as kafka-share-groups has them."""

from argparse import ArgumentParser, Namespace
from typing import Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, PartitionResults
from barnabas_client.cli import clients, share_view
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.cli.reset import GroupType, Offsets, command_for
from barnabas_client.history.stuck import find_stuck
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError


async def describe_groups(arguments: Namespace, output: Output) -> int:
    """Print the state and the members of share groups."""
    status, data = DONE, []
    async with clients.admin(arguments) as admin:
        for group in await admin.describe_share_groups(arguments.groups, raise_errors=False):
            try:
                if group.error is not None:
                    raise group.error
                offsets = await admin.list_share_group_offsets(group.group_id, raise_errors=False)
                data.append(share_view.as_data(group, offsets))
            except KafkaError as error:
                status = FAILED
                output.error(for_command_line(error))
                data.append({"group": group.group_id, "error": for_command_line(error)})
                continue
            if not output.json:
                share_view.print_state(group, arguments.verbose, output)
                share_view.print_offsets(group.group_id, offsets, arguments.verbose, output)
                if group.members:
                    share_view.print_members(group, arguments.verbose, output)
    if output.json:
        output.data(data)
    return status


async def print_offsets(arguments: Namespace, output: Output) -> int:
    """Print the start offsets and the lag of share groups."""
    status, data = DONE, []
    async with clients.admin(arguments) as admin:
        for group in arguments.groups:
            try:
                offsets = await admin.list_share_group_offsets(group, raise_errors=False)
                if not offsets:
                    await admin.describe_share_groups([group])  # a group that does not exist has none either
            except KafkaError as error:
                status = FAILED
                output.error(for_command_line(error))
                data.append({"group": group, "error": for_command_line(error)})
                continue
            data.append({"group": group, "error": None, "offsets": share_view.offsets_as_data(offsets)})
            for one in offsets.values():
                if one.error is not None:
                    status = FAILED
                    output.error(for_command_line(one.error))
            if not output.json:
                share_view.print_offsets(group, offsets, arguments.verbose, output)
    if output.json:
        output.data(data)
    return status


async def _described(admin: Admin, group: str) -> GroupDescription:
    (found,) = await admin.describe_share_groups([group], raise_errors=False)
    return found


async def _starts(admin: Admin, group: str) -> dict[TopicPartition, int | None]:
    return {tp: one.start_offset for tp, one in (await admin.list_share_group_offsets(group)).items()}


async def _set(admin: Admin, group: str, offsets: Offsets) -> PartitionResults:
    return await admin.alter_share_group_offsets(group, offsets, raise_errors=False)


async def print_stuck(arguments: Namespace, output: Output) -> int:
    """Print the records that come back again and again."""
    async with clients.admin(arguments) as admin:
        # The total is not known: the states tell which records to read next.
        with bar(output, "Reading", None, unit="records") as advance:
            stuck = await find_stuck(clients.connect(arguments), admin, arguments.group, advance)
    if output.json:
        output.data([share_view.stuck_as_data(one) for one in stuck])
    elif stuck:
        share_view.print_stuck(stuck, output)
    else:
        output.note(f"No record of share group {arguments.group!r} was delivered twice, and it has no dead letters.")
    return DONE


SHARE_GROUPS: Final = GroupType("share group", _described, _starts, _set)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument("--verbose", action="store_true", help="include the epochs of groups, members and leaders")


def _stuck_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")


COMMANDS: Final = (
    Command(
        path=("shares", "describe"),
        help="print state, start offsets, lag and members of share groups",
        add_arguments=_arguments,
        run=describe_groups,
    ),
    Command(
        path=("shares", "offsets"),
        help="print the start offsets and the lag of share groups",
        add_arguments=_arguments,
        run=print_offsets,
    ),
    Command(
        path=("shares", "stuck"),
        help="print the records that come back again and again, and the dead letters",
        add_arguments=_stuck_arguments,
        run=print_stuck,
    ),
    command_for(SHARE_GROUPS, ("shares", "reset"), "begin anew at other offsets; dry run unless --execute is given"),
)
