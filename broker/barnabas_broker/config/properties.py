"""Configuration values and where they come from: a properties file, the environment, flags, and changes at run time.

Later sources win: the ``--config`` file, then ``KAFKA_`` environment variables (``.`` as ``_``, ``_`` as ``__``,
``-`` as ``___``), then ``--set key=value`` and the flags that have a name of their own.
:mod:`~barnabas_broker.config.checks` checks what was given.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, ClassVar, Final, TypeVar, cast

from barnabas_broker.config.keys import (
    ALIASES,
    CONSUMER_HEARTBEAT_INTERVAL_MS,
    CONSUMER_SESSION_TIMEOUT_MS,
    GROUP_BOUNDS,
    GROUP_KEYS,
    LISTENER_KEYS,
    MIN_INSYNC_REPLICAS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    ConfigError,
    Key,
)
from barnabas_broker.config.listeners import prefix_of
from barnabas_protocol.suggestions import did_you_mean

T = TypeVar("T")


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes of DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(slots=True)
class Config:
    """A broker's configuration.

    Args:
        keys: the keys that exist, by name.
        given: the values that were set before the start, as text.
        dynamic: the values that were set for this broker at run time.
        dynamic_default: the values that were set for all brokers at run time.
    """

    keys: Mapping[str, Key[Any]]
    given: dict[str, str] = field(default_factory=dict)
    dynamic: Mapping[str, str] = field(default_factory=dict)
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    _values: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, key: Key[T]) -> T:
        if key.name not in self._values:
            self._values[key.name] = self.explain(key)[0]
        value: T = self._values[key.name]
        return value

    def explain(self, key: Key[T]) -> tuple[T, ConfigSource]:
        """The value of `key` and where it comes from."""
        for name, factor, parser in ((key.name, 1, key), *((k.name, f, k) for k, f in key.fallbacks)):
            for layer, source in self._layers():
                if name in layer:
                    value = parser.read(layer[name])
                    return cast(T, value * factor if factor != 1 and value >= 0 else value), source
        return key.default, ConfigSource.DEFAULT_CONFIG

    def synonyms(self, key: Key[Any]) -> list[tuple[Key[Any], str, ConfigSource]]:
        """All values that were set for `key` and its fallbacks, as text, the most specific first.

        Source: KIP-226; Kafka's ``ConfigHelper.configSynonyms``.
        """
        keys = (key, *(fallback for fallback, _ in key.fallbacks))
        return [
            (each, layer[each.name], source) for layer, source in self._layers() for each in keys if each.name in layer
        ]

    def _layers(self) -> tuple[tuple[Mapping[str, str], ConfigSource], ...]:
        return (
            (self.dynamic, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.given, ConfigSource.STATIC_BROKER_CONFIG),
        )

    def of_listener(self, name: str, mechanism: str = "") -> "Config":
        """The keys as they are for the listener `name`: its own over those of all, and what was set at run time over
        what was given before the start.

        Args:
            name: the listener.
            mechanism: of SASL; its own keys on the listener, ``listener.name.NAME.MECHANISM.KEY``, come first.
        """
        layers = (self.given, self.dynamic_default, self.dynamic)
        given = {key: text for layer in layers for key, text in layer.items()}
        for prefix in (prefix_of(name), *((f"{prefix_of(name)}{mechanism.lower()}.",) if mechanism else ())):
            for layer in layers:
                keys = {key: key.removeprefix(prefix) for key in layer if key.startswith(prefix)}
                given |= {short: layer[key] for key, short in keys.items() if short in LISTENER_KEYS}
        return Config(self.keys, given)

    def set_static(self, key: Key[Any], text: str) -> None:
        """Set a value before the start, over what was given; it must have been checked before."""
        self.given[key.name] = text
        self._values.clear()

    def set_dynamic(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> None:
        """Replace the values that were set at run time; every value must have been checked before.

        ``min.insync.replicas`` always is a value for all brokers, as in Kafka with eligible leader replicas (KIP-966):
        that of before the start, unless another one was set.
        """
        key = MIN_INSYNC_REPLICAS
        given = self.given.get(key.name, str(key.default))
        self.dynamic, self.dynamic_default = dynamic, {key.name: given, **dynamic_default}
        self._values.clear()


class TopicConfig:
    """A topic's configuration: its own overrides over the broker's defaults.

    Raises:
        ConfigError: an override cannot be read, or topics have no such key.
    """

    __slots__ = ("_values", "broker", "overrides")

    #: What has the overrides, for messages, and their source.
    OWNER: ClassVar[str] = "topic"
    SOURCE: ClassVar[ConfigSource] = ConfigSource.DYNAMIC_TOPIC_CONFIG

    def __init__(self, broker: Config, overrides: Mapping[str, str], keys: Mapping[str, Key[Any]]) -> None:
        self.broker = broker
        self.overrides = dict(overrides)
        self._values: dict[str, Any] = {}
        for name, text in overrides.items():
            if name not in keys:
                # Kafka's text: clients look for it.
                raise ConfigError(f"Unknown {self.OWNER} config name: {name}{did_you_mean(name, keys)}")
            self._values[name] = keys[name].read(text)

    def __getitem__(self, key: Key[T]) -> T:
        if key.name in self._values:
            value: T = self._values[key.name]
            return value
        return key.default if key.broker is None else self.broker[key.broker]

    def explain(self, key: Key[T]) -> tuple[T, ConfigSource]:
        """The value of `key` and where it comes from."""
        if key.name in self._values:
            return cast(T, self._values[key.name]), self.SOURCE
        if key.broker is None:
            return key.default, ConfigSource.DEFAULT_CONFIG
        return self.broker.explain(key.broker)


class GroupConfig(TopicConfig):
    """A group's configuration: its own overrides over the broker's defaults.

    Raises:
        ConfigError: an override cannot be read, or groups have no such key.
    """

    __slots__ = ()

    OWNER: ClassVar[str] = "group"
    SOURCE: ClassVar[ConfigSource] = ConfigSource.DYNAMIC_GROUP_CONFIG

    def __init__(self, broker: Config, overrides: Mapping[str, str]) -> None:
        super().__init__(broker, overrides, GROUP_KEYS)

    def check(self) -> None:
        """Check the values against the broker's bounds, and against each other.

        Raises:
            ConfigError: a value is out of its bounds, or the session timeout is not longer than the heartbeat interval.
        """
        for low, default, high in GROUP_BOUNDS:
            key = next(each for each in GROUP_KEYS.values() if each.broker is default)
            value = self[key]
            if not self.broker[low] <= value <= self.broker[high]:
                raise ConfigError(
                    f"{key.name} is {value}, but must be between {low.name} ({self.broker[low]}) and {high.name}"
                    f" ({self.broker[high]})"
                )
        for session, heartbeat in (
            (CONSUMER_SESSION_TIMEOUT_MS, CONSUMER_HEARTBEAT_INTERVAL_MS),
            (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS),
        ):
            if self[session] <= self[heartbeat]:
                raise ConfigError(
                    f"{session.name} is {self[session]}: must be greater than {heartbeat.name}, which is "
                    f"{self[heartbeat]}"
                )

    def bounded(self, key: Key[int]) -> int:
        """The value of `key`, or the broker's bound that it exceeds: bounds may change after a value was set."""
        low, high = self._bounds(key)
        return min(max(self[key], self.broker[low]), self.broker[high])

    @staticmethod
    def _bounds(key: Key[int]) -> tuple[Key[int], Key[int]]:
        return next((low, high) for low, default, high in GROUP_BOUNDS if default is key.broker)


