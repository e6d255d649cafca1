"""Clients that ask for the coordinator of a group that does not exist, and then stay away from it. Pure.

A consumer whose subscription matches no topic does so (librdkafka, for one): it stays connected, does not join, and the
group never comes to be. So does a client that does not reach the advertised address. An administrator's tool asks, too;
it describes the group, or is gone soon. A consumer that reads with assign() sends Fetches.

Memory is bounded: about 300 bytes for each of :data:`MOST` groups.
"""

from collections.abc import Callable
from math import inf
from typing import Final, NamedTuple

from barnabas_broker.groups.effects import Caller
from barnabas_broker.recent import Newest

#: Groups that are remembered.
MOST: Final = 1_000
#: Seconds for which a client may take to join.
PATIENCE: Final = 30.0
#: Seconds after which the same group is reported again.
_AGAIN: Final = 3_600.0
#: Characters of the name of a group that is remembered.
_MOST_CHARACTERS: Final = 249


class Search(NamedTuple):
    """A request for the coordinator of a group.

    Attributes:
        group_id: the group.
        caller: the client.
        at: when it asked first, in seconds on the coordinator's clock.
        listener: that on which it asked; "" if that is not known.
        advertised: the address of the coordinator that it got; "" if that is not known.
    """

    group_id: str
    caller: Caller
    at: float
    listener: str = ""
    advertised: str = ""

    @property
    def stays_away(self) -> bool:
        """Whether the client is still connected, and has not sent a Fetch since."""
        connection = self.caller.connection
        if connection is None or connection.is_closed:
            return False
        fetched_at = connection.client.fetched_at
        return fetched_at is None or fetched_at < self.at


class Searches:
    """The groups that clients look for.

    Args:
        report: called with a client that has stayed away.
    """

    def __init__(self, report: Callable[[Search], None]) -> None:
        self.armed = inf
        self._report = report
        #: The oldest ones first.
        self._waiting: Newest[str, Search] = Newest(MOST)
        #: When groups were reported.
        self._reported: Newest[str, float] = Newest(MOST)

    def next_deadline(self) -> float:
        return next((search.at + PATIENCE for search in self._waiting.values()), inf)

    def fire(self, now: float) -> None:
        while self._waiting and self.next_deadline() <= now:
            search = self._waiting.pop(next(iter(self._waiting)))
            if search.stays_away:
                self._reported[search.group_id] = now
                self._report(search)

    def add(self, group_id: str, caller: Caller, now: float, listener: str = "", advertised: str = "") -> None:
        """A client asks for the coordinator of a group that is not known.

        Args:
            group_id: the group.
            caller: the client.
            now: in seconds on the coordinator's clock.
            listener: as in :class:`Search`.
            advertised: as in :class:`Search`.
        """
        connection = caller.connection
        if connection is None or len(group_id) > _MOST_CHARACTERS:
            return
        if connection.sought not in (None, group_id):
            # A program that is interested in several groups is no consumer.
            self._forget(connection.sought or "", caller)
            return
        connection.sought = group_id
        known = self._waiting.get(group_id)
        if known is not None and known.stays_away:
            return
        if now - self._reported.get(group_id, -inf) < _AGAIN:
            return
        self._waiting[group_id] = Search(group_id, caller, now, listener, advertised)

    def looked_at(self, group_id: str, caller: Caller) -> None:
        """A client describes a group, reads its offsets, or is refused: it does not stay away."""
        if self._waiting:
            self._forget(group_id, caller)

    def _forget(self, group_id: str, caller: Caller) -> None:
        search = self._waiting.get(group_id)
        if search is not None and search.caller[:2] == caller[:2]:
            del self._waiting[group_id]
