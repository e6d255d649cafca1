"""Creates Admin, Consumer and Producer from the options that all commands have."""

from argparse import Namespace
from functools import partial
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.history.ports import Connect
from barnabas_client.producer.producer import Producer

CLIENT_ID: Final = "barnabas-cli"


def settings(arguments: Namespace) -> dict[str, Any]:
    """Return the settings that all clients have in common."""
    return {
        "bootstrap_servers": arguments.servers.text,
        "request_timeout_ms": max(round(arguments.timeout * 1000), 1),
        "client_id": CLIENT_ID,
        **arguments.servers.security,
    }


def admin(arguments: Namespace) -> Admin:
    """Create an admin client that is not started."""
    return Admin(**settings(arguments))


def consumer(arguments: Namespace, **own: Any) -> Consumer:
    """Create a consumer that is not started."""
    return Consumer(**settings(arguments), **own)


def connect(arguments: Namespace) -> Connect:
    """A function that creates consumers with the settings of the command."""
    return partial(consumer, arguments)


def producer(arguments: Namespace, **own: Any) -> Producer:
    """Create a producer that is not started."""
    common = settings(arguments)
    milliseconds = common["request_timeout_ms"]
    own = {"max_block_ms": milliseconds, "delivery_timeout_ms": max(milliseconds, 30_000), **own}
    return Producer(**common, **own)
