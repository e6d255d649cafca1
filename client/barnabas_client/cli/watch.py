"""`barnabas groups watch`: shows a group at intervals, with its lag in records and in seconds, and its last rebalances.

On a terminal each view replaces the one before. Otherwise the views follow each other, with --json one per line.
"""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.cli import clients, events, values
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.failures import DONE
from barnabas_client.cli.groups import as_data, coordinator
from barnabas_client.cli.optional import optional
from barnabas_client.cli.output import STATES, Column, Output, Style
from barnabas_client.cli.plugins import ExplainEvents, Explanation, find_explainer
from barnabas_client.cli.values import shown_time
from barnabas_client.cli.view import GroupView, Row, look
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import KafkaError

_COLUMNS: Final = (
    Column("TOPIC"),
    Column("PARTITION", 9),
    Column("CURRENT-OFFSET", 14),
    Column("LOG-END-OFFSET", 14),
    Column("LAG", 8),
    Column("LAG-TIME", 8),
    Column("CLIENT-ID"),
    Column("HOST", 0),
)
#: The number of rebalances that are shown, and how far back they are looked for.
_REBALANCES: Final = 3
_HISTORY_MS: Final = 3_600_000
_MAX_EVENTS: Final = 500
#: Milliseconds that a view waits for the records at the committed offsets, whose timestamps give the lag in seconds.
_RECORDS_WAIT_MS: Final = 200


async def watch(arguments: Namespace, output: Output) -> int:
    """Show the group at intervals until --max ends it, or Ctrl-C."""
    shown = 0
    async with (
        clients.admin(arguments) as admin,
        _record_ages(arguments) as record_ages,
        _history(arguments, admin) as history,
    ):
        with _screen(output) as show:
            while True:
                try:
                    (group,) = await admin.describe_consumer_groups([arguments.group])
                    view = await look(admin, group)
                    ages, rebalances = await record_ages.ages(view), await history.rebalances()
                except KafkaError as error:
                    # The first error may be a mistake in the arguments; later ones are shown as a view.
                    if not shown:
                        raise
                    now = time.time_ns() // 1_000_000
                    if output.json:
                        output.row({"time": now, "group": arguments.group, "error": str(error)})
                    else:
                        show([f"{shown_time(now)}  {error}"])
                else:
                    if output.json:
                        output.row({**_data(view, ages), "rebalances": rebalances})
                    else:
                        show(_lines(view, ages, rebalances, output))
                output.out.flush()
                shown += 1
                if shown == arguments.max:
                    return DONE
                await asyncio.sleep(arguments.interval)
                output.check()


def _data(view: GroupView, ages: dict[TopicPartition, float]) -> dict[str, Any]:
    data = as_data(view)
    for row, shown in zip(view.rows, data["offsets"], strict=True):
        age = None if row.partition is None else ages.get(row.partition)
        shown["lag_seconds"] = None if age is None else round(age, 3)
    return {"time": round(view.time * 1000), **data}


def _lines(
    view: GroupView, ages: dict[TopicPartition, float], rebalances: list[Explanation], output: Output
) -> list[str]:
    """The lines of a view."""
    group = view.group
    members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    longest = max(ages.values(), default=None)
    behind = f"{view.lag:,} records behind" + ("" if longest is None else f", {_age(longest)}")
    lines = [
        f"{shown_time(round(view.time * 1000))}  {output.styled(group.group_id, Style.HEAD)}  "
        f"{output.styled(group.state, STATES.get(group.state, Style.WARN))}  {members}  {group.protocol or '-'}  "
        f"coordinator {coordinator(group)}  {behind}",
        "",
        *output.table_lines(_COLUMNS, [_cells(row, ages) for row in view.rows]),
    ]
    if rebalances:
        lines += ["", output.styled("LAST REBALANCES", Style.HEAD)]
        lines += (line for one in rebalances for line in events.lines(one, output))
    return lines


def _cells(row: Row, ages: dict[TopicPartition, float]) -> tuple[object, ...]:
    tp, member = row.partition, row.member
    age = None if tp is None else ages.get(tp)
    return (
        None if tp is None else tp.topic,
        None if tp is None else tp.partition,
        row.committed,
        row.end,
        (row.lag, Style.WARN) if row.lag else row.lag,
        None if age is None else _age(age),
        None if member is None else member.instance_id or member.client_id,
        None if member is None else member.host,
    )


