"""Runs the controller of a cluster: one broker, elected through etcd, that reacts when brokers register or go away.

The broker that creates the controller's key first is elected, for as long as its lease lasts; what it decides is in
:mod:`barnabas_broker.cluster.controller`. A broker counts itself as the controller only when its watch delivers the
key: then it has also received every change before.

It also ends the waiting of partitions without a leader, after ``unclean.recovery.timeout.ms``.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import MinIsrRule, UncleanRule
from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.kv import Created, KeyValueStore, KvError, Put
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("controller")

#: Seconds until a failed reaction is repeated: the first pause, and the longest.
_RETRY_SECONDS: Final = (0.1, 2.0)
#: Failures in a row that are logged for debugging only.
_EXPECTED_FAILURES: Final = 2
#: Sessions for which partitions wait whose missing replicas have been replaced: if a broker runs twice, with its
#: earlier directory and with the present one, the lease of one of them ends meanwhile.
_REPLACED_SESSIONS: Final = 3


class ControllerRunner:
    """Stands for election, and applies the controller's decisions while elected.

    Args:
        kv: etcd.
        store: the metadata store.
        cluster: the image and its changes.
        lifecycle: this broker's registration.
        unclean: whether a topic allows unclean leader election.
        min_isr: a topic's ``min.insync.replicas``.
        balance_seconds: seconds between elections of preferred leaders; None to hold none.
        recovery_seconds: seconds that a partition waits for the other replicas when all have stopped uncleanly.
        now: a monotonic clock, in seconds.
    """

    def __init__(
        self,
        kv: KeyValueStore,
        store: EtcdStore,
        cluster: ClusterMetadata,
        lifecycle: BrokerLifecycle,
        unclean: UncleanRule,
        min_isr: MinIsrRule,
        balance_seconds: Callable[[], float | None],
        recovery_seconds: Callable[[], float],
        now: Callable[[], float],
    ) -> None:
        self._kv = kv
        self._store = store
        self._cluster = cluster
        self._lifecycle = lifecycle
        self._unclean = unclean
        self._min_isr = min_isr
        self._balance_seconds = balance_seconds
        self._recovery_seconds = recovery_seconds
        self._now = now
        #: Since when partitions wait and for how many seconds, by topic id, index, leader epoch and whether they wait
        #: only for replicas that have been replaced.
        self._waiting: dict[tuple[bytes, int, int, bool], tuple[float, float]] = {}

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._store.controllership is not None

    async def work(self) -> None:
        """React to changes, until cancelled."""
        changed, backoff = (
            self._lifecycle.changed,
            jittered(*_RETRY_SECONDS, seed=f"controller {self._lifecycle.me.node_id}"),
        )
        while True:
            try:
                async with asyncio.timeout(self._left()):
                    await changed.wait()
            except TimeoutError:
                pass
            changed.clear()
            try:
                await self._react()
                if backoff.failures > _EXPECTED_FAILURES:
                    log.info("controller reacts again", failures=backoff.failures)
                backoff.succeeded()
            except (KvError, KafkaError, StoreError) as error:
                pause = backoff.failed()
                # Elections and lost leases are no news; what lasts is.
                level = log.error if backoff.failures == _EXPECTED_FAILURES + 1 else log.debug
                level("controller cannot react to changes, trying again", reason=str(error), seconds=round(pause, 1))
                await asyncio.sleep(pause)
                changed.set()

    async def _react(self) -> None:
        lifecycle, live = self._lifecycle, self._lifecycle.live
        if not self.is_controller:
            self._waiting.clear()
        if lifecycle.lease == 0 or lifecycle.me.leaving:
            return
        if live.controller is None:
            registered = self._store.registration
            key = live.controller_key
            if registered is not None:
                put = Put(key, lifecycle.me.to_json(), lifecycle.lease)
                await self._kv.txn([registered, Created(key, 0)], [put])
        elif self.is_controller:
            while await self._cluster.change(self._reconcile, as_controller=True):
                pass
            await self._recover()
            if self._store.snapshot_due:
                await self._store.snapshot(self._cluster.image, self._cluster.sequence)

    def _left(self) -> float | None:
        """Seconds until a partition has waited for long enough, at least those of a retry; None if none waits."""
        if not self._waiting:
            return None
        return max(_RETRY_SECONDS[0], min(since + limit for since, limit in self._waiting.values()) - self._now())

    async def _recover(self) -> None:
        """Elect leaders of partitions whose replicas may all have lost records, after waiting for all of them."""
        now, image = self._now(), self._cluster.image
        before, self._waiting = self._waiting, {}
        late: list[tuple[str, int]] = []
        new: list[str] = []
        awaited: set[int] = set()
        for topic, index, partition, recovery in controller.recovering(image):
            if recovery.bounded:
                key = topic.topic_id, index, partition.leader_epoch, recovery.replaced
                limit = self._recovery_seconds()
                if recovery.replaced:
                    limit = min(limit, _REPLACED_SESSIONS * self._lifecycle.session)
                since, _ = before.get(key, (now, limit))
                self._waiting[key] = since, limit
                if key not in before:
                    new.append(f"{topic.name}-{index}")
                    awaited.update(recovery.awaited)
                if now >= since + limit:
                    late.append((topic.name, index))
                    self._waiting[key] = now, limit  # for the next attempt, if none has reported
        if new:
            log.warning(
                "partitions have no leader: their live replicas may have lost records, waiting for the others",
                partitions=len(new),
                first=new[0],
                awaited=sorted(awaited),
                seconds=self._recovery_seconds(),
            )
        if late:
            log.warning("electing leaders without the replicas that were awaited", partitions=len(late))

            def decide(image: Image) -> tuple[Sequence[Event], None]:
                return controller.recover(image, late), None

            await self._cluster.change(decide, as_controller=True)

    def _reconcile(self, image: Image) -> tuple[Sequence[Event], bool]:
        lifecycle = self._lifecycle
        events = controller.reconcile(
            image,
            lifecycle.me.node_id,
            lifecycle.live.available(),
            self._unclean,
            self._min_isr,
            lifecycle.live.leaving(),
            lifecycle.live.lost(),
        )
        return events, bool(events)

    async def balance(self) -> None:
        """Elect preferred leaders from time to time, until cancelled."""
        while True:
            seconds = self._balance_seconds()
            await asyncio.sleep(seconds or 60.0)
            if seconds is not None and self.is_controller:
                try:
                    while await self._cluster.change(_prefer, as_controller=True):
                        pass
                except KafkaError as error:
                    log.warning("preferred leaders were not elected", reason=str(error))


def _prefer(image: Image) -> tuple[Sequence[Event], bool]:
    events = controller.prefer_leaders(image)
    return events, bool(events)
