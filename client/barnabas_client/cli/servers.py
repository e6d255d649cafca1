"""Where a command finds its brokers: an option, the environment, a file with named clusters, or the default.

The order, and the names, are in `docs/command-line.md`. The file is ``barnabas/config.toml`` in the user's folder for
configuration, see the XDG Base Directory Specification::

    default = "local"

    [clusters.local]
    bootstrap_servers = "localhost:9092"

    [clusters.production]
    bootstrap_servers = ["broker1:9093", "broker2:9093"]
    security_protocol = "SSL"
    ssl_cafile = "/etc/barnabas/ca.pem"

A cluster of the file has its settings of secure connections beside its addresses. For other addresses the environment
has them (``BARNABAS_SECURITY_PROTOCOL``, ``BARNABAS_SSL_CAFILE``, ...): a password never goes to another cluster. There
are no options for them, because other users of the machine see the arguments of a program.
"""

import argparse
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from barnabas_client.cli.failures import CommandError, UsageError
from barnabas_client.config import DEFAULT_SERVERS, Address, ClientConfig, parse_servers
from barnabas_client.errors import KafkaConnectionError, KafkaTimeoutError
from barnabas_client.token_files import FileTokenProvider
from barnabas_protocol.errors import KafkaError
from barnabas_protocol.suggestions import did_you_mean

#: The environment variables with bootstrap servers, and with the name of a cluster.
SERVERS_VARIABLE: Final = "BARNABAS_BOOTSTRAP_SERVERS"
CLUSTER_VARIABLE: Final = "BARNABAS_CLUSTER"
_OPTION: Final = "--bootstrap-servers"
_KEYS: Final = ("default", "clusters")
#: The file with a token, which another program renews; the clients take what reads it.
_TOKEN_FILE: Final = "sasl_oauth_token_file"
#: The settings of secure connections; the configuration file and the clients have the same names for the others.
SECURITY: Final = (
    "security_protocol",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    _TOKEN_FILE,
)
_CLUSTER_KEYS: Final = ("bootstrap_servers", *SECURITY)


@dataclass(frozen=True)
class Servers:
    """Bootstrap servers.

    Attributes:
        text: the addresses, separated by commas.
        addresses: the same, parsed.
        source: where they were found, for error messages.
        security: how to connect securely, as arguments of a client.
    """

    text: str
    addresses: tuple[Address, ...]
    source: str
    security: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def config(self) -> ClientConfig:
        """The settings of connections."""
        return ClientConfig(servers=self.addresses, **self.security)

    def check(self) -> None:
        """Check how to connect securely.

        Raises:
            CommandError: a setting is not valid.
        """
        try:
            _ = self.config
        except (TypeError, ValueError) as error:
            raise CommandError(f"{error} ({self.text} is {self.source})") from None

    def note(self, error: Exception) -> str:
        """Hint for an error: where the addresses come from, if no connection could be made; the name of this client, if
        the brokers do not allow something; "" for others."""
        if isinstance(error, KafkaConnectionError | KafkaTimeoutError):
            return f" ({self.text} is {self.source})"
        if isinstance(error, KafkaError) and error.code.name.endswith("AUTHORIZATION_FAILED"):
            user = self.security.get("sasl_plain_username")
            if user is not None:
                return f" (this client is User:{user})"
            if self.security.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
                return " (this client has not logged in: it is User:ANONYMOUS)"
        return ""


def add_options(to: argparse._ActionsContainer) -> None:
    """Add the options that name brokers."""
    to.add_argument(
        "-b",
        _OPTION,
        dest="bootstrap",
        metavar="HOST:PORT",
        help=f"brokers to connect to first, separated by commas (default: ${SERVERS_VARIABLE}, else --cluster, else "
        f"{DEFAULT_SERVERS})",
    )
    to.add_argument(
        "--cluster",
        metavar="NAME",
        help=f"a cluster of the configuration file (default: ${CLUSTER_VARIABLE}, else the file's default)",
    )


