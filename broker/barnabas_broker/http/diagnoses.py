"""The newest diagnoses of groups, which :mod:`~barnabas_broker.http.sampler` makes. Pure.

Memory is bounded: :data:`MOST_GROUPS` groups have diagnoses, and a group has :data:`_MOST` of them.
"""

from collections.abc import Container, Hashable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from barnabas_explain.doctor import Diagnosis
from barnabas_explain.group_ids import Sign, together, with_together

#: Groups whose diagnoses are kept; further ones have none.
MOST_GROUPS: Final = 10_000
#: Diagnoses of a group, the worst ones.
_MOST: Final = 20


class _Examined(NamedTuple):
    """A group as it was examined last."""

    version: Hashable
    diagnoses: tuple[Diagnosis, ...]
    sign: Sign | None


class Diagnoses:
    """The newest diagnoses of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, _Examined] = {}
        #: The diagnosis of several groups, by each of these groups.
        self._together: dict[str, Diagnosis] = {}

    def of(self, group_id: str) -> Sequence[Diagnosis]:
        """Diagnoses of a group, worst first; empty if it is well, or if it has not been examined yet."""
        known = self._groups.get(group_id)
        if known is None:
            return ()
        of_several = self._together.get(group_id)
        if of_several is None:
            return known.diagnoses
        alone = with_together(known.diagnoses, self._together)
        return sorted([*alone, replace(of_several, group=group_id)], key=lambda each: -each.severity)

    def is_due(self, group_id: str, version: Hashable) -> bool:
        """Whether a group has to be examined: something has changed since, and there are not too many groups."""
        known = self._groups.get(group_id)
        return len(self._groups) < MOST_GROUPS if known is None else known.version != version

    def put(self, group_id: str, version: Hashable, diagnoses: Sequence[Diagnosis], sign: Sign | None = None) -> None:
        """Keep the diagnoses of a group.

        Args:
            group_id: the group.
            version: changes when it has to be examined again.
            diagnoses: worst first.
            sign: what is to be compared with other groups.
        """
        self._groups[group_id] = _Examined(version, tuple(diagnoses[:_MOST]), sign)

    def end_round(self, groups: Container[str]) -> None:
        """Forget the groups that do not exist any more, when all have been examined, and compare the others."""
        self._groups = {name: each for name, each in self._groups.items() if name in groups}
        self._together = together(each.sign for each in self._groups.values() if each.sign is not None)
