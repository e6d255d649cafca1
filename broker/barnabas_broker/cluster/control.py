"""The controller: one broker that reacts to others that come and go. Whoever creates its key first is it, for as long
as its lease lives.

What it decides is in :mod:`barnabas_broker.cluster.controller`; here it is asked whenever something stirred. A
controller acts on what its watch told it, and counts itself as the controller only when the watch tells it so: then it
knows of everything that was before.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas_broker.cluster import controller
from barnabas_broker.cluster.controller import UncleanRule
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.kv import Created, Kv, KvError, Put
from barnabas_broker.cluster.membership import Membership
from barnabas_broker.cluster.service import Cluster
from barnabas_broker.cluster.shared import SharedStore
from barnabas_broker.cluster.store import StoreError
from barnabas_broker.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("controller")

#: Seconds until what failed is tried again, at first and at most.
_RETRY_SECONDS: Final = (0.1, 2.0)


class Controller:
    """Stands for election, and does a controller's work while elected.

    Args:
        kv: etcd.
        store: the metadata store.
        cluster: the image and its changes.
        membership: this broker's registration.
        unclean: whether a topic rather has a leader that lacks records than none.
        balance_seconds: how often partitions go back to their preferred leaders; None: never by itself.
    """

    def __init__(
        self,
        kv: Kv,
        store: SharedStore,
        cluster: Cluster,
        membership: Membership,
        unclean: UncleanRule,
        balance_seconds: Callable[[], float | None],
    ) -> None:
        self._kv = kv
        self._store = store
        self._cluster = cluster
        self._membership = membership
        self._unclean = unclean
        self._balance_seconds = balance_seconds

    @property
    def is_controller(self) -> bool:
        """Whether this broker is it, as far as it knows."""
        return self._store.controllership is not None

    async def work(self) -> None:
        """React to what stirs, until cancelled."""
        stirred, pause = self._membership.stirred, _RETRY_SECONDS[0]
        while True:
            await stirred.wait()
            stirred.clear()
            try:
                await self._react()
                pause = _RETRY_SECONDS[0]
            except (KvError, KafkaError, StoreError) as error:
                log.debug("the controller tries again", reason=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _RETRY_SECONDS[1])
                stirred.set()

    async def _react(self) -> None:
        membership, living = self._membership, self._membership.living
        if membership.lease == 0 or membership.me.leaving:
            return
        if living.controller is None:
            registered = self._store.registration
            key = living.controller_key
            if registered is not None:
                put = Put(key, membership.me.to_json(), membership.lease)
                await self._kv.txn([registered, Created(key, 0)], [put])
        elif self.is_controller:
            while await self._cluster.change(self._reconcile, as_controller=True):
                pass
            if self._store.snapshot_due:
                await self._store.snapshot(self._cluster.image, self._cluster.sequence)

    def _reconcile(self, image: Image) -> tuple[Sequence[Event], bool]:
        membership = self._membership
        events = controller.reconcile(image, membership.me.node_id, membership.living.members(), self._unclean)
        return events, bool(events)

    async def balance(self) -> None:
        """Give partitions back to their preferred leaders now and then, until cancelled."""
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
