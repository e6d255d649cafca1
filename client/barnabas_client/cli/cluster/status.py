"""`barnabas cluster status` and `describe-broker`."""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import BrokerCondition, BrokerLogDirs, ConfigResource, ConfigSource
from barnabas_client.cli import clients, live, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.cluster.state import ClusterState, Problem, SeenPartition, Stray, look
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE, FAILED, CommandError, UsageError
from barnabas_client.cli.live import Lines
from barnabas_client.cli.output import Column, Output, Style
from barnabas_client.cli.values import shown_size
from barnabas_explain.words import moment
from barnabas_protocol.counts import counted
from barnabas_protocol.printable import printable

_BROKERS: Final = (
    Column("BROKER", 6, right=True),
    Column("ADDRESS", 7),
    Column("RACK", 4),
    Column("STATE", 5),
    Column("LEADERS", 7, right=True),
    Column("REPLICAS", 8, right=True),
    Column("SIZE", 8, right=True),
    Column("FREE", 8, right=True),
)
_PARTITIONS: Final = (
    Column("PROBLEM", 15),
    Column("TOPIC", 5),
    Column("PARTITION", 9, right=True),
    Column("LEADER", 6, right=True),
    Column("REPLICAS", 8),
    Column("ISR", 5),
    Column("MIN-ISR", 7, right=True),
    Column("WAITS-FOR", 9),
)
_STRAYS: Final = (
    Column("STRAY", 5),
    Column("PARTITION", 9, right=True),
    Column("BROKER", 6, right=True),
    Column("SIZE", 8, right=True),
    Column("DIRECTORY", 0),
)
_TOPICS: Final = (
    Column("TOPIC", 5),
    Column("LEADERS", 7, right=True),
    Column("REPLICAS", 8, right=True),
    Column("SIZE", 8, right=True),
)
_DISKS: Final = (
    Column("DIRECTORY", 9),
    Column("STATE", 5),
    Column("REPLICAS", 8, right=True),
    Column("SIZE", 8, right=True),
    Column("FREE", 8, right=True),
    Column("DISK", 8, right=True),
)
_STYLES: Final = {
    Problem.OFFLINE: Style.BAD,
    Problem.BELOW_MIN_ISR: Style.BAD,
    Problem.UNDER_REPLICATED: Style.WARN,
}
#: The numbers of a view, by their name in JSON.
_COUNTS: Final = (
    ("offline", "offline", Style.BAD),
    ("below_min_isr", "below min.insync.replicas", Style.BAD),
    ("under_replicated", "under-replicated", Style.WARN),
    ("strays", "stray", Style.WARN),
    ("moving", "moving", Style.WARN),
    ("not_preferred_leader", "not led by the preferred replica", Style.WARN),
)
#: Rows of partitions that always have room on a terminal.
_LEAST_ROWS: Final = 3


async def status(arguments: Namespace, output: Output) -> int:
    """Show the cluster once, or at intervals; the exit status says whether it is healthy."""
    if arguments.watch and arguments.wait is not None:
        raise UsageError("--watch and --wait exclude each other")
    if not arguments.watch and arguments.max is not None:
        raise UsageError("--max needs --watch")
    async with clients.admin(arguments) as admin:
        if arguments.watch:
            return await live.views(partial(_view, admin, output), arguments, output, {})
        deadline = time.monotonic() + (arguments.wait or 0)
        while True:
            state = await look(admin)
            if state.healthy or (left := deadline - time.monotonic()) <= 0:
                break
            await asyncio.sleep(min(arguments.interval, left))
    if output.json:
        output.data(as_data(state))
    else:
        output.lines(_lines(state, output, None, None))
    return DONE if state.healthy else FAILED


async def _view(admin: Admin, output: Output) -> tuple[dict[str, Any], Lines]:
    state = await look(admin)
    now = time.time_ns() // 1_000_000
    head = output.styled(moment(now), Style.FAINT)

    def lines(width: int | None, height: int | None) -> list[str]:
        return [head, *_lines(state, output, width, None if height is None else height - 1)]

    return {"time": now, **as_data(state)}, lines


def counts(state: ClusterState) -> dict[str, int]:
    """The number of partitions with each problem."""
    problems = Counter(problem for one in state.partitions.values() for problem in one.problems)
    return {
        "offline": problems[Problem.OFFLINE],
        "below_min_isr": problems[Problem.BELOW_MIN_ISR],
        "under_replicated": problems[Problem.UNDER_REPLICATED],
        "strays": len(state.strays),
        "moving": len(state.moving),
        "not_preferred_leader": sum(one.prefers_another_leader for one in state.partitions.values()),
    }


