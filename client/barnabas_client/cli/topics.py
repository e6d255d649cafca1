"""`barnabas topics`: lists, creates, describes, changes and deletes topics."""

import asyncio
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.admin.types import (
    AlterConfigOp,
    ConfigOp,
    ConfigResource,
    ConfigResult,
    ConfigSource,
    NewTopic,
    TopicResult,
)
from barnabas_client.cli import clients, values
from barnabas_client.cli.advice import for_command_line
from barnabas_client.cli.command import Command, add_pairs, checked
from barnabas_client.cli.configs import change_configs, print_changes
from barnabas_client.cli.failures import DONE, FAILED, CommandError, UsageError
from barnabas_client.cli.output import Output, Style
from barnabas_client.errors import error_for
from barnabas_client.network.metadata import TopicInfo
from barnabas_protocol.counts import counted
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import (
    EVENTS_TOPIC,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    SHARE_GROUPS_TOPIC,
    TRANSACTION_EVENTS_TOPIC,
    TRANSACTIONS_TOPIC,
)
from barnabas_protocol.suggestions import did_you_mean
from barnabas_protocol.uuids import uuid_text


async def list_topics(arguments: Namespace, output: Output) -> int:
    """Print the names of topics."""
    async with clients.admin(arguments) as admin:
        names = await admin.list_topics(internal=arguments.internal)
    if output.json:
        output.data(names)
    else:
        for name in names:
            output.line(name)
    return DONE


async def create_topics(arguments: Namespace, output: Output) -> int:
    """Create topics."""
    topics = [
        NewTopic(name, arguments.partitions, arguments.replication_factor, topic_configs=dict(arguments.config))
        for name in arguments.topics
    ]
    async with clients.admin(arguments) as admin:
        results = await admin.create_topics(topics, validate_only=arguments.dry_run, raise_errors=False)
        suggestions = await _suggestions(
            admin, arguments.topics[0], [one.error for one in results], dict(arguments.config)
        )
    fine = ErrorCode.TOPIC_ALREADY_EXISTS if arguments.if_not_exists else None
    verb = "could be created" if arguments.dry_run else "created"

    def line(result: TopicResult) -> str:
        if result.num_partitions < 0:
            return f"{result.name}: {verb}"
        partitions = counted(result.num_partitions, "partition")
        return f"{result.name}: {verb}, {partitions}, {counted(result.replication_factor, 'replica')}"

    return _report(results, output, line, fine, "already exists, unchanged", suggestions)


#: What is lost with an internal topic, for a question.
_DAMAGE: Final = {
    OFFSETS_TOPIC: "It holds the committed offsets of {groups}: each consumer would start again at the first or the "
    "last record, and process records twice or never.",
    TRANSACTIONS_TOPIC: "It holds the state of all transactions: open ones could neither be committed nor aborted.",
    SHARE_GROUPS_TOPIC: "It holds what share groups have acknowledged: they would get records again.",
    EVENTS_TOPIC: "It holds the history of {groups}: groups explain would have nothing to explain.",
    TRANSACTION_EVENTS_TOPIC: "It holds the history of slow and aborted transactions: transactions explain would have "
    "nothing to explain.",
}


async def delete_topics(arguments: Namespace, output: Output) -> int:
    """Delete topics."""
    async with clients.admin(arguments) as admin:
        if not arguments.yes:
            for name in dict.fromkeys(arguments.topics):
                if name in INTERNAL_TOPICS and not await _confirmed(admin, name, output):
                    return FAILED
        results = await admin.delete_topics(arguments.topics, raise_errors=False)
    fine = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if arguments.if_exists else None
    return _report(results, output, lambda result: f"{result.name}: deleted", fine, "does not exist")


async def _confirmed(admin: Admin, name: str, output: Output) -> bool:
    """Ask whether an internal topic shall be deleted; the answer is its name.

    Raises:
        UsageError: standard input is not a terminal, so the question cannot be asked.
    """
    listed = await admin.list_consumer_groups(raise_errors=False)
    groups = counted(len(listed), "group")
    damage = f"{name} is internal. {_DAMAGE[name].format(groups=groups)}"
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(f"{damage} To delete it without being asked, give --yes")
    output.note(damage)
    print("Type its name to delete it: ", end="", file=output.err, flush=True)
    if await _typed_line() == name:
        return True
    output.error("nothing was deleted")
    return False


