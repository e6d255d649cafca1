"""Which producer ids are believed. Pure.

The counter of allocated ids is in the cluster image. Clients choose the ids of their batches, and logs keep what
clients have sent: neither may bring the counter to its end, where no producer would get an id any more.

A block of ids begins at the number of microseconds since 1970, or after all earlier blocks (see
:meth:`.ClusterMetadata.next_producer_id`). So all ids that were ever allocated are below one of the two, on every
broker whose clock is about right.
"""

from collections.abc import Iterable
from typing import Final

#: Ids from here on do not raise the counter when they are found in logs. The time of day gets there in 146,000 years,
#: and as many ids again are left above it.
LARGEST_BELIEVED: Final = 1 << 62
#: A counter from here on was not reached by allocations. A block fits between it and the largest id.
END: Final = (1 << 63) - (1 << 20)
#: How far the image and the clock of a broker may be behind those of the broker that has allocated an id: a day.
SLACK: Final = 24 * 3600 * 1_000_000


def above(producer_ids: Iterable[int]) -> tuple[int, list[int]]:
    """The smallest number above the ids in a broker's logs, and the ids that are too large to be believed."""
    believed, refused = -1, []
    for each in producer_ids:
        if each < LARGEST_BELIEVED:
            believed = max(believed, each)
        else:
            refused.append(each)
    return believed + 1, refused


def advanced(known: int, next_id: int) -> int:
    """The counter `known` after ids below `next_id` were allocated: it never goes back, except from its end."""
    return next_id if known >= END else max(known, next_id)


def first_free(next_id: int, now_us: int) -> int:
    """The first id of the next block.

    Args:
        next_id: the counter.
        now_us: microseconds since 1970.
    """
    first = max(next_id, now_us)
    return first if first < END else now_us


def limit(next_id: int, now_ms: int) -> int:
    """A number above all ids that may have been allocated, by any broker.

    Args:
        next_id: the counter.
        now_ms: the time of day.
    """
    return max(next_id, now_ms * 1000) + SLACK
