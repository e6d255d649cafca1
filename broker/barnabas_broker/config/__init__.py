"""Configuration: Kafka's keys with their types, defaults and units, and where values come from.

Imported by every other package of the broker; imports nothing of it.

- :mod:`~barnabas_broker.config.keys`: every key that is served
- :mod:`~barnabas_broker.config.unsupported`: the other keys of Apache Kafka
- :mod:`~barnabas_broker.config.properties`: values and their sources
- :mod:`~barnabas_broker.config.listeners`: what a listener is, and how it is written
- :mod:`~barnabas_broker.config.checks`: what may not be given, has no effect, or depends on other keys
"""

from barnabas_broker.config.keys import (
    BROKER_KEYS,
    CLIENT_METRICS_KEYS,
    GROUP_KEYS,
    TOPIC_KEYS,
    ConfigError,
    ConfigType,
    Key,
    show,
)
from barnabas_broker.config.listeners import PLAINTEXT, Listener
from barnabas_broker.config.properties import (
    Config,
    ConfigSource,
    GroupConfig,
    TopicConfig,
    layered,
    parse_environment,
    parse_properties,
)

__all__ = [
    "BROKER_KEYS",
    "CLIENT_METRICS_KEYS",
    "GROUP_KEYS",
    "PLAINTEXT",
    "TOPIC_KEYS",
    "Config",
    "ConfigError",
    "ConfigSource",
    "ConfigType",
    "GroupConfig",
    "Key",
    "Listener",
    "TopicConfig",
    "layered",
    "parse_environment",
    "parse_properties",
    "show",
]
