"""Keeps a coordinator's partitions in step with the partitions of its topic that this broker leads.

The two are compared whenever the cluster image changes; when a request arrives while the broker's registration
is in doubt, because the process may have been suspended for long; and in a cluster twice a second, so that a partition
that failed to load is tried again.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from barnabas_broker.coordinators.ports import Leaderships

#: Seconds between two comparisons.
INTERVAL_SECONDS: Final = 0.5
#: Seconds until the next comparison while partitions of the topic are still being created.
_CREATION_SECONDS: Final = INTERVAL_SECONDS / 50


class Coordinator(Protocol):
    """A coordinator of groups or of transactions."""

    @property
    def loaded(self) -> frozenset[int]:
        """The partitions that are loaded."""

    async def load(self, index: int, leader_epoch: int) -> None:
        """Load a partition."""

    def unload(self, index: int) -> None:
        """Stop to coordinate a partition."""


class CoordinatorPartitions:
    """Loads the partitions that this broker leads into the coordinator, and unloads the others.

    Args:
        topic: the coordinator's topic.
        coordinator: loads and unloads its partitions.
        leaderships: which partitions this broker leads.
        may_serve: whether this broker's registration in the cluster holds.
    """

    def __init__(
        self, topic: str, coordinator: Coordinator, leaderships: Leaderships, may_serve: Callable[[], bool]
    ) -> None:
        self._topic = topic
        self._coordinator = coordinator
        self._leaderships = leaderships
        self._may_serve = may_serve
        #: Leader epoch and load task of each partition that is loaded or being loaded.
        self._loads: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._interval: asyncio.TimerHandle | None = None
        self._creation: asyncio.TimerHandle | None = None
        self._closed = False

    def reconcile(self) -> None:
        """Load what this broker leads, unload what it does not. Does nothing after :meth:`close`."""
        if self._closed:
            return
        loop = asyncio.get_running_loop()
        if self._creation is not None:
            self._creation.cancel()
            self._creation = None
        if self._leaderships.creating(self._topic):
            self._creation = loop.call_later(_CREATION_SECONDS, self.reconcile)
        led = self._leaderships.led(self._topic) if self._may_serve() else {}
        for index in [index for index in self._loads if index not in led]:
            self._unload(index)
        for index, leader_epoch in led.items():
            known = self._loads.get(index)
            if known is not None:
                known_epoch, load = known
                if known_epoch == leader_epoch:
                    if load.done() and index not in self._coordinator.loaded:
                        del self._loads[index]  # The load failed: the next comparison starts another one.
                    continue
                self._unload(index)
            self._loads[index] = (leader_epoch, loop.create_task(self._coordinator.load(index, leader_epoch)))

    def start(self) -> None:
        """Compare now, and from now on every :data:`INTERVAL_SECONDS`."""
        if not self._closed:
            self._interval = asyncio.get_running_loop().call_later(INTERVAL_SECONDS, self.start)
            self.reconcile()

    @property
    def loading(self) -> list["asyncio.Task[None]"]:
        """The loads that are not finished."""
        return [load for _, load in self._loads.values() if not load.done()]

    def close(self) -> None:
        """Cancel all timers and unfinished loads. Loaded partitions stay until the coordinator is closed."""
        self._closed = True
        for timer in (self._interval, self._creation):
            if timer is not None:
                timer.cancel()
        for _, load in self._loads.values():
            load.cancel()

    def _unload(self, index: int) -> None:
        _, load = self._loads.pop(index)
        load.cancel()
        self._coordinator.unload(index)
