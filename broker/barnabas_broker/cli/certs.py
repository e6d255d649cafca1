"""`barnabas certs`: makes certificates for trying TLS."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cli.output import Output
from barnabas_broker.errors import BrokerError
from barnabas_broker.security.trial import AUTHORITY, BROKER, CLIENT, issue

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_FILES: Final = {
    AUTHORITY: "the authority, which clients and brokers trust (ssl.truststore.location, ssl_cafile)",
    BROKER: "the broker's key and certificate (ssl.keystore.location)",
    CLIENT: "a client's key and certificate (ssl_certfile)",
}


def certs(arguments: Namespace, output: Output) -> int:
    """Write the files, unless there are some; returns the exit status."""
    folder = Path(arguments.directory)
    there = [name for name in _FILES if (folder / name).exists()]
    if there and not arguments.force:
        output.error(
            f"{folder / there[0]} exists, and what trusts the present authority would refuse a new one. To do: take "
            "another folder, or --force"
        )
        return 1
    try:
        issue(folder, [*_LOCAL, *arguments.host], wanted_by="barnabas certs")
    except OSError as error:
        output.error(f"{folder}: {error.strerror}")
        return 1
    except BrokerError as error:
        output.error(str(error))
        return 1
    if output.json:
        output.data({name.removesuffix(".pem"): str(folder / name) for name in _FILES})
        return 0
    for name, text in _FILES.items():
        output.line(f"{folder / name}: {text}")
    return 0


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument("directory", metavar="DIR", help="the folder to write them to")
    parser.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a host name or address that clients use; repeatable (localhost and the loopback addresses are there)",
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")


COMMAND: Final[dict[str, Any]] = {
    "path": ("certs",),
    "help": "make an authority, and certificates of a broker and a client, for trying TLS",
    "add_arguments": _arguments,
    "run": certs,
    "offline": True,
}
