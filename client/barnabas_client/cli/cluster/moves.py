"""`barnabas cluster reassign`, `rebalance` and `decommission`: move replicas to other brokers.

Each command plans, prints the plan, and with --execute carries it out: it asks the controller to reassign the
partitions (KIP-455), shows the progress until all are done, and elects preferred leaders.
"""

import asyncio
import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.cli import clients, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.cluster import placement, plan_file, throttle
from barnabas_client.cli.cluster.elections import elect
from barnabas_client.cli.cluster.placement import Placement, PlacementError, moved_replicas
from barnabas_client.cli.cluster.selection import add_topics, selected
from barnabas_client.cli.cluster.state import ClusterState, look
from barnabas_client.cli.cluster.status import shown_nodes
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, FAILED, CommandError, UsageError
from barnabas_client.cli.output import Column, Output, Style
from barnabas_client.cli.progress import bar
from barnabas_client.cli.values import shown_size
from barnabas_client.network.metadata import PartitionInfo
from barnabas_client.structs import TopicPartition
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.printable import printable

_MOVES: Final = (
    Column("TOPIC", 5),
    Column("PARTITION", 9, right=True),
    Column("REPLICAS", 8),
    Column("NEW", 8),
    Column("COPIES-TO", 9),
    Column("SIZE", 8, right=True),
)
_LOADS: Final = (
    Column("BROKER", 6, right=True),
    Column("RACK", 4),
    Column("REPLICAS", 14, right=True),
    Column("LEADERS", 14, right=True),
    Column("SIZE", 20, right=True),
)
_RUNNING: Final = (
    "partitions are being reassigned already. To do: wait for them with `barnabas cluster reassign --progress`, or "
    "cancel them with `barnabas cluster reassign --cancel --execute`"
)
#: How long brokers may take to describe their disks for the progress, in ms.
_DISKS_MS: Final = 3_000


async def reassign(arguments: Namespace, output: Output) -> int:
    """Move partitions to brokers, replay a plan, cancel reassignments, or show their progress."""
    ways = [arguments.to is not None, arguments.plan is not None, arguments.cancel, arguments.progress]
    if sum(ways) != 1:
        raise UsageError("give one of --to, --plan, --cancel and --progress")
    if arguments.to is None and arguments.replication_factor is not None:
        raise UsageError("--replication-factor needs --to")
    if arguments.to is not None and not arguments.topics:
        raise UsageError("--to needs topics; to move partitions of all topics, use `barnabas cluster rebalance`")
    if arguments.plan is not None and arguments.topics:
        raise UsageError("--plan takes the partitions from the file: leave the topics out")
    if (arguments.cancel or arguments.progress) and arguments.throttle is not None:
        raise UsageError("--throttle needs --to or --plan")
    read = None if arguments.plan is None else _read(arguments.plan)
    async with clients.admin(arguments) as admin:
        state = await look(admin)
        if arguments.cancel:
            return await _cancel(admin, state, arguments, output)
        if arguments.progress:
            return await _follow_running(admin, state, arguments, output)
        if read is not None:
            plan = _differing(state, read)
        else:
            chosen = {tp: state.placement[tp] for tp in selected(state, arguments.topics)}
            plan = _planned(chosen, _brokers(state, arguments.to), arguments.replication_factor)
        return await _carry_out(admin, state, plan, arguments, output)


async def rebalance(arguments: Namespace, output: Output) -> int:
    """Spread replicas and leaders evenly over all live brokers."""
    async with clients.admin(arguments) as admin:
        state = await look(admin)
        if state.down:
            raise CommandError(
                f"brokers that have replicas are down: {shown_nodes(state.down)}. To do: start them, or move their "
                "replicas to other brokers with `barnabas cluster decommission`"
            )
        chosen = {tp: state.placement[tp] for tp in selected(state, arguments.topics)}
        return await _carry_out(admin, state, _planned(chosen, _brokers(state), None), arguments, output)


