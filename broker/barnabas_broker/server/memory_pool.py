"""The bytes that all connections may hold together: of requests that arrive, and of responses that are not sent."""

from typing import Protocol


class Waiter(Protocol):
    """Something that waits for bytes of a budget."""

    def proceed(self) -> None:
        """Ask the budget again: there may be room now."""


class Budget:
    """Counts bytes. Once the limit is reached, holders wait in the order in which they asked.

    As in Kafka, the last holder before the limit may go beyond it, so that a request as large as the limit gets
    through. At the limit one holder at a time still gets what it asks for, until it has given all of it back: holders
    that wait for the rest of their own request cannot block each other for ever.

    Args:
        limit: in bytes; -1 for none.

    Attributes:
        used: bytes that are held.
    """

    def __init__(self, limit: int) -> None:
        self.used = 0
        self._limit = limit
        self._waiting: dict[Waiter, None] = {}
        self._ahead: Waiter | None = None

    @property
    def left(self) -> int:
        """The bytes up to the limit, from 0 on; a large number if there is none."""
        return 1 << 62 if self._limit < 0 else max(self._limit - self.used, 0)

    @property
    def ahead(self) -> Waiter | None:
        """The holder that goes on while others wait at the limit; None if there is none."""
        return self._ahead if self._waiting else None

    def take(self, holder: Waiter, size: int) -> bool:
        """Take `size` bytes; False if the holder has to wait, and then its `proceed` will be called."""
        if not self.left and holder is not self._ahead:
            if self._ahead is not None:
                self._waiting[holder] = None
                return False
            self._ahead = holder
        self._waiting.pop(holder, None)
        self.used += size
        return True

    def add(self, size: int) -> None:
        """Count `size` bytes that are there already, whatever the limit is."""
        self.used += size

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.used -= size

    def finish(self, holder: Waiter) -> None:
        """The holder has given everything back, or is gone: let others go on."""
        self._waiting.pop(holder, None)
        if self._ahead is holder:
            self._ahead = None
        while self._waiting and (self.left or self._ahead is None):
            following = next(iter(self._waiting))
            del self._waiting[following]
            following.proceed()


class Reserved:
    """Bytes of a budget that are given back with the last reference to this object."""

    __slots__ = ("_budget", "_size")

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._size = 0

    def set(self, size: int) -> None:
        """Hold `size` bytes."""
        if size != self._size:
            self._budget.add(size - self._size)
            self._size = size

    def __del__(self) -> None:
        self._budget.give(self._size)
