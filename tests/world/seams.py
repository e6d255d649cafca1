"""All that broker and client take from the machine, replaced while a world runs.

Their code has no option for any of it: it reads the clock, draws random numbers, binds sockets and starts threads as it
always does. uvloop is not used, and executors need no seam: the loop does their work itself.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from barnabas_broker import stores
from barnabas_broker.clock import Clock
from barnabas_broker.cluster.member import ClusterConnection
from barnabas_broker.config import Config
from barnabas_broker.config.keys import CLUSTER_URL
from barnabas_broker.files import Files
from barnabas_broker.replication import alter_partition, replica
from barnabas_broker.server import connection, listeners, server
from barnabas_broker.storage import LogDirectory
from barnabas_client import config, tasks
from barnabas_client.membership import membership
from barnabas_client.membership.thread import MemberThread, MemberThreadOwner
from barnabas_client.network import retries
from tests.world.broker import EPOCH
from tests.world.disk import Background
from tests.world.etcd import Etcd, SimKv
from tests.world.loop import LIFE, Life, VirtualLoop
from tests.world.network import Listener, Network
from tests.world.world import World

#: Modules that iterate over sets of connections, tasks and replicas.
_WITH_SETS: Final = (alter_partition, connection, replica, server, tasks)


def _life() -> Life:
    life = LIFE.get()
    assert life is not None
    return life


@contextmanager
def seams(
    world: World,
    network: Network,
    etcd: Etcd,
    files: Callable[[str], Files],
    clocks: Mapping[str, float],
    rates: Mapping[str, float],
    start: float,
) -> Iterator[None]:
    """Replace clocks, random numbers, sockets, files, threads and etcd.

    Args:
        world: the time and the random numbers.
        network: the sockets.
        etcd: that of clusters.
        files: those of a machine, by the name of its process.
        clocks: seconds by which the time of day of a process is wrong, by its name.
        rates: how fast the clocks of a process are, by its name.
        start: the time at which all clocks agree.
    """
    loop = world.loop
    opened = LogDirectory.open

    def drifting() -> float:
        life, right = LIFE.get(), loop.time()
        rate = None if life is None else rates.get(life.name)
        # To the nanosecond, as clocks are read: a shorter time would be too short for the loop's clock to move.
        return right if rate is None else round(start + (right - start) * rate, 9)

    now = drifting if rates else loop.time

    def time_of_day() -> float:
        life = LIFE.get()
        return EPOCH + now() + (0.0 if life is None else clocks.get(life.name.partition("/")[0], 0.0))

    def open_directory(path: Path, *args: Any, **kwargs: Any) -> LogDirectory:
        return opened(path, *args, background=Background(world), random_bytes=world.chance.randbytes, **kwargs)

    def open_cluster(config: Config) -> ClusterConnection:
        return ClusterConnection(SimKv(etcd, _life()), "/world/", config[CLUSTER_URL], config)

    state = random.getstate()
    random.seed(world.seed)
    retries.RANDOM.seed(world.seed)
    with (
        patch.multiple(
            time,
            monotonic=now,
            perf_counter=now,
            thread_time=now,
            clock_gettime=lambda clock: now(),
            time=time_of_day,
            time_ns=lambda: int(time_of_day() * 1e9),
        ),
        patch.object(Clock, "now", staticmethod(now)),
        patch.object(os, "urandom", world.chance.randbytes),
        patch.object(random, "_urandom", world.chance.randbytes),
        patch.object(os, "getpid", lambda: 1),
        patch.dict(config._numbers, clear=True),
        patch.object(asyncio, "new_event_loop", lambda: _ThreadLoop(loop)),
        patch.object(membership, "MemberThread", _MemberThread),
        patch.object(listeners, "bind", lambda host, port: Listener(network, _life(), port)),
        patch.object(LogDirectory, "open", open_directory),
        patch.object(stores, "RealFiles", lambda mode: files(_life().name)),
        patch.object(stores, "open_cluster", open_cluster),
        ExitStack() as stack,
    ):
        for module in _WITH_SETS:
            stack.enter_context(patch.object(module, "set", _InOrder, create=True))
        try:
            yield
        finally:
            random.setstate(state)


class _InOrder(set[Any]):
    """A set that iterates in the order of insertion: that of a plain one depends on where its objects are in memory."""

    def __init__(self, items: Any = ()) -> None:
        super().__init__()
        self._order: dict[Any, None] = {}
        for item in items:
            self.add(item)

    def add(self, item: Any) -> None:
        super().add(item)
        self._order[item] = None

    def discard(self, item: Any) -> None:
        super().discard(item)
        self._order.pop(item, None)

    def pop(self) -> Any:
        item = next(iter(self._order))
        self.discard(item)
        return item

    def clear(self) -> None:
        super().clear()
        self._order.clear()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._order)


class _ThreadLoop:
    """The loop of a thread: a process of its own, which ends with its program's."""

    def __init__(self, loop: VirtualLoop) -> None:
        program = _life()
        self.life = Life(loop, f"{program.name}/group")
        program.threads.append(self.life)
        self._loop = loop

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any) -> None:
        """Call in the thread."""
        self.life.call(callback, *args)

    def close(self) -> None:
        """The world's loop goes on."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


class _MemberThread(MemberThread):
    """The thread of a membership, as a process in the world's loop."""

    def __init__(
        self, config: Any, assignors: Any, client: Any, owner: MemberThreadOwner, notify: Callable[..., None]
    ) -> None:
        super().__init__(config, assignors, client, owner, partial(_life().context.run, notify))

    def _start(self) -> None:
        loop: Any = self._loop
        loop.life.spawn(self._outlive(), "member")

    async def _outlive(self) -> None:
        try:
            await self._live()
        finally:
            self._notify_program(self._owner.ended)

    def join(self, timeout: float) -> bool:
        return True