async def decommission(arguments: Namespace, output: Output) -> int:
    """Move all replicas of a broker to the other brokers."""
    node = arguments.broker
    async with clients.admin(arguments) as admin:
        state = await look(admin)
        known = sorted((*state.live, *state.down))
        if node not in known:
            raise CommandError(f"there is no broker {node}: the brokers are {shown_nodes(known)}")
        try:
            plan = placement.vacated(state.placement, _brokers(state), node)
        except PlacementError as error:
            raise CommandError(f"broker {node} cannot be emptied: {error}. To do: add a broker first") from None
        result = await _carry_out(admin, state, plan, arguments, output)
        if result == DONE and (arguments.execute or not plan) and not output.json:
            again = " Stop it before topics are created, which may get replicas on it." if node in state.live else ""
            output.note(f"broker {node} has no replicas.{again}")
        return result


# Plans.


def _brokers(state: ClusterState, wanted: Sequence[int] | None = None) -> dict[int, str | None]:
    """The live brokers with their racks; only the wanted ones.

    Raises:
        CommandError: one of them is not live.
    """
    chosen = list(state.live) if wanted is None else wanted
    for node in chosen:
        if node not in state.live:
            raise CommandError(f"broker {node} is not live: the live brokers are {shown_nodes(list(state.live))}")
    return {node: state.live[node].rack for node in chosen}


def _planned(
    chosen: Mapping[TopicPartition, tuple[int, ...]], brokers: Mapping[int, str | None], factor: int | None
) -> Placement:
    try:
        return placement.spread(chosen, brokers, factor)
    except PlacementError as error:
        raise CommandError(f"the replicas cannot be placed: {error}. To do: use more brokers") from None


def _read(path: str) -> Placement:
    """Read a plan from a file, or from standard input for "-".

    Raises:
        CommandError: it is not valid.
        OSError: it cannot be read.
    """
    try:
        with nullcontext(sys.stdin) if path == "-" else Path(path).open(encoding="utf-8") as file:
            return plan_file.parse(file.read())
    except ValueError as error:
        raise CommandError(f"{path} is not a plan: {error}") from None


def _write(path: str, plan: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(plan, indent=2) + "\n", encoding="utf-8")


def _differing(state: ClusterState, plan: Placement) -> Placement:
    """The partitions of a plan that are not as planned.

    Raises:
        CommandError: a partition does not exist.
    """
    for tp in plan:
        if tp not in state.placement:
            raise CommandError(f"the plan has partition {str(tp)!r}, which does not exist")
    return {tp: replicas for tp, replicas in plan.items() if replicas != state.placement[tp]}


def _print_plan(state: ClusterState, plan: Placement, output: Output) -> None:
    rows, copied, unknown = [], 0, False
    for tp, replicas in sorted(plan.items()):
        before, size = state.placement[tp], state.size(tp)
        added = [node for node in replicas if node not in before]
        copied += (size or 0) * len(added)
        unknown = unknown or (size is None and bool(added))
        shown = None if size is None or not added else shown_size(size * len(added))
        rows.append(
            [printable(tp.topic), tp.partition, shown_nodes(before), shown_nodes(replicas), shown_nodes(added), shown]
        )
    output.table(_MOVES, rows)
    output.line()
    after = {**state.placement, **plan}
    output.table(_LOADS, [_load_cells(state, after, node) for node in sorted({*state.live, *state.down})])
    leaders = sum(replicas[0] != state.placement[tp][0] for tp, replicas in plan.items())
    amount = f"{'at least ' if unknown else ''}{shown_size(copied)}"
    output.line()
    output.line(
        f"{counted(len(plan), 'partition')} to change: {counted(moved_replicas(state.placement, plan), 'replica')} to "
        f"copy ({amount}), {counted(leaders, 'other preferred leader')}"
    )


def _load_cells(state: ClusterState, after: Mapping[TopicPartition, tuple[int, ...]], node: int) -> list[object]:
    def loads(where: Mapping[TopicPartition, tuple[int, ...]]) -> tuple[int, int, int]:
        held = [tp for tp, replicas in where.items() if node in replicas]
        return len(held), sum(where[tp][0] == node for tp in held), sum(state.size(tp) or 0 for tp in held)

    def change(before: object, now: object) -> object:
        return before if before == now else (f"{before} -> {now}", Style.WARN)

    old, new = loads(state.placement), loads(after)
    rack = state.live[node].rack if node in state.live else None
    return [
        node,
        None if rack is None else printable(rack),
        change(old[0], new[0]),
        change(old[1], new[1]),
        change(shown_size(old[2]), shown_size(new[2])),
    ]


