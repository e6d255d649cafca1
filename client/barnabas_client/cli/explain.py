"""`barnabas groups explain`: explains why a group rebalanced, with a remedy if one is known."""

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, add_since, checked
from barnabas_client.cli.doctor import note_if_empty
from barnabas_client.cli.events import lines
from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.history.located import transaction_events
from barnabas_client.history.present import examined
from barnabas_client.history.sources import SOURCES, History, Newest, PolledHistory, RecordedHistory, find_history
from barnabas_client.history.view import look
from barnabas_explain import transactions, words
from barnabas_explain.doctor import with_now
from barnabas_explain.explain import Explanation, ExplanationData, explain_values
from barnabas_explain.explain import explain as explain_events
from barnabas_explain.members import by_topic
from barnabas_explain.records import decode_event
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import KafkaError

#: Explanations of which --follow remembers what it has printed.
_MOST_SHOWN: Final = 1_000


async def explain(arguments: Namespace, output: Output) -> int:
    """Print what happened to a group."""
    group = arguments.group
    since = None if arguments.since is None else arguments.since.ms(time.time_ns() // 1_000_000)
    async with clients.admin(arguments) as admin:
        history = await find_history(
            clients.connect(arguments),
            admin,
            group,
            since,
            source=arguments.source,
            interval=arguments.interval,
        )
        if history.note is not None:
            output.note(history.note)
        follow = arguments.follow or isinstance(history, PolledHistory)
        events = await _read(history, output)
        if not follow:
            events.add(history.finish())
        if events.dropped:
            output.note(f"{events.dropped:,} older events are left out. To do: name a later time with --since")
        past = [event for event in map(decode_event, events.values()) if event is not None]
        story = explain_events(past, since=since, generation=arguments.generation)
        of_transactions: list[ExplanationData] = []
        if arguments.generation is None:
            if isinstance(history, RecordedHistory):
                of_transactions = await _transactions(arguments, admin, since)
            newest = {one["data"][0].get("producer_id"): one["data"][0]["type"] for one in of_transactions}
            slow = {producer_id for producer_id, kind in newest.items() if kind == transactions.SLOW}
            with suppress(KafkaError):  # The past is known without it.
                await note_if_empty(admin, group, output)
            now = time.time_ns() // 1_000_000
            of_now = await examined(admin, clients.connect(arguments), group, past, since, slow)
            story = with_now(story, of_now.diagnoses, now)
            for note in of_now.notes:
                output.note(note)
        explanations = sorted([*(one.as_data() for one in story), *of_transactions], key=lambda one: int(one["time"]))
        if follow:
            await _follow(history, events, arguments, explanations, since, output)
            return DONE
        if not events and not explanations and since is None:
            explanations = await _without_events(admin, group)
    if not events and not explanations and since is None:
        earlier = "" if history.note is None else ", or name an earlier time with --since"
        raise CommandError(
            f"no events are recorded for group {group!r}. To do: check its name with `barnabas groups list`,"
            " whether its consumers reach the address that the broker tells them (advertised.listeners of the listener"
            f" that they use), and whether a topic matches their subscription{earlier}"
        )
    if output.json:
        output.data(explanations)
        return DONE
    for one in explanations:
        output.lines(lines(one, output))
    if not explanations:
        output.note(_nothing(arguments, len(events)))
    return DONE


def _nothing(arguments: Namespace, events: int) -> str:
    """Say that there is nothing to explain."""
    if arguments.since is None and arguments.generation is None:
        return f"{words.capital(counted(events, 'event'))} of group {arguments.group!r}: none needs an explanation."
    return f"No event of group {arguments.group!r} matches, of {counted(events, 'event')}."


async def _read(history: History, output: Output) -> Newest:
    """Read the events until now; progress is shown on a terminal."""
    events = Newest()
    with bar(output, "Reading", history.size, unit="records") as advance:
        async for found in history.read(advance):
            events.add(found)
            output.check()
    return events


async def _transactions(arguments: Namespace, admin: Admin, since: int | None) -> list[ExplanationData]:
    """Explain the transactions that ``read_committed`` consumers of the group may have waited for."""
    values = await transaction_events(clients.connect(arguments), admin, since)
    if not values:
        return []
    partitions = set(await admin.list_consumer_group_offsets(arguments.group, raise_errors=False))
    (described,) = await admin.describe_consumer_groups([arguments.group], raise_errors=False)
    partitions.update(tp for member in described.members for tp in member.partitions)
    return transactions.explain_values(values, since=since, partitions=partitions)


async def _without_events(admin: Admin, group: str) -> list[ExplanationData]:
    """Explain a group that only has committed offsets: nothing has happened to it that would be recorded."""
    try:
        (described,) = await admin.describe_consumer_groups([group])
        rows = (await look(admin, described)).rows
    except KafkaError:
        return []
    committed = [row.partition for row in rows if row.partition is not None and row.committed is not None]
    if described.members or described.protocol_type or not committed:
        return []
    where = words.partitions(by_topic((tp.topic, tp.partition) for tp in committed))
    text = "The group has no members, and never had any, as far as is known: it has"
    text += f" {words.count(len(committed), 'committed offset')} ({where}) of a client that probably reads with"
    text += " assign(), and commits."
    remedy = "Nothing, if it should read so: without members there are no rebalances to explain."
    return [Explanation(time.time_ns() // 1_000_000, -1, text, remedy).as_data()]


async def _follow(
    history: History,
    events: Newest,
    arguments: Namespace,
    explanations: Iterable[ExplanationData],
    since: int | None,
    output: Output,
) -> None:
    """Print explanations, and again what changes in them, until Ctrl-C."""
    printer = _Printer(output)
    printer.show(explanations, None)
    async for found in history.follow():
        if found:
            events.add(found)
            explanations = explain_values(events.values(), since=since, generation=arguments.generation)
            printer.show(explanations, {_identity(json.loads(value)) for value in found})
        output.check()


class _Printer:
    """Prints what is new in explanations, which grow as events follow."""

    def __init__(self, output: Output) -> None:
        self._output = output
        #: By the first event of an explanation: the lines that were printed.
        self._shown: dict[str, list[str]] = {}

    def show(self, explanations: Iterable[ExplanationData], new: set[str] | None) -> None:
        """Print explanations that have one of the `new` events; None prints all."""
        output = self._output
        for one in explanations:
            events = [_identity(event) for event in one["data"]]
            if new is not None and new.isdisjoint(events):
                continue
            if output.json:
                output.row(one)
                continue
            text = lines(one, output)
            key = f"{events[0] if events else one['text']} {len(events) > 1}"
            before = self._shown.get(key, [])
            # The first line is that of the explanation; if it is the same, only further details are printed.
            output.lines([line for line in text if line not in before] if before[:1] == text[:1] else text)
            self._shown[key] = text
            if len(self._shown) > _MOST_SHOWN:
                del self._shown[next(iter(self._shown))]
        output.out.flush()


def _identity(event: dict[str, Any]) -> str:
    return json.dumps(event, sort_keys=True)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    add_since(parser, "only events since a time, or since a duration ago, such as 1h")
    parser.add_argument("--generation", type=int, metavar="N", help="only the events that led to this generation")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more events at the end")
    parser.add_argument(
        "--source",
        choices=SOURCES,
        help="read __group_events, or __consumer_offsets, or describe the group again and again (default: the first of "
        "these that is available)",
    )
    parser.add_argument(
        "-i",
        "--interval",
        type=checked(values.seconds),
        default=1.0,
        metavar="TIME",
        help="of descriptions of the group (default: 1s)",
    )


COMMAND: Final = Command(
    path=("groups", "explain"),
    help="explain why a group rebalanced, and what to do about it",
    add_arguments=_arguments,
    run=explain,
)
