"""The lag of a group by member: whether one member, or one partition, has nearly all of it. Pure."""

from collections.abc import Collection, Container, Mapping, Sequence
from typing import Final, NamedTuple

from barnabas_explain.members import Member, Partition

#: The part of a lag that is nearly all of it.
NEARLY_ALL: Final = 0.9
#: The part of a lag that is most of it: members that get on have some, too, until they commit.
MOST_OF: Final = 0.7


class Most(NamedTuple):
    """Nearly all of the lag of a group.

    Attributes:
        member: its member; None if its one partition has no owner.
        partitions: those with most of the lag first.
        lag: the records there.
        is_hot: whether it is one partition, whose topic has others with lag.
    """

    member: Member | None
    partitions: Sequence[Partition]
    lag: int
    is_hot: bool = False


class Lags:
    """The lag of a group, counted by member."""

    def __init__(self) -> None:
        self._owned: dict[Member, dict[Partition, int]] = {}
        self._all: dict[Partition, int] = {}

    def add(self, member: Member | None, place: Partition, lag: int) -> None:
        """Count a partition.

        Args:
            member: its owner; None if it has none.
            place: the partition.
            lag: the records after its committed offset.
        """
        self._all[place] = lag
        if member is not None:
            self._owned.setdefault(member, {})[place] = lag

    def of(self, place: Partition) -> int:
        """The records of a partition."""
        return self._all.get(place, 0)

    def by_member(self, places: Container[Partition]) -> Mapping[Member, Sequence[Partition]]:
        """Those of some partitions that have an owner, by their owners."""
        owned = {member: [each for each in lags if each in places] for member, lags in self._owned.items()}
        return {member: found for member, found in owned.items() if found}

    @property
    def members(self) -> Collection[Member]:
        """The members that have a partition."""
        return self._owned.keys()

    @property
    def working(self) -> int:
        """The members that have a partition."""
        return len(self._owned)

    @property
    def owned(self) -> int:
        """The partitions that have an owner."""
        return sum(map(len, self._owned.values()))

    @property
    def total(self) -> int:
        """The records of all partitions."""
        return sum(self._all.values())

    def most(self) -> Most | None:
        """Nearly all of the lag, if it is that of one partition, while its topic has others with lag, or that of one
        member, while others have partitions; None if it is neither."""
        least = self.total * NEARLY_ALL
        if not least:
            return None
        place = max(self._all, key=self._all.__getitem__)
        others = any(each[0] == place[0] and each != place and lag for each, lag in self._all.items())
        if self._all[place] >= least and others:
            owner = next((member for member, owned in self._owned.items() if place in owned), None)
            return Most(owner, (place,), self._all[place], is_hot=True)
        sums = {member: sum(owned.values()) for member, owned in self._owned.items()}
        if len(sums) < 2:
            return None
        member = max(sums, key=sums.__getitem__)
        if sums[member] < least:
            return None
        lags = self._owned[member]
        partitions = sorted((each for each, lag in lags.items() if lag), key=lambda each: (-lags[each], each))
        return Most(member, partitions, sums[member])