# Execution.


#: Why partitions could not be changed as planned.
_Errors = dict[TopicPartition, str]


def _errors_data(errors: _Errors) -> list[dict[str, Any]]:
    return [{"topic": tp.topic, "partition": tp.partition, "error": error} for tp, error in sorted(errors.items())]


def _report(errors: _Errors, output: Output) -> None:
    for tp, error in sorted(errors.items()):
        output.error(f"{printable(str(tp))}: {error}")


def _check_leaders(state: ClusterState, plan: Placement) -> None:
    """Check that all replicas of a plan can be copied.

    Raises:
        CommandError: a partition has no leader to copy from, so that its reassignment would never be completed.
    """
    offline = [tp for tp in sorted(plan) if not state.partitions[tp].live]
    if offline:
        more = f", as have {len(offline) - 1} others" if len(offline) > 1 else ""
        isr = state.partitions[offline[0]].info.isr
        raise CommandError(
            f"{str(offline[0])!r} has no leader{more}, so that its replicas cannot be copied. To do: start a broker "
            f"that is in its ISR ({shown_nodes(isr)}), or delete the topic"
        )


async def _carry_out(admin: Admin, state: ClusterState, plan: Placement, arguments: Namespace, output: Output) -> int:
    """Print a plan, and carry it out if --execute is given."""
    if arguments.execute and state.moving:
        raise CommandError(_RUNNING)
    if arguments.execute:
        _check_leaders(state, plan)
    if arguments.throttle is not None and plan:
        await throttle.require(admin, next(iter(plan)).topic)
    if not output.json:
        if not plan:
            output.line("nothing to change: the replicas are where they should be")
            return DONE
        _print_plan(state, plan, output)
        output.out.flush()
    if not arguments.execute:
        if output.json:
            output.data(plan_file.as_data(plan))
        else:
            output.note("dry run: nothing was changed; add --execute, or keep the plan with --json > plan.json")
        return DONE
    undo = plan_file.as_data({tp: state.placement[tp] for tp in plan})
    if arguments.undo is not None:
        _write(arguments.undo, undo)
    errors = await _move(admin, state, plan, arguments, output) if plan else {}
    _report(errors, output)
    if output.json:
        done = {"executed": True, "plan": plan_file.as_data(plan), "undo": undo, "errors": _errors_data(errors)}
        output.data(done)
    else:
        output.line(f"{counted(len(plan) - len(errors), 'partition')} changed")
    return FAILED if errors else DONE


async def _move(admin: Admin, state: ClusterState, plan: Placement, arguments: Namespace, output: Output) -> _Errors:
    """Reassign the partitions of a plan, some at a time, and elect their preferred leaders."""
    if arguments.throttle is not None:
        await throttle.throttle(admin, state.placement, plan, arguments.throttle)
    left, size = sorted(plan), arguments.batch or len(plan)
    errors: _Errors = {}
    progress = _Progress(admin, state, plan, arguments.interval, output)
    try:
        with progress:
            while left:
                batch, left = left[:size], left[size:]
                found = await admin.alter_partition_reassignments({tp: plan[tp] for tp in batch}, raise_errors=False)
                errors |= {tp: for_command_line(one.error) for tp, one in found.items() if one.error}
                await progress.follow({tp for tp in batch if tp not in errors})
    except (asyncio.CancelledError, KafkaError):
        # Throttles stay, because reassignments may go on; --progress removes them in the end.
        output.note(
            "what was begun goes on in the cluster: see `barnabas cluster reassign --progress`"
            + (f"; not begun: {counted(len(left), 'partition')} of the plan" if left else "")
        )
        raise
    if arguments.throttle is not None:
        await throttle.lift(admin, {tp.topic for tp in plan})
    errors |= await _wrong(admin, {tp: plan[tp] for tp in plan if tp not in errors}, arguments)
    fine = [tp for tp in plan if tp not in errors]
    led = {tp: info.leader for tp, info in (await _infos(admin, fine)).items()}
    failed = await elect(admin, [tp for tp in fine if led.get(tp) != plan[tp][0]])
    return errors | {tp: for_command_line(error) for tp, error in failed.items()}