def _age(seconds: float) -> str:
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


class _RecordAges:
    """Looks up the age of the first record that is not consumed yet, by reading that record."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._known: dict[tuple[TopicPartition, int], int] = {}
        self._asked: dict[TopicPartition, int] = {}

    async def ages(self, view: GroupView) -> dict[TopicPartition, float]:
        """The lag of each partition in seconds, 0 without lag; partitions whose lag is not known are left out."""
        behind = {
            row.partition: row.committed for row in view.rows if row.lag and row.partition and row.committed is not None
        }
        known = {(tp, offset): self._known[tp, offset] for tp, offset in behind.items() if (tp, offset) in self._known}
        unknown = {tp: offset for tp, offset in behind.items() if (tp, offset) not in known}
        if unknown:
            self._consumer.assign(unknown)
            for tp, offset in unknown.items():
                # A fetch that takes longer than a view must not be started again by each view.
                if self._asked.get(tp) != offset:
                    self._consumer.seek(tp, offset)
            self._asked = dict(unknown)
            deadline = time.monotonic() + _RECORDS_WAIT_MS / 1000
            while unknown and (left := deadline - time.monotonic()) > 0:
                for tp, records in (await self._consumer.getmany(*unknown, timeout_ms=round(left * 1000))).items():
                    known[tp, unknown.pop(tp)] = records[0].timestamp
        self._known = known
        ages = {tp: max(view.time - stamp / 1000, 0.0) for (tp, _), stamp in known.items() if stamp >= 0}
        return ages | {row.partition: 0.0 for row in view.rows if row.lag == 0 and row.partition}


@asynccontextmanager
async def _record_ages(arguments: Namespace) -> AsyncIterator[_RecordAges]:
    # One batch per partition is enough.
    async with clients.consumer(arguments, max_partition_fetch_bytes=1, fetch_max_wait_ms=50) as consumer:
        yield _RecordAges(consumer)


class _History:
    """Reads the last rebalances of the group."""

    def __init__(self, group: str, explainer: ExplainEvents | None, consumer: Consumer | None) -> None:
        self._group = group.encode()
        self._explainer, self._consumer = explainer, consumer
        self._values: deque[bytes] = deque(maxlen=_MAX_EVENTS)

    async def rebalances(self) -> list[Explanation]:
        if self._consumer is None or self._explainer is None:
            return []
        while batches := await self._consumer.getmany(timeout_ms=0):
            for records in batches.values():
                self._values.extend(record.value for record in records if record.key == self._group and record.value)
        return self._explainer(self._values)[-_REBALANCES:]


@asynccontextmanager
async def _history(arguments: Namespace, admin: Admin) -> AsyncIterator[_History]:
    explainer = find_explainer()
    since = time.time_ns() // 1_000_000 - _HISTORY_MS
    where = None if explainer is None else await events.locate(admin, arguments.group, since)
    if where is None:
        yield _History(arguments.group, None, None)
        return
    async with clients.consumer(arguments) as consumer:
        consumer.assign([where.partition])
        consumer.seek(where.partition, where.start)
        yield _History(arguments.group, explainer, consumer)


@contextmanager
def _screen(output: Output) -> Iterator[Callable[[list[str]], None]]:
    """Yield the function that shows a view."""

    def plain(lines: list[str]) -> None:
        for line in (*lines, ""):
            output.line(line)
        output.out.flush()

    if not output.terminal or output.json:
        yield plain
        return
    console, live, text = (
        optional(module, extra="cli", purpose="drawing on a terminal", instead="pipe the output into cat")
        for module in ("rich.console", "rich.live", "rich.text")
    )
    with live.Live(console=console.Console(file=output.out), auto_refresh=False, screen=True) as screen:
        yield lambda lines: screen.update(text.Text.from_ansi("\n".join(lines)), refresh=True)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "-i", "--interval", type=checked(values.seconds), default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after N views")


COMMAND: Final = Command(
    path=("groups", "watch"), help="show members, lag and rebalances, live", add_arguments=_arguments, run=watch
)
