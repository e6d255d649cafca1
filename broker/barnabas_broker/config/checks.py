"""Checks of a whole configuration: keys that have no effect or are refused, and keys that depend on each other."""

import os
from collections.abc import Iterable, Sequence
from typing import Any, Final

from barnabas_broker.config.keys import (
    ALIASES,
    BROKER_KEYS,
    CLUSTER_URL,
    COMPRESSION_TYPE,
    CONTROLLER_LISTENER_NAMES,
    DYNAMIC_LISTENER_KEYS,
    GROUP_BOUNDS,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_KEYS,
    LISTENERS,
    LOG_DIRS,
    MECHANISM_KEYS,
    MECHANISMS,
    PROCESS_ROLES,
    SECURITY_INTER_BROKER_PROTOCOL,
    ConfigError,
    Key,
)
from barnabas_broker.config.listeners import PLAINTEXT, PREFIX, PROTOCOLS, Listener, prefix_of
from barnabas_broker.config.properties import Config
from barnabas_broker.config.unsupported import DYNAMIC_UNSERVED, PREFIXES, UNSERVED, DynamicKey, without_effect
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
        elif (key := _key_of_listener(name)) is not None:
            _check_of_listener(config, name, key, text)
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


def known_key(name: str) -> Key[Any] | None:
    """The served key with this name, which may be given for one listener; None if there is none."""
    return BROKER_KEYS.get(name) or BROKER_KEYS.get(_key_of_listener(name) or "")


def dynamic_key_of_listener(name: str, listeners: Iterable[str]) -> Key[Any] | None:
    """The key that is given for one of these listeners and may be changed at run time; None if it may not."""
    for each in listeners:
        key = name.removeprefix(prefix_of(each))
        if key != name and key in DYNAMIC_LISTENER_KEYS:
            return BROKER_KEYS[key]
    return None


def dynamic_unserved(name: str, listeners: Iterable[str]) -> DynamicKey | None:
    """The key without effect that may be changed at run time, for one of these listeners also; None if it may not."""
    for prefix in ("", *map(prefix_of, listeners)):
        found = DYNAMIC_UNSERVED.get(name.removeprefix(prefix)) if name.startswith(prefix) else None
        if found is not None and (found.per_broker or not prefix):
            return found
    return None


def same_directory(one: str, other: str) -> bool:
    """Whether two paths name the same directory, which need not exist."""
    return os.path.realpath(one) == os.path.realpath(other)


def _check_refused(config: Config, name: str, text: str) -> None:
    """Check a key that may only have Kafka's default value; metadata.log.dir may also name the log directory."""
    unserved = UNSERVED[name]
    if text in ("", unserved.default) or (name == "metadata.log.dir" and same_directory(text, config[LOG_DIRS])):
        return
    shown = "" if name.endswith("password") else f"={text!r}"
    raise ConfigError(f"{name}{shown}: {unserved.why}; leave it out")


def _key_of_listener(name: str) -> str | None:
    """The key that is given for one listener; None if `name` is no such key."""
    if not name.startswith(PREFIX):
        return None
    # The name of a listener may contain dots.
    keys = [*LISTENER_KEYS, *(key for key in UNSERVED if key.startswith("ssl.") and _is_refused(key))]
    # Of sasl.jaas.config and plain.sasl.jaas.config the longer one counts.
    return max((key for key in keys if name.endswith(f".{key}")), key=len, default=None)


def _is_refused(name: str) -> bool:
    return name in UNSERVED and UNSERVED[name].refused


def _check_of_listener(config: Config, name: str, key: str, text: str) -> None:
    """Check a key that is given for one listener.

    Raises:
        ConfigError: its value cannot be read, it is refused, or there is no such listener: then a mistyped name would
            leave a listener less secure than it looks.
    """
    names = [each.name for each in config[LISTENERS]] or [PLAINTEXT]
    prefixes = [prefix_of(each) for each in (*names, *config[CONTROLLER_LISTENER_NAMES])]
    rests = [name.removeprefix(prefix) for prefix in prefixes if name.startswith(prefix)]
    if not rests:
        raise ConfigError(f"{name}: there is no such listener; listeners has {', '.join(names)}")
    mechanisms = [f"{each.lower()}.{key}" for each in MECHANISMS] if key in MECHANISM_KEYS else []
    if not any(rest in (key, *mechanisms) for rest in rests):
        raise ConfigError(f"{name}: there is no such key of a listener. To do: write listener.name.NAME.{key}")
    if _is_refused(key):
        _check_refused(config, key, text.strip())
        return
    try:
        config.keys[key].read(text)
    except ConfigError as error:
        raise ConfigError(f"{name.removesuffix(key)}{error}") from None


def _check_aliases(config: Config) -> None:
    """Check that keys with two names have one value."""
    for key, older in ALIASES:
        if key.name in config.given and older.name in config.given:
            value, other = (each.read(config.given[each.name]) for each in (key, older))
            if value != other and not (key is LOG_DIRS and same_directory(value, other)):
                raise ConfigError(f"{key.name}={value} and {older.name}={other}: give one of them")


def _check_consumer_groups(config: Config) -> None:
    for low, key, high in GROUP_BOUNDS:
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


def protocols_of(listeners: Sequence[Listener], protocols: tuple[str, ...]) -> dict[str, str]:
    """The security protocol of each listener, by its name.

    Without ``listener.security.protocol.map``, names that are not those of protocols speak PLAINTEXT. With it, they
    must be in it, as in Kafka: a mistyped name must not open a listener without TLS.

    Raises:
        ConfigError: a listener is not in the map.
    """
    mapped = {name: name for name in PROTOCOLS}
    mapped |= {name: protocol for name, _, protocol in (entry.partition(":") for entry in protocols)}
    found = {}
    for each in listeners:
        if protocols and each.name not in mapped:
            raise ConfigError(
                f"listeners: {each} is not in listener.security.protocol.map: add {each.name}:SSL or "
                f"{each.name}:PLAINTEXT to it"
            )
        found[each.name] = mapped.get(each.name, PLAINTEXT)
    return found


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


def check_inter_broker(config: Config, listeners: Sequence[Listener]) -> None:
    """Check that the listener that brokers use among themselves exists.

    Raises:
        ConfigError: no listener has this name, or two keys name it.
    """
    name = config[INTER_BROKER_LISTENER_NAME]
    if INTER_BROKER_LISTENER_NAME.name in config.given and SECURITY_INTER_BROKER_PROTOCOL.name in config.given:
        raise ConfigError("inter.broker.listener.name and security.inter.broker.protocol: give one of them")
    names = [each.name for each in listeners]
    if name not in names:
        raise ConfigError(
            f"inter.broker.listener.name={name!r}: must be one of listeners: {', '.join(names)}. To do: set it to the "
            "one by which brokers reach each other"
        )
