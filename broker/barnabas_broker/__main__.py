"""The `broker` command: flags, signals, exit statuses.

Exit status 0 after a drained stop. 1 when this machine does not let the broker run: a port in use, a data directory
that another broker uses, an etcd that does not answer, a disk that fails; a later start may succeed. 2 when the command
line or the configuration has to change first. 1 and 2 at the start come with one line on stderr.
"""

import argparse
import asyncio
import contextlib
import gc
import getpass
import os
import resource
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

import uvloop

import barnabas_broker.structlog_alone  # noqa: F401
from barnabas_broker import gc_tuning, logs, malloc, streams
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import (
    BROKER_KEYS,
    Config,
    ConfigError,
    ConfigSource,
    layered,
    parse_environment,
    parse_properties,
)
from barnabas_broker.config.checks import check_config, is_for_broker, known_key, same_directory
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    CLUSTER_URL,
    HTTP_TOKEN_FILE,
    LISTENERS,
    LOG_DIR,
    LOG_DIRS,
    LOG_FLUSH_INTERVAL_MESSAGES,
    NODE_ID,
)
from barnabas_broker.errors import BrokerError
from barnabas_broker.init import Declared, apply, read
from barnabas_broker.supervisor import Supervisor, SupervisorError
from barnabas_protocol.version import VERSION

#: The environment variable with the password of ``--add-user``.
PASSWORD: Final = "BARNABAS_ADD_USER_PASSWORD"

_FAILED: Final = 1
_USAGE: Final = 2


def _fail(message: str, status: int = _USAGE) -> NoReturn:
    print(f"broker: {message}", file=sys.stderr)
    raise SystemExit(status)


