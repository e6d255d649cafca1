"""`barnabas groups explain`: explains why a group rebalanced, with a remedy if one is known."""

import time
from argparse import ArgumentParser, Namespace
from typing import Final

from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.events import EventRange, lines, locate, require_explainer
from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.output import Output
from barnabas_client.cli.reading import read
from barnabas_protocol.counts import counted
from barnabas_protocol.internal_topics import EVENTS_TOPIC

#: A rebalance may begin so much earlier than the time of --since.
_MARGIN_MS: Final = 3_600_000


async def explain(arguments: Namespace, output: Output) -> int:
    """Print what happened to a group."""
    explain_events = require_explainer()
    group = arguments.group
    since = None if arguments.since is None else arguments.since.ms(time.time_ns() // 1_000_000)
    async with clients.admin(arguments) as admin:
        located = await locate(admin, [group], None if since is None else since - _MARGIN_MS)
    if not located:
        raise CommandError(
            f"group {group!r} cannot be explained: these brokers have no topic {EVENTS_TOPIC}. Barnabas brokers create "
            "it at the first rebalance, Apache Kafka does not. To do: name a Barnabas broker with --bootstrap-servers"
        )
    values = await _values(arguments, located[0])
    if not values and since is None:
        raise CommandError(
            f"no events are recorded for group {group!r}. To do: check its name with `barnabas groups list`"
        )
    explanations = explain_events(values, since=since, generation=arguments.generation)
    if output.json:
        output.data(explanations)
        return DONE
    for one in explanations:
        output.lines(lines(one, output))
    if not explanations:
        output.note(f"No event of group {group!r} matches, of {counted(len(values), 'event')}.")
    return DONE


async def _values(arguments: Namespace, where: EventRange) -> list[bytes]:
    """Read the values of the group's records, oldest first."""
    key = arguments.group.encode()
    return [
        record.value
        async for records in read(arguments, {where.partition: where.start}, {where.partition: where.end})
        for record in records
        if record.key == key and record.value is not None
    ]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--since",
        type=checked(values.since),
        metavar="TIME",
        help="only events since a time, or since a duration ago, such as 1h",
    )
    parser.add_argument("--generation", type=int, metavar="N", help="only the events that led to this generation")


COMMAND: Final = Command(
    path=("groups", "explain"),
    help="explain why a group rebalanced, and what to do about it",
    add_arguments=_arguments,
    run=explain,
)