async def _typed_line() -> str:
    """Wait for a line from the terminal; a blocking read would not end at Ctrl-C."""
    loop, typed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin, typed.set)
    try:
        await typed.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def alter_topic(arguments: Namespace, output: Output) -> int:
    """Change the configuration of a topic, and add partitions."""
    name, dry_run = arguments.topic, arguments.dry_run
    changes = [
        *(AlterConfigOp(key, value) for key, value in arguments.set),
        *(AlterConfigOp(key, None, ConfigOp.DELETE) for key in arguments.unset),
        *(AlterConfigOp(key, value, ConfigOp.APPEND) for key, value in arguments.append),
        *(AlterConfigOp(key, value, ConfigOp.SUBTRACT) for key, value in arguments.subtract),
    ]
    if not changes and arguments.partitions is None:
        raise UsageError("there is nothing to change: give --partitions, --set, --unset, --append or --subtract")
    async with clients.admin(arguments) as admin:
        try:
            done, unchanged = await change_configs(admin, ConfigResource.topic(name), changes, dry_run=dry_run)
        except KafkaError as error:
            hints = await _suggestions(admin, name, [error], [change.name for change in changes])
            if not hints:
                raise
            raise CommandError(for_command_line(error) + hints) from error
        if arguments.partitions is not None:
            await admin.create_partitions({name: arguments.partitions}, validate_only=dry_run)
            done.insert(0, counted(arguments.partitions, "partition"))
    print_changes(output, "topic", name, done, unchanged, dry_run=dry_run)
    return DONE


async def _suggestions(admin: Admin, topic: str, errors: Iterable[KafkaError | None], keys: Iterable[str]) -> str:
    """Hints for an error about configuration: for each unknown key, the known one that was probably meant.

    The known keys are those that a topic with the same name would have, so that they are those of this version of the
    brokers.

    Args:
        admin: of the brokers.
        topic: its name; that of one that exists, or of one that could not be created.
        errors: those of the operations; nothing is added to others than INVALID_CONFIG.
        keys: the keys of the operations.
    """
    if all(error is None or error.code != ErrorCode.INVALID_CONFIG for error in errors):
        return ""
    (created,) = await admin.create_topics([NewTopic(topic, -1, -1)], validate_only=True, raise_errors=False)
    known: Collection[str] = created.configs
    if created.error is not None:
        (described,) = await admin.describe_configs([ConfigResource.topic(topic)], raise_errors=False)
        known = described.entries
    return "".join(
        f" ({key}{did_you_mean(key, known)})" for key in keys if key not in known and did_you_mean(key, known)
    )


async def describe_topics(arguments: Namespace, output: Output) -> int:
    """Print topics as kafka-topics does."""
    async with clients.admin(arguments) as admin:
        names = arguments.topics or None
        topics = await admin.describe_topics(names, internal=arguments.internal, raise_errors=False)
        configs = await _configs(admin, [topic.name for topic in topics if topic.error == ErrorCode.NONE])
    if output.json:
        output.data([_as_data(topic, configs.get(topic.name)) for topic in topics])
    status = DONE
    for topic in topics:
        if topic.error != ErrorCode.NONE:
            status = FAILED
            output.error(for_command_line(error_for(topic.error, f"describe topic {topic.name!r}")))
        elif not output.json:
            _print_topic(topic, configs.get(topic.name), arguments.configs, output)
    return status


async def _configs(admin: Admin, names: Sequence[str]) -> dict[str, ConfigResult]:
    if not names:
        return {}
    found = await admin.describe_configs([ConfigResource.topic(name) for name in names], raise_errors=False)
    return {one.resource.name: one for one in found}


def _print_topic(topic: TopicInfo, configs: ConfigResult | None, every: bool, output: Output) -> None:
    replication = max((len(one.replicas) for one in topic.partitions.values()), default=0)
    own = [f"{key}={value}" for key, value in _own(configs).items()]
    output.line(
        "Topic: ",
        (topic.name, Style.HEAD),
        f"\tTopicId: {_topic_id(topic)}\tPartitionCount: {len(topic.partitions)}"
        f"\tReplicationFactor: {replication}\tConfigs: {','.join(own)}",
    )
    for number, one in sorted(topic.partitions.items()):
        leader = "none" if one.leader < 0 else str(one.leader)
        output.line(
            f"\tTopic: {topic.name}\tPartition: {number}\tLeader: {leader}\t"
            f"Replicas: {_numbers(one.replicas)}\tIsr: {_numbers(one.isr)}"
        )
    if every and configs is not None:
        if configs.error is not None:
            output.error(for_command_line(configs.error))
        for name, entry in sorted(configs.entries.items()):
            output.line(f"\t{name}={entry.value}\t{entry.source.name}")


