"""A console in the test's event loop."""

from argparse import Namespace
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace

from barnabas.console.command import _bound, serving
from barnabas_broker.http.access import AllowedHosts, HttpLogin

TOKEN = "the-token-of-the-test"


def arguments_for(
    bootstrap: str,
    source: str | None = None,
    *,
    show_records: bool = False,
    security: Mapping[str, str] | None = None,
) -> Namespace:
    """The arguments of a command with these brokers."""
    servers = SimpleNamespace(text=bootstrap, security=security or {})
    return Namespace(servers=servers, timeout=3.0, source=source, show_records=show_records)


@asynccontextmanager
async def console(
    bootstrap: str,
    *,
    source: str | None = None,
    changes: bool = False,
    show_records: bool = False,
    security: Mapping[str, str] | None = None,
    login: str | None = None,
) -> AsyncIterator[int]:
    """Serve the console of a cluster; its port.

    Args:
        bootstrap: its brokers.
        source: of the past of groups.
        changes: whether offsets may be reset.
        show_records: show records in any case.
        security: how to connect, like `security_protocol`.
        login: the token that requests need.
    """
    listener = _bound("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    async with serving(
        arguments_for(bootstrap, source, show_records=show_records, security=security),
        listener,
        TOKEN if changes else None,
        AllowedHosts((), None),
        HttpLogin(login),
    ):
        yield port
