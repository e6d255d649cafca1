"""`barnabas groups report`: writes the timeline of a group as one HTML file."""

import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from barnabas.console.views import Observed, one_group, positions_of
from barnabas_broker.http.report import report
from barnabas_client.admin.admin import Admin
from barnabas_client.cli import clients, values
from barnabas_client.cli.command import checked
from barnabas_client.cli.failures import DONE, CommandError, UsageError
from barnabas_client.cli.output import Output
from barnabas_client.cli.progress import bar
from barnabas_client.history.sources import DAY_MS, SOURCES, History, Newest, PolledHistory, find_history
from barnabas_client.history.view import look
from barnabas_explain.catalog import GroupEvent
from barnabas_explain.chart import chart
from barnabas_explain.doctor import examine_past
from barnabas_explain.records import decode_event
from barnabas_explain.storm_score import Score, storm_score
from barnabas_explain.words import moment
from barnabas_protocol.counts import counted


async def write_report(arguments: Namespace, output: Output) -> int:
    """Write the report of a group to a file."""
    present = time.time_ns() // 1_000_000
    since = present - DAY_MS if arguments.since is None else arguments.since.ms(present)
    until = present if arguments.until is None else min(arguments.until.ms(present), present)
    if until <= since:
        raise UsageError(f"--until is {moment(until)}, which is not after {moment(since)}, where it begins")
    async with clients.admin(arguments) as admin:
        events, history, dropped = await _events(arguments, admin, output, since, until)
        now = await _group_now(admin, arguments.group, storm_score(events, present)) if until == present else None
    if not events:
        raise CommandError(
            f"nothing is known of group {arguments.group!r} from {moment(since)} to {moment(until)}. To do: "
            "check its name with `barnabas groups list`, or name an earlier time with --since"
        )
    source = {
        "note": history.note,
        "no_requests": history.no_requests,
        "error": None,
        "loaded": True,
        "read": 0,
        "size": 0,
        "dropped": dropped,
    }
    findings = [each.as_data() for each in examine_past(arguments.group, events, until, since)]
    made = {"since": since, **chart(events), "source": source, "findings": findings}
    text = report(arguments.group, made, time_ms=until, now=now)
    _write(arguments.output, text)
    rebalances = len(made["bands"])
    if output.json:
        output.data(
            {"group": arguments.group, "file": arguments.output, "bytes": len(text.encode()), "rebalances": rebalances}
        )
    else:
        output.line(f"{arguments.output}: {counted(rebalances, 'rebalance')} from {moment(since)} to {moment(until)}")
    return DONE


def _write(file: str, text: str) -> None:
    Path(file).write_text(text, encoding="utf-8")


async def _events(
    arguments: Namespace, admin: Admin, output: Output, since: int, until: int
) -> tuple[list[GroupEvent], History, int]:
    """The events until a time, where they come from, and how many older ones are left out."""
    history = await find_history(
        clients.connect(arguments), admin, arguments.group, since, source=arguments.source, interval=arguments.interval
    )
    if isinstance(history, PolledHistory):
        raise CommandError(
            "the past of a group is in __group_events or __consumer_offsets, and neither may be read here. To do: "
            "allow READ on __consumer_offsets"
        )
    kept = Newest()
    with bar(output, "Reading", history.size, unit="records") as advance:
        async for found in history.read(advance):
            kept.add(found)
            output.check()
    kept.add(history.finish())
    events = [event for event in map(decode_event, kept.values()) if event is not None]
    return [event for event in events if event.time <= until], history, kept.dropped


async def _group_now(admin: Admin, group: str, storm: Score) -> dict[str, Any] | None:
    """The group as it is, in the shape of the broker's endpoint; None if it does not exist any more."""
    (described,) = await admin.describe_consumer_groups([group], raise_errors=False)
    if described.error is not None:
        return None
    view = await look(admin, described)
    committed = {row.partition: row.committed for row in view.rows if row.partition is not None}
    ends = {row.partition: row.end for row in view.rows if row.partition is not None and row.end is not None}
    positions = positions_of(described, committed, ends, {})
    return one_group(described, positions, Observed(storm=storm), generation=None)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the HTML file to write")
    parser.add_argument(
        "--since",
        type=checked(values.since),
        metavar="TIME",
        help="from a time on, or since a duration ago, such as 1h (default: 24h)",
    )
    parser.add_argument(
        "--until", type=checked(values.since), metavar="TIME", help="until a time, or a duration ago (default: now)"
    )
    parser.add_argument(
        "--source",
        choices=SOURCES[:2],
        help="read __group_events, or __consumer_offsets (default: the first of these that is available)",
    )
    parser.set_defaults(interval=1.0)


COMMAND: Final[dict[str, Any]] = {
    "path": ("groups", "report"),
    "help": "write what happened to a group to an HTML file, which needs nothing else",
    "add_arguments": _arguments,
    "run": write_report,
}
