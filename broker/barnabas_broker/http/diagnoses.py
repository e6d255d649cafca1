"""The newest diagnoses of groups, which :mod:`~barnabas_broker.http.sampler` makes. Pure.

Memory is bounded: :data:`MOST_GROUPS` groups have diagnoses, and a group has :data:`_MOST` of them.
"""

from collections.abc import Container, Hashable, Sequence
from typing import Final

from barnabas_explain.doctor import Diagnosis

#: Groups whose diagnoses are kept; further ones have none.
MOST_GROUPS: Final = 10_000
#: Diagnoses of a group, the worst ones.
_MOST: Final = 20


class Diagnoses:
    """The newest diagnoses of each group."""

    def __init__(self) -> None:
        self._groups: dict[str, tuple[Hashable, tuple[Diagnosis, ...]]] = {}

    def of(self, group_id: str) -> Sequence[Diagnosis]:
        """Diagnoses of a group, worst first; empty if it is well, or if it has not been examined yet."""
        known = self._groups.get(group_id)
        return () if known is None else known[1]

    def is_due(self, group_id: str, version: Hashable) -> bool:
        """Whether a group has to be examined: something has changed since, and there are not too many groups."""
        known = self._groups.get(group_id)
        return len(self._groups) < MOST_GROUPS if known is None else known[0] != version

    def put(self, group_id: str, version: Hashable, diagnoses: Sequence[Diagnosis]) -> None:
        """Keep the diagnoses of a group.

        Args:
            group_id: the group.
            version: changes when it has to be examined again.
            diagnoses: worst first.
        """
        self._groups[group_id] = version, tuple(diagnoses[:_MOST])

    def end_round(self, groups: Container[str]) -> None:
        """Forget the groups that do not exist any more, when all have been examined."""
        self._groups = {name: each for name, each in self._groups.items() if name in groups}
