"""Creates Admin, Consumer and Producer from the options that all commands have."""

from argparse import Namespace
from typing import Any, Final

from barnabas_client.admin.admin import Admin
from barnabas_client.consumer.consumer import Consumer
from barnabas_client.producer.producer import Producer

CLIENT_ID: Final = "barnabas-cli"


def _common(arguments: Namespace) -> dict[str, Any]:
    return {
        "bootstrap_servers": arguments.servers.text,
        "request_timeout_ms": max(round(arguments.timeout * 1000), 1),
        "client_id": CLIENT_ID,
        **arguments.servers.security,
    }


def admin(arguments: Namespace) -> Admin:
    """Create an admin client that is not started."""
    return Admin(**_common(arguments))


def consumer(arguments: Namespace, **settings: Any) -> Consumer:
    """Create a consumer that is not started."""
    return Consumer(**_common(arguments), **settings)


def producer(arguments: Namespace, **settings: Any) -> Producer:
    """Create a producer that is not started."""
    milliseconds = _common(arguments)["request_timeout_ms"]
    settings = {"max_block_ms": milliseconds, "delivery_timeout_ms": max(milliseconds, 30_000), **settings}
    return Producer(**_common(arguments), **settings)
