"""The `broker` command: flags, signals, exit statuses.

Exit status 0 after a drained stop, 1 when a broker of a cluster stops by itself because its disk failed, 2 when the
broker cannot start, with one line on stderr.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from pathlib import Path
from typing import NoReturn

import uvloop

from barnabas_broker import heap, logs
from barnabas_broker.broker import BrokerServer, product_version
from barnabas_broker.config import BROKER_KEYS, Config, ConfigError, layered, parse_environment, parse_properties
from barnabas_broker.config.keys import ADVERTISED_LISTENERS, CLUSTER_URL, LISTENERS, LOG_DIR, NODE_ID
from barnabas_broker.errors import BrokerError
from barnabas_broker.supervisor import Supervisor, SupervisorError


def _fail(message: str) -> NoReturn:
    print(f"broker: {message}", file=sys.stderr)
    raise SystemExit(2)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        _fail(f"{message} (see broker --help)")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"barnabas {product_version()}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="broker", description="A message broker that speaks the Apache Kafka wire protocol.")
    parser.add_argument("--config", metavar="FILE", help="a server.properties file, with Kafka's keys")
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on, without listeners (default: %(default)s)"
    )
    parser.add_argument("--port", type=int, default=9092, help="port; 0 picks a free one (default: %(default)s)")
    parser.add_argument("--data-dir", metavar="DIR", help="where the log is kept (log.dir; default: ./barnabas-data)")
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
    parser.add_argument("--http-port", type=int, metavar="N", help="serve /metrics and health; 0 picks a free port")
    parser.add_argument("--http-host", default="127.0.0.1", help="address for that (default: %(default)s)")
    parser.add_argument(
        "--set", metavar="key=value", action="append", default=[], help="any of Kafka's configuration keys; repeatable"
    )
    parser.add_argument("--log-format", choices=logs.FORMATS, default="console", help="default: %(default)s")
    parser.add_argument("--log-level", choices=logs.LEVELS, default="info", help="default: %(default)s")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    return parser


def read_config(arguments: argparse.Namespace) -> tuple[Config, list[str]]:
    """Layer file, environment and flags.

    Returns:
        The configuration, and the keys that do not exist.

    Raises:
        ConfigError: a file cannot be read, a ``--set`` is not key=value, or a value does not fit its key.
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
        (LOG_DIR.name, arguments.data_dir),
        (NODE_ID.name, arguments.node_id),
        (ADVERTISED_LISTENERS.name, arguments.advertise),
        (CLUSTER_URL.name, arguments.cluster),
    ):
        if value is not None:
            flags[key] = value
    environment = {k: v for k, v in parse_environment(os.environ).items() if k in BROKER_KEYS}
    config = layered(BROKER_KEYS, [file, environment, flags])
    return config, config.check()


def _supervise(arguments: argparse.Namespace, config: Config) -> None:
    """Run a local cluster until SIGTERM or SIGINT."""
    given = (arguments.cluster, arguments.node_id, arguments.advertise, arguments.http_port)
    if arguments.cores < 1 or any(value is not None for value in given):
        raise ConfigError("--cores: at least 1, and without --cluster, --node-id, --advertise and --http-port")
    if config[LISTENERS]:
        raise ConfigError("--cores: each broker gets a port of its own, so leave out listeners")
    flags = ["--log-format", arguments.log_format, "--log-level", arguments.log_level]
    flags += ["--config", arguments.config] if arguments.config is not None else []
    flags += [word for pair in arguments.set for word in ("--set", pair)]
    supervisor = Supervisor(arguments.cores, arguments.host, arguments.port, Path(config[LOG_DIR]), flags)

    async def run() -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        await supervisor.run()

    try:
        uvloop.run(run())
    except SupervisorError as error:
        _fail(str(error))


def _raise_file_limit() -> None:
    """Allow as many open connections and segments as the system permits, as a JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems report an infinite limit and accept less
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _run(arguments: argparse.Namespace, config: Config) -> int:
    """Run a broker until SIGTERM or SIGINT; its exit status."""
    _raise_file_limit()
    # Nearly everything that a start allocates stays: collections would find nothing to free.
    gc.disable()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(arguments, config))


async def _serve(arguments: argparse.Namespace, config: Config) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    try:
        broker = await BrokerServer.start(
            config, arguments.host, arguments.port, http_host=arguments.http_host, http_port=arguments.http_port
        )
    except BrokerError as error:
        _fail(str(error))
    for listener in broker.listeners:
        print(f"barnabas: listening on {listener.host}:{listener.port}", flush=True)
    if broker.http_port is not None:
        print(f"barnabas: http on {broker.http_host}:{broker.http_port}", flush=True)
    # What exists now stays: collections need not look at it.
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
    with heap.kept(broker.traffic):
        ends = [loop.create_task(event.wait()) for event in (stopping, broker.failed)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        await broker.stop()
    return 1 if broker.failed.is_set() else 0


def main() -> None:
    """Run a broker until SIGTERM or SIGINT."""
    arguments = _parser().parse_args()
    try:
        config, unknown = read_config(arguments)
        for flag, port in (("--port", arguments.port), ("--http-port", arguments.http_port)):
            if port is not None and not 0 <= port < 65536:
                raise ConfigError(f"{flag} {port}: must be from 0 to 65535")
        if config[CLUSTER_URL] and NODE_ID.name not in config.given:
            raise ConfigError("--cluster needs --node-id: each broker of a cluster has its own")
        if arguments.cores is not None:
            logs.configure(arguments.log_format, arguments.log_level)
            _supervise(arguments, config)
            return
    except ConfigError as error:
        _fail(str(error))
    for key in unknown:
        print(f"broker: {key}: no such configuration key, ignored", file=sys.stderr)
    logs.configure(arguments.log_format, arguments.log_level, node_id=config[NODE_ID])
    raise SystemExit(_run(arguments, config))


if __name__ == "__main__":
    main()