def find_servers(bootstrap: str | None, cluster: str | None, environment: Mapping[str, str]) -> Servers:
    """Find the bootstrap servers.

    Args:
        bootstrap: the value of --bootstrap-servers.
        cluster: the value of --cluster.
        environment: environment variables.

    Raises:
        UsageError: both options are given, or an address is not valid.
        CommandError: the file cannot be read, is not valid, or does not have the cluster.
    """
    if bootstrap is not None and cluster is not None:
        raise UsageError(f"{_OPTION} and --cluster exclude each other")
    if bootstrap is not None:
        return _parsed(bootstrap, _OPTION, f"from {_OPTION}", _of_environment(environment))
    if cluster is not None:
        return _named(cluster, "--cluster", environment)
    if text := environment.get(SERVERS_VARIABLE):
        return _parsed(text, f"${SERVERS_VARIABLE}", f"from ${SERVERS_VARIABLE}", _of_environment(environment))
    if name := environment.get(CLUSTER_VARIABLE):
        return _named(name, f"${CLUSTER_VARIABLE}", environment)
    default = _read(path := config_file(environment)).get("default")
    if default is not None:
        return _named(default, f"the default of {path}", environment)
    source = f"the default; {_OPTION} or --cluster names other brokers"
    return _parsed(DEFAULT_SERVERS, "", source, _of_environment(environment))


def config_file(environment: Mapping[str, str]) -> Path:
    """The path of the file with named clusters; it need not exist."""
    home = environment.get("XDG_CONFIG_HOME", "")
    # The specification ignores a path that is not absolute.
    folder = Path(home) if home.startswith("/") else Path.home() / ".config"
    return folder / "barnabas" / "config.toml"


def _named(name: str, by: str, environment: Mapping[str, str]) -> Servers:
    path = config_file(environment)
    clusters = _read(path).get("clusters", {})
    if name not in clusters:
        known = f"which has {', '.join(clusters)}" if clusters else "which has none"
        close = did_you_mean(name, clusters) or "."
        raise CommandError(
            f"{by} names the cluster {name!r}, but it is not in {path}, {known}{close} To do: add [clusters.{name}] "
            f'with bootstrap_servers = "host:port", or use {_OPTION}'
        )
    given = clusters[name]["bootstrap_servers"]
    return _parsed(
        given if isinstance(given, str) else ",".join(given),
        f"{path}: clusters.{name}.bootstrap_servers",
        f"cluster {name!r} of {path}, named by {by}",
        {key: value for key, value in clusters[name].items() if key in SECURITY},
    )


def variable_of(setting: str) -> str:
    """The environment variable of a setting of secure connections."""
    return f"BARNABAS_{setting.upper()}"


def _of_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    given: dict[str, Any] = {name: text for name in SECURITY if (text := environment.get(variable_of(name)))}
    if (check := given.get("ssl_check_hostname")) is not None:
        if check.lower() not in ("true", "false"):
            raise UsageError(f"${variable_of('ssl_check_hostname')} is {check!r}: give true or false")
        given["ssl_check_hostname"] = check.lower() == "true"
    return given


def _parsed(text: str, label: str, source: str, security: Mapping[str, Any]) -> Servers:
    given = dict(security)
    if (file := given.pop(_TOKEN_FILE, None)) is not None:
        given["sasl_oauth_token_provider"] = FileTokenProvider(file)
    try:
        return Servers(text, parse_servers(text), source, given)
    except ValueError as error:
        raise UsageError(str(error).replace("bootstrap_servers", label, 1)) from None


def _read(path: Path) -> dict[str, Any]:
    """Read the file; it is empty if it does not exist.

    Raises:
        CommandError: it is not valid.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not valid TOML: {error}") from None
    _check_keys(path, content, "", _KEYS)
    clusters = content.get("clusters", {})
    if not isinstance(content.get("default", ""), str):
        raise CommandError(f"{path}: default is not a string: give the name of a cluster")
    if not isinstance(clusters, dict):
        raise CommandError(f"{path}: clusters is not a table: write [clusters.NAME]")
    for name, cluster in clusters.items():
        if not isinstance(cluster, dict) or not cluster:
            raise CommandError(f'{path}: [clusters.{name}] needs bootstrap_servers = "host:port"')
        _check_keys(path, cluster, f"clusters.{name}.", _CLUSTER_KEYS)
        if "bootstrap_servers" not in cluster:
            raise CommandError(f'{path}: [clusters.{name}] needs bootstrap_servers = "host:port"')
        for key in SECURITY:
            kind, wanted = (bool, "true or false") if key == "ssl_check_hostname" else (str, "a string")
            if not isinstance(cluster.get(key, kind()), kind):
                raise CommandError(f"{path}: clusters.{name}.{key}: give {wanted}")
        servers = cluster["bootstrap_servers"]
        if not isinstance(servers, str) and not (
            isinstance(servers, list) and all(isinstance(one, str) for one in servers)
        ):
            raise CommandError(f'{path}: clusters.{name}.bootstrap_servers: give "host:port" or a list of such strings')
    return content


def _check_keys(path: Path, table: Mapping[str, Any], within: str, known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            close = did_you_mean(key, known) or f": use {', '.join(known)}"
            raise CommandError(f"{path}: unknown key {within}{key}{close}")
