"""Measured values of many users, clients or addresses, in bounded memory. Pure.

When there is no room, what was not used for longest is forgotten, unless it is held: a client that is over its limit
would be within it again, and could bring that about by inventing client ids until its own measurement is forgotten.
"""

from collections.abc import Callable, Hashable
from itertools import islice
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: Maximum number of values that are forgotten in one tick.
_TICK: Final = 2_000
#: Held entries that are looked at when there is no room.
_LOOK: Final = 16


class Kept(Generic[K, V]):
    """Values by key.

    Args:
        most: how many are kept at a time.
    """

    __slots__ = ("_free", "_held", "_most")

    def __init__(self, most: int) -> None:
        self._most = most
        #: Those that were not used for longest come first.
        self._free: dict[K, V] = {}
        #: Likewise, with the time until which each is held.
        self._held: dict[K, tuple[V, float]] = {}

    def __len__(self) -> int:
        return len(self._free) + len(self._held)

    def use(self, key: K, now: float, make: Callable[[], V]) -> V | None:
        """The value of `key`, made if there is none; None if all others are held, so that there is no room."""
        value = self._free.pop(key, None)
        if value is None:
            found = self._held.pop(key, None)
            if found is not None:
                if found[1] > now:
                    self._held[key] = found
                else:
                    self._free[key] = found[0]
                return found[0]
            if len(self) >= self._most and not self._make_room(now):
                return None
            value = make()
        self._free[key] = value
        return value

    def hold(self, key: K, until: float) -> None:
        """Do not forget the value of `key` before a time."""
        value = self._free.pop(key, None)
        if value is not None:
            self._held[key] = value, until
        elif (found := self._held.get(key)) is not None and found[1] < until:
            self._held[key] = found[0], until

    def forget(self, now: float, idle: Callable[[V], bool]) -> None:
        """Forget values that no longer count, some at a time. To be called about once a second.

        Args:
            now: the time.
            idle: whether a value no longer counts.
        """
        for key, (value, until) in list(islice(self._held.items(), _TICK)):
            if until <= now:
                del self._held[key]
                self._free[key] = value
        for key, value in list(islice(self._free.items(), _TICK)):
            if idle(value):
                del self._free[key]

    def clear(self) -> None:
        """Forget everything."""
        self._free.clear()
        self._held.clear()

    def _make_room(self, now: float) -> bool:
        if self._free:
            del self._free[next(iter(self._free))]
            return True
        for key, (_, until) in islice(self._held.items(), _LOOK):
            if until <= now:
                del self._held[key]
                return True
        return False
