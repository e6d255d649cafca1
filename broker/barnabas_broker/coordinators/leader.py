"""The leader of a partition, and what it reports of its log. Pure."""

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


class DistantLog(NamedTuple):
    """The log of a partition, as its leader has reported it to a broker that has no replica.

    Attributes:
        start: its first offset.
        stable: its last stable offset.
        offset: from which on records were looked for; -1 if they were not.
        has_records: whether a ``read_committed`` consumer gets one from there on; None if that is not known.
    """

    start: int
    stable: int
    offset: int
    has_records: bool | None
