"""`barnabas groups watch`: shows groups at intervals: lag in records and in seconds, rates, and the last rebalances.

A view fits the screen of a terminal (:mod:`~barnabas_client.cli.screen`).
"""

import asyncio
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import GroupDescription
from barnabas_client.cli import clients, live
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command
from barnabas_client.cli.doctor import ANY, print_diagnosis
from barnabas_client.cli.failures import DONE, FAILED
from barnabas_client.cli.groups import as_data
from barnabas_client.cli.live import Lines
from barnabas_client.cli.output import Output
from barnabas_client.cli.screen import Measured, Rates, draw, draw_groups
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.errors import TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from barnabas_client.history.located import EventRange, locate
from barnabas_client.history.present import present
from barnabas_client.history.sources import locate_offsets, topic_names
from barnabas_client.history.view import GroupView, look, waiting
from barnabas_client.structs import ConsumerRecord, TopicPartition
from barnabas_explain.doctor import OF_EVENTS, OF_NOW, Diagnosis, Present, examine
from barnabas_explain.explain import ExplanationData, explain_values
from barnabas_explain.rebuild.values import RebuiltEvents
from barnabas_explain.records import decode_event

#: The number of rebalances that are shown, and how far back they are looked for.
_REBALANCES: Final = 3
_HISTORY_MS: Final = 24 * 3_600_000
#: The same in ``__consumer_offsets``, which has a record for each commit, too.
_OFFSETS_HISTORY_MS: Final = 3_600_000
_MAX_EVENTS: Final = 500
#: Events that are not shown among the rebalances: a view has the rates.
_NOT_SHOWN: Final = ("offsets_committed", "history_began")
#: Groups whose offsets are looked up at the same time.
_GROUPS_AT_ONCE: Final = 8
#: Milliseconds that a view waits for the records at the committed offsets, whose timestamps give the lag in seconds.
_RECORDS_WAIT_MS: Final = 200


async def watch(arguments: Namespace, output: Output) -> int:
    """Show one group, or a line for each group, at intervals until --max or --until ends it, or Ctrl-C.

    With --until, the status is 1 if nothing was found.
    """
    async with (
        clients.admin(arguments) as admin,
        _record_ages(arguments) as record_ages,
        _history(arguments, admin) as history,
    ):
        watched = _Watched(admin, record_ages, history, arguments)
        one = len(arguments.groups) == 1
        look = partial(watched.one if one else watched.all, output)
        subject = {"group": arguments.groups[0]} if one else {}
        if arguments.until is None:
            return await live.views(look, arguments, output, subject)
        found: list[Diagnosis] = []
        began = time.time_ns() // 1_000_000
        first: set[tuple[str, str]] | None = None

        def over() -> bool:
            nonlocal first
            diagnoses = history.diagnoses(watched.presents, began)
            if first is None:
                # What is so at the beginning does not come back.
                first = {(each.group, each.kind) for each in diagnoses if arguments.until == ANY}
            news = (each for each in diagnoses if (each.group, each.kind) not in first)
            found.extend(each for each in news if arguments.until in (ANY, *each.kinds))
            return bool(found)

        await live.views(look, arguments, output, subject, over)
    for each in found:
        if output.json:
            output.row(each.as_data())
        else:
            print_diagnosis(each, output)
    return DONE if found else FAILED


class _Watched:
    """Looks at groups: the data of a view, and the function that draws it.

    Attributes:
        presents: the groups as the doctor sees them, by id; none if nothing is to be found.
    """

    def __init__(self, admin: Admin, record_ages: "_RecordAges", history: "_History", arguments: Namespace) -> None:
        self._admin, self._record_ages, self._history = admin, record_ages, history
        self._names: Sequence[str] = arguments.groups
        self._examines = arguments.until is not None
        self.presents: dict[str, Present] = {}
        self._rates: defaultdict[str, Rates] = defaultdict(Rates)
        self._some = asyncio.Semaphore(_GROUPS_AT_ONCE)

    async def one(self, output: Output) -> tuple[dict[str, Any], Lines]:
        """Look at the one group."""
        (group,) = await self._admin.describe_consumer_groups(self._names)
        await self._history.update()
        measured = await self._measure(group)
        measured = replace(measured, ages=await self._record_ages.ages(measured.view))
        return _data(measured), partial(draw, measured, output)

    async def all(self, output: Output) -> tuple[dict[str, Any], Lines]:
        """Look at the named groups, or at all groups if none is named."""
        names = self._names or [one.group_id for one in await self._admin.list_consumer_groups()]
        groups = await self._admin.describe_consumer_groups(names, raise_errors=False) if names else []
        await self._history.update()
        found = await asyncio.gather(*(self._measure(group) for group in groups if group.error is None))
        failed = {group.group_id: group.error for group in groups if group.error is not None}
        now = time.time()
        data: dict[str, Any] = {"time": round(now * 1000), "groups": [_data(measured) for measured in found]}
        data["groups"] += [{"group": name, "error": for_command_line(error)} for name, error in failed.items()]
        errors = {name: error.code.name for name, error in failed.items()}
        return data, partial(draw_groups, now, found, errors, output)

    async def _measure(self, group: GroupDescription) -> Measured:
        async with self._some:
            view = await look(self._admin, group)
            waits = await waiting(self._admin, view.rows)
            if self._examines:
                self.presents[group.group_id] = await present(self._admin, view, waits)
        rates = self._rates[group.group_id].add(view)
        return Measured(view, {}, rates, self._history.rebalances(group.group_id), waits)


