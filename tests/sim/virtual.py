"""An event loop in virtual time: when nothing is left to do now, it is the time of the next timer."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _Selector(selectors.DefaultSelector):
    """Lets time pass instead of waiting."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits for something that nobody will do")
        self.loop.passed += timeout
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above. Nothing outside of it may be waited for: no sockets, no threads."""

    def __init__(self) -> None:
        #: Seconds since the loop was made.
        self.passed = 0.0
        selector = _Selector()
        super().__init__(selector)
        selector.loop = self

    def time(self) -> float:
        return self.passed


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
