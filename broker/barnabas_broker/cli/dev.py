"""`barnabas dev`: a broker for development in this terminal.

Its log is in memory unless a folder is given, groups do not wait for more members, and the page is on. It prints a line
for each client that connects and for what happens to groups and topics.
"""

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import webbrowser
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cli.output import Output
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError
from barnabas_broker.config.checks import check_config
from barnabas_broker.config.keys import LOG_DIRS
from barnabas_broker.errors import BrokerError
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.init import apply, read
from barnabas_broker.optional import require
from barnabas_broker.recent import Newest
from barnabas_broker.schema_registry.records import TOPIC as SCHEMAS_TOPIC
from barnabas_broker.server.connection import Answer, DeferredResponse, Dispatcher, Peer
from barnabas_broker.storage import names
from barnabas_protocol.codec import decode_request_header
from barnabas_protocol.counts import counted
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.version import VERSION
from barnabas_protocol.wire import Buffer

PORT: Final = 9092
#: The port of the schema registry, as Confluent's.
REGISTRY_PORT: Final = 8081
#: The port of the page, if it is free.
PAGE_PORT: Final = 9308
#: What differs from Kafka's defaults.
DEFAULTS: Final = {"group.initial.rebalance.delay.ms": "0"}
#: A folder in memory, where the system has one, and the bytes that must be free in it.
_MEMORY: Final = Path("/dev/shm")
_ROOM: Final = 1 << 30
_PREFIX: Final = "barnabas-dev-"
#: Loggers of the broker whose lines below warnings say nothing about clients.
_QUIET: Final = ("broker", "cluster", "replication", "storage")
#: Seconds after which connections of a client are shown again, and the number of clients that are remembered.
_AGAIN_SECONDS: Final = 10.0
_MOST_CLIENTS: Final = 1_000
#: Topics that are not counted, and whose creation is not printed: they hold state of the broker and of the registry.
_OWN_TOPICS: Final = INTERNAL_TOPICS | {SCHEMAS_TOPIC}
_API_VERSIONS: Final = ApiKey.API_VERSIONS.to_bytes(2, "big")


class Lines(logging.Handler):
    """Prints the broker's log lines, each with the time of day.

    Args:
        output: where they are printed.
    """

    def __init__(self, output: Output) -> None:
        super().__init__(logging.INFO)
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        part = record.name.partition(".")[2].partition(".")[0]
        if record.levelno >= logging.WARNING:
            self.say(f"{record.levelname.lower()}: {record.getMessage()}")
        elif part not in _QUIET and not (isinstance(record.msg, dict) and record.msg.get("topic") in _OWN_TOPICS):
            self.say(record.getMessage())

    def say(self, text: str) -> None:
        """Print a line."""
        now = time.strftime("%H:%M:%S")
        if self._output.json:
            self._output.row({"time": now, "text": text})
        else:
            self._output.line(f"{now}  {text}")
        sys.stdout.flush()


class Arrivals:
    """Says which clients connect. The connections of one client count once, until it has been quiet for a while.

    Args:
        say: prints a line.
        now: a monotonic clock, in seconds.
    """

    def __init__(self, say: Callable[[str], None], now: Callable[[], float]) -> None:
        self._say = say
        self._now = now
        self._seen: Newest[tuple[str, str, str], float] = Newest(_MOST_CLIENTS)

    def arrived(self, host: str, client_id: str, software: str) -> None:
        """A client has sent its first request on a connection."""
        key = (host, client_id, software)
        now = self._now()
        before = self._seen.get(key)
        self._seen[key] = now
        if before is None or now - before > _AGAIN_SECONDS:
            name = f"client_id={client_id!r}" if client_id else "without a client id"
            self._say(f"client connected {name} software={software or 'unknown'!r} host={host}")

    def watch(self, dispatch: Dispatch) -> Dispatcher:
        """Put a dispatcher in front of `dispatch` that sees the requests with which clients begin."""

        def watched(peer: Peer, frame: Buffer) -> Answer | DeferredResponse | None:
            answer = dispatch(peer, frame)
            if bytes(frame[:2]) == _API_VERSIONS:
                self.arrived(peer.host, decode_request_header(frame).client_id or "", peer.software)
            return answer

        return watched


@contextmanager
def data_folder(given: str | None) -> Iterator[tuple[Path, str]]:
    """The folder of the log, and where that is, as text; a temporary one, in memory if it can be, if none is given."""
    if given is not None:
        yield Path(given), f"in {given}"
        return
    in_memory = _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free >= _ROOM
    parent = _MEMORY if in_memory else Path(tempfile.gettempdir())
    _remove_abandoned(parent)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder), "in memory" if in_memory else "in a temporary folder"


def _remove_abandoned(parent: Path) -> None:
    """Remove the folders of brokers that were killed: no process has their lock."""
    for folder in parent.glob(f"{_PREFIX}*"):
        try:
            with open(folder / names.LOCK, "rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue  # it is in use, starts just now, or belongs to another user


def configured(folder: Path, pairs: Sequence[str]) -> tuple[Config, list[str]]:
    """The configuration, and warnings.

    Raises:
        ConfigError: a pair is not key=value, or a value does not fit its key.
    """
    values = dict(DEFAULTS)
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair}: must be key=value")
        values[key.strip()] = value
    config = Config(BROKER_KEYS, values)
    if LOG_DIRS.name in values or "log.dir" in values:
        raise ConfigError("--set of a log directory: give the folder as --data-dir")
    config.set_static(LOG_DIRS, str(folder))
    return config, check_config(config)


