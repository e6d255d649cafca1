"""Requests for what this broker does not support: one clear warning for each client and feature.

The protocol often has no field for the reason, and clients repeat what was refused: they reconnect, or retry until they
time out. The warning says what was asked for, and what to change.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas_broker.log_throttle import Repeated
from barnabas_broker.logs import logger
from barnabas_broker.recent import Newest
from barnabas_protocol.printable import printable
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Versions

log = logger("server")

#: Warnings that are remembered. Beyond that, the one that was not repeated for longest is forgotten.
REMEMBERED: Final = 1000
#: Characters of a client id that are logged and compared.
LONGEST_CLIENT_ID: Final = 100


@dataclass(frozen=True, slots=True)
class Feature:
    """Something that this broker does not serve.

    Attributes:
        name: what users call it.
        advice: what to do instead.
    """

    name: str
    advice: str


TLS: Final = Feature("TLS", "set security.protocol=PLAINTEXT in the client, or connect to a listener with TLS")
SASL: Final = Feature("SASL", "set security.protocol=PLAINTEXT in the client, or connect to a listener with SASL")
HTTP: Final = Feature("HTTP", "this port speaks Kafka's protocol; start the broker with --http-port for HTTP")
STREAMS_GROUPS: Final = Feature("the streams protocol of KIP-1071", "set group.protocol=classic in the client")
OLD_MESSAGE_FORMATS: Final = Feature("message formats before version 2", "use a client that speaks Kafka 0.11 or newer")

#: Features by a part of the names of their APIs.
_FAMILIES: Final = (("STREAMS_GROUP_", STREAMS_GROUPS),)
_METHODS: Final = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")
_HANDSHAKE: Final = b"\x16\x03"


def feature_of_api(key: int) -> Feature:
    """The feature that an API belongs to which is not served."""
    try:
        name = ApiKey(key).name
    except ValueError:
        return Feature(f"API {key}", "the client is newer than this broker, or does not speak Kafka's protocol")
    for part, feature in _FAMILIES:
        if part in name:
            return feature
    return Feature(f"{ApiKey(key).title} (API {key})", "use only the APIs that ApiVersions lists")


def unserved_version(api: str, version: int, served: Versions) -> Feature:
    """A version of an API that is not served; clients that read ApiVersions do not use it."""
    return Feature(f"{api} version {version}", f"use a client that reads ApiVersions; the versions {served} are served")


def feature_of_bytes(start: bytes) -> Feature | None:
    """The protocol that a connection speaks instead of Kafka's, by its first four bytes; None if it is not known."""
    if start.startswith(_HANDSHAKE):
        return TLS
    return HTTP if start in _METHODS else None


class Refusals:
    """Warns about what clients ask for in vain, once for each client and feature.

    Memory is bounded: after :data:`REMEMBERED` other warnings, one may be repeated. Of one host few are written in a
    minute (:mod:`barnabas_broker.log_throttle`), for clients invent their ids.

    Args:
        now: a monotonic clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._written: Repeated[str, tuple[str, Feature]] = Repeated()
        self._warned: Newest[tuple[str, Feature], None] = Newest(REMEMBERED)

    def warn(self, feature: Feature, host: str, client_id: str | None) -> None:
        """Write the warning, unless this client has caused it before.

        Args:
            feature: what the client asked for.
            host: the client's address.
            client_id: as in its request; the address stands for clients without one.
        """
        client_id = printable((client_id or "")[:LONGEST_CLIENT_ID])
        key = (client_id or host, feature)
        is_known = key in self._warned
        self._warned[key] = None
        if is_known or not self._written.add(host, key, self._now()):
            return
        by = {"client_id": client_id, "host": host} if client_id else {"host": host}
        log.warning(f"a client asks for {feature.name}, which this broker does not serve", **by, advice=feature.advice)

    def tick(self, now: float) -> None:
        """Write how many warnings were not written. To be called every few seconds."""
        for host, said, times in self._written.ended(now):
            if isinstance(said, type):
                log.warning("clients ask for what this broker does not serve", host=host, others=times)
