"""Which groups are coordinated here: those of the partitions of ``__consumer_offsets`` that this broker leads, while
its registration is sure to hold.

One look compares what is led with what is loaded. It is taken whenever the image changes, when a group's request comes
in while the registration is in doubt (a process may have been frozen for long), and among several brokers twice a
second, so that what could not be loaded is tried again.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas_broker.replication.manager import ReplicaManager
from barnabas_protocol.internal_topics import OFFSETS_TOPIC

if TYPE_CHECKING:
    from barnabas_broker.groups.coordinator.service import GroupCoordinator

#: Seconds between two looks.
LOOK_SECONDS: Final = 0.5


class GroupPartitions:
    """Loads and unloads the coordinator's partitions.

    Args:
        groups: gives the coordinator, which is made when the first partition is led.
        replicas: the partitions of this broker.
        may_serve: whether no other broker can have taken this one's place.
    """

    def __init__(
        self, groups: "Callable[[], GroupCoordinator]", replicas: ReplicaManager, may_serve: Callable[[], bool]
    ) -> None:
        self._groups = groups
        self._replicas = replicas
        self._may_serve = may_serve
        #: Partitions that are loaded or about to be, with the leader epoch and the work.
        self._taken: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def look(self) -> None:
        """Take up what is led, let go of what is not."""
        if self._replicas.creating(OFFSETS_TOPIC):
            asyncio.get_running_loop().call_later(LOOK_SECONDS / 10, self.look)
        led = self._replicas.led(OFFSETS_TOPIC) if self._may_serve() else {}
        for index in [index for index in self._taken if index not in led]:
            self._let_go(index)
        for index, leader_epoch in led.items():
            taken = self._taken.get(index)
            if taken is not None and taken[0] == leader_epoch:
                if taken[1].done() and index not in self._groups().loaded:
                    del self._taken[index]  # it failed; the next look tries again
                continue
            if taken is not None:
                self._let_go(index)
            task = asyncio.get_running_loop().create_task(self._groups().load(index, leader_epoch))
            self._taken[index] = (leader_epoch, task)

    def _let_go(self, index: int) -> None:
        self._taken.pop(index)[1].cancel()
        self._groups().unload(index)

    def look_regularly(self) -> None:
        """Look now, and from now on."""
        self.look()
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self.look_regularly)

    @property
    def loading(self) -> list["asyncio.Task[None]"]:
        """What is being loaded."""
        return [task for _, task in self._taken.values() if not task.done()]

    def close(self) -> None:
        """Look no more. What is loaded stays until the coordinator is closed."""
        if self._timer is not None:
            self._timer.cancel()
        for _, task in self._taken.values():
            task.cancel()
