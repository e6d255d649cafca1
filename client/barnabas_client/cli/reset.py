"""`barnabas groups reset-offsets`: shows new offsets for a group, and commits them with `--execute`.

`barnabas shares reset` is the same for another :class:`GroupType`.
"""

import csv
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription, OffsetSpec, PartitionResults
from barnabas_client.cli import clients, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_topic_specs, checked
from barnabas_client.cli.failures import DONE, FAILED, CommandError
from barnabas_client.cli.groups import selected_partitions
from barnabas_client.cli.output import Column, Output
from barnabas_client.structs import TopicPartition
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError

_COLUMNS: Final = (Column("GROUP"), Column("TOPIC"), Column("PARTITION", 10), Column("NEW-OFFSET", 0))
#: States of a group without members.
_INACTIVE: Final = ("Empty", "Dead")

Offsets = dict[TopicPartition, int]


@dataclass(slots=True)
class Plan:
    """New offsets, notes about requested offsets that do not exist, and the offsets that the group has now."""

    offsets: Offsets
    notes: list[str]
    committed: Mapping[TopicPartition, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GroupType:
    """A type of groups, whose offsets can be reset.

    Attributes:
        noun: such as "group", for messages.
        describe: describes a group, or says why it cannot.
        offsets: the offsets that a group has now.
        set: sets offsets of a group.
    """

    noun: str
    describe: Callable[[Admin, str], Awaitable[GroupDescription]]
    offsets: Callable[[Admin, str], Awaitable[Mapping[TopicPartition, int | None]]]
    set: Callable[[Admin, str, Offsets], Awaitable[PartitionResults]]


async def _described(admin: Admin, group: str) -> GroupDescription:
    (found,) = await admin.describe_consumer_groups([group], raise_errors=False)
    return found


async def _committed(admin: Admin, group: str) -> dict[TopicPartition, int | None]:
    return {tp: one.offset for tp, one in (await admin.list_consumer_group_offsets(group)).items()}


async def _commit(admin: Admin, group: str, offsets: Offsets) -> PartitionResults:
    return await admin.alter_consumer_group_offsets(group, offsets, raise_errors=False)


CONSUMER_GROUPS: Final = GroupType("group", _described, _committed, _commit)


async def reset(arguments: Namespace, output: Output, of: GroupType = CONSUMER_GROUPS) -> int:
    """Show the new offsets, and set them with `--execute`."""
    async with clients.admin(arguments) as admin:
        plan = await make_plan(admin, arguments, of)
        errors = await commit(admin, arguments.group, plan, of) if arguments.execute else {}
    _print(arguments, plan, errors, output)
    for note in plan.notes:
        output.error(f"warning: {note}")
    for error in errors.values():
        output.error(for_command_line(error))
    if not arguments.execute and not output.json:
        output.out.flush()
        output.note("Dry run, nothing was changed. To do: add --execute to set these offsets.")
    return FAILED if errors else DONE


async def make_plan(admin: Admin, arguments: Namespace, of: GroupType = CONSUMER_GROUPS) -> Plan:
    """Compute the new offsets of a group; nothing is changed.

    Args:
        admin: of the brokers.
        arguments: those of the command.
        of: the type of the group.

    Raises:
        CommandError: the group has members, no partition is selected, or a file is not valid.
        KafkaError: a partition does not exist.
    """
    _check_inactive(await of.describe(admin, arguments.group), of)
    committed = await of.offsets(admin, arguments.group)
    plan = await _plan(admin, arguments, committed, of)
    plan.committed = committed
    return plan


async def commit(
    admin: Admin, group: str, plan: Plan, of: GroupType = CONSUMER_GROUPS
) -> dict[TopicPartition, KafkaError]:
    """Set the offsets of a plan; returns the partitions that the broker refuses, with its errors.

    Raises:
        KafkaError: the broker refuses all of them, because the group has members for instance.
    """
    if not plan.offsets:
        return {}
    done = await of.set(admin, group, plan.offsets)
    return {tp: one.error for tp, one in done.items() if one.error is not None}


def as_data(group: str, plan: Plan, errors: Mapping[TopicPartition, KafkaError], *, executed: bool) -> dict[str, Any]:
    """Convert a plan, and what became of it, to JSON data."""
    offsets = [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "old_offset": plan.committed.get(tp),
            "new_offset": offset,
            "error": for_command_line(errors[tp]) if tp in errors else None,
        }
        for tp, offset in sorted(plan.offsets.items())
    ]
    return {"group": group, "executed": executed, "offsets": offsets, "notes": plan.notes}


