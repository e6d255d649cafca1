"""`barnabas console`: serves the page for any cluster."""

import asyncio
import os
import secrets
import socket
import tempfile
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import Any, Final

from barnabas.console.cluster import Cluster
from barnabas.console.examiner import Examiner
from barnabas.console.histories import Histories
from barnabas.console.records import RecordReader
from barnabas.console.resets import Resets
from barnabas.console.survey import Survey
from barnabas_broker.http.access import AllowedHosts, HttpLogin, open_to_all, read_token
from barnabas_client.cli import clients
from barnabas_client.cli.command import checked
from barnabas_client.cli.failures import DONE, CommandError
from barnabas_client.cli.optional import optional
from barnabas_client.cli.output import Output
from barnabas_client.history.sources import SOURCES
from barnabas_protocol.version import VERSION

PORT: Final = 9180
_HOST: Final = "127.0.0.1"
#: Why records and ACLs are not shown.
HIDDEN: Final = (
    "records and ACLs are not shown, because the brokers have TLS or logins, and every user of this machine can open "
    "this page. To do: start the console with --show-records if they may read what you may read"
)


async def console(arguments: Namespace, output: Output) -> int:
    """Serve the page until Ctrl-C."""
    host = arguments.host
    login, exposed = _login(arguments)
    listener = _bound(host, arguments.port)
    token = secrets.token_urlsafe(24) if arguments.allow_changes else None
    url = f"http://{_shown(host)}:{listener.getsockname()[1]}/" + (f"#/?token={token}" if token else "")
    brokers = arguments.servers.text
    hosts = AllowedHosts([host, socket.gethostname(), *arguments.allow_host], "--allow-host")
    async with serving(arguments, listener, token, hosts, login):
        if exposed:
            output.note(f"Everyone who can reach {host} can read this page: it has no login (--insecure).")
        if output.json:
            output.data({"url": url, "brokers": brokers, "changes": token is not None})
        else:
            output.line(f"The console of {brokers} is at {url}")
            output.line(f"{'It may reset offsets.' if token else 'It only reads.'} Ctrl-C ends it.")
            output.out.flush()
        with _redirect(url) if arguments.open else nullcontext() as address:
            if address is not None and not await asyncio.to_thread(webbrowser.open, address):
                output.note("No browser was found. To do: open the address yourself.")
            await asyncio.Event().wait()
    return DONE


@asynccontextmanager
async def serving(
    arguments: Namespace, listener: socket.socket, token: str | None, hosts: AllowedHosts, login: HttpLogin
) -> AsyncIterator[None]:
    """Serve the page on a bound socket.

    Args:
        arguments: of a command; they name the brokers.
        listener: it is closed in the end.
        token: requests that change something must have it; None if nothing may be changed.
        hosts: the names that requests may be for.
        login: what requests need.

    Raises:
        CommandError: aiohttp is not installed.
        KafkaError: the brokers do not answer.
    """
    brokers = arguments.servers.text
    with listener:
        server = optional("barnabas.console.server", extra="http", purpose="barnabas console")
        async with clients.admin(arguments) as admin:
            histories = Histories(arguments, admin, time.monotonic, _wall_ms)
            # Every user of this machine can open the page: what a login protects is not shown without being asked for.
            secured = arguments.servers.security.get("security_protocol", "PLAINTEXT") != "PLAINTEXT"
            hidden = HIDDEN if secured and not arguments.show_records else None
            examiner = Examiner(arguments, admin, histories, time.monotonic, _wall_ms)
            cluster = Cluster(admin, histories, examiner, time.monotonic, _wall_ms)
            survey = Survey(admin, time.monotonic, _wall_ms, hidden)
            records = RecordReader(arguments, admin)
            serves = server.Console(
                cluster,
                histories,
                survey,
                records,
                hidden,
                None if token is None else Resets(admin, time.monotonic),
                {"version": VERSION, "brokers": brokers, "title": f"brokers {brokers}, version {VERSION}"},
                token or "",
                _wall_ms,
                hosts,
                login,
                listener,
            )
            await serves.start()
            try:
                yield
            finally:
                histories.stop()
                cluster.stop()
                survey.stop()
                await serves.stop()
                await records.close()


def _login(arguments: Namespace) -> tuple[HttpLogin, bool]:
    """The login that requests need, and whether everyone on the network can read the page.

    Raises:
        CommandError: the token cannot be read, or the address is open and there is none.
    """
    try:
        login = HttpLogin(None if arguments.token_file is None else read_token(arguments.token_file))
        remedies = "give --token-file FILE, or --insecure"
        return login, open_to_all(arguments.host, login, insecure=arguments.insecure, remedies=remedies)
    except ValueError as error:
        raise CommandError(str(error)) from None


def _shown(host: str) -> str:
    """A host in a URL."""
    if host in ("0.0.0.0", "::", ""):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise CommandError(f"the address {host} does not exist: {error.strerror}. To do: change --host") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise CommandError(
            f"port {port} of {host} cannot be used: {error.strerror}. To do: name another one with --port, or 0 for any"
        ) from None
    return listener


@contextmanager
def _redirect(url: str) -> Iterator[str]:
    """The address of a file that leads to the page. Only this user may read it: others see arguments of programs."""
    descriptor, name = tempfile.mkstemp(prefix="barnabas-console-", suffix=".html")
    file = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            address = escape(url)
            out.write(f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url={address}">')
            out.write(f'<title>Barnabas</title><a href="{address}">The console</a>\n')
        yield file.as_uri()
    finally:
        file.unlink(missing_ok=True)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise ValueError(f"{text!r} is not a port: write a number up to 65535")
    return int(text)


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=checked(_port), default=PORT, metavar="PORT", help=f"0 for any (default: {PORT})"
    )
    parser.add_argument(
        "--host",
        default=_HOST,
        help="the address to listen on; one that other machines reach needs --token-file or --insecure (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--token-file", metavar="FILE", help="a file whose first line is the token that the page asks for"
    )
    parser.add_argument("--insecure", action="store_true", help="let everyone who can reach the address read the page")
    parser.add_argument(
        "--allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer requests for this host name too; repeatable (default: localhost, IP addresses, --host and the "
        "name of this machine)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--source",
        choices=SOURCES,
        help="of the past of groups: read __group_events, or __consumer_offsets, or describe a group again and again "
        "while its page is open (default: the first of these that is available)",
    )
    parser.add_argument(
        "--show-records",
        action="store_true",
        help="show records and ACLs of brokers with TLS or logins, too: every user of this machine can open the page",
    )
    parser.add_argument("--allow-changes", action="store_true", help="let the page reset offsets of groups")


COMMAND: Final[dict[str, Any]] = {
    "path": ("console",),
    "help": "serve a page that shows the groups of a cluster, why they rebalanced, its topics and their records",
    "add_arguments": _arguments,
    "run": console,
    "reports": ("barnabas_client.network",),
}
