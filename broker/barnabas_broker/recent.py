"""Dictionaries of bounded size: the newest entries, and keys that were reported lately. Pure."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Newest(dict[K, V]):
    """The entries that were set last. One that is set again is the newest.

    Args:
        most: the number of entries beyond which the oldest is dropped.
    """

    __slots__ = ("_most",)

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: K, value: V) -> None:
        self.pop(key, None)
        super().__setitem__(key, value)
        if len(self) > self._most:
            del self[next(iter(self))]


class Lately(dict[K, float]):
    """Keys with the times at which they were reported: each one once in a while, and a bounded number in that time.

    Args:
        seconds: the time.
        most: the number of keys in it.
    """

    __slots__ = ("_most", "_seconds")

    def __init__(self, seconds: float, most: int) -> None:
        super().__init__()
        self._seconds = seconds
        self._most = most

    def may_add(self, key: K, now: float) -> bool:
        """Whether a key may be reported now; the caller sets its time if it is. Forgets those whose time is over."""
        while self and now - self[first := next(iter(self))] >= self._seconds:
            del self[first]
        return key not in self and len(self) < self._most

    def add(self, key: K, now: float) -> bool:
        """Report a key, if it may be reported; returns whether it may."""
        may = self.may_add(key, now)
        if may:
            self[key] = now
        return may
