"""`barnabas version`: the version, and what of the installation decides how fast it is."""

import platform
from argparse import ArgumentParser, Namespace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from barnabas_client.cli.command import Command
from barnabas_client.cli.failures import DONE
from barnabas_client.cli.output import Column, Output
from barnabas_protocol.records import iteration
from barnabas_protocol.version import VERSION

#: The libraries in C that the common path uses.
_LIBRARIES: Final = ("uvloop", "crc32c", "cramjam", "xxhash")


def show_version(arguments: Namespace, output: Output) -> int:
    """Print the version; with `--verbose`, also those of Python and libraries, and whether the codec is compiled."""
    found = {"barnabas": VERSION}
    if arguments.verbose:
        compiled = not (iteration.__file__ or "").endswith(".py")
        found["python"] = f"{platform.python_version()} ({platform.python_implementation()})"
        found["records"] = "compiled" if compiled else "interpreted"
        found.update((name, _version(name)) for name in _LIBRARIES)
    if output.json:
        output.data(found)
    elif arguments.verbose:
        output.table([Column("PART"), Column("VERSION")], found.items())
    else:
        output.line(f"barnabas {found['barnabas']}")
    return DONE


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also print the versions of Python and of libraries, and whether the codec of records is compiled",
    )


COMMAND: Final = Command(
    path=("version",),
    help="print the version, and whether the codec of records is compiled",
    add_arguments=_arguments,
    run=show_version,
    offline=True,
)
