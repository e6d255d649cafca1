"""The commands and their arguments. The work of each is in a module of its own, which needs Spark."""

import argparse
from argparse import ArgumentParser, Namespace
from typing import Final

from barnabas_client.cli import values
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.command_line import CommandLine
from barnabas_client.cli.output import Output
from barnabas_pipeline.cli.failures import command_errors

_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _run_archive(arguments: Namespace, output: Output) -> int:
    with command_errors():
        from barnabas_pipeline.cli.archive import archive

        return archive(arguments, output)


def _run_lag(arguments: Namespace, output: Output) -> int:
    with command_errors():
        from barnabas_pipeline.cli.lag import lag

        return lag(arguments, output)


def _run_replay(arguments: Namespace, output: Output) -> int:
    with command_errors():
        from barnabas_pipeline.cli.replay import replay

        return replay(arguments, output)


def _add_options(to: argparse._ActionsContainer) -> None:
    pair = checked(values.pair)
    to.add_argument(
        "-o",
        "--option",
        dest="options",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="an option of the Spark source or sink, such as kafka.security.protocol=SSL; repeatable",
    )
    to.add_argument(
        "--conf",
        action="append",
        type=pair,
        default=[],
        metavar="NAME=VALUE",
        help="a Spark setting, such as spark.master=local[4]; repeatable",
    )


def _archive_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-l",
        "--lake",
        required=True,
        metavar="PATH",
        help="the folder of the tables, visible to the driver and all executors: s3a://..., /mnt/...",
    )
    parser.add_argument(
        "--once", action="store_true", help="archive what the topics hold now and exit, instead of waiting for more"
    )
    parser.add_argument(
        "--format",
        choices=("json", "raw"),
        default="json",
        help="store values as columns parsed from JSON, or as bytes (default: json)",
    )
    parser.add_argument(
        "--schema",
        metavar="FILE|DDL",
        help="schema of the JSON values: a file, or `carrier STRING, delay DOUBLE` (default: inferred from the first "
        "records, then fixed)",
    )
    parser.add_argument(
        "--event-time",
        metavar="FIELD",
        help="the field of the value that determines the date (default: the record's timestamp)",
    )
    parser.add_argument("--quarantine", metavar="PATH", help="folder for bad records (default: LAKE/_quarantine)")
    parser.add_argument(
        "--batch-records",
        type=checked(values.positive),
        metavar="N",
        help="maximum records per batch (default: as many as fill files, 1000000 to 10000000)",
    )
    parser.add_argument(
        "--file-size",
        type=checked(_size),
        default=_size("128m"),
        metavar="SIZE",
        help="target size of files (default: 128m)",
    )
    parser.add_argument(
        "--interval",
        type=checked(values.seconds),
        default=10.0,
        metavar="TIME",
        help="pause before the next check for new records (default: 10s)",
    )
    parser.add_argument("--group", metavar="GROUP", help="commit the progress to this group, for lag tools")
    parser.add_argument(
        "--allow-loss",
        action="store_true",
        help="continue if records were deleted before they were archived, or the topic was created again",
    )


def _lag_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all groups")
    parser.add_argument("-d", "--out", default="lag", metavar="PATH", help="folder for the report (default: lag)")
    parser.add_argument(
        "--since", type=checked(values.since), metavar="TIME", help="start of the report: 6h ago, or a point in time"
    )
    parser.add_argument(
        "--until", type=checked(values.since), metavar="TIME", help="end of the report, as --since (default: now)"
    )
    parser.add_argument(
        "--interval",
        type=checked(values.seconds),
        metavar="TIME",
        help="time between two points (default: what makes 240 points)",
    )
    parser.add_argument(
        "--stall",
        type=checked(values.seconds),
        metavar="TIME",
        help="minimum duration of a stall (default: three intervals)",
    )


def _replay_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("table", metavar="PATH", help="a table of a lake (LAKE/topic=TOPIC), or any Parquet")
    parser.add_argument("topic", metavar="TOPIC", help="the topic to send to")
    parser.add_argument("--key", metavar="COLUMN", help="column of the keys (default: key, if it exists)")
    parser.add_argument(
        "--value",
        metavar="COLUMN",
        help="column of the values (default: value; if it does not exist, the whole row as JSON)",
    )
    parser.add_argument(
        "--order-by",
        metavar="COLUMNS",
        help="sort by these, separated by commas (default: timestamp, and each partition by offset)",
    )
    parser.add_argument("--where", metavar="SQL", help="send only matching rows, such as date = '2013-01-31'")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--rate", type=checked(_number), metavar="N", help="records per second (default: as fast as possible)"
    )
    speed.add_argument(
        "--speed", type=checked(_times), metavar="Nx", help="multiple of the original speed, by timestamps: 1x, 60x"
    )
    parser.add_argument(
        "--keep-timestamps", action="store_true", help="send records with their original timestamps, instead of now"
    )


def _size(text: str) -> int:
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _SIZES:
        number, unit = text, ""
    if not number.isdecimal() or not int(number):
        raise ValueError(f"must be a size such as 128m, 1g or a number of bytes, got {text!r}")
    return int(number) * _SIZES.get(unit, 1)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"must be a number above 0, got {text!r}")
    return number


def _times(text: str) -> float:
    return _number(text.removesuffix("x"))


COMMAND_LINE: Final = CommandLine(
    name="barnabas-pipeline",
    description="Archive topics as Parquet tables, replay them, and report consumer lag, on Spark.",
    commands=(
        Command(
            path=("archive",),
            help="copy topics into a Parquet lake, each record once",
            add_arguments=_archive_arguments,
            run=_run_archive,
        ),
        Command(
            path=("lag",),
            help="report the lag of groups over time, their stalls and rebalances",
            add_arguments=_lag_arguments,
            run=_run_lag,
        ),
        Command(
            path=("replay",),
            help="send a Parquet table to a topic",
            add_arguments=_replay_arguments,
            run=_run_replay,
        ),
    ),
    add_options=_add_options,
    loggers=("barnabas_client", "barnabas_pipeline"),
)