def _fail_start(error: BrokerError) -> NoReturn:
    _fail(str(error), _USAGE if isinstance(error, ConfigError) else _FAILED)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(f"{message} (see broker --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"barnabas {VERSION}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        allow_abbrev=False,
        prog="broker",
        description="A message broker that speaks the Apache Kafka wire protocol.",
        epilog="Exit status: 0 stopped, 1 the broker cannot run on this machine now, "
        "2 the command line or the configuration is not valid.",
    )
    parser.add_argument("--config", metavar="FILE", help="a server.properties file, with Kafka's keys")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on, without listeners (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=9092, help="port; 0 picks a free one (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="where the log is kept (log.dirs; default: ./barnabas-data)")
    parser.add_argument("--node-id", metavar="N", help="id of this broker (node.id; default: 1)")
    parser.add_argument(
        "--cluster",
        metavar="URL",
        help="etcd://HOST:PORT[,...][/PREFIX]: join a cluster (cluster.url; needs --node-id)",
    )
    parser.add_argument(
        "--cores", type=int, metavar="N", help="run N brokers on this machine as a cluster of their own"
    )
    parser.add_argument("--advertise", metavar="HOST:PORT", help="the address for clients (default: the listener)")
    parser.add_argument(
        "--add-user",
        metavar="NAME[=FILE]",
        action="append",
        default=[],
        help="add a user for SCRAM, unless there is one of this name; the password is the first line of FILE, or in "
        f"${PASSWORD}, or it is asked for; repeatable",
    )
    parser.add_argument(
        "--http-port", type=int, metavar="N", help="serve the page, metrics and health over HTTP; 0 picks a free port"
    )
    parser.add_argument(
        "--http-host",
        default="127.0.0.1",
        help="address for that; one that other machines reach needs a token, client certificates (http.ssl.cafile) or "
        "--http-insecure (default: %(default)s)",
    )
    parser.add_argument(
        "--http-token-file",
        metavar="FILE",
        help="a file whose first line is the token that HTTP requests need, except for /healthz and /readyz "
        "(http.token.file)",
    )
    parser.add_argument(
        "--http-insecure",
        action="store_true",
        help="let everyone who can reach the HTTP port read the page and metrics",
    )
    parser.add_argument(
        "--http-allow-host",
        metavar="NAME",
        action="append",
        default=[],
        help="answer HTTP requests for this host name too; repeatable (default: localhost, IP addresses, --http-host "
        "and the name of this machine)",
    )
    parser.add_argument(
        "--http-show-records",
        action="store_true",
        help="show the records of topics, and ACLs, to everyone who can reach the HTTP port (default: only if that is "
        "a loopback address, and no listener has TLS or logins)",
    )
    parser.add_argument(
        "--durable",
        action="store_true",
        help="acknowledge records when they are on the disk: they survive a power cut "
        "(log.flush.interval.messages=1; default: when they are in the page cache)",
    )
    parser.add_argument(
        "--init",
        metavar="FILE",
        help="a YAML file with topics, users, ACLs, quotas, first records and groups' offsets; what is there stays",
    )
    parser.add_argument(
        "--set", metavar="key=value", action="append", default=[], help="any of Kafka's configuration keys; repeatable"
    )
    parser.add_argument("--log-format", choices=logs.FORMATS, default="console", help="default: %(default)s")
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="default: %(default)s")
    # The supervisor of --cores has printed the warnings, which are the same for all of its brokers.
    parser.add_argument("--supervised", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser


def read_config(arguments: argparse.Namespace) -> tuple[Config, list[str]]:
    """Layer file, environment and flags.

    Returns:
        The configuration, and warnings, one line each.

    Raises:
        ConfigError: a file cannot be read, a ``--set`` is not key=value, a value does not fit its key, or values
            contradict each other.
    """
    file: dict[str, str] = {}
    if arguments.config is not None:
        try:
            file = parse_properties(Path(arguments.config).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--config {arguments.config}: {error}") from error
    flags: dict[str, str] = {}
    for pair in arguments.set:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set {pair}: must be key=value")
        flags[key.strip()] = value
    for key, value in (
        (NODE_ID.name, arguments.node_id),
        (ADVERTISED_LISTENERS.name, arguments.advertise),
        (CLUSTER_URL.name, arguments.cluster),
        (HTTP_TOKEN_FILE.name, arguments.http_token_file),
    ):
        if value is not None:
            flags[key] = value
    if arguments.durable and flags.setdefault(LOG_FLUSH_INTERVAL_MESSAGES.name, "1") != "1":
        given = flags[LOG_FLUSH_INTERVAL_MESSAGES.name]
        raise ConfigError(f"--durable and {LOG_FLUSH_INTERVAL_MESSAGES.name}={given} are given: give one of them")
    environment = {name: value for name, value in parse_environment(os.environ).items() if is_for_broker(name)}
    config = layered(BROKER_KEYS, [file, environment, flags])
    if arguments.data_dir is not None:
        _set_data_dir(config, arguments.data_dir)
    shown = [name for name in flags if (key := known_key(name)) is not None and key.secret]
    warnings = (
        [f"{', '.join(shown)}: other users of this machine can see --set; give it in --config FILE"] if shown else []
    )
    return config, warnings + check_config(config)


def _set_data_dir(config: Config, directory: str) -> None:
    """Make --data-dir the log directory; it does not override another one, so that data is never in two places.

    Raises:
        ConfigError: the configuration names another directory, or `directory` is a list.
    """
    given, source = config.explain(LOG_DIRS)
    if source is not ConfigSource.DEFAULT_CONFIG and not same_directory(given, LOG_DIRS.read(directory)):
        key = LOG_DIRS if LOG_DIRS.name in config.given else LOG_DIR
        raise ConfigError(f"--data-dir {directory} and {key.name}={given} are different directories: give one of them")
    config.set_static(LOG_DIRS, directory)


def read_users(given: Sequence[str]) -> dict[str, str]:
    """The passwords of ``--add-user``, by user.

    Raises:
        ConfigError: a file cannot be read, or there is no password.
    """
    users: dict[str, str] = {}
    for each in given:
        user, _, file = each.partition("=")
        if not user or user in users:
            raise ConfigError(f"--add-user {each}: must be NAME or NAME=FILE, each name once")
        if file:
            try:
                password = Path(file).read_text("utf-8").partition("\n")[0].removesuffix("\r")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(f"--add-user {each}: {error}") from error
        elif PASSWORD in os.environ:
            password = os.environ[PASSWORD]
        elif sys.stdin.isatty():
            password = getpass.getpass(f"Password of the user {user}: ")
        else:
            raise ConfigError(f"--add-user {user}: give its password in a file, as {user}=FILE, or in ${PASSWORD}")
        if not password:
            raise ConfigError(f"--add-user {user}: its password is empty")
        users[user] = password
    return users


def _check_cores(arguments: argparse.Namespace, config: Config) -> None:
    """Check that the flags fit to ``--cores``.

    Raises:
        ConfigError: they do not.
    """
    given = (arguments.cluster, arguments.node_id, arguments.advertise, arguments.http_port)
    if arguments.cores < 1 or any(value is not None for value in given) or arguments.add_user:
        raise ConfigError(
            "--cores: at least 1, and without --cluster, --node-id, --advertise, --http-port and --add-user"
        )
    if config[LISTENERS]:
        raise ConfigError("--cores: each broker gets a port of its own, so leave out listeners")


def _supervise(arguments: argparse.Namespace, config: Config) -> None:
    """Run a local cluster until a signal ends it."""
    flags = ["--supervised", "--log-format", arguments.log_format, "--log-level", arguments.log_level]
    flags += ["--durable"] * arguments.durable
    flags += ["--config", arguments.config] if arguments.config is not None else []
    # Each broker gets a directory of its own within the one that is given.
    kept = [pair for pair in arguments.set if pair.partition("=")[0].strip() not in (LOG_DIR.name, LOG_DIRS.name)]
    flags += [word for pair in kept for word in ("--set", pair)]
    supervisor = Supervisor(arguments.cores, arguments.host, arguments.port, Path(config[LOG_DIRS]), flags)

    async def run() -> None:
        _on_signal(lambda name: supervisor.stop())
        await supervisor.run()

    try:
        uvloop.run(run())
    except SupervisorError as error:
        _fail(str(error), _FAILED)


def _on_signal(stop: Callable[[str], object]) -> None:
    """Call `stop` with the name of each signal that ends the broker.

    SIGHUP comes when its terminal is closed; ``nohup`` ignores it, and so it stays.
    """
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(number, stop, number.name)


def _reload_on_hangup(reload: Callable[[], object], stop: Callable[[str], object]) -> None:
    """On SIGHUP read certificates again; if it comes because the broker's terminal was closed, stop."""
    may_lose_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and os.isatty(0)

    def hang_up() -> None:
        if may_lose_terminal and not os.isatty(0):
            stop(signal.SIGHUP.name)
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hang_up)


def _raise_file_limit() -> None:
    """Allow as many open connections and segments as the system permits, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems report an infinite limit and accept less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(arguments: argparse.Namespace, config: Config, users: Mapping[str, str], declared: Declared | None) -> int:
    """Run a broker until a signal ends it; its exit status."""
    _raise_file_limit()
    # Nearly everything that a start allocates stays: collections would find nothing to free.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(arguments, config, users, declared))


async def _serve(
    arguments: argparse.Namespace, config: Config, users: Mapping[str, str], declared: Declared | None
) -> int:
    loop = asyncio.get_running_loop()
    signalled: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if not signalled.done():
            signalled.set_result(name)

    _on_signal(stop)
    try:
        broker = await BrokerServer.start(
            config,
            arguments.host,
            arguments.port,
            http_host=arguments.http_host,
            http_port=arguments.http_port,
            http_allow_hosts=arguments.http_allow_host,
            http_show_records=arguments.http_show_records,
            http_insecure=arguments.http_insecure,
            users=users,
        )
    except BrokerError as error:
        _fail_start(error)
    if declared is not None:
        try:
            for line in await apply(broker, declared):
                streams.say(f"barnabas: {line}")
        except BrokerError as error:
            await broker.stop("--init has failed")
            _fail_start(error)
    if broker.has_certificates:
        _reload_on_hangup(broker.reload_certificates, stop)
    for listener in broker.listeners:
        streams.say(f"barnabas: listening on {listener.host}:{listener.port}")
    if broker.http_port is not None:
        streams.say(f"barnabas: http on {broker.http_host}:{broker.http_port}")
    with gc_tuning.bounded(), malloc.kept(broker.traffic):
        failed = loop.create_task(broker.failed.wait())
        ends: list[asyncio.Future[Any]] = [signalled, failed]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        await broker.stop(signalled.result() if signalled.done() else "its log directory is offline")
    return _FAILED if broker.failed.is_set() else 0


def main() -> None:
    """Run a broker until SIGTERM or SIGINT, or SIGHUP if no listener speaks TLS."""
    streams.open_closed()
    arguments = _parser().parse_args()
    try:
        config, warnings = read_config(arguments)
        for flag, port in (("--port", arguments.port), ("--http-port", arguments.http_port)):
            if port is not None and not 0 <= port < 65536:
                raise ConfigError(f"{flag} {port}: must be from 0 to 65535")
        if config[CLUSTER_URL] and config.explain(NODE_ID)[1] is ConfigSource.DEFAULT_CONFIG:
            raise ConfigError("--cluster needs --node-id: each broker of a cluster has its own")
        if arguments.cores is not None:
            _check_cores(arguments, config)
        users = read_users(arguments.add_user)
        declared = None
        if arguments.init is not None:
            if config[CLUSTER_URL] or arguments.cores is not None:
                raise ConfigError("--init works with a single broker: leave out --cluster and --cores")
            declared = read(Path(arguments.init))
    except BrokerError as error:
        _fail_start(error)
    if not arguments.supervised:
        for warning in warnings:
            print(f"broker: {warning}", file=sys.stderr)
    if arguments.cores is not None:
        logs.configure(arguments.log_format, arguments.log_level)
        _supervise(arguments, config)
        return
    logs.configure(arguments.log_format, arguments.log_level, broker=config[NODE_ID])
    raise SystemExit(_run(arguments, config, users, declared))


if __name__ == "__main__":
    main()
