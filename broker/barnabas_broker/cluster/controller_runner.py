"""Runs the controller of a cluster: one broker, elected through etcd, that reacts when brokers register or go away.

The broker that creates the controller's key first is elected, for as long as its lease lasts; what it decides is in
:mod:`barnabas_broker.cluster.controller`. A broker counts itself as the controller only when its watch delivers the
key: then it has also received every change before.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import UncleanRule
from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.kv import Created, KeyValueStore, KvError, Put
from barnabas_broker.cluster.lifecycle import BrokerLifecycle
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("controller")

#: Seconds until a failed reaction is repeated: the first time, and at most.
_RETRY_SECONDS: Final = (0.1, 2.0)


class ControllerRunner:
    """Stands for election, and applies the controller's decisions while elected.

    Args:
        kv: etcd.
        store: the metadata store.
        cluster: the image and its changes.
        lifecycle: this broker's registration.
        unclean: whether a topic allows unclean leader election.
        balance_seconds: seconds between elections of preferred leaders; None to hold none.
    """

    def __init__(
        self,
        kv: KeyValueStore,
        store: EtcdStore,
        cluster: ClusterMetadata,
        lifecycle: BrokerLifecycle,
        unclean: UncleanRule,
        balance_seconds: Callable[[], float | None],
    ) -> None:
        self._kv = kv
        self._store = store
        self._cluster = cluster
        self._lifecycle = lifecycle
        self._unclean = unclean
        self._balance_seconds = balance_seconds

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._store.controllership is not None

    async def work(self) -> None:
        """React to changes, until cancelled."""
        changed, pause = self._lifecycle.changed, _RETRY_SECONDS[0]
        while True:
            await changed.wait()
            changed.clear()
            try:
                await self._react()
                pause = _RETRY_SECONDS[0]
            except (KvError, KafkaError, StoreError) as error:
                log.debug("controller failed, trying again", reason=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RETRY_SECONDS[1])
                changed.set()

    async def _react(self) -> None:
        lifecycle, live = self._lifecycle, self._lifecycle.live
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
            if self._store.snapshot_due:
                await self._store.snapshot(self._cluster.image, self._cluster.sequence)

    def _reconcile(self, image: Image) -> tuple[Sequence[Event], bool]:
        lifecycle = self._lifecycle
        events = controller.reconcile(image, lifecycle.me.node_id, lifecycle.live.available(), self._unclean)
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
