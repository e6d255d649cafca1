"""The leader of a partition. Pure."""

from typing import NamedTuple


class Leader(NamedTuple):
    """The leader of a partition.

    Attributes:
        node_id: its node id; -1 while there is none.
        epoch: its leader epoch.
        is_here: whether it is this broker.
    """

    node_id: int
    epoch: int
    is_here: bool
