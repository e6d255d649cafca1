"""Subscriptions to metrics of clients: the configuration `client-metrics` (KIP-714). Pure.

Source: Kafka's ``ClientMetricsConfigs``.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from barnabas_broker.config import CLIENT_METRICS_KEYS, ConfigError
from barnabas_broker.config.keys import CLIENT_METRICS_INTERVAL_MS, CLIENT_METRICS_MATCH, CLIENT_METRICS_NAMES
from barnabas_broker.regexes.regex import InvalidRegexError, Regex
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records.checksums import crc32c
from barnabas_protocol.uuids import uuid_text

#: Maximum subscriptions of a cluster: each client is compared with all of them.
MOST_SUBSCRIPTIONS: Final = 100
#: What a client says of itself matches nothing if it is longer.
LONGEST: Final = 1_000
_LEAST_INTERVAL, _MOST_INTERVAL = 100, 3_600_000
#: Subscribes to all metrics.
ALL: Final = "*"


class PushingClient(NamedTuple):
    """A client that pushes metrics. The names are those of the key `match`."""

    client_instance_id: bytes
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: int

    @classmethod
    def of(cls, client_instance_id: bytes, client_id: str, software: str, host: str, port: int) -> "PushingClient":
        """Make it of what is known of a client. It is remembered: a text that is longer than what can match is cut.

        Args:
            client_instance_id: its id, 16 bytes.
            client_id: its client id.
            software: its name and version as it says them, with a blank between them.
            host: its address.
            port: its port.
        """
        name, _, version = software.partition(" ")
        most = LONGEST + 1
        return cls(
            client_instance_id, client_id[:most], name[:most] or "unknown", version[:most] or "unknown", host, port
        )

    def text(self, name: str) -> str:
        """The value that an expression for `name` is compared with."""
        value = getattr(self, name)
        return uuid_text(value) if isinstance(value, bytes) else str(value)


class MetricsSubscription(NamedTuple):
    """One subscription.

    Attributes:
        metrics: beginnings of the names of metrics; "*" for all.
        interval_ms: time between two pushes of a client.
        match: an expression for each name of :class:`PushingClient` that counts; all must match.
    """

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, Regex]

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "MetricsSubscription":
        """Read the configuration.

        Raises:
            KafkaError: INVALID_REQUEST or INVALID_CONFIG, as Kafka's controller answers.
        """
        for name in configs:
            if name not in CLIENT_METRICS_KEYS:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {name}")
        try:
            metrics = CLIENT_METRICS_NAMES.read(configs.get(CLIENT_METRICS_NAMES.name, ""))
            default = str(CLIENT_METRICS_INTERVAL_MS.default)
            interval = CLIENT_METRICS_INTERVAL_MS.read(configs.get(CLIENT_METRICS_INTERVAL_MS.name, default))
            patterns = CLIENT_METRICS_MATCH.read(configs.get(CLIENT_METRICS_MATCH.name, ""))
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        if not _LEAST_INTERVAL <= interval <= _MOST_INTERVAL:
            text = f"Invalid value {interval} for interval.ms, interval must be between 100 and 3600000 (1 hour)"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        # Of several expressions for one name, the last counts, as in Kafka.
        texts = dict(map(_split, patterns))
        return cls(metrics, interval, {name: _regex(name, text) for name, text in texts.items()})

    def matches(self, client: PushingClient) -> bool:
        """Whether the client is one of those that are asked."""
        return all(
            len(text := client.text(name)) <= LONGEST and regex.matches(text) for name, regex in self.match.items()
        )


def _split(pattern: str) -> tuple[str, str]:
    name, equals, text = pattern.partition("=")
    if not equals or name.strip() not in PushingClient._fields:
        message = f"Illegal client matching pattern: {pattern[:200]}, must be NAME=EXPRESSION with one of the names "
        raise KafkaError(ErrorCode.INVALID_CONFIG, message + ", ".join(PushingClient._fields))
    return name.strip(), text.strip()


def _regex(name: str, text: str) -> Regex:
    try:
        return Regex(text)
    except InvalidRegexError as error:
        message = f"Illegal client matching pattern: {name}={text[:200]}: {error}"
        raise KafkaError(ErrorCode.INVALID_CONFIG, message) from error


class WantedMetrics(NamedTuple):
    """The metrics that one client shall push.

    Attributes:
        subscription_id: another one for each set of metrics and interval.
        metrics: beginnings of names, sorted; ("*",) for all, empty for none.
        interval_ms: time between two pushes.
    """

    subscription_id: int
    metrics: tuple[str, ...]
    interval_ms: int

    def wants(self, name: str) -> bool:
        """Whether a metric of this name is asked for."""
        return self.metrics == (ALL,) or name.startswith(self.metrics)


#: The configuration of a subscription, and what it says; None if it cannot be read.
_Read = tuple[Mapping[str, str], MetricsSubscription | None]


class MetricsSubscriptions:
    """All subscriptions of a cluster.

    Args:
        configs: by the names of subscriptions; one that cannot be read counts as none.
        before: the subscriptions so far; those that stay are not read again.
    """

    def __init__(self, configs: Mapping[str, Mapping[str, str]], before: "MetricsSubscriptions | None" = None) -> None:
        self.configs = configs
        read: dict[str, _Read] = {} if before is None else before._read
        self._read: dict[str, _Read] = {
            name: read[name] if name in read and read[name][0] is each else (each, _readable(each))
            for name, each in configs.items()
        }
        self._each = [found for _, found in self._read.values() if found is not None]

    def wanted(self, client: PushingClient) -> WantedMetrics:
        """The metrics that a client shall push: all that any subscription asks of it, in the shortest interval."""
        mine = [each for each in self._each if each.matches(client)]
        names = {name for each in mine for name in each.metrics}
        metrics = (ALL,) if ALL in names else tuple(sorted(names))
        interval = min([CLIENT_METRICS_INTERVAL_MS.default, *(each.interval_ms for each in mine)])
        number = crc32c(client.client_instance_id + f"{metrics}{interval}".encode("utf-8", "replace"))
        return WantedMetrics(number - 2**31, metrics, interval)


def _readable(configs: Mapping[str, str]) -> MetricsSubscription | None:
    try:
        return MetricsSubscription.of(configs)
    except KafkaError:  # checked when it was set, perhaps by another version
        return None