def _print(arguments: Namespace, plan: Plan, errors: Mapping[TopicPartition, KafkaError], output: Output) -> None:
    rows = sorted(plan.offsets.items())
    if output.json:
        output.data(as_data(arguments.group, plan, errors, executed=arguments.execute))
    elif arguments.export:
        for tp, offset in rows:
            output.line(f"{tp.topic},{tp.partition},{offset}")
    else:
        output.line()
        done = [(tp, offset) for tp, offset in rows if tp not in errors]
        output.table(_COLUMNS, [(arguments.group, tp.topic, tp.partition, offset) for tp, offset in done])


def _check_inactive(found: GroupDescription, of: GroupType) -> None:
    if found.error is not None and found.error.code != ErrorCode.GROUP_ID_NOT_FOUND:
        raise found.error
    if found.error is None and found.state not in _INACTIVE:
        raise CommandError(
            f"offsets can only be reset while {of.noun} {found.group_id!r} is inactive, but it is {found.state} with "
            f"{counted(len(found.members), 'member')}. To do: stop the members first"
        )


async def _plan(
    admin: Admin, arguments: Namespace, committed: Mapping[TopicPartition, int | None], of: GroupType
) -> Plan:
    """Compute the new offsets.

    Raises:
        CommandError: no partition is selected, or a file is not valid.
        KafkaError: a partition does not exist.
    """
    if arguments.from_file is not None:
        wanted = read_offsets(arguments.from_file)
        if arguments.topics is not None:
            chosen = set(await selected_partitions(admin, arguments.topics))
            wanted = {tp: offset for tp, offset in wanted.items() if tp in chosen}
        return await _within(admin, wanted)
    partitions = list(committed)
    if arguments.topics is not None:
        partitions = await selected_partitions(admin, arguments.topics)
    if not partitions:
        raise CommandError(
            f"{of.noun} {arguments.group!r} has no offsets to reset. To do: name the topics to set offsets for "
            "with --topic, or check the name of the group"
        )
    if arguments.to_earliest:
        return Plan(await _listed(admin, partitions, OffsetSpec.EARLIEST), [])
    if arguments.to_latest:
        return Plan(await _listed(admin, partitions, OffsetSpec.LATEST), [])
    if arguments.to_datetime is not None:
        return Plan(await _at(admin, partitions, arguments.to_datetime), [])
    if arguments.by_duration is not None:
        now = time.time_ns() // 1_000_000
        return Plan(await _at(admin, partitions, now - arguments.by_duration), [])
    current = {tp: offset for tp in partitions if (offset := committed.get(tp)) is not None}
    missing = [tp for tp in partitions if tp not in current]
    if arguments.to_current:
        return Plan({**current, **await _listed(admin, missing, OffsetSpec.LATEST)}, [])
    if arguments.to_offset is not None:
        return await _within(admin, dict.fromkeys(partitions, arguments.to_offset))
    if missing:
        raise CommandError(
            f"{of.noun} {arguments.group!r} has no offset to shift for {', '.join(map(str, missing))}. To do: "
            "select other partitions with --topic, or use another target"
        )
    return await _within(admin, {tp: offset + arguments.shift_by for tp, offset in current.items()})


async def _listed(admin: Admin, partitions: Collection[TopicPartition], spec: OffsetSpec) -> Offsets:
    found = await admin.list_offsets(dict.fromkeys(partitions, spec)) if partitions else {}
    return {tp: one.offset for tp, one in found.items()}