def as_data(state: ClusterState) -> dict[str, Any]:
    """Convert a cluster to JSON data."""
    disks = {one.node_id: one for one in state.disks}
    return {
        "cluster_id": state.description.cluster_id,
        "controller": state.description.controller_id,
        "healthy": state.healthy,
        "brokers": [_broker_data(state, node, disks.get(node)) for node in sorted((*state.live, *state.down))],
        "topics": len(state.topics),
        "partitions": len(state.partitions),
        "counts": counts(state),
        "problems": [
            {
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "problems": [problem.value for problem in one.problems],
                "leader": one.info.leader,
                "replicas": list(one.info.replicas),
                "isr": list(one.info.isr),
                "min_isr": one.min_isr,
                "awaited": list(one.awaited),
            }
            for one in state.troubled()
        ],
        "strays": [
            {
                "broker": one.broker,
                "topic": one.tp.topic,
                "partition": one.tp.partition,
                "size": one.size,
                "log_dir": one.log_dir,
                "directory": one.directory,
            }
            for one in state.strays
        ],
        "moving": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(one.replicas),
                "adding": list(one.adding),
                "removing": list(one.removing),
            }
            for tp, one in state.moving.items()
        ],
    }


def _broker_data(state: ClusterState, node: int, disks: BrokerLogDirs | None) -> dict[str, Any]:
    address = state.live.get(node)
    failed = None if disks is None else disks.error
    return {
        "broker": node,
        "host": None if address is None else address.host,
        "port": None if address is None else address.port,
        "rack": None if address is None else address.rack,
        "state": _broker_state(state, node),
        "error": None if failed is None else for_command_line(failed),
        "conditions": [{"condition": one.name, "text": one.text} for one in state.conditions.get(node, ())],
        "leaders": sum(one.info.leader == node for one in state.partitions.values()),
        "replicas": sum(node in one.info.replicas for one in state.partitions.values()),
        "log_dirs": [
            {
                "path": one.path,
                "error": None if one.error is None else one.error.code.name,
                "replicas": len(one.sizes),
                "size": sum(one.sizes.values()),
                "total_bytes": one.total_bytes,
                "usable_bytes": one.usable_bytes,
            }
            for one in (() if disks is None else disks.log_dirs)
        ],
    }


def _broker_state(state: ClusterState, node: int) -> str:
    if node in state.down:
        return "down"
    if node in state.silent:
        return "no answer"
    broken = any(one.error is not None for disk in state.disks if disk.node_id == node for one in disk.log_dirs)
    return "disk failed" if broken else "controller" if node == state.description.controller_id else "live"


def _lines(state: ClusterState, output: Output, width: int | None, height: int | None) -> list[str]:
    numbers = counts(state)
    wrong = [
        (f"{len(state.down)} down", len(state.down), Style.BAD),
        *((f"{numbers[name]} {text}", numbers[name], style) for name, text, style in _COUNTS),
    ]
    health = ("healthy", Style.GOOD) if state.healthy else ("not healthy", Style.BAD)
    head = [
        f"{output.styled(printable(state.description.cluster_id), Style.HEAD)}  {output.styled(*health)}  "
        f"{counted(len(state.live), 'broker')}  {counted(len(state.topics), 'topic')}  "
        f"{counted(len(state.partitions), 'partition')}",
        "  ".join(output.styled(text, style if count else Style.FAINT) for text, count, style in wrong),
        "",
        *output.table_lines(_BROKERS, [_broker_cells(data) for data in as_data(state)["brokers"]]),
    ]
    limits = shared_conditions(state)
    if limits:
        head += ["", output.styled("Not possible now:", Style.BAD)]
        head += [f"  {who}: {printable(one.text)} ({printable(one.name)})" for one, who in limits]
    problems = output.table_lines(_PARTITIONS, [_partition_cells(one) for one in state.troubled()])
    strays = output.table_lines(
        _STRAYS,
        [
            (printable(one.tp.topic), one.tp.partition, one.broker, shown_size(one.size), printable(_shown_place(one)))
            for one in state.strays
        ],
    )
    tail: list[str] = []
    for table in (problems, strays):
        tail += ["", *table] if len(table) > 1 else []
    if height is not None and len(head) + len(tail) > height:
        shown = max(height - len(head) - 1, _LEAST_ROWS)
        tail = [*tail[:shown], f"... and {len(tail) - shown} more lines"] if len(tail) > shown else tail
    return head + tail


def shared_conditions(state: ClusterState) -> list[tuple[BrokerCondition, str]]:
    """The conditions of the brokers, each once, with the brokers that have it."""
    brokers: dict[BrokerCondition, list[int]] = {}
    for node, conditions in sorted(state.conditions.items()):
        for one in conditions:
            brokers.setdefault(one, []).append(node)
    return [(one, f"broker {shown_nodes(nodes)}") for one, nodes in brokers.items()]


def _shown_place(stray: Stray) -> str:
    return stray.log_dir if stray.directory is None else f"{stray.log_dir}/{stray.directory}"


