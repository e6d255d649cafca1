"""Clients that ask for the coordinator of a group that does not exist, and then stay away from it. Pure.

A consumer whose subscription matches no topic does so (librdkafka, for one): it stays connected, does not join, and the
group never comes to be. A client that does not reach the advertised address asks again and again, librdkafka on a new
connection each time. An administrator's tool asks, too; it describes the group, or is gone soon. A consumer that reads
with assign() sends Fetches.

Memory is bounded: about 300 bytes for each of :data:`MOST` groups.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from barnabas_broker.groups.effects import Caller
from barnabas_broker.recent import Newest

#: Groups that are remembered.
MOST: Final = 1_000
#: Seconds for which a client may take to join.
PATIENCE: Final = 30.0
#: A client asks again and again if it has asked so often, over so many seconds, and has done so within so many.
_OFTEN: Final = 10
_STILL: Final = 10.0
#: Seconds after which the same group is reported again.
_AGAIN: Final = 3_600.0
#: Characters of the name of a group that is remembered.
_MOST_CHARACTERS: Final = 249


@dataclass(slots=True)
class Search:
    """A client that has asked for the coordinator of a group.

    Attributes:
        group_id: the group.
        caller: the client, on the connection on which it asked last.
        at: when it asked first, in seconds on the coordinator's clock.
        listener: that on which it asked; "" if that is not known.
        advertised: the address of the coordinator that it got; "" if that is not known.
        asked_at: when it asked last.
        connected_at: when it asked first on that connection.
        times: how often it has asked.
    """

    group_id: str
    caller: Caller
    at: float
    listener: str
    advertised: str
    asked_at: float
    connected_at: float
    times: int = 1

    @property
    def stays_away(self) -> bool:
        """Whether the client is still connected, and has not sent a Fetch since."""
        connection = self.caller.connection
        return connection is not None and not connection.is_closed and not self.has_fetched

    @property
    def has_fetched(self) -> bool:
        """Whether the client has sent a Fetch since it asked."""
        connection = self.caller.connection
        fetched_at = None if connection is None else connection.client.fetched_at
        return fetched_at is not None and fetched_at >= self.at

    def asks_again(self, now: float) -> bool:
        """Whether the client asks again and again."""
        return self.times >= _OFTEN and now - self.asked_at <= _STILL <= self.asked_at - self.at


class Searches:
    """The groups that clients look for.

    Args:
        report: called with a client that has stayed away.
    """

    def __init__(self, report: Callable[[Search], None]) -> None:
        self.armed = inf
        self._report = report
        #: By group, client id and host, the oldest ones first: a tool that looks at a group does not hide its consumer.
        self._waiting: Newest[tuple[str, str, str], Search] = Newest(MOST)
        #: When groups were reported.
        self._reported: Newest[str, float] = Newest(MOST)

    def next_deadline(self) -> float:
        return next((search.at + PATIENCE for search in self._waiting.values()), inf)

    def fire(self, now: float) -> None:
        while self._waiting and self.next_deadline() <= now:
            search = self._waiting.pop(next(iter(self._waiting)))
            asks_again = search.asks_again(now)
            if not asks_again and search.stays_away and now < search.connected_at + PATIENCE:
                # It has connected anew, and may have been restarted.
                search.at, search.times = search.connected_at, 1
                self._waiting[_key(search.group_id, search.caller)] = search
            elif (search.stays_away or (asks_again and not search.has_fetched)) and self._is_due(search, now):
                self._reported[search.group_id] = now
                self._report(search)

    def add(self, group_id: str, caller: Caller, now: float, listener: str = "", advertised: str = "") -> None:
        """A client asks for the coordinator of a group that is not known.

        Args:
            group_id: the group.
            caller: the client.
            now: in seconds on the coordinator's clock.
            listener: that on which it asked; "" if that is not known.
            advertised: the address of the coordinator that it gets; "" if that is not known.
        """
        connection = caller.connection
        if connection is None or len(group_id) > _MOST_CHARACTERS:
            return
        if connection.sought not in (None, group_id):
            # A program that is interested in several groups is no consumer.
            self._forget(connection.sought or "", caller)
            return
        connection.sought = group_id
        known = self._waiting.get(_key(group_id, caller))
        if known is not None and (known.stays_away or now - known.asked_at <= _STILL):
            if not known.stays_away:
                known.connected_at = now
            known.caller, known.asked_at = caller, now
            known.listener, known.advertised = listener or known.listener, advertised or known.advertised
            known.times += 1
            return
        if now - self._reported.get(group_id, -inf) < _AGAIN:
            return
        self._waiting[_key(group_id, caller)] = Search(group_id, caller, now, listener, advertised, now, now)

    def _is_due(self, search: Search, now: float) -> bool:
        return now - self._reported.get(search.group_id, -inf) >= _AGAIN

    def looked_at(self, group_id: str, caller: Caller) -> None:
        """A client describes a group, reads its offsets, or is refused: it does not stay away."""
        if self._waiting:
            self._forget(group_id, caller)

    def _forget(self, group_id: str, caller: Caller) -> None:
        self._waiting.pop(_key(group_id, caller), None)


def _key(group_id: str, caller: Caller) -> tuple[str, str, str]:
    return group_id, caller.client_id, caller.host
