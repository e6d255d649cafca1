"""The commands and their arguments. What they do is in the modules that they name."""

from argparse import ArgumentParser
from collections.abc import Callable
from typing import Final

from barnabas_client.cli import values
from barnabas_client.cli.parser import Command, checked

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SHELLS: Final = ("bash", "zsh", "fish")
GROUPS: Final = {
    "topics": "list, create, describe, change and delete topics",
    "groups": "look at consumer groups, explain their rebalances, and set their offsets",
    "dump": "print what brokers keep in their own topics and files",
    "log": "look at a broker's log directory",
}


def _pairs(parser: ArgumentParser, *names: str, dest: str, help: str) -> None:
    parser.add_argument(
        *names, dest=dest, action="append", default=[], type=checked(values.pair), metavar="NAME=VALUE", help=help
    )


def _topics_list(parser: ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="with the brokers' own, such as __consumer_offsets")


def _topics_create(parser: ArgumentParser) -> None:
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
    _pairs(parser, "-c", "--config", dest="config", help="a topic key, such as retention.ms=60000; repeatable")
    parser.add_argument("--if-not-exists", action="store_true", help="leave topics that exist as they are")
    parser.add_argument("--dry-run", action="store_true", help="only check whether they could be created")


def _topics_describe(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all but the brokers' own")
    parser.add_argument("--internal", action="store_true", help="with the brokers' own")
    parser.add_argument("--configs", action="store_true", help="with every configuration key and where it comes from")


def _topics_alter(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partitions", type=checked(values.positive), metavar="N", help="how many it is to have: more than now"
    )
    _pairs(parser, "--set", dest="set", help="set a key; repeatable")
    parser.add_argument("--unset", action="append", default=[], metavar="NAME", help="back to the default; repeatable")
    _pairs(parser, "--append", dest="append", help="add to a list, such as cleanup.policy=compact; repeatable")
    _pairs(parser, "--subtract", dest="subtract", help="take out of a list; repeatable")
    parser.add_argument("--dry-run", action="store_true", help="only check whether it could be done")


def _topics_delete(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument("--if-exists", action="store_true", help="say nothing of topics that there are not")


def _produce(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("file", nargs="?", metavar="FILE", help="a record a line (default: standard input)")
    parser.add_argument("-K", "--key-separator", metavar="TEXT", help=r"what stands between key and value; \t is a tab")
    _pairs(parser, "-H", "--header", dest="headers", help="a header of every record; repeatable")
    parser.add_argument("--null", metavar="TEXT", help="a key or value that is this text is null (a tombstone)")
    parser.add_argument("-p", "--partition", type=int, metavar="N", help="default: by key")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="default: none")
    parser.add_argument("--acks", choices=("all", "1", "0"), default="all", help="default: all")


def _consume(parser: ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-g", "--group", metavar="GROUP", help="as a member of this group, which commits")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--from-beginning", action="store_true", help="with a group: where nothing is committed")
    start.add_argument(
        "-o", "--offset", metavar="OFFSET", help="where to start: a number, beginning, end, or -N for the last N"
    )
    start.add_argument(
        "--since", type=checked(values.since), metavar="TIME", help="from so long ago, such as 10m, or from a time on"
    )
    parser.add_argument(
        "-p", "--partition", dest="partitions", type=int, action="append", metavar="N", help="only this; repeatable"
    )
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after so many records")
    parser.add_argument("-e", "--exit", action="store_true", help="stop at the end instead of waiting for more")
    parser.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        help=r"%%k key, %%v value, %%t topic, %%p partition, %%o offset, %%T timestamp, %%h headers, %%K and %%V sizes,"
        r" \n \t \r \xNN (default: '%%v\n')",
    )
    parser.add_argument("--read-committed", action="store_true", help="leave out open and aborted transactions")


def _groups_list(parser: ArgumentParser) -> None:
    parser.add_argument("-l", "--long", action="store_true", help="with state, type and protocol")
    parser.add_argument("--state", action="append", default=[], metavar="STATE", help="only in this; repeatable")
    parser.add_argument("--type", action="append", default=[], metavar="TYPE", help="only of this; repeatable")


def _groups_describe(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP")
    parser.add_argument("--all-groups", action="store_true", help="every group there is")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--offsets", action="store_true", help="offsets and lag (the default)")
    what.add_argument("--members", action="store_true", help="who is in it")
    what.add_argument("--state", action="store_true", help="its state and coordinator")
    parser.add_argument("--verbose", action="store_true", help="with --members: with their partitions")


def _groups_explain(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--since",
        type=checked(values.since),
        metavar="TIME",
        help="only since so long ago, such as 1h, or since a time",
    )
    parser.add_argument("--generation", type=int, metavar="N", help="only how this generation came to be")


def _groups_watch(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "-i", "--interval", type=checked(values.seconds), default=1.0, metavar="TIME", help="default: 1s"
    )
    parser.add_argument("-n", "--max", type=checked(values.positive), metavar="N", help="stop after so many looks")


def _groups_reset(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        type=checked(values.topic_spec),
        metavar="T[:P,P]",
        help="only this topic, or these partitions of it; repeatable (default: all that the group has committed)",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--to-earliest", action="store_true", help="to the first record")
    to.add_argument("--to-latest", action="store_true", help="behind the last record")
    to.add_argument("--to-current", action="store_true", help="to what is committed, behind the last record where not")
    to.add_argument("--to-offset", type=int, metavar="N", help="to this offset, or the nearest there is")
    to.add_argument("--to-datetime", type=checked(values.instant), metavar="TIME", help="to 2026-01-31T12:00:00")
    to.add_argument("--by-duration", type=checked(values.duration), metavar="TIME", help="so long back, such as 10m")
    to.add_argument("--shift-by", type=int, metavar="N", help="so many records on, or back with a minus")
    to.add_argument("--from-file", metavar="FILE", help="to the offsets in a file of lines topic,partition,offset")
    parser.add_argument("--export", action="store_true", help="print what --from-file reads")
    done = parser.add_mutually_exclusive_group()
    done.add_argument("--execute", action="store_true", help="do it")
    done.add_argument("--dry-run", action="store_true", help="only show it (the default)")


def _groups_delete(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="+", metavar="GROUP")
    parser.add_argument(
        "-t",
        "--topic",
        dest="topics",
        action="append",
        type=checked(values.topic_spec),
        metavar="T[:P,P]",
        help="only what it has committed for this; repeatable",
    )


def _dump_offsets(parser: ArgumentParser) -> None:
    parser.add_argument("-g", "--group", metavar="GROUP", help="only this group")
    parser.add_argument("--only", choices=("offsets", "groups"), help="only what one of Kafka's two formatters prints")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for more at the end")


def _bench(parser: ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("both", "produce", "consume"), default="both")
    parser.add_argument("-n", "--records", type=checked(values.positive), default=100_000, metavar="N")
    parser.add_argument("-s", "--size", type=checked(values.positive), default=100, metavar="BYTES")
    parser.add_argument("-p", "--partitions", type=checked(values.positive), default=1, metavar="N")
    parser.add_argument("-z", "--compression", choices=CODECS, default="none")
    parser.add_argument("-t", "--topic", metavar="TOPIC", help="use this one; otherwise one that is deleted afterwards")


def _ping(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--wait", type=checked(values.seconds), metavar="TIME", help="try again for so long, until a broker answers"
    )


def _completion(parser: ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def _command(
    words: str, help: str, run: str, configure: Callable[[ArgumentParser], None], *, offline: bool = False
) -> Command:
    return Command(tuple(words.split()), help, f"barnabas_client.cli.{run}", configure, offline)


COMMANDS: Final = (
    _command("topics list", "the names of topics", "topics:list_topics", _topics_list),
    _command("topics create", "create topics", "topics:create_topics", _topics_create),
    _command("topics describe", "partitions, leaders and configuration", "topics:describe_topics", _topics_describe),
    _command("topics alter", "change the configuration or add partitions", "topics:alter_topic", _topics_alter),
    _command("topics delete", "delete topics with their records", "topics:delete_topics", _topics_delete),
    _command("produce", "write lines as records", "produce:produce", _produce),
    _command("consume", "print records", "consume:consume", _consume),
    _command("groups list", "the names of groups", "groups:list_groups", _groups_list),
    _command("groups describe", "offsets, lag and members", "groups:describe_groups", _groups_describe),
    _command("groups explain", "why it rebalanced, and what to do about it", "explain:explain", _groups_explain),
    _command("groups watch", "members, lag and rebalances, live", "watch:watch", _groups_watch),
    _command(
        "groups reset-offsets", "set where a group goes on; shows it unless told to", "reset:reset", _groups_reset
    ),
    _command("groups delete", "delete groups, or some of their offsets", "groups:delete_groups", _groups_delete),
    _command(
        "dump offsets", "the records of __consumer_offsets, as Kafka prints them", "dump:dump_offsets", _dump_offsets
    ),
    _command("bench", "how many records a second can be written and read", "bench:bench", _bench),
    _command("ping", "whether brokers answer, and how fast", "ping:ping", _ping),
    _command(
        "completion", "a script that completes commands in a shell", "completion:completion", _completion, offline=True
    ),
)