def _broker_cells(data: dict[str, Any]) -> list[object]:
    dirs = data["log_dirs"]
    free = min((one["usable_bytes"] for one in dirs if one["usable_bytes"] >= 0), default=None)
    style = {"live": Style.GOOD, "controller": Style.GOOD}.get(data["state"], Style.BAD)
    return [
        data["broker"],
        None if data["host"] is None else printable(f"{data['host']}:{data['port']}"),
        None if data["rack"] is None else printable(data["rack"]),
        (data["state"], style),
        data["leaders"],
        data["replicas"],
        shown_size(sum(one["size"] for one in dirs)) if dirs else None,
        None if free is None else shown_size(free),
    ]


def _partition_cells(one: SeenPartition) -> list[object]:
    worst = one.problems[0]
    return [
        (worst.value, _STYLES[worst]),
        printable(one.tp.topic),
        one.tp.partition,
        one.info.leader if one.live else ("none", Style.BAD),
        shown_nodes(one.info.replicas),
        shown_nodes(one.info.isr),
        one.min_isr,
        shown_nodes(one.awaited),
    ]


def shown_nodes(nodes: Sequence[int]) -> str:
    """Format node ids as Kafka's tools do."""
    return ",".join(map(str, nodes)) or "-"


async def describe_broker(arguments: Namespace, output: Output) -> int:
    """Show one broker: its disks, what it has of each topic, and its own configuration."""
    node = arguments.broker
    async with clients.admin(arguments) as admin:
        state = await look(admin)
        known = sorted((*state.live, *state.down))
        if node not in known:
            raise CommandError(f"there is no broker {node}: the brokers are {shown_nodes(known)}")
        configs = await _own_configs(admin, node) if node in state.live else {}
    (data,) = (one for one in as_data(state)["brokers"] if one["broker"] == node)
    topics = [
        {
            "topic": topic.name,
            "leaders": sum(one.leader == node for one in topic.partitions.values()),
            "replicas": sum(node in one.replicas for one in topic.partitions.values()),
            "size": sum(size for (at, tp), size in state.sizes.items() if at == node and tp.topic == topic.name),
        }
        for topic in state.topics
        if any(node in one.replicas for one in topic.partitions.values())
    ]
    behind = [tp for tp, one in state.partitions.items() if node in one.info.replicas and node not in one.info.isr]
    data |= {
        "not_in_sync": [{"topic": tp.topic, "partition": tp.partition} for tp in behind],
        "topics": topics,
        "configs": configs,
    }
    if output.json:
        output.data(data)
        return DONE
    output.table(_BROKERS, [_broker_cells(data)])
    if data["error"] is not None:
        output.error(data["error"])
    for one in data["conditions"]:
        output.line(f"\n{output.styled('Not possible now:', Style.BAD)} {printable(one['text'])}")
    if data["log_dirs"]:
        output.line()
        output.table(_DISKS, [_disk_cells(one) for one in data["log_dirs"]])
    if topics:
        output.line()
        rows = [(printable(one["topic"]), one["leaders"], one["replicas"], shown_size(one["size"])) for one in topics]
        output.table(_TOPICS, rows)
    if behind:
        shown = ", ".join(printable(str(tp)) for tp in behind)
        output.line(f"\n{output.styled('Not in sync:', Style.WARN)} {shown}")
    if configs:
        output.line()
        for name, value in configs.items():
            output.line(f"{name}={printable(value or '')}")
    return DONE


def _disk_cells(one: dict[str, Any]) -> list[object]:
    known = one["total_bytes"] >= 0
    return [
        printable(one["path"]),
        ("ok", Style.GOOD) if one["error"] is None else (one["error"], Style.BAD),
        one["replicas"],
        shown_size(one["size"]),
        shown_size(one["usable_bytes"]) if known else None,
        shown_size(one["total_bytes"]) if known else None,
    ]


async def _own_configs(admin: Admin, node: int) -> dict[str, str | None]:
    """The configuration of a broker that is not the default.

    Raises:
        KafkaError: it cannot be described.
    """
    (found,) = await admin.describe_configs([ConfigResource.broker(node)])
    unset = (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)
    return {name: entry.value for name, entry in sorted(found.entries.items()) if entry.source not in unset}


def _status_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("-w", "--watch", action="store_true", help="show it again and again, until Ctrl-C")
    live.add_options(parser)
    parser.add_argument(
        "--wait",
        type=checked(values.seconds),
        metavar="TIME",
        help="wait until the cluster is healthy, for at most this time",
    )


def _broker_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("broker", type=int, metavar="ID", help="the node id of the broker")


STATUS: Final = Command(
    path=("cluster", "status"),
    help="print brokers, and partitions with problems",
    add_arguments=_status_arguments,
    run=status,
    reports=("barnabas_client",),
)
DESCRIBE_BROKER: Final = Command(
    path=("cluster", "describe-broker"),
    help="print disks, topics and configuration of a broker",
    add_arguments=_broker_arguments,
    run=describe_broker,
)
