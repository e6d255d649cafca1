"""Sockets that a broker listens on."""

import errno
import socket
from typing import Final

from barnabas_broker.errors import BrokerError

_IN_USE: Final = "stop the program that uses it, or choose another port"


def bind(host: str, port: int) -> socket.socket:
    """Create a socket that is bound to an address.

    Raises:
        BrokerError: the address does not exist or is in use.
    """
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise BrokerError(f"cannot listen on {host}:{port}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) else str(error)
        remedy = f"; {_IN_USE}" if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else ""
        raise BrokerError(f"cannot listen on {host}:{port}: {reason}{remedy}") from error
    return listener
