"""Checks of a whole configuration: keys that have no effect or are refused, and keys that depend on each other."""

import os
from collections.abc import Sequence
from typing import Final

from barnabas_broker.config.keys import (
    ALIASES,
    BROKER_KEYS,
    CLUSTER_URL,
    COMPRESSION_TYPE,
    CONSUMER_GROUP_BOUNDS,
    CONTROLLER_LISTENER_NAMES,
    LISTENERS,
    LOG_DIRS,
    PROCESS_ROLES,
    ConfigError,
    Key,
)
from barnabas_broker.config.listeners import PLAINTEXT, PROTOCOLS, Listener
from barnabas_broker.config.properties import Config
from barnabas_broker.config.unserved import PREFIXES, UNSERVED, without_effect
from barnabas_protocol.suggestions import did_you_mean, nearest

_ANYWHERE: Final = ("0.0.0.0", "::", "")
#: Keys that list the controllers of a cluster.
_QUORUM: Final = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")
#: How like a name in the environment must be to that of a key before it counts as mistyped: other programs
#: use ``KAFKA_`` variables, too.
_MISTYPED: Final = 0.85


def check_config(config: Config) -> list[str]:
    """Check what was given before the start.

    Returns:
        Warnings, one line each: keys that do not exist, and keys that have no effect, with the reason.

    Raises:
        ConfigError: a value cannot be read, keys contradict each other, or the broker cannot do what a key asks for.
    """
    unknown: list[str] = []
    ignored: dict[str, list[str]] = {}
    for name, text in config.given.items():
        unserved = UNSERVED.get(name)
        if name in config.keys:
            config.keys[name].read(text)
        elif unserved is not None and unserved.refused:
            _check_refused(config, name, text.strip())
        elif (why := without_effect(name)) is not None:
            ignored.setdefault(why, []).append(name)
        else:
            unknown.append(f"{name}: no such configuration key, ignored{did_you_mean(name, [*BROKER_KEYS, *UNSERVED])}")
    _check_aliases(config)
    _check_roles(config)
    _check_consumer_groups(config)
    if config[COMPRESSION_TYPE] != COMPRESSION_TYPE.default:
        ignored["batches are stored as producers compressed them"] = [COMPRESSION_TYPE.name]
    closed = [str(each) for each in config[LISTENERS] if each.name in config[CONTROLLER_LISTENER_NAMES]]
    if closed:
        ignored["it is not opened, because Barnabas has no controllers (controller.listener.names)"] = closed
    return unknown + [f"{', '.join(names)}: no effect, {why}" for why, names in ignored.items()]


def is_for_broker(name: str) -> bool:
    """Whether a name from the environment is a configuration key, or probably a mistyped one."""
    # Not the removed keys: Kubernetes sets KAFKA_PORT in every container beside a service that is named kafka.
    known = name in BROKER_KEYS or name in UNSERVED or name.startswith(tuple(PREFIXES))
    return known or nearest(name, BROKER_KEYS, _MISTYPED) is not None


def same_directory(one: str, other: str) -> bool:
    """Whether two paths name the same directory, which need not exist."""
    return os.path.realpath(one) == os.path.realpath(other)


def _check_refused(config: Config, name: str, text: str) -> None:
    """Check a key that may only have Kafka's default value; metadata.log.dir may also name the log directory."""
    unserved = UNSERVED[name]
    if text in ("", unserved.default) or (name == "metadata.log.dir" and same_directory(text, config[LOG_DIRS])):
        return
    raise ConfigError(f"{name}={text!r}: {unserved.why}; leave it out")


def _check_aliases(config: Config) -> None:
    """Check that keys with two names have one value."""
    for key, older in ALIASES:
        if key.name in config.given and older.name in config.given:
            value, other = (each.read(config.given[each.name]) for each in (key, older))
            if value != other and not (key is LOG_DIRS and same_directory(value, other)):
                raise ConfigError(f"{key.name}={value} and {older.name}={other}: give one of them")


def _check_consumer_groups(config: Config) -> None:
    for low, key, high in CONSUMER_GROUP_BOUNDS:
        if not config[low] <= config[key] <= config[high]:
            raise ConfigError(
                f"{key.name} is {config[key]}, but must be between {low.name} ({config[low]}) and {high.name}"
                f" ({config[high]})"
            )


def _check_roles(config: Config) -> None:
    """Check that a broker that shall be part of a cluster is not started as a single one."""
    if config[CLUSTER_URL]:
        return
    if config[PROCESS_ROLES] == ("broker",):
        raise ConfigError(
            "process.roles=broker: this is a broker of a cluster; give --cluster, or broker,controller for a single one"
        )
    for name in _QUORUM:
        controllers = [each for each in config.given.get(name, "").split(",") if each.strip()]
        if len(controllers) > 1:
            raise ConfigError(
                f"{name} has {len(controllers)} controllers: brokers coordinate through etcd; give --cluster, or leave "
                "it out for a single broker"
            )


def broker_listeners(config: Config, key: Key[tuple[Listener, ...]]) -> tuple[Listener, ...]:
    """The listeners of `key` that are not for controllers.

    Raises:
        ConfigError: all of them are.
    """
    found = tuple(each for each in config[key] if each.name not in config[CONTROLLER_LISTENER_NAMES])
    if config[key] and not found:
        raise ConfigError(f"{key.name} has only listeners for controllers (controller.listener.names)")
    return found


def check_protocols(listeners: Sequence[Listener], protocols: tuple[str, ...]) -> None:
    """Check that all listeners speak PLAINTEXT, as names do that are not mapped and are not the name of a protocol.

    Raises:
        ConfigError: a listener speaks another protocol.
    """
    mapped = {name: name for name in PROTOCOLS}
    mapped |= {name: protocol for name, _, protocol in (entry.partition(":") for entry in protocols)}
    for each in listeners:
        protocol = mapped.get(each.name, PLAINTEXT)
        if protocol != PLAINTEXT:
            raise ConfigError(
                f"listeners: {each} is to speak {protocol} (listener.security.protocol.map), which is not served: "
                "map it to PLAINTEXT, or leave it out"
            )


def advertise(listeners: Sequence[Listener], given: tuple[Listener, ...], hostname: str) -> tuple[Listener, ...]:
    """The advertised address of each listener.

    Args:
        listeners: at least one, with the ports in use.
        given: ``advertised.listeners``. An address without a name is the first listener's; port 0 means its own port.
        hostname: the host of listeners that listen on all addresses and are not in `given`.

    Raises:
        ConfigError: an address is given twice, or for a listener that does not exist.
    """
    advertised = {each.name: Listener(each.name, _reachable(each.host, hostname), each.port) for each in listeners}
    ports = {each.name: each.port for each in listeners}
    seen = set()
    for each in given:
        name = each.name or listeners[0].name
        if name not in advertised:
            raise ConfigError(f"advertised.listeners: {each} is no listener; listeners has {', '.join(advertised)}")
        if name in seen:
            raise ConfigError(f"advertised.listeners: there are two addresses for {name}")
        seen.add(name)
        advertised[name] = Listener(name, each.host, each.port or ports[name])
    return tuple(advertised.values())


def _reachable(host: str, hostname: str) -> str:
    return hostname if host in _ANYWHERE else host


def check_inter_broker(name: str, listeners: Sequence[Listener]) -> None:
    """Check that the listener that brokers use among themselves exists.

    Raises:
        ConfigError: no listener has this name.
    """
    names = [each.name for each in listeners]
    if name not in names:
        raise ConfigError(f"inter.broker.listener.name={name!r}: must be one of listeners: {', '.join(names)}")