def _data(measured: Measured) -> dict[str, Any]:
    view = measured.view
    data = as_data(view)
    for row, shown in zip(view.rows, data["offsets"], strict=True):
        age = None if row.partition is None else measured.ages.get(row.partition)
        rate = None if row.partition is None else measured.rates.get(row.partition)
        shown["lag_seconds"] = None if age is None else round(age, 3)
        shown["produced_per_second"] = None if rate is None or rate.produced is None else round(rate.produced, 1)
        shown["consumed_per_second"] = None if rate is None or rate.consumed is None else round(rate.consumed, 1)
    waits = [one.as_data() for one in measured.waits]
    return {
        "time": round(view.time * 1000),
        **data,
        "rebalances": measured.rebalances,
        "waits_for_transactions": waits,
    }


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
    """Reads the last rebalances of the watched groups; where no events are recorded, only those of named groups."""

    def __init__(self, arguments: Namespace, admin: Admin, consumer: Consumer) -> None:
        self._arguments, self._admin, self._consumer = arguments, admin, consumer
        self._readable = True
        self._since = time.time_ns() // 1_000_000 - _HISTORY_MS
        self._values: defaultdict[bytes, deque[bytes]] = defaultdict(lambda: deque(maxlen=_MAX_EVENTS))
        self._located = False
        #: By partition of ``__consumer_offsets``: what rebuilds the events of the groups in it.
        self._rebuilt: defaultdict[TopicPartition, list[tuple[bytes, RebuiltEvents]]] = defaultdict(list)

    def rebalances(self, group: str) -> list[ExplanationData]:
        """The last rebalances of a group, oldest first; none if the brokers do not record them."""
        found = self._values.get(group.encode())
        if not self._readable or not found:
            return []
        return [one for one in explain_values(found) if one["data"][0]["type"] not in _NOT_SHOWN][-_REBALANCES:]

    def diagnoses(self, presents: Mapping[str, Present], since_ms: int) -> list[Diagnosis]:
        """Diagnoses of groups; the worst of each group first.

        Args:
            presents: the groups as they are now.
            since_ms: what happened before does not count, in ms since 1970.
        """
        now = time.time_ns() // 1_000_000
        return [
            diagnosis
            for name, one in presents.items()
            for diagnosis in examine(one, filter(None, map(decode_event, self._of(name))), now, since_ms)
        ]

    def _of(self, group: str) -> Iterable[bytes]:
        return self._values.get(group.encode(), ())

    async def update(self) -> None:
        """Read new events; the first time, those that exist."""
        if not self._readable:
            return
        try:
            if not self._located:
                await self._locate()
            else:
                while batches := await self._consumer.getmany(timeout_ms=0):
                    self._add(batches.values())
        except TopicAuthorizationFailedError:
            self._readable = False  # a view without rebalances is better than none

    async def _locate(self) -> None:
        ranges = await locate(self._admin, self._arguments.groups, self._since)
        if not ranges:
            ranges = await self._locate_offsets()
        if not ranges:  # brokers create these topics when a group is used for the first time
            return
        self._consumer.assign([one.partition for one in ranges])
        for one in ranges:
            self._consumer.seek(one.partition, one.start)
        deadline = time.monotonic() + self._arguments.timeout
        while time.monotonic() < deadline and not await self._at_end(ranges):
            self._add((await self._consumer.getmany(timeout_ms=_RECORDS_WAIT_MS)).values())
        self._located = True

    async def _locate_offsets(self) -> list[EventRange]:
        """Where the records of the named groups are; nothing if they may not be read."""
        if not self._arguments.groups:
            return []
        start = time.time_ns() // 1_000_000 - _OFFSETS_HISTORY_MS
        ranges: dict[TopicPartition, EventRange] = {}
        names = await topic_names(self._admin)
        for group in self._arguments.groups:
            try:
                tp, first, _, end = await locate_offsets(self._admin, group, start)
            except (UnknownTopicOrPartitionError, TopicAuthorizationFailedError):
                return []
            ranges[tp] = EventRange(tp, first, end)
            self._rebuilt[tp].append((group.encode(), RebuiltEvents(group, names)))
        return list(ranges.values())

    async def _at_end(self, ranges: Iterable[EventRange]) -> bool:
        return all([await self._consumer.position(one.partition) >= one.end for one in ranges])

    def _add(self, batches: Iterable[list[ConsumerRecord]]) -> None:
        wanted = {name.encode() for name in self._arguments.groups}
        for records in batches:
            for key, rebuilt in self._rebuilt.get(records[0].topic_partition, ()):
                self._values[key].extend(rebuilt.add(records))
            if self._rebuilt:
                continue
            for record in records:
                if record.key is not None and record.value is not None and (not wanted or record.key in wanted):
                    self._values[record.key].append(record.value)


@asynccontextmanager
async def _history(arguments: Namespace, admin: Admin) -> AsyncIterator[_History]:
    async with clients.consumer(arguments) as consumer:
        yield _History(arguments, admin, consumer)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups, a line for each")
    live.add_options(parser)
    parser.add_argument(
        "--until",
        choices=(ANY, *OF_EVENTS, *OF_NOW),
        metavar="FINDING",
        help="stop when it happens, and print it: `finding` for any new one, or a kind such as slow_poll, which "
        "`groups doctor` prints in brackets; the status is 1 if --max comes first",
    )


COMMAND: Final = Command(
    path=("groups", "watch"),
    help="show lag, rates and rebalances, live",
    add_arguments=_arguments,
    run=watch,
    reports=("barnabas_client",),
)
