"""The states of a client object from its creation to its end."""

from enum import Enum


class Lifecycle(Enum):
    """The state of a producer or an admin client.

    NEW: created, not started: nothing is connected, and only `start` may be called. Goes to RUNNING or CLOSED.
    RUNNING: started. Goes to CLOSED.
    CLOSED: stopped, or `start` failed. It cannot be started again.
    """

    NEW = "new"
    RUNNING = "running"
    CLOSED = "closed"
