"""The threads of storage in virtual time."""

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from barnabas_broker.storage import Inline
from tests.world.world import World

T = TypeVar("T")


class Background:
    """Runs background work of storage in virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._coming: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        """As :meth:`barnabas_broker.storage.Background.run`."""

        def do() -> None:
            self._coming.remove(do)
            try:
                result: T | Exception = work()
            except Exception as error:
                result = error
            done(result)

        def due() -> None:
            if do in self._coming:
                do()

        self._coming.append(do)
        world = self._world
        world.loop.call_later(world.between(0.5, 2.0) if world.happens(0.02) else world.between(0.001, 0.02), due)

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        """As :meth:`barnabas_broker.storage.Background.run_all`."""
        Inline().run_all(work)

    def close(self) -> None:
        """Run all pending work."""
        while self._coming:
            self._coming[0]()