async def _at(admin: Admin, partitions: Collection[TopicPartition], time_ms: int) -> Offsets:
    """Look up the first offsets at or after a time; the end offset if there is none."""
    found = await admin.list_offsets(dict.fromkeys(partitions, max(time_ms, 0)))
    ends = await _listed(admin, partitions, OffsetSpec.LATEST)
    return {tp: one.offset if one.offset >= 0 else ends[tp] for tp, one in found.items()}


async def _within(admin: Admin, wanted: Mapping[TopicPartition, int]) -> Plan:
    """Plan the wanted offsets; an offset outside of its partition becomes the nearest one inside."""
    first = await _listed(admin, wanted, OffsetSpec.EARLIEST)
    last = await _listed(admin, wanted, OffsetSpec.LATEST)
    offsets, notes = {}, []
    for tp, offset in wanted.items():
        offsets[tp] = min(max(offset, first[tp]), last[tp])
        if offsets[tp] != offset:
            notes.append(f"{tp} has offsets {first[tp]} to {last[tp]}: {offset} becomes {offsets[tp]}")
    return Plan(offsets, notes)


def read_offsets(path: str) -> Offsets:
    """Read a file of lines ``topic,partition,offset``, as `--export` and Kafka's tool write them; "-" is the standard
    input.

    Raises:
        OSError: the file cannot be read.
        CommandError: a line is not valid.
    """
    if path == "-":
        return _offsets("the standard input", sys.stdin)
    with Path(path).open(newline="", encoding="utf-8") as file:
        return _offsets(path, file)


def _offsets(name: str, lines: Iterable[str]) -> Offsets:
    offsets: Offsets = {}
    for number, row in enumerate(csv.reader(lines), 1):
        if not row or not "".join(row).strip():
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) != 3 or not cells[0] or not all(cell.isdecimal() for cell in cells[1:]):
            raise CommandError(f"{name}, line {number}: {','.join(row)!r} is not topic,partition,offset")
        offsets[TopicPartition(cells[0], int(cells[1]))] = int(cells[2])
    if not offsets:
        raise CommandError(f"{name} has no lines topic,partition,offset")
    return offsets


def _arguments(parser: ArgumentParser, of: GroupType) -> None:
    offset = "committed offset" if of is CONSUMER_GROUPS else "start offset"
    parser.add_argument("group", metavar="GROUP")
    add_topic_specs(
        parser, f"only this topic, or these partitions of it; repeatable (default: all partitions with a {offset})"
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to the first record")
    to.add_argument("--to-latest", action="store_true", help="to the end, after the last record")
    to.add_argument("--to-current", action="store_true", help=f"to the {offset}; to the end where there is none")
    to.add_argument("--to-offset", type=int, metavar="N", help="to this offset, or the nearest one that exists")
    to.add_argument(
        "--to-datetime",
        type=checked(values.instant),
        metavar="TIME",
        help="to the first record at or after a time, such as 2026-01-31T12:00:00",
    )
    to.add_argument(
        "--by-duration",
        type=checked(values.duration),
        metavar="TIME",
        help="to the first record after a duration ago, such as 10m",
    )
    to.add_argument("--shift-by", type=int, metavar="N", help="forward by N records, or back if N is negative")
    to.add_argument(
        "--from-file",
        metavar="FILE",
        help="to the offsets in a file of lines topic,partition,offset; - for standard input",
    )
    parser.add_argument("--export", action="store_true", help="print the new offsets in the format of --from-file")
    done = parser.add_mutually_exclusive_group()
    done.add_argument("--execute", action="store_true", help="set the new offsets")
    done.add_argument("--dry-run", action="store_true", help="only show the new offsets (the default)")


def command_for(of: GroupType, path: tuple[str, ...], help: str) -> Command:
    """The command for a type of groups."""
    return Command(path=path, help=help, add_arguments=partial(_arguments, of=of), run=partial(reset, of=of))


COMMAND: Final = command_for(
    CONSUMER_GROUPS, ("groups", "reset-offsets"), "reset a group's offsets; dry run unless --execute is given"
)
