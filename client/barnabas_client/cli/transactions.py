"""`barnabas transactions`: `list`, `describe`, `abort`, `find-hanging` as in kafka-transactions, and `explain`."""

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import PartitionProducer, TransactionDescription
from barnabas_client.cli import clients, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_since, add_topic_specs, checked
from barnabas_client.cli.events import lines
from barnabas_client.cli.failures import DONE, FAILED, CommandError, UsageError
from barnabas_client.cli.output import Column, Output, Style
from barnabas_client.cli.values import TopicSpec, shown_age, shown_partitions
from barnabas_client.history.located import transaction_events
from barnabas_client.structs import TopicPartition
from barnabas_explain.transactions import explain_values
from barnabas_protocol.counts import counted
from barnabas_protocol.internal_topics import TRANSACTION_EVENTS_TOPIC

#: As ListTransactions names them (``TransactionState.java``).
TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
_STYLES: Final = {"Ongoing": Style.WARN, "Dead": Style.BAD}
_LIST_COLUMNS: Final = (
    Column("TRANSACTIONAL-ID", 25),
    Column("COORDINATOR", 11),
    Column("PRODUCER-ID", 11),
    Column("STATE", 0),
)
_DESCRIBE_COLUMNS: Final = (
    Column("COORDINATOR", 11),
    Column("TRANSACTIONAL-ID", 25),
    Column("PRODUCER-ID", 11),
    Column("EPOCH", 5),
    Column("STATE"),
    Column("TIMEOUT-MS", 10),
    Column("OPEN-FOR", 10),
    Column("PARTITIONS", 0),
)
_HANGING_COLUMNS: Final = (
    Column("TOPIC"),
    Column("PARTITION", 9),
    Column("PRODUCER-ID", 11),
    Column("EPOCH", 5),
    Column("COORDINATOR-EPOCH", 17),
    Column("START-OFFSET", 12),
    Column("LAST-WRITE", 0),
)
#: The broker's default of ``transaction.max.timeout.ms``: no transaction is open for longer, unless it hangs.
_MAX_TIMEOUT_MS: Final = 900_000


