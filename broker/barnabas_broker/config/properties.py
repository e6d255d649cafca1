"""Configuration values and where they come from: a properties file, the environment, flags, and changes at run time.

Later sources win: the ``--config`` file, then ``KAFKA_`` environment variables (``.`` as ``_``, ``_`` as ``__``,
``-`` as ``___``), then ``--set key=value`` and the flags that have a name of their own. An unknown key is a warning; a
value that cannot be read is a :class:`~barnabas_broker.config.keys.ConfigError`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeVar, cast

from barnabas_broker.config.keys import ConfigError, Key

T = TypeVar("T")


class ConfigSource(IntEnum):
    """Where a value comes from, with the codes of DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5


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
        return cast(T, self._values[key.name])

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

    def set_dynamic(self, dynamic: Mapping[str, str], dynamic_default: Mapping[str, str]) -> None:
        """Replace the values that were set at run time; every value must have been checked before."""
        self.dynamic, self.dynamic_default = dynamic, dynamic_default
        self._values.clear()

    def check(self) -> list[str]:
        """Read every value that was given.

        Returns:
            The names of keys that do not exist, for a warning each.

        Raises:
            ConfigError: a value cannot be read.
        """
        for name, text in self.given.items():
            if name in self.keys:
                self.keys[name].read(text)
        return [name for name in self.given if name not in self.keys]


class TopicConfig:
    """A topic's configuration: its own overrides over the broker's defaults.

    Raises:
        ConfigError: an override cannot be read, or topics have no such key.
    """

    __slots__ = ("_values", "broker", "overrides")

    def __init__(self, broker: Config, overrides: Mapping[str, str], keys: Mapping[str, Key[Any]]) -> None:
        self.broker = broker
        self.overrides = dict(overrides)
        self._values: dict[str, Any] = {}
        for name, text in overrides.items():
            if name not in keys:
                raise ConfigError(f"{name}: a topic has no such configuration")
            self._values[name] = keys[name].read(text)

    def __getitem__(self, key: Key[T]) -> T:
        if key.name in self._values:
            return cast(T, self._values[key.name])
        return key.default if key.broker is None else self.broker[key.broker]

    def explain(self, key: Key[T]) -> tuple[T, ConfigSource]:
        """The value of `key` and where it comes from."""
        if key.name in self._values:
            return cast(T, self._values[key.name]), ConfigSource.DYNAMIC_TOPIC_CONFIG
        if key.broker is None:
            return key.default, ConfigSource.DEFAULT_CONFIG
        return self.broker.explain(key.broker)


def parse_properties(text: str) -> dict[str, str]:
    """Read a Java properties file: ``key=value`` or ``key: value``, ``#`` and ``!`` comments, backslash at a line's
    end."""
    out: dict[str, str] = {}
    pending = ""
    for line in text.splitlines():
        pending += line.lstrip()
        if pending.endswith("\\") and not pending.endswith("\\\\"):
            pending = pending[:-1]
            continue
        line, pending = pending, ""
        if not line or line[0] in "#!":
            continue
        at = min((i for i in (line.find("="), line.find(":")) if i >= 0), default=len(line))
        out[line[:at].strip()] = line[at + 1 :].strip()
    return out


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
        given.update(layer)
    return Config(keys, given)
