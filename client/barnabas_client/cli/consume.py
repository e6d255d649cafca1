"""`barnabas consume`: prints the records of a topic."""

import time
from argparse import ArgumentParser, Namespace
from typing import Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import OffsetSpec
from barnabas_client.cli import clients, values
from barnabas_client.cli.command import Command, add_isolation_level, add_partitions, add_since, checked
from barnabas_client.cli.failures import DONE, UsageError
from barnabas_client.cli.formats import Printer, compile_format, json_line, value_line
from barnabas_client.cli.output import Output
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.errors import error_for
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode

#: Milliseconds that a poll waits; less if the command stops at the end.
_WAIT_MS: Final = 500
_WAIT_FOR_END_MS: Final = 100


class Start(NamedTuple):
    """Where to start in each partition: at `offset`, or `offset` records from the beginning or the end."""

    spec: OffsetSpec | None
    offset: int = 0


async def consume(arguments: Namespace, output: Output) -> int:
    """Print records until --max or --exit ends it, or Ctrl-C."""
    printer = _printer(arguments, output)
    if arguments.group is not None:
        if arguments.offset is not None or arguments.since is not None or arguments.partitions:
            raise UsageError(
                "--group takes partitions and offsets from the group: leave out --offset, --since and --partition, "
                "or set offsets with `barnabas groups reset-offsets`"
            )
        async with clients.admin(arguments) as admin:
            await admin.describe_topics(
                [arguments.topic]
            )  # a member would wait without a message if the topic does not exist
        consumer = _member(arguments)
        starts = None
    else:
        starts = await _starts(arguments)
        consumer = clients.consumer(arguments, **_settings(arguments))
    async with consumer:
        if starts is not None:
            consumer.assign(starts)
            for tp, offset in starts.items():
                consumer.seek(tp, offset)
        await _print(consumer, arguments, printer, output)
    return DONE


def _printer(arguments: Namespace, output: Output) -> Printer:
    if output.json:
        if arguments.format is not None:
            raise UsageError("--json and --format exclude each other")
        return json_line
    if arguments.format is None and not output.terminal:
        return value_line
    try:
        return compile_format(arguments.format or r"%v\n", terminal=output.terminal)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _settings(arguments: Namespace) -> dict[str, object]:
    return {"isolation_level": arguments.isolation_level, "group_protocol": arguments.group_protocol}


def _member(arguments: Namespace) -> Consumer:
    reset = "earliest" if arguments.from_beginning else "latest"
    consumer = clients.consumer(arguments, group_id=arguments.group, auto_offset_reset=reset, **_settings(arguments))
    consumer.subscribe([arguments.topic])
    return consumer


async def _starts(arguments: Namespace) -> dict[TopicPartition, int]:
    """Look up the offset to start at in each partition."""
    start = _start(arguments)
    async with clients.admin(arguments) as admin:
        (topic,) = await admin.describe_topics([arguments.topic])
        numbers = arguments.partitions or sorted(topic.partitions)
        missing = [number for number in numbers if number not in topic.partitions]
        if missing:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise error_for(error, f"consume {arguments.topic}-{missing[0]}", f"it has {len(topic.partitions)}")
        partitions = [TopicPartition(arguments.topic, number) for number in dict.fromkeys(numbers)]
        if arguments.since is not None:
            return await _since(admin, partitions, arguments.since.ms(time.time_ns() // 1_000_000))
        if start.spec is None:
            return dict.fromkeys(partitions, start.offset)
        ends = await admin.list_offsets(dict.fromkeys(partitions, start.spec))
        if not start.offset:
            return {tp: one.offset for tp, one in ends.items()}
        firsts = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.EARLIEST))
        return {tp: max(one.offset + start.offset, firsts[tp].offset) for tp, one in ends.items()}


async def _since(admin: Admin, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
    """Look up the first offsets at or after a time; the end offset if there is none."""
    found = await admin.list_offsets(dict.fromkeys(partitions, at))
    ends = await admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {tp: one.offset if one.offset >= 0 else ends[tp].offset for tp, one in found.items()}


def _start(arguments: Namespace) -> Start:
    text = "beginning" if arguments.from_beginning else arguments.offset or "end"
    if text in ("beginning", "earliest"):
        return Start(OffsetSpec.EARLIEST)
    if text in ("end", "latest"):
        return Start(OffsetSpec.LATEST)
    try:
        offset = int(text)
    except ValueError:
        raise UsageError(f"argument -o/--offset: {text!r} is neither a number, beginning nor end") from None
    return Start(OffsetSpec.LATEST, offset) if offset < 0 else Start(None, offset)


async def _print(consumer: Consumer, arguments: Namespace, printer: Printer, output: Output) -> None:
    left = arguments.max
    ends: dict[TopicPartition, int] = {}
    while left is None or left > 0:
        if arguments.exit and await _at_end(consumer, ends):
            return
        batches = await consumer.getmany(timeout_ms=_WAIT_FOR_END_MS if arguments.exit else _WAIT_MS, max_records=left)
        if not batches:
            output.check()
        for records in batches.values():
            output.raw(b"".join(map(printer, records)))
            if left is not None:
                left -= len(records)


async def _at_end(consumer: Consumer, ends: dict[TopicPartition, int]) -> bool:
    """Whether all records are printed that each partition had when it was assigned."""
    assigned = consumer.assignment()
    new = [tp for tp in assigned if tp not in ends]
    if new:
        ends.update(await consumer.end_offsets(new))
    return all([await consumer.position(tp) >= ends[tp] for tp in assigned])


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-g", "--group", metavar="GROUP", help="read as a member of this group, and commit")
    parser.add_argument(
        "--group-protocol",
        choices=("classic", "consumer"),
        default="classic",
        help="with --group: consumer has the broker compute the assignment (KIP-848; default: classic)",
    )
    start = parser.add_mutually_exclusive_group()
    start.add_argument(
        "--from-beginning",
        action="store_true",
        help="start at the first record; with --group: where no offset is committed",
    )
    start.add_argument(
        "-o",
        "--offset",
        metavar="OFFSET",
        help="where to start: an offset, beginning, end, or -N for the last N records",
    )
    add_since(start, "start at a time, or at a duration ago, such as 10m")
    add_partitions(parser)
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after N records")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting for more records")
    parser.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help=r"%%k key, %%v value, %%t topic, %%p partition, %%o offset, %%T timestamp, %%h headers, %%K and %%V sizes,"
        r" \n \t \r \xNN (default: '%%v\n')",
    )
    add_isolation_level(parser)


COMMAND: Final = Command(path=("consume",), help="print records", add_arguments=_arguments, run=consume)