def parse_properties(text: str) -> dict[str, str]:
    r"""Read a Java properties file.

    ``key=value``, ``key: value`` or ``key value``; comments begin with ``#`` or ``!``; a backslash at the end of a line
    continues it, and elsewhere begins an escape (``\:``, ``\t``, ``\u0041``). Source: Java's ``Properties.load``.
    """
    out: dict[str, str] = {}
    pending = ""
    for line in re.split(r"\r\n|\r|\n", text):
        line = line.lstrip(_BLANKS)
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        _add_property(out, pending)
        pending = ""
    _add_property(out, pending)
    return out


_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _add_property(out: dict[str, str], line: str) -> None:
    """Add the property of a line that is whole; an empty line has none."""
    key = _KEY.match(line)
    separator = _SEPARATOR.match(line, key.end()) if key is not None else None
    if line and key is not None and separator is not None:
        out[_unescape(key[0])] = _unescape(line[separator.end() :]).strip()


def _unescape(text: str) -> str:
    plain = _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else _LETTERS.get(found[2], found[2]), text)
    # Escapes are UTF-16, in which two units make one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def parse_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Read ``KAFKA_`` variables: ``KAFKA_LOG_SEGMENT_BYTES`` is ``log.segment.bytes``."""
    out = {}
    for name, value in environment.items():
        if name.startswith("KAFKA_"):
            key = (
                name[6:]
                .replace("___", "\0")
                .replace("__", "\1")
                .replace("_", ".")
                .replace("\0", "-")
                .replace("\1", "_")
            )
            out[key.lower()] = value
    return out


def layered(keys: Mapping[str, Key[Any]], layers: Iterable[Mapping[str, str]]) -> Config:
    """A configuration of several layers; later layers win."""
    given: dict[str, str] = {}
    for layer in layers:
        for names in ({key.name for key in keys} for keys in ALIASES):
            if names & layer.keys():
                given = {name: value for name, value in given.items() if name not in names}
        given.update(layer)
    return Config(keys, given)
