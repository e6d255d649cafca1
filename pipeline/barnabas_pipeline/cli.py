"""The `barnabas-pipeline` program: topics into a Parquet lake and back, and lag over time, on Spark.

It needs PySpark, which is an optional dependency: a command imports it, and all that needs it, when it runs.
"""

import argparse
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from barnabas_client.cli import values
from barnabas_client.cli.clients import DEFAULT_BOOTSTRAP, ENVIRONMENT
from barnabas_client.cli.command import Command, checked
from barnabas_client.cli.command_line import CommandLine, Parser
from barnabas_client.cli.output import Output
from barnabas_pipeline.cli_failures import failures

_SIZES: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the arguments; those of the process if None.

    Returns:
        The exit status: 0 done, 1 failed, 2 the command line is not valid, 130 after Ctrl-C, 143 after SIGTERM.
    """
    with _other_loggers_silent():
        return COMMAND_LINE.run(sys.argv[1:] if argv is None else argv)


@contextmanager
def _other_loggers_silent() -> Iterator[None]:
    """Discard log records of other packages: Py4J logs each interrupted call with its traceback."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


def _run_archive(arguments: argparse.Namespace, output: Output) -> int:
    with failures():
        from barnabas_pipeline.cli_archive import archive

        return archive(arguments, output)


def _run_lag(arguments: argparse.Namespace, output: Output) -> int:
    with failures():
        from barnabas_pipeline.cli_lag import lag

        return lag(arguments, output)


def _run_replay(arguments: argparse.Namespace, output: Output) -> int:
    with failures():
        from barnabas_pipeline.cli_replay import replay

        return replay(arguments, output)


def _add_command_options(parser: Parser, command: Command) -> None:
    to = parser.add_argument_group("connection, Spark and output")
    to.add_argument(
        "-b",
        "--bootstrap-servers",
        dest="bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get(ENVIRONMENT) or DEFAULT_BOOTSTRAP,
        help=f"brokers to start with, separated by commas (default: ${ENVIRONMENT}, else {DEFAULT_BOOTSTRAP})",
    )
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
        help="a key of Spark's, such as spark.master=local[4]; repeatable",
    )
    to.add_argument("--json", action="store_true", help="print the summary as data")


def _archive_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="+", metavar="TOPIC")
    parser.add_argument(
        "-l",
        "--lake",
        required=True,
        metavar="PATH",
        help="where the tables are, as all of Spark sees it: s3a://..., /mnt/...",
    )
    parser.add_argument("--once", action="store_true", help="stop at what is there now, instead of waiting for more")
    parser.add_argument(
        "--format",
        choices=("json", "raw"),
        default="json",
        help="values as columns of JSON, or as bytes (default: json)",
    )
    parser.add_argument(
        "--schema",
        metavar="FILE|DDL",
        help="of the JSON: a file, or `carrier STRING, delay DOUBLE` (default: that of the first records, kept "
        "from then on)",
    )
    parser.add_argument(
        "--event-time",
        metavar="FIELD",
        help="the field of the value that tells the day (default: the record's timestamp)",
    )
    parser.add_argument("--quarantine", metavar="PATH", help="where bad records go (default: LAKE/_quarantine)")
    parser.add_argument(
        "--batch-records",
        type=checked(values.positive),
        metavar="N",
        help="a step's most (default: what fills files, 1000000 to 10000000)",
    )
    parser.add_argument(
        "--file-size",
        type=checked(_size),
        default=_size("128m"),
        metavar="SIZE",
        help="what files are to have (default: 128m)",
    )
    parser.add_argument(
        "--interval",
        type=checked(values.seconds),
        default=10.0,
        metavar="TIME",
        help="between looks for more (default: 10s)",
    )
    parser.add_argument("--group", metavar="GROUP", help="note the progress in this group, for lag tools")
    parser.add_argument(
        "--allow-loss", action="store_true", help="go on where records were deleted before they were archived"
    )


def _lag_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="default: all")
    parser.add_argument("-d", "--out", default="lag", metavar="PATH", help="a folder for what comes out (default: lag)")
    parser.add_argument(
        "--since", type=checked(values.since), metavar="TIME", help="from so long ago, such as 6h, or from a time on"
    )
    parser.add_argument("--until", type=checked(values.since), metavar="TIME", help="up to then (default: now)")
    parser.add_argument(
        "--interval", type=checked(values.seconds), metavar="TIME", help="between two points (default: 240 points)"
    )
    parser.add_argument(
        "--stall",
        type=checked(values.seconds),
        metavar="TIME",
        help="how long a stall lasts at least (default: three intervals)",
    )


def _replay_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="PATH", help="a table of a lake (LAKE/topic=TOPIC), or any Parquet")
    parser.add_argument("topic", metavar="TOPIC", help="where its rows go")
    parser.add_argument("--key", metavar="COLUMN", help="default: key, if there is one")
    parser.add_argument("--value", metavar="COLUMN", help="default: value; if there is none, the whole row as JSON")
    parser.add_argument(
        "--order-by",
        metavar="COLUMNS",
        help="separated by commas (default: timestamp, but each partition by its offsets)",
    )
    parser.add_argument("--where", metavar="SQL", help="only rows that this holds for, such as date = '2013-01-31'")
    speed = parser.add_mutually_exclusive_group()
    speed.add_argument(
        "--rate", type=checked(_number), metavar="N", help="records a second (default: as fast as it goes)"
    )
    speed.add_argument(
        "--speed", type=checked(_times), metavar="Nx", help="times the original tempo, by the timestamps: 1x, 60x"
    )
    parser.add_argument("--keep-timestamps", action="store_true", help="records get the time they had, instead of now")


def _size(text: str) -> int:
    number, unit = text[:-1], text[-1:].lower()
    if unit not in _SIZES:
        number, unit = text, ""
    if not number.isdecimal() or not int(number):
        raise ValueError(f"{text!r} is no size: write it as 128m, 1g or in bytes")
    return int(number) * _SIZES.get(unit, 1)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise ValueError(f"{text!r} is no number above 0")
    return number


def _times(text: str) -> float:
    return _number(text.removesuffix("x"))


COMMAND_LINE: Final = CommandLine(
    name="barnabas-pipeline",
    description="Topics into a Parquet lake and back, and lag over time, on Spark.",
    commands=(
        Command(
            path=("archive",),
            help="topics into a Parquet lake, each record once",
            add_arguments=_archive_arguments,
            run=_run_archive,
        ),
        Command(
            path=("lag",),
            help="the lag of groups over time, their stalls and rebalances, as a report",
            add_arguments=_lag_arguments,
            run=_run_lag,
        ),
        Command(
            path=("replay",),
            help="a Parquet table back into a topic",
            add_arguments=_replay_arguments,
            run=_run_replay,
        ),
    ),
    add_command_options=_add_command_options,
    loggers=("barnabas_client", "barnabas_pipeline"),
)


if __name__ == "__main__":
    raise SystemExit(main())
