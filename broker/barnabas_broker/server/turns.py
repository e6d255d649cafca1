"""The bytes that all connections send in one turn of the event loop."""

import asyncio
from collections.abc import Callable


class Turns:
    """Shares a number of bytes per turn of the event loop among connections, which take turns.

    Without it, a turn in which a thousand consumers fetch would send a few MB to each of them, for seconds.

    Args:
        most: bytes per turn. The connection that exceeds it is the last one of its turn.

    Attributes:
        left: bytes that may still be sent in this turn; not more than 0 if a connection has to wait.
    """

    def __init__(self, most: int) -> None:
        self.left = most
        self._most = most
        self._waiting: dict[Callable[[], None], None] = {}
        self._ending = False

    def spend(self, size: int) -> None:
        """`size` bytes were sent."""
        self.left -= size
        if not self._ending:
            self._ending = True
            asyncio.get_running_loop().call_soon(self._end)

    def wait(self, proceed: Callable[[], None]) -> None:
        """Call `proceed` in a later turn, once, however often this is called."""
        self._waiting[proceed] = None

    def _end(self) -> None:
        self._ending = False
        self.left = self._most
        for proceed in tuple(self._waiting):
            if self.left <= 0:
                break
            del self._waiting[proceed]
            proceed()
