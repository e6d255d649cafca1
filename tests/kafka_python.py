"""Imports kafka-python, closes the sockets that it forgets, and ends the joins that it forgets.

kafka-python 3 does not close a socket whose connection was refused. The collector finds it at any later time, in any
test, and reports it as a ResourceWarning, which is an error here.

The leader of a group joins again when the metadata of its topics has changed. If a ``poll()`` of kafka-python 3.0.12
ends between its assignment and the answer to its SyncGroup, the next one sees no reason to join any more (the
assignment was made from the new metadata), never takes the answer, and sends no heartbeats from then on.

Import this module before a test uses kafka-python.
"""

import socket
import warnings
from typing import Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    import kafka
    from kafka.coordinator.consumer import ConsumerCoordinator
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

_needs_to_rejoin = ConsumerCoordinator.need_rejoin


def _need_rejoin(self: Any) -> bool:
    """Whether the member has to join: once it has, until the join is over."""
    needed = bool(_needs_to_rejoin(self))
    if needed:
        self.request_rejoin()
    return needed


ConsumerCoordinator.need_rejoin = _need_rejoin

__all__ = ["kafka"]
