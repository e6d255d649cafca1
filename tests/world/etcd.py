"""etcd behind the network: the model of :mod:`tests.sim.etcd_model`, with late and lost requests and
responses, lagging members, and leader changes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Holds,
    KeyChanges,
    KeyRange,
    KvError,
    KvUnavailable,
    Lease,
    Put,
    TxnOutcome,
)
from tests.sim.etcd_model import EtcdModel
from tests.world.loop import Life
from tests.world.network import Channel, Network
from tests.world.world import World

T = TypeVar("T")

#: Its name in the network.
ETCD: Final = "etcd"
#: Seconds until a call times out, and until a silent watch counts as broken.
_CALL_SECONDS: Final = 1.0
_WATCH_SECONDS: Final = 4.0
#: Seconds between two checks for expired leases.
_LOOK_SECONDS: Final = 0.25


class Etcd:
    """The servers.

    Attributes:
        model: their content.
        down: whether they have no leader, so that no request is handled and no lease expires.
        loss: the rate of lost requests and responses.
        lateness: the rate of requests that arrive only after their timeout.
        lag: seconds that the member of a watching broker lags behind, by the broker's name.
        kvs: the connections of running processes.
        on_revoke: called with a process and a lease that it revokes, before the lease ends.
    """

    def __init__(self, world: World, network: Network) -> None:
        self.world = world
        self.network = network
        self.model = EtcdModel()
        self.down = False
        self.loss = 0.0
        self.lateness = 0.0
        self.lag: dict[str, float] = {}
        self.kvs: list[SimKv] = []
        self.on_revoke: Callable[[Life, int], None] = lambda life, lease_id: None
        world.after(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        if not self.down:
            self.model.advance(self.world.now)
        self.world.after(_LOOK_SECONDS, self._look)

    def elect(self, seconds: float) -> None:
        """Have no leader for a while, then a new one: the time of leases begins again."""
        if self.down:
            return
        self.down = True

        def elected() -> None:
            self.down = False
            self.model.new_leader(self.world.now)

        self.world.after(seconds, elected)


class SimKv:
    """A process's connection to etcd: a :class:`~barnabas_broker.cluster.kv.KeyValueStore`.

    Attributes:
        life: the process.
        held: seconds that the next request is on its way.
    """

    def __init__(self, etcd: Etcd, life: Life) -> None:
        self._etcd = etcd
        self._world = etcd.world
        self.life = life
        self._watches: dict[_Watch, None] = {}
        self.held = 0.0
        etcd.kvs.append(self)

    def _passes(self, source: str, target: str) -> bool:
        return (source, target) not in self._etcd.network.cuts and not self._world.happens(self._etcd.loss)

    async def _do(self, step: Callable[[], T], seconds: float = _CALL_SECONDS) -> T:
        etcd, world, name = self._etcd, self._world, self.life.name
        answer: asyncio.Future[T] = world.loop.create_future()
        restores = etcd.model.restores

        def settle(result: Any) -> None:
            if answer.done():
                return
            if isinstance(result, KvError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def arrive() -> None:
            if etcd.model.restores != restores or not self._passes(name, ETCD):
                return
            if etcd.down:
                world.after(0.1, arrive)
                return
            etcd.model.advance(world.now)
            try:
                result: Any = step()
            except KvError as error:
                result = error
            if self._passes(ETCD, name):
                world.after(etcd.network.delay(ETCD, name), self.life.call, settle, result)

        late, self.held = self.held, 0.0
        if world.happens(etcd.lateness):
            late = world.between(seconds, 6.0)
        world.after(etcd.network.delay(name, ETCD) + late, arrive)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise KvUnavailable("etcd does not answer") from None

    async def range(self, start: str, end: str | None = None, *, revision: int = 0, limit: int = 0) -> KeyRange:
        return await self._do(lambda: self._etcd.model.range(start, end, revision, limit))

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        return await self._do(lambda: self._etcd.model.txn(conditions, then, otherwise))

    async def grant(self, ttl: int) -> Lease:
        return await self._do(lambda: self._etcd.model.grant(self._world.now, ttl))

    async def keep_alive(self, lease_id: int, patience: float, seconds: float) -> int:
        return await self._do(lambda: self._etcd.model.keep_alive(self._world.now, lease_id), seconds)

    async def alarms(self) -> frozenset[str]:
        return await self._do(frozenset)

    async def revoke(self, lease_id: int) -> None:
        def step() -> None:
            self._etcd.on_revoke(self.life, lease_id)
            self._etcd.model.revoke(lease_id)

        await self._do(step)

    async def watch(self, start: str, end: str, after: int) -> AsyncIterator[KeyChanges]:
        watch = _Watch(self._etcd, self.life)
        self._watches[watch] = None
        try:
            await self._do(lambda: watch.begin(start, end, after))
            yield KeyChanges(after, ())
            while (changes := await watch.queue.get()) is not None:
                yield changes
        finally:
            self._watches.pop(watch, None)
            watch.end()
        raise KvUnavailable("the watch broke")

    def break_watches(self) -> None:
        """Break every open watch."""
        for watch in list(self._watches):
            watch.break_off()

    def died(self) -> None:
        """The process was killed."""
        self._etcd.kvs.remove(self)
        for watch in list(self._watches):
            watch.end()

    async def close(self) -> None:
        self.break_watches()


class _Watch:
    """The changes for one watcher."""

    def __init__(self, etcd: Etcd, life: Life) -> None:
        self.queue: asyncio.Queue[KeyChanges | None] = asyncio.Queue()
        self._etcd = etcd
        self.life = life
        self._channel = Channel(etcd.network, ETCD, life.name)
        self._stop: Callable[[], None] | None = None
        self._over = False

    def begin(self, start: str, end: str, after: int) -> None:
        """Begin to watch: the request has arrived."""
        if not self._over:
            self._stop = self._etcd.model.watch(start, end, after, self._notify)

    def _notify(self, changes: KeyChanges) -> None:
        pair = ETCD, self.life.name
        if pair in self._etcd.network.cuts:
            # The change is lost; both sides detect it later.
            self._etcd.world.after(_WATCH_SECONDS, self.life.call, self.break_off)
            self.end()
            return
        lag = self._etcd.lag.get(self.life.name, 0.0)
        self._channel.send(lambda: self.life.call(self.queue.put_nowait, changes), lag)

    def break_off(self) -> None:
        """Close the connection; changes on the way are lost."""
        self.end()
        self.queue.put_nowait(None)

    def end(self) -> None:
        """Deliver nothing more."""
        self._over = True
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()
