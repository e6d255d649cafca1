"""Renews a broker's lease in etcd.

Renewals do not wait for each other, nor for other requests: with an etcd that answers slowly, several are on their way.
The answer to a renewal extends the fence from when it was *sent*: a slow answer is worth less, and a lease needs more
renewals, see :func:`interval`.

After a renewal without an answer in time, etcd must answer something before the next one is sent. If only the answers
are lost, renewals would keep the lease for ever: this broker does not serve, and no other one could take over.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster.kv import KeyValueStore, KvError
from barnabas_broker.cluster.lease_fence import MARGIN, Fence
from barnabas_broker.logs import logger

log = logger("cluster")

#: Renewals in one session: while etcd answers fast, and the most.
_RENEWALS: Final = (3, 20)
#: Part of the session after which a renewal should have been answered, while etcd answers fast.
_PATIENCE: Final = 0.25
#: Seconds between requests while etcd does not answer: the first pause, and the longest.
_PROBE_SECONDS: Final = (0.2, 1.0)


def interval(session: float, latency: float) -> float:
    """Seconds between two renewals.

    The fence is open for a time after a renewal was sent, and the answer to the next one must arrive before it ends.

    Args:
        session: the lease's time to live, in seconds.
        latency: seconds until renewals are answered.
    """
    often, most = _RENEWALS
    left = session * (1 - MARGIN) - latency
    if left <= 0:
        return session / often  # however often they are sent, the fence closes
    return min(session / often, max(session / most, left / 2))


class LeaseKeeper:
    """Renews one lease, from its creation until it is lost or :meth:`close`. It needs a running event loop.

    Args:
        kv: etcd.
        key: that etcd is asked for when it did not answer.
        lease_id: of the lease.
        session: its time to live, in seconds.
        fence: is renewed.
        sent: when the lease was requested.
        lost: set when etcd says that the lease does not exist any more. It may be set by others: renewals end then.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        kv: KeyValueStore,
        key: str,
        lease_id: int,
        session: float,
        fence: Fence,
        sent: float,
        lost: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._kv = kv
        self._key = key
        self._lease = lease_id
        self._session = session
        self._fence = fence
        self._lost = lost
        self._now = now
        self._latency = now() - sent
        #: When renewals without an answer were sent, oldest first. Not those that had no answer in time.
        self._waiting: list[float] = []
        #: Why a renewal has failed; "" if none has since the last answer.
        self._failed = ""
        self._tasks: set[asyncio.Task[None]] = set()
        #: Set when something has ended.
        self._news = asyncio.Event()
        #: Set when etcd has answered.
        self._answers = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run(sent), name="lease")

    async def close(self) -> None:
        """Renew no more."""
        tasks = [self._task, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, last: float) -> None:
        while True:
            silent = await self._wait(last + interval(self._session, self._latency))
            if self._lost.is_set():
                return
            if silent:
                log.warning("lease cannot be renewed", reason=self._failed or "etcd does not answer in time")
                await self._until_answered()
                if self._lost.is_set():
                    return
                log.info("lease is renewed again")
            last = self._now()
            self._waiting.append(last)
            self._begin(self._renew(last))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="renewal")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._news.set()

    async def _wait(self, until: float) -> bool:
        """Wait until a time, or until the lease is lost.

        Returns:
            Whether a renewal has failed, or has had no answer in time; then this does not wait any longer.
        """
        while not self._lost.is_set():
            now = self._now()
            doubted = min(self._waiting, default=now) + self._patience
            if self._failed or now >= doubted:
                return True
            if now >= until:
                return False
            await self._wait_for_news(min(until, doubted) - now)
        return False

    @property
    def _patience(self) -> float:
        """Seconds after which a renewal should have been answered."""
        return max(self._session * _PATIENCE, 2 * self._latency)

    async def _wait_for_news(self, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    async def _renew(self, sent: float) -> None:
        try:
            ttl = await self._kv.keep_alive(self._lease, self._patience, self._session)
        except KvError as error:
            if sent in self._waiting:
                self._failed = str(error)
            return
        self._latency = max(self._now() - sent, self._latency / 2)
        self._failed = ""
        # Those that were sent before are worth less than this one.
        self._waiting = [each for each in self._waiting if each > sent]
        self._answers.set()
        if ttl > 0:
            self._fence.renewed(sent)
        elif not self._lost.is_set():
            log.warning("lease has expired")
            self._lost.set()

    async def _until_answered(self) -> None:
        """Wait until etcd has answered a renewal that was sent before, or another request."""
        self._waiting.clear()
        self._answers.clear()
        backoff = jittered(*_PROBE_SECONDS, seed=self._key)
        while not self._answers.is_set() and not self._lost.is_set():
            probe = asyncio.Event()
            self._begin(self._probe(probe))
            while not (probe.is_set() or self._answers.is_set() or self._lost.is_set()):
                await self._wait_for_news(self._session)
            if not self._answers.is_set():
                await self._wait_for_news(backoff.failed())
        self._failed = ""

    async def _probe(self, ended: asyncio.Event) -> None:
        try:
            await self._kv.range(self._key)
            self._answers.set()
        except KvError:
            pass  # the next one follows, after a pause
        finally:
            ended.set()