def summary(broker: BrokerServer) -> str:
    """Count what clients see: topics, records and groups."""
    logs = [kept for where, kept in broker.directory.logs.items() if where.topic not in _OWN_TOPICS]
    topics = len({kept.topic_partition.topic for kept in logs})
    records = sum(kept.log_end_offset - kept.log_start_offset for kept in logs)
    groups = sum(1 for each in broker.view.known_groups() if each is not None)
    return f"{counted(topics, 'topic')}, {counted(records, 'record')} and {counted(groups, 'group')}"


async def dev(arguments: Namespace, output: Output) -> int:
    """Run a broker until Ctrl-C; returns the exit status."""
    try:
        with data_folder(arguments.data_dir) as (folder, where):
            return await _serve(arguments, output, folder, where)
    except BrokerError as error:
        output.error(str(error))
        return 2 if isinstance(error, ConfigError) else 1


async def _serve(arguments: Namespace, output: Output, folder: Path, where: str) -> int:
    config, warnings = configured(folder, arguments.set)
    declared = None if arguments.init is None else read(Path(arguments.init))
    lines = Lines(output)
    for warning in warnings:
        output.error(warning)
    ended = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with _logged(lines):
        broker, no_page = await _start(arguments, config, Arrivals(lines.say, time.monotonic))
        registry = None
        try:
            registry = await _registry(broker, arguments)
            made = [] if declared is None else await apply(broker, declared)
            page = None if broker.http_port is None else f"http://{broker.http_host}:{broker.http_port}/"
            address = f"{arguments.host}:{broker.port}"
            schemas = None if registry is None else f"http://{arguments.host}:{registry.port}"
            kept = arguments.data_dir is not None
            if output.json:
                about = {"bootstrap_servers": address, "page": page, "schema_registry": schemas}
                output.row({**about, "data_dir": str(folder), "kept": kept, "init": made})
            else:
                output.line(f"Barnabas {VERSION}, a broker for development. Clients connect to {address}")
                output.line(f"Page: {page or no_page}")
                if schemas is not None:
                    output.line(f"Schema registry: {schemas}")
                output.line(
                    f"Records are {where}" + ("." if kept else ", and gone when this ends; --data-dir DIR keeps them.")
                )
                for line in made:
                    output.line(f"{arguments.init}: {line}")
                output.line("Ctrl-C ends it.")
                output.line("")
            sys.stdout.flush()
            if arguments.open and page is not None and not await asyncio.to_thread(webbrowser.open, page):
                output.error("no browser was found. To do: open the page's address yourself")
            failed = asyncio.ensure_future(broker.failed.wait())
            done = asyncio.ensure_future(ended.wait())
            await asyncio.wait([failed, done], return_when=asyncio.FIRST_COMPLETED)
            failed.cancel()
            done.cancel()
            has = summary(broker)
        finally:
            if registry is not None:
                await registry.stop()
            await broker.stop()
    if not output.json:
        remedy = "To keep them next time: barnabas dev --data-dir DIR"
        output.line("")
        output.line(f"{has} are {where}." if kept else f"{has} are gone. {remedy}")
    return 0


async def _registry(broker: BrokerServer, arguments: Namespace) -> Any:
    """The schema registry; None if it is not wanted.

    Raises:
        BrokerError: it cannot start.
    """
    if arguments.registry is None:
        return None
    api = require("barnabas_broker.schema_registry.api", wanted_by="--registry", extra="registry")
    return await api.RegistryServer.start(broker, arguments.host, arguments.registry)


async def _start(arguments: Namespace, config: Config, arrivals: Arrivals) -> tuple[BrokerServer, str]:
    """Start the broker, with the page if it can be had; otherwise the second value says why it is not there."""
    no_page = "off"
    ports: list[int | None] = [PAGE_PORT, 0] if arguments.http_port is None else [arguments.http_port]
    try:
        require("barnabas_broker.http.endpoint", wanted_by="the page", extra="http")
    except BrokerError as error:
        if arguments.http_port is not None:
            raise
        ports, no_page = [None], f"off, {error}, or uvx --from 'barnabas[http]' barnabas dev"
    while True:
        http_port = ports.pop(0)
        try:
            broker = await BrokerServer.start(
                config, arguments.host, arguments.port, http_port=http_port, wrap_dispatcher=arrivals.watch
            )
        except BrokerError as error:
            if not ports or f":{http_port}:" not in str(error):
                raise
        else:
            return broker, no_page


@contextmanager
def _logged(lines: Lines) -> Iterator[None]:
    logger = logging.getLogger("barnabas_broker")
    before = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(before[0])
        logger.propagate = before[1]


def _arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="PORT", help=f"port; 0 picks a free one (default: {PORT})"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="keep records in this folder (default: they are in memory)")
    parser.add_argument(
        "--http-port", type=int, metavar="PORT", help=f"port of the page (default: {PAGE_PORT}, or a free one)"
    )
    parser.add_argument(
        "--registry",
        type=int,
        nargs="?",
        const=REGISTRY_PORT,
        metavar="PORT",
        help=f"run a schema registry as well, on this port (default: {REGISTRY_PORT})",
    )
    parser.add_argument(
        "--init",
        metavar="FILE",
        help="a YAML file with topics, first records, users, quotas and groups' offsets; what is there stays",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.add_argument(
        "--set", metavar="key=value", action="append", default=[], help="any of Kafka's configuration keys; repeatable"
    )


COMMAND: Final[dict[str, Any]] = {
    "path": ("dev",),
    "help": "run a broker for development in this terminal",
    "add_arguments": _arguments,
    "run": dev,
    "offline": True,
}
