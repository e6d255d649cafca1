"""Partitions of which a ``read_committed`` group gets nothing, because all records were in aborted transactions. Pure.

Found from regular looks at the batches that were written since the look before. About 200 bytes are kept for each of
:data:`MOST` partitions; nothing is done per record.
"""

from typing import Final

from barnabas_explain.members import Partition

#: Partitions that are watched at a time.
MOST: Final = 10_000
#: Transactional ids of a partition that are kept.
_MOST_IDS: Final = 5


class OnlyAborted:
    """A partition in which only aborted records were seen.

    Attributes:
        since: the time of the first look, in seconds on the coordinator's clock.
        until: the time of the last look at which there were such records.
        records: how many there were.
        end: the offset after them.
        transactional_ids: of their transactions, as far as they are known.
        told_at: when it was reported last; None for never.
    """

    __slots__ = ("end", "records", "since", "told_at", "transactional_ids", "until")

    def __init__(self, now: float, offset: int) -> None:
        self.since = self.until = now
        self.records, self.end = 0, offset
        self.transactional_ids: tuple[str, ...] = ()
        self.told_at: float | None = None

    def add(self, records: int, end: int, transactional_ids: tuple[str, ...]) -> None:
        """Further ones were found."""
        self.records += records
        self.end = end
        known = dict.fromkeys((*self.transactional_ids, *transactional_ids))
        self.transactional_ids = tuple(known)[:_MOST_IDS]

    def is_due(self, now: float, patience: float) -> bool:
        """Whether it is to be reported: after `patience` seconds, and then each time that it has lasted twice as
        long."""
        least = patience if self.told_at is None else 2 * (self.told_at - self.since)
        return self.until == now and now - self.since >= least


class AbortedOnly:
    """These partitions of all groups."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Partition, OnlyAborted]] = {}
        self._count = 0

    def of(self, group_id: str) -> dict[Partition, OnlyAborted]:
        """Those of a group; empty if there are too many of other groups."""
        return self._groups.get(group_id, {})

    def put(self, group_id: str, found: dict[Partition, OnlyAborted]) -> None:
        """Keep those of a group, of a look at it."""
        self.forget(group_id)
        kept = dict(list(found.items())[: MOST - self._count])
        if kept:
            self._groups[group_id] = kept
            self._count += len(kept)

    def groups(self) -> list[str]:
        """The groups with such partitions."""
        return list(self._groups)

    def forget(self, group_id: str) -> None:
        """Forget a group that is gone, or has no members."""
        self._count -= len(self._groups.pop(group_id, ()))
