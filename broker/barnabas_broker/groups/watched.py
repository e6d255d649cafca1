"""State that a coordinator keeps of groups from one look at them to the next, and when it reports what lasts. Pure."""

from collections.abc import Mapping
from typing import Final, Generic, TypeVar

from barnabas_explain.members import Partition

T = TypeVar("T")

#: Partitions that are watched at a time.
MOST: Final = 10_000


class Lasting:
    """A state that lasts.

    Attributes:
        since: when it began, in seconds on the coordinator's clock.
        told_at: when it was reported last; None for never.
    """

    __slots__ = ("since", "told_at")

    def __init__(self, now: float) -> None:
        self.since = now
        self.told_at: float | None = None

    def is_due(self, now: float, patience: float) -> bool:
        """Whether it is to be reported: after `patience` seconds, and then each time that it has lasted twice as
        long."""
        return now - self.since >= (patience if self.told_at is None else 2 * (self.told_at - self.since))


class OfPartitions(Generic[T]):
    """State of partitions that groups read, by group: of :data:`MOST` partitions of all groups together."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[Partition, T]] = {}
        self._count = 0

    @property
    def room(self) -> int:
        """The number of partitions that can be added."""
        return MOST - self._count

    def of(self, group_id: str) -> Mapping[Partition, T]:
        """The state of the partitions of a group."""
        return self._groups.get(group_id, {})

    def put(self, group_id: str, found: Mapping[Partition, T]) -> None:
        """Replace the state of the partitions of a group; there may be room for the first ones only."""
        self.forget(group_id)
        kept = dict(list(found.items())[: self.room])
        if kept:
            self._groups[group_id] = kept
            self._count += len(kept)

    def groups(self) -> list[str]:
        """The groups with such partitions."""
        return list(self._groups)

    def forget(self, group_id: str) -> None:
        """Forget a group that is gone, or has no members."""
        self._count -= len(self._groups.pop(group_id, ()))
