"""`barnabas groups explain`: why a group rebalanced, as sentences with a remedy where one is known."""

import time
from argparse import ArgumentParser, Namespace
from typing import Final

from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.events import Where, lines, locate, require_teller
from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.output import Output
from barnabas_client.cli.reading import read
from barnabas_protocol.internal_topics import EVENTS_TOPIC

#: Events of a rebalance that was under way at the given time may be so much older.
_MARGIN_MS: Final = 3_600_000


async def explain(arguments: Namespace, output: Output) -> int:
    """Tell what happened to a group."""
    tell = require_teller()
    group = arguments.group
    since = None if arguments.since is None else arguments.since.ms(time.time_ns() // 1_000_000)
    async with clients.admin(arguments) as admin:
        where = await locate(admin, group, None if since is None else since - _MARGIN_MS)
    if where is None:
        raise CommandError(
            f"group {group!r} cannot be explained: these brokers have no topic {EVENTS_TOPIC}. Barnabas brokers keep "
            "it from the first rebalance on, Apache Kafka does not. To do: ask a Barnabas broker by --bootstrap-servers"
        )
    values = await _values(arguments, where)
    if not values and since is None:
        raise CommandError(f"nothing is recorded of group {group!r}. To do: check its name by `barnabas groups list`")
    told = tell(values, since=since, generation=arguments.generation)
    if output.json:
        output.data(told)
        return DONE
    for one in told:
        for text in lines(one, output):
            output.line(text)
    if not told:
        output.note(f"Nothing that fits is recorded of group {group!r}, of {len(values)} events that were looked at.")
    return DONE


async def _values(arguments: Namespace, where: Where) -> list[bytes]:
    """The values of the group's records, oldest first."""
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
        help="only since so long ago, such as 1h, or since a time",
    )
    parser.add_argument("--generation", type=int, metavar="N", help="only how this generation came to be")


COMMAND: Final = Command(
    path=("groups", "explain"), help="why it rebalanced, and what to do about it", add_arguments=_arguments, run=explain
)