def _as_data(topic: TopicInfo, configs: ConfigResult | None) -> dict[str, Any]:
    if topic.error != ErrorCode.NONE:
        return {"topic": topic.name, "error": topic.error.name}
    return {
        "topic": topic.name,
        "topic_id": _topic_id(topic),
        "internal": topic.internal,
        "partitions": [
            {
                "partition": number,
                "leader": one.leader,
                "leader_epoch": one.leader_epoch,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
            }
            for number, one in sorted(topic.partitions.items())
        ],
        "configs": {
            name: {"value": entry.value, "source": entry.source.name}
            for name, entry in sorted((configs.entries if configs else {}).items())
        },
    }


def _own(configs: ConfigResult | None) -> dict[str, str | None]:
    """The values that are not defaults."""
    if configs is None:
        return {}
    unset = (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)
    return {name: entry.value for name, entry in sorted(configs.entries.items()) if entry.source not in unset}


def _topic_id(topic: TopicInfo) -> str:
    """Format a topic id as Java's ``Uuid``."""
    return uuid_text(topic.id) if any(topic.id) else "-"


def _numbers(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _report(
    results: Sequence[TopicResult],
    output: Output,
    line: Callable[[TopicResult], str],
    fine: ErrorCode | None,
    why_fine: str,
    suggestions: str = "",
) -> int:
    """Print the result of each topic, and `suggestions` after errors about configuration; returns the exit status."""
    failures: list[KafkaError] = []
    rows = []
    for result in results:
        error = result.error
        row: dict[str, Any] = {"topic": result.name, "done": error is None, "error": None}
        if error is None:
            row |= {"partitions": result.num_partitions, "replication_factor": result.replication_factor}
        elif error.code == fine:
            row["note"] = why_fine
        else:
            failures.append(error)
            row["error"] = for_command_line(error)
        rows.append(row)
        if output.json:
            continue
        if error is None:
            output.line(line(result))
        elif error.code == fine:
            output.line(f"{result.name}: {why_fine}")
    if output.json:
        output.data(rows)
    for failure in failures:
        about_configs = failure.code == ErrorCode.INVALID_CONFIG
        output.error(for_command_line(failure) + (suggestions if about_configs else ""))
    return FAILED if failures else DONE


def _list_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="include internal topics, such as __consumer_offsets")


def _create_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partitions", type=checked(values.positive), default=-1, metavar="N", help="default: the broker's"
    )
    parser.add_argument(
        "-r",
        "--replication-factor",
        type=checked(values.positive),
        default=-1,
        metavar="N",
        help="default: the broker's",
    )
    add_pairs(
        parser, "-c", "--config", dest="config", help="set a configuration key, such as retention.ms=60000; repeatable"
    )
    parser.add_argument("--if-not-exists", action="store_true", help="do not fail for topics that exist")
    parser.add_argument("--dry-run", action="store_true", help="only check whether the topics could be created")


def _describe_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics that are not internal")
    parser.add_argument("--internal", action="store_true", help="include internal topics")
    parser.add_argument("--configs", action="store_true", help="include every configuration key and its source")


def _alter_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-p",
        "--partitions",
        type=checked(values.positive),
        metavar="N",
        help="the new number of partitions, more than now",
    )
    add_pairs(parser, "--set", dest="set", help="set a key; repeatable")
    parser.add_argument(
        "--unset", action="append", default=[], metavar="NAME", help="reset a key to its default; repeatable"
    )
    add_pairs(parser, "--append", dest="append", help="add to a list, such as cleanup.policy=compact; repeatable")
    add_pairs(parser, "--subtract", dest="subtract", help="remove from a list; repeatable")
    parser.add_argument("--dry-run", action="store_true", help="only check whether the topic could be changed")


def _delete_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="do not fail for topics that do not exist")
    parser.add_argument("--yes", action="store_true", help="do not ask before an internal topic is deleted")


COMMANDS: Final = (
    Command(path=("topics", "list"), help="print the names of topics", add_arguments=_list_arguments, run=list_topics),
    Command(path=("topics", "create"), help="create topics", add_arguments=_create_arguments, run=create_topics),
    Command(
        path=("topics", "describe"),
        help="print partitions, leaders and configuration",
        add_arguments=_describe_arguments,
        run=describe_topics,
    ),
    Command(
        path=("topics", "alter"),
        help="change the configuration or add partitions",
        add_arguments=_alter_arguments,
        run=alter_topic,
    ),
    Command(
        path=("topics", "delete"),
        help="delete topics with their records",
        add_arguments=_delete_arguments,
        run=delete_topics,
    ),
)
