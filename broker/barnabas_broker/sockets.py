"""Sockets that a broker listens on."""

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from barnabas_broker.errors import BrokerError
from barnabas_protocol.printable import printable

#: Where Linux shows processes and sockets.
_PROC = Path("/proc")
#: The state of a socket that listens, in its tables.
_LISTENS = "0A"


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
        raise _refused(host, port, error) from error
    return listener


def listen(listener: socket.socket, backlog: int) -> None:
    """Let connections to a bound socket wait until they are accepted.

    Raises:
        BrokerError: another program has bound the port at the same time, and listens already.
    """
    try:
        listener.listen(backlog)
    except OSError as error:
        host, port = listener.getsockname()[:2]
        raise _refused(host, port, error) from error


def _refused(host: str, port: int, error: OSError | OverflowError) -> BrokerError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    remedy = _remedy(port) if isinstance(error, OSError) and error.errno == errno.EADDRINUSE else ""
    return BrokerError(f"cannot listen on {host}:{port}: {reason}{remedy}")


def _remedy(port: int) -> str:
    program = program_on(port)
    return f"; stop {'the program that uses it' if program is None else program}, or choose another port"


def program_on(port: int, proc: Path = _PROC) -> str | None:
    """The program that listens on a TCP port of this machine.

    Args:
        port: the port.
        proc: where the system shows its processes.

    Returns:
        Its name and process id, such as "broker (pid 4711)"; None if the system or its permissions do not show it.
    """
    sockets = {f"socket:[{inode}]" for inode in _listening(port, proc)}
    if not sockets:
        return None
    for process in proc.glob("[0-9]*"):
        try:
            if any(str(each.readlink()) in sockets for each in (process / "fd").iterdir()):
                name = (process / "comm").read_text("utf-8", "replace").strip()
                return f"{printable(name)} (pid {process.name})"
        except OSError:
            continue  # it has ended, or belongs to another user
    return None


def _listening(port: int, proc: Path) -> Iterator[str]:
    """The inodes of the sockets that listen on a port."""
    for table in ("tcp", "tcp6"):
        try:
            lines = (proc / "net" / table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]
