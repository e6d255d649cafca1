"""Imports kafka-python, and closes the sockets that it forgets.

kafka-python 3 does not close a socket whose connection was refused. The collector finds it at any later time, in any
test, and reports it as a ResourceWarning, which is an error here. Import this module before a test uses kafka-python.
"""

import socket
import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    from kafka.net.inet import KafkaNetSocket


class ClosingSocket(socket.socket):
    """A socket that is closed, without a warning, when it is collected."""

    def __del__(self) -> None:
        self.close()


def _closing_socket(
    self: object, family: int = socket.AF_UNSPEC, sock_type: int = socket.SOCK_STREAM, proto: int = socket.IPPROTO_TCP
) -> socket.socket:
    return ClosingSocket(family, sock_type, proto)


KafkaNetSocket.socket = _closing_socket

__all__ = ["kafka"]