async def _infos(admin: Admin, partitions: Collection[TopicPartition]) -> dict[TopicPartition, PartitionInfo]:
    topics = await admin.describe_topics({tp.topic for tp in partitions}, raise_errors=False)
    found = {TopicPartition(topic.name, number): info for topic in topics for number, info in topic.partitions.items()}
    return {tp: found[tp] for tp in partitions if tp in found}


async def _wrong(admin: Admin, plan: Placement, arguments: Namespace) -> _Errors:
    """Compare partitions with a plan whose reassignments are over. Brokers may learn of the last ones a bit later."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + arguments.timeout
    while True:
        infos = await _infos(admin, plan)
        others = {tp: infos[tp].replicas if tp in infos else () for tp in plan}
        others = {tp: replicas for tp, replicas in others.items() if replicas != plan[tp]}
        if not others or loop.time() >= deadline:
            break
        await asyncio.sleep(min(arguments.interval, 0.2))
    return {
        tp: f"it has the replicas {shown_nodes(replicas)} and not {shown_nodes(plan[tp])}: its reassignment was "
        "cancelled or replaced, or the topic was deleted"
        for tp, replicas in others.items()
    }


class _Progress:
    """Shows how far reassignments are: as a bar on a terminal, otherwise as lines.

    Args:
        admin: of the cluster.
        state: the cluster before the reassignments.
        plan: the new replicas.
        interval: seconds between two looks.
        output: of the command.
    """

    def __init__(self, admin: Admin, state: ClusterState, plan: Placement, interval: float, output: Output) -> None:
        self._admin, self._state, self._plan, self._interval, self._output = admin, state, plan, interval, output
        self._copies = {
            (node, tp): state.size(tp) or 0
            for tp, replicas in plan.items()
            for node in replicas
            if node not in state.placement[tp] or (tp in state.moving and node in state.moving[tp].adding)
        }
        self._begun: set[TopicPartition] = set()
        self._done: set[TopicPartition] = set()
        self._shown = 0
        self._missing: set[int] = set()
        self._bar = bar(output, "copying", sum(self._copies.values()) or None)

    def __enter__(self) -> None:
        self._advance = self._bar.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._bar.__exit__(*error)

    async def follow(self, partitions: Iterable[TopicPartition]) -> None:
        """Wait until the reassignments of partitions are over."""
        left = set(partitions)
        self._begun |= left
        while True:
            running = (await self._admin.list_partition_reassignments()).keys() & left
            done = left - running
            self._done |= done
            left = running
            await self._show(left, bool(done))
            if not left:
                return
            await asyncio.sleep(self._interval)

    async def _show(self, left: Collection[TopicPartition], changed: bool) -> None:
        if self._output.err.isatty():
            disks = await self._admin.describe_log_dirs(timeout_ms=_DISKS_MS, raise_errors=False) if left else []
            now = {(one.node_id, tp): size for one in disks for each in one.log_dirs for tp, size in each.sizes.items()}
            copied = sum(
                size if tp in self._done else min(now.get((node, tp), 0), size)
                for (node, tp), size in self._copies.items()
                if tp in self._begun
            )
            self._advance(max(copied - self._shown, 0))
            self._shown = max(copied, self._shown)
        elif changed:
            self._output.note(f"{len(self._done)} of {counted(len(self._plan), 'partition')} done")
        live = {node.node_id for node in (await self._admin.describe_cluster()).brokers} if left else set()
        missing = {node for node, tp in self._copies if tp in left and node not in live} if left else set()
        for node in sorted(missing - self._missing):
            self._output.error(f"broker {node} is down: the reassignments to it wait until it is back")
        self._missing = missing


async def _follow_running(admin: Admin, state: ClusterState, arguments: Namespace, output: Output) -> int:
    """Show the progress of running reassignments until they are over, and lift their throttles."""
    chosen = set(selected(state, arguments.topics))
    targets = {
        tp: tuple(node for node in one.replicas if node not in one.removing)
        for tp, one in state.moving.items()
        if tp in chosen
    }
    with (progress := _Progress(admin, state, targets, arguments.interval, output)):
        await progress.follow(targets)
    wrong = await _wrong(admin, targets, arguments)
    lifted = not await admin.list_partition_reassignments() and await throttle.lift(
        admin, [topic.name for topic in state.topics]
    )
    _report(wrong, output)
    if output.json:
        output.data({"partitions": len(targets), "throttle_removed": lifted, "errors": _errors_data(wrong)})
    else:
        output.line(f"{counted(len(targets) - len(wrong), 'reassignment')} completed" if targets else "nothing moves")
        if lifted:
            output.note("the throttles of topics and brokers were removed")
    return FAILED if wrong else DONE


async def _cancel(admin: Admin, state: ClusterState, arguments: Namespace, output: Output) -> int:
    """Cancel running reassignments; dry run unless --execute is given."""
    chosen = set(selected(state, arguments.topics))
    running = {tp: one for tp, one in state.moving.items() if tp in chosen}
    errors: _Errors = {}
    if arguments.execute and running:
        found = await admin.alter_partition_reassignments(dict.fromkeys(running), raise_errors=False)
        errors = {
            tp: for_command_line(one.error)
            for tp, one in found.items()
            # It was completed meanwhile.
            if one.error is not None and one.error.code != ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
        }
        if not await admin.list_partition_reassignments():
            await throttle.lift(admin, [topic.name for topic in state.topics])
    if output.json:
        partitions = [
            {"topic": tp.topic, "partition": tp.partition, "adding": list(one.adding), "removing": list(one.removing)}
            for tp, one in running.items()
        ]
        output.data({"executed": arguments.execute, "partitions": partitions, "errors": _errors_data(errors)})
    _report(errors, output)
    if not output.json:
        for tp, one in running.items():
            verb = "not cancelled" if tp in errors else "cancelled" if arguments.execute else "would be cancelled"
            output.line(
                f"{printable(str(tp))}: {verb}, adding {shown_nodes(one.adding)}, removing {shown_nodes(one.removing)}"
            )
        if not running:
            output.line("nothing moves")
        elif not arguments.execute:
            output.out.flush()
            output.note("dry run: nothing was changed; add --execute")
    return FAILED if errors else DONE


# Options.


def _add_execution(parser: ArgumentParser) -> None:
    parser.add_argument("--execute", action="store_true", help="do it; without it, only print what would change")
    parser.add_argument(
        "--throttle",
        type=checked(values.size),
        metavar="SIZE",
        help="the bytes per second that each broker may copy, in and out, such as 10MB (not with Barnabas brokers)",
    )
    parser.add_argument(
        "--batch",
        type=checked(values.positive),
        metavar="N",
        help="move at most N partitions at a time (default: all at once)",
    )
    parser.add_argument("--undo", metavar="FILE", help="write a plan that moves everything back to this file")
    parser.add_argument(
        "-i",
        "--interval",
        type=checked(values.seconds),
        default=1.0,
        metavar="TIME",
        help="how often to look at the progress (default: 1s)",
    )


def _nodes(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise ValueError(f"{text!r} is not a list of node ids: write 1,2,3")
    return tuple(map(int, parts))


def _reassign_arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    parser.add_argument("--to", type=checked(_nodes), metavar="ID,ID", help="spread the partitions over these brokers")
    parser.add_argument(
        "-r",
        "--replication-factor",
        type=checked(values.positive),
        metavar="N",
        help="with --to: the new number of replicas (default: as before)",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="a plan as JSON, such as kafka-reassign-partitions has; - is standard input",
    )
    parser.add_argument("--cancel", action="store_true", help="cancel running reassignments")
    parser.add_argument(
        "--progress", action="store_true", help="show running reassignments until they are completed, then unthrottle"
    )
    _add_execution(parser)


def _rebalance_arguments(parser: ArgumentParser) -> None:
    add_topics(parser)
    _add_execution(parser)


def _decommission_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("broker", type=int, metavar="ID", help="the node id of the broker")
    _add_execution(parser)


REASSIGN: Final = Command(
    path=("cluster", "reassign"),
    help="move partitions to other brokers, by a plan",
    add_arguments=_reassign_arguments,
    run=reassign,
)
REBALANCE: Final = Command(
    path=("cluster", "rebalance"),
    help="spread replicas and leaders evenly over the brokers",
    add_arguments=_rebalance_arguments,
    run=rebalance,
)
DECOMMISSION: Final = Command(
    path=("cluster", "decommission"),
    help="move all replicas of a broker to other brokers",
    add_arguments=_decommission_arguments,
    run=decommission,
)
