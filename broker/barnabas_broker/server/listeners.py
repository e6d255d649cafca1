"""The listeners of a broker: bound sockets, the certificates that they show, and how clients log in to them."""

import socket
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from typing import NamedTuple

from barnabas_broker.clock import wall_ms
from barnabas_broker.cluster.image import Endpoints
from barnabas_broker.config import PLAINTEXT, Config, Listener
from barnabas_broker.config.checks import advertise, broker_listeners, check_inter_broker, protocols_of
from barnabas_broker.config.keys import (
    ADVERTISED_LISTENERS,
    CLUSTER_URL,
    INTER_BROKER_LISTENER_NAME,
    LISTENER_SECURITY_PROTOCOL_MAP,
    LISTENERS,
)
from barnabas_broker.security.audit import Audit
from barnabas_broker.security.bearer import Check
from barnabas_broker.security.sasl import Credentials
from barnabas_broker.server.certificates import Certificates
from barnabas_broker.server.sasl import (
    SaslLogin,
    SaslSettings,
    ScramDirectory,
    open_check,
    own_credentials,
    sasl_settings,
)
from barnabas_broker.server.server import BACKLOG, SocketServer
from barnabas_broker.sockets import bind, listen


class Listeners(NamedTuple):
    """The listeners of a broker, bound to their ports; see :func:`bind_listeners`.

    Attributes:
        each: the listeners, with the ports in use.
        endpoints: where clients reach them, by their names.
        sockets: a bound socket for each.
        certificates: those of the listeners that speak TLS.
        logins: how clients log in, by the listener's name.
        checks: what checks tokens, by the listener's name.
        own: by what this broker logs in to the others; None if it need not.
    """

    each: tuple[Listener, ...]
    endpoints: Endpoints
    sockets: list[socket.socket]
    certificates: Certificates
    logins: Mapping[str, SaslSettings]
    checks: Mapping[str, Check]
    own: Credentials | None

    @property
    def open_to_all(self) -> bool:
        """Whether no listener has TLS or logins."""
        return not self.logins and not self.certificates

    def queue(self) -> None:
        """Let connections wait in the backlog, until the server accepts them.

        Raises:
            BrokerError: a port is in use.
        """
        for bound in self.sockets:
            listen(bound, BACKLOG)

    async def serve(self, server: SocketServer, users: ScramDirectory, audit: Audit) -> None:
        """Accept connections."""
        for listener, bound in zip(self.each, self.sockets, strict=True):
            settings = self.logins.get(listener.name)
            login = settings and SaslLogin(settings, users, wall_ms, audit, self.checks.get(listener.name))
            await server.listen(bound, listener.name, self.certificates.of(listener.name), login)


async def bind_listeners(stack: AsyncExitStack, config: Config, host: str, port: int) -> Listeners:
    """Bind the listeners. DescribeConfigs shows them afterwards as if they had been configured.

    Args:
        stack: closes what is opened.
        config: its keys; the listeners are set in it.
        host: the address to listen on, if the configuration has no ``listeners``.
        port: the port to listen on, likewise; 0 picks a free one.

    Raises:
        ConfigError: the listeners contradict other keys, or a file cannot be used.
        BrokerError: an address does not exist or is in use, or a package is not installed.
    """
    wanted = broker_listeners(config, LISTENERS) or (Listener(PLAINTEXT, host, port),)
    protocols = protocols_of(wanted, config[LISTENER_SECURITY_PROTOCOL_MAP])
    check_inter_broker(config, wanted)
    certificates, logins = Certificates(config, protocols), sasl_settings(config, protocols)
    between = config[INTER_BROKER_LISTENER_NAME]
    own = own_credentials(config, between) if config[CLUSTER_URL] and between in logins else None
    sockets = [stack.enter_context(closing(bind(each.host, each.port))) for each in wanted]
    listeners = tuple(
        Listener(each.name, each.host, bound.getsockname()[1]) for each, bound in zip(wanted, sockets, strict=True)
    )
    advertised = advertise(listeners, broker_listeners(config, ADVERTISED_LISTENERS), socket.gethostname())
    config.set_static(LISTENERS, ",".join(map(str, listeners)))
    config.set_static(ADVERTISED_LISTENERS, ",".join(map(str, advertised)))
    checks = {
        name: await open_check(settings.bearer, name, wall_ms, stack)
        for name, settings in logins.items()
        if settings.bearer is not None
    }
    endpoints = {each.name: (each.host, each.port) for each in advertised}
    return Listeners(listeners, endpoints, sockets, certificates, logins, checks, own)
