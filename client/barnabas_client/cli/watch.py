"""`barnabas groups watch`: a group live, with its lag in records and in seconds, and its last rebalances.

On a terminal it is drawn anew in place; anywhere else one look follows the other, or one JSON document a line.
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
from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.groups import as_data, coordinator
from barnabas_client.cli.output import STATES, Column, Output, Style
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
#: Rebalances that are shown, and how far back they are looked for.
_REBALANCES: Final = 3
_HISTORY_MS: Final = 3_600_000
_MOST_EVENTS: Final = 500
#: Milliseconds that a look waits for the records at the committed offsets, in which lag in seconds is measured.
_RECORDS_WAIT_MS: Final = 200


async def watch(arguments: Namespace, output: Output) -> int:
    """Look at the group again and again, until told to stop."""
    looks = 0
    async with clients.admin(arguments) as admin, _lagging(arguments) as lagging, _history(arguments, admin) as history:
        with _screen(output) as show:
            while True:
                try:
                    (group,) = await admin.describe_consumer_groups([arguments.group])
                    view = await look(admin, group)
                    ages, told = await lagging.ages(view), await history.told()
                except KafkaError as error:
                    # At first it may be a mistake; later on it is what there is to see.
                    if not looks:
                        raise
                    now = time.time_ns() // 1_000_000
                    if output.json:
                        output.row({"time": now, "group": arguments.group, "error": str(error)})
                    else:
                        show([f"{shown_time(now)}  {error}"])
                else:
                    if output.json:
                        output.row({**_data(view, ages), "rebalances": told})
                    else:
                        show(_lines(view, ages, told, output))
                output.out.flush()
                looks += 1
                if looks == arguments.max:
                    return DONE
                await asyncio.sleep(arguments.interval)
                output.check()


def _data(view: GroupView, ages: dict[TopicPartition, float]) -> dict[str, Any]:
    data = as_data(view)
    for row, shown in zip(view.rows, data["offsets"], strict=True):
        age = None if row.partition is None else ages.get(row.partition)
        shown["lag_seconds"] = None if age is None else round(age, 3)
    return {"time": round(view.time * 1000), **data}


def _lines(view: GroupView, ages: dict[TopicPartition, float], told: list[events.Told], output: Output) -> list[str]:
    """The whole picture."""
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
    if told:
        lines += ["", output.styled("LAST REBALANCES", Style.HEAD)]
        lines += (line for one in told for line in events.lines(one, output))
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


class _Lagging:
    """How old the first record is that is not consumed yet: read from the partition itself."""

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._known: dict[tuple[TopicPartition, int], int] = {}
        self._asked: dict[TopicPartition, int] = {}

    async def ages(self, view: GroupView) -> dict[TopicPartition, float]:
        """Seconds that each partition lags behind, 0 where it does not; those that cannot be told are left out."""
        behind = {
            row.partition: row.committed for row in view.rows if row.lag and row.partition and row.committed is not None
        }
        known = {(tp, offset): self._known[tp, offset] for tp, offset in behind.items() if (tp, offset) in self._known}
        unknown = {tp: offset for tp, offset in behind.items() if (tp, offset) not in known}
        if unknown:
            self._consumer.assign(unknown)
            for tp, offset in unknown.items():
                # What is asked for already, and only slow to come, must not be asked for anew by every look.
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
async def _lagging(arguments: Namespace) -> AsyncIterator[_Lagging]:
    # One batch of a partition is enough.
    async with clients.consumer(arguments, max_partition_fetch_bytes=1, fetch_max_wait_ms=50) as consumer:
        yield _Lagging(consumer)


class _History:
    """The last rebalances of the group, kept up to date."""

    def __init__(self, group: str, tell: events.Teller | None, consumer: Consumer | None) -> None:
        self._group = group.encode()
        self._tell, self._consumer = tell, consumer
        self._values: deque[bytes] = deque(maxlen=_MOST_EVENTS)

    async def told(self) -> list[events.Told]:
        if self._consumer is None or self._tell is None:
            return []
        while batches := await self._consumer.getmany(timeout_ms=0):
            for records in batches.values():
                self._values.extend(record.value for record in records if record.key == self._group and record.value)
        return self._tell(self._values)[-_REBALANCES:]


@asynccontextmanager
async def _history(arguments: Namespace, admin: Admin) -> AsyncIterator[_History]:
    tell = events.teller()
    since = time.time_ns() // 1_000_000 - _HISTORY_MS
    where = None if tell is None else await events.locate(admin, arguments.group, since)
    if where is None:
        yield _History(arguments.group, None, None)
        return
    async with clients.consumer(arguments) as consumer:
        consumer.assign([where.partition])
        consumer.seek(where.partition, where.start)
        yield _History(arguments.group, tell, consumer)


@contextmanager
def _screen(output: Output) -> Iterator[Callable[[list[str]], None]]:
    """Where a look is shown: in place on a terminal, below the one before anywhere else."""

    def plain(lines: list[str]) -> None:
        for line in (*lines, ""):
            output.line(line)
        output.out.flush()

    if not output.terminal or output.json:
        yield plain
        return
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        raise CommandError(
            "drawing on a terminal needs rich. To do: pip install 'barnabas[cli]', or pipe into cat"
        ) from None
    with Live(console=Console(file=output.out), auto_refresh=False, screen=True) as live:
        yield lambda lines: live.update(Text.from_ansi("\n".join(lines)), refresh=True)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "-i", "--interval", type=checked(values.seconds), default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after so many looks")


COMMAND: Final = Command(
    path=("groups", "watch"), help="members, lag and rebalances, live", add_arguments=_arguments, run=watch
)