class _Open(NamedTuple):
    """An open transaction in a partition."""

    partition: TopicPartition
    producer: PartitionProducer

    def as_data(self) -> dict[str, Any]:
        """Convert to JSON data."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
            "coordinator_epoch": self.producer.coordinator_epoch,
            "start_offset": self.producer.transaction_start_offset,
            "last_timestamp_ms": self.producer.last_timestamp_ms,
        }


async def list_transactions(arguments: Namespace, output: Output) -> int:
    """Print the transactional ids."""
    async with clients.admin(arguments) as admin:
        found = await admin.list_transactions(
            arguments.states, duration_ms=arguments.duration, pattern=arguments.pattern, raise_errors=False
        )
    if output.json:
        output.data(
            [
                {
                    "transactional_id": one.transactional_id,
                    "coordinator": one.coordinator_id,
                    "producer_id": one.producer_id,
                    "state": one.state,
                }
                for one in found
            ]
        )
    else:
        rows = [
            (one.transactional_id, one.coordinator_id, one.producer_id, (one.state, _style(one.state))) for one in found
        ]
        output.table(_LIST_COLUMNS, rows)
    for error in found.errors:
        output.error(for_command_line(error))
    return FAILED if found.errors else DONE


async def describe_transactions(arguments: Namespace, output: Output) -> int:
    """Print transactions with their producer, age and partitions."""
    async with clients.admin(arguments) as admin:
        found = await admin.describe_transactions(arguments.ids, raise_errors=False)
    now = time.time_ns() // 1_000_000
    if output.json:
        output.data([_as_data(one, now) for one in found])
    else:
        rows = [_row(one, now) for one in found if one.error is None]
        if rows:
            output.table(_DESCRIBE_COLUMNS, rows)
    for one in found:
        if one.error is not None:
            output.error(for_command_line(one.error))
    return FAILED if any(one.error is not None for one in found) else DONE


def _row(one: TransactionDescription, now: int) -> Sequence[object]:
    return (
        one.coordinator_id,
        one.transactional_id,
        one.producer_id,
        one.producer_epoch,
        (one.state, _style(one.state)),
        one.timeout_ms,
        None if (age := _open_for(one, now)) is None else shown_age(age),
        shown_partitions(one.partitions) or None,
    )


def _open_for(one: TransactionDescription, now: int) -> int | None:
    """How long a transaction has been open, in milliseconds; None if it is over."""
    is_open = one.state == "Ongoing" or one.state.startswith("Prepare")
    return max(now - one.start_time_ms, 0) if is_open and one.start_time_ms is not None else None


def _as_data(one: TransactionDescription, now: int) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "error": None if one.error is None else for_command_line(one.error),
        "coordinator": one.coordinator_id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": one.start_time_ms,
        "open_for_ms": _open_for(one, now),
        "partitions": [{"topic": tp.topic, "partition": tp.partition} for tp in one.partitions],
    }


async def abort(arguments: Namespace, output: Output) -> int:
    """Abort the transactions of transactional ids, or one that hangs in a partition."""
    if bool(arguments.ids) == (arguments.partition is not None):
        raise UsageError("name transactional ids, or the partition of a transaction that hangs with -t TOPIC:PARTITION")
    if (arguments.partition is None) != (arguments.start_offset is None):
        raise UsageError("-t and --start-offset belong together: `transactions find-hanging` prints both")
    async with clients.admin(arguments) as admin:
        if arguments.ids:
            return await _abort_ids(admin, arguments, output)
        return await _abort_hanging(admin, arguments, output)


async def _abort_ids(admin: Admin, arguments: Namespace, output: Output) -> int:
    known = await admin.describe_transactions(arguments.ids, raise_errors=False)
    data: list[dict[str, Any]] = []
    results = {}
    if arguments.execute:
        there = [one.transactional_id for one in known if one.error is None]
        results = {one.transactional_id: one for one in await admin.fence_producers(there, raise_errors=False)}
    failed = False
    for one in known:
        result = results.get(one.transactional_id)
        error = one.error or (None if result is None else result.error)
        failed = failed or error is not None
        data.append(
            {
                "transactional_id": one.transactional_id,
                "state": one.state,
                "fenced": result is not None and result.error is None,
                "error": None if error is None else for_command_line(error),
            }
        )
        if error is not None:
            output.error(for_command_line(error))
        elif not output.json:
            what = "producer and transaction" if one.state == "Ongoing" else "producer; it has no open transaction"
            done = "fenced" if result is not None else "would be fenced"
            output.line(f"{one.transactional_id}: {done}: {what}")
    if output.json:
        output.data(data)
    _say_dry_run(arguments, output)
    return FAILED if failed else DONE


async def _abort_hanging(admin: Admin, arguments: Namespace, output: Output) -> int:
    tp, start = arguments.partition, arguments.start_offset
    found = (await admin.describe_producers([tp]))[tp]
    chosen = [one for one in found.producers if one.transaction_start_offset == start]
    if not chosen:
        offsets = sorted({one.transaction_start_offset for one in found.producers} - {None}, key=lambda at: at or 0)
        known = f"open ones start at {', '.join(map(str, offsets))}" if offsets else "it has no open transaction"
        raise CommandError(f"{tp} has no transaction that starts at offset {start}: {known}")
    (producer,) = chosen
    if arguments.execute:
        await admin.abort_transaction(
            tp, producer.producer_id, producer.producer_epoch, max(producer.coordinator_epoch, 0)
        )
    if output.json:
        output.data({**_Open(tp, producer).as_data(), "aborted": arguments.execute})
    else:
        done = "aborted" if arguments.execute else "would be aborted"
        output.line(f"{tp}: transaction of producer id {producer.producer_id} from offset {start} {done}")
    _say_dry_run(arguments, output)
    return DONE


def _say_dry_run(arguments: Namespace, output: Output) -> None:
    if not arguments.execute and not output.json:
        output.note("Nothing was changed. Add --execute to abort.")


async def find_hanging(arguments: Namespace, output: Output) -> int:
    """Print transactions that are open in a partition and that their coordinators do not know."""
    async with clients.admin(arguments) as admin:
        partitions = await _partitions(admin, arguments.topics)
        described = await admin.describe_producers(partitions, raise_errors=False)
        now = time.time_ns() // 1_000_000
        candidates = [
            _Open(tp, producer)
            for tp, found in described.items()
            for producer in found.producers
            if producer.transaction_start_offset is not None
            and now - producer.last_timestamp_ms > arguments.max_transaction_timeout
        ]
        hanging = await _unknown(admin, candidates)
    if output.json:
        output.data([one.as_data() for one in hanging])
    elif hanging:
        output.table(_HANGING_COLUMNS, [_hanging_row(one, now) for one in hanging])
    else:
        output.note(f"no transaction hangs in {counted(len(partitions), 'partition')}")
    errors = [found.error for found in described.values() if found.error is not None]
    for error in errors:
        output.error(for_command_line(error))
    return FAILED if errors else DONE


async def explain(arguments: Namespace, output: Output) -> int:
    """Print which transactions were slow or aborted, and why."""
    since = None if arguments.since is None else arguments.since.ms(time.time_ns() // 1_000_000)
    async with clients.admin(arguments) as admin:
        events = await transaction_events(clients.connect(arguments), admin, since)
    if events is None:
        raise CommandError(
            f"these brokers have no topic {TRANSACTION_EVENTS_TOPIC}. Barnabas brokers create it for the first "
            "transaction, Apache Kafka does not. To do: see the open transactions with `barnabas transactions list`"
        )
    explanations = explain_values(events, since=since, transactional_ids=arguments.ids or None)
    if output.json:
        output.data(explanations)
        return DONE
    for one in explanations:
        output.lines(lines(one, output))
    if not explanations:
        output.note(f"No transaction was slow or aborted, of {counted(len(events), 'event')}.")
    return DONE


async def _partitions(admin: Admin, specs: Sequence[TopicSpec] | None) -> list[TopicPartition]:
    """The named partitions, or all partitions of all topics."""
    whole = None if specs is None else [spec.topic for spec in specs if spec.partitions is None]
    topics = await admin.describe_topics(whole) if whole is None or whole else []
    chosen = [TopicPartition(topic.name, number) for topic in topics for number in sorted(topic.partitions)]
    chosen += [TopicPartition(spec.topic, number) for spec in specs or () for number in spec.partitions or ()]
    return sorted(set(chosen))


async def _unknown(admin: Admin, candidates: Iterable[_Open]) -> list[_Open]:
    """Those whose coordinators do not know that the partition is in a transaction of that producer."""
    opened = list(candidates)
    if not opened:
        return []
    ids = sorted({one.producer.producer_id for one in opened})
    listed = await admin.list_transactions(producer_ids=ids)
    names = {one.producer_id: one.transactional_id for one in listed}
    described = {
        one.transactional_id: one
        for one in await admin.describe_transactions(sorted(set(names.values())), raise_errors=False)
        if one.error is None
    }
    hanging = []
    for one in opened:
        known = described.get(names.get(one.producer.producer_id, ""))
        if known is None or one.partition not in known.partitions:
            hanging.append(one)
    return hanging


def _hanging_row(one: _Open, now: int) -> Sequence[object]:
    producer = one.producer
    return (
        one.partition.topic,
        one.partition.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset,
        f"{shown_age(now - producer.last_timestamp_ms)} ago",
    )


def _style(state: str) -> Style:
    return _STYLES.get(state, Style.PLAIN)


def _list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        dest="states",
        action="append",
        default=[],
        type=values.any_case(TRANSACTION_STATES),
        choices=TRANSACTION_STATES,
        metavar="STATE",
        help=f"only those in this state: {', '.join(TRANSACTION_STATES)}; repeatable",
    )
    parser.add_argument(
        "--duration",
        type=checked(values.duration),
        metavar="TIME",
        help="only transactions that have been open for longer than this, such as 1m",
    )
    parser.add_argument("--pattern", metavar="REGEX", help="only transactional ids that match")


def _describe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="+", metavar="TRANSACTIONAL-ID")


def _abort_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "ids", nargs="*", metavar="TRANSACTIONAL-ID", help="fence its producer, and abort its open transaction"
    )
    parser.add_argument(
        "-t",
        "--topic",
        dest="partition",
        type=checked(_one_partition),
        metavar="T:P",
        help="write an ABORT marker into this partition, for a transaction that find-hanging printed",
    )
    parser.add_argument(
        "--start-offset", type=checked(_offset), metavar="OFFSET", help="the first offset of that transaction"
    )
    parser.add_argument("--execute", action="store_true", help="abort; without it, only print what would be done")


def _explain_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("ids", nargs="*", metavar="TRANSACTIONAL-ID", help="only these (default: all)")
    add_since(parser, "only what happened since a time, or since a duration ago, such as 1h")


def _hanging_arguments(parser: ArgumentParser) -> None:
    add_topic_specs(parser, "only this topic, or these partitions of it; repeatable (default: all topics)")
    parser.add_argument(
        "--max-transaction-timeout",
        type=checked(values.duration),
        default=_MAX_TIMEOUT_MS,
        metavar="TIME",
        help="the brokers' transaction.max.timeout.ms: only transactions without a write for longer (default: 15m)",
    )


def _one_partition(text: str) -> TopicPartition:
    spec = values.topic_spec(text)
    if spec.partitions is None or len(spec.partitions) != 1:
        raise ValueError(f"{text!r} is not a partition: write it as TOPIC:0")
    return TopicPartition(spec.topic, spec.partitions[0])


def _offset(text: str) -> int:
    if not text.isdecimal():
        raise ValueError(f"{text!r} is not an offset: give a number of at least 0")
    return int(text)


COMMANDS: Final = (
    Command(
        path=("transactions", "list"),
        help="print transactional ids and their states",
        add_arguments=_list_arguments,
        run=list_transactions,
    ),
    Command(
        path=("transactions", "describe"),
        help="print transactions with their producer, age and partitions",
        add_arguments=_describe_arguments,
        run=describe_transactions,
    ),
    Command(
        path=("transactions", "abort"),
        help="abort the transaction of a transactional id, or one that hangs",
        add_arguments=_abort_arguments,
        run=abort,
    ),
    Command(
        path=("transactions", "find-hanging"),
        help="find open transactions that no coordinator knows",
        add_arguments=_hanging_arguments,
        run=find_hanging,
    ),
    Command(
        path=("transactions", "explain"),
        help="print which transactions made consumers wait or were aborted, and why",
        add_arguments=_explain_arguments,
        run=explain,
    ),
)
