"""A broker as a member of a cluster: it registers, renews its lease, stops acting when it cannot, and registers anew.

All that lives no longer than a lease is below ``live/``: a key per broker, and that of the controller. The revision
that created a broker's key is its broker epoch. See :mod:`barnabas_broker.cluster.control` for the controller.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from barnabas_broker.cluster import ClusterError, controller
from barnabas_broker.cluster.controller import UncleanRule
from barnabas_broker.cluster.fence import Fence
from barnabas_broker.cluster.image import Event, Image
from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    Kv,
    KvCompacted,
    KvError,
    KvUnavailable,
    Put,
    follow,
    prefix_end,
)
from barnabas_broker.cluster.registration import Living, Registration, read_registration
from barnabas_broker.cluster.service import Cluster
from barnabas_broker.cluster.shared import SharedStore
from barnabas_broker.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("cluster")

#: Renewals in the time of one session.
_RENEWALS: Final = 3
#: Seconds until the next try when etcd did not answer.
_RETRY_SECONDS: Final = 0.2
#: Seconds that a session may last longer than it says: etcd looks for expired leases twice a second, and a new leader
#: of it starts their time again.
_GRACE_SECONDS: Final = 3.0


class MembershipError(ClusterError):
    """This broker cannot be a member; the text says why and what to do."""


class Membership:
    """This broker's registration.

    Args:
        kv: etcd.
        store: the metadata store, which hears what may be written.
        prefix: of all keys, with a slash at both ends.
        me: what is registered.
        session: seconds after which a broker that is not heard of is gone.
        now: see :func:`barnabas_broker.cluster.fence.clock`.

    Attributes:
        living: who else lives.
        stirred: set whenever that changed, or this broker's own state.
        epoch: this broker's epoch, -1 while it has none.
        lease: of the registration, 0 while there is none.
    """

    def __init__(
        self, kv: Kv, store: SharedStore, prefix: str, me: Registration, session: float, now: Callable[[], float]
    ) -> None:
        self.me = me
        self.session = session
        self.living = Living(f"{prefix}live/")
        self.stirred = asyncio.Event()
        self.epoch = -1
        self.lease = 0
        self._kv = kv
        self._store = store
        self._key = self.living.broker_key(me.node_id)
        self._fence = Fence(session)
        self._now = now
        self._known = -1
        self._lost = asyncio.Event()
        #: The broker epoch in which the watch told of this broker last.
        self._seen = -2

    def may_serve(self) -> bool:
        """Whether this broker may lead and coordinate at this moment: its lease surely lives, and the image tells of it
        in this life. (While it tells of an earlier life, what this broker leads there it led before it lost what was
        not on its disk.)"""
        return self._known == self.epoch and self._fence.is_open(self._now()) and not self.me.leaving

    @property
    def lease_age(self) -> float:
        """Seconds since the last renewal that etcd answered had been sent; infinite before the first."""
        return self._fence.age(self._now())

    @property
    def lease_remaining(self) -> float:
        """Seconds for which this broker may act if its lease is not renewed; 0 when it may not."""
        return self._fence.remaining(self._now())

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Take note of a new image."""
        broker = image.brokers.get(self.me.node_id)
        self._known = -2 if broker is None else broker.epoch
        self.stirred.set()

    # Coming

    async def register(self) -> None:
        """Register, after the registration of an earlier life of this broker is over.

        Raises:
            MembershipError: another broker has this node id.
            KvError: etcd does not answer, or refuses.
        """
        deadline = self._now() + self.session + _GRACE_SECONDS
        while True:
            there = (await self._kv.range(self._key)).entries
            if not there:
                if await self._register():
                    return
                continue
            other = read_registration(there[0])
            if other is not None and other.directory == self.me.directory:
                # Only one process can have locked the directory, and this one has: the other is dead.
                await self._kv.txn([Created(self._key, there[0].created)], [Delete(self._key)])
            elif self._now() >= deadline:
                where = "another program" if other is None else f"the broker at {other.info.address}"
                raise MembershipError(
                    f"node id {self.me.node_id} is in use by {where}: give this one another --node-id, or stop that one"
                )
            else:
                await asyncio.sleep(_RETRY_SECONDS)

    async def _register(self) -> bool:
        sent = self._now()
        lease = await self._kv.grant(math.ceil(self.session))
        if lease.ttl > math.ceil(self.session):
            log.warning("etcd grants only longer sessions", asked=self.session, granted=lease.ttl)
        elif lease.ttl < self.session:
            # This broker would go on after others have taken its place.
            raise MembershipError(f"etcd grants a session of {lease.ttl} s only, not {self.session:g} s")
        outcome = await self._kv.txn(
            [Created(self._key, 0)], [Put(self._key, self.me.to_json(), lease.lease_id)], [self._key]
        )
        if not outcome.done:
            await self._kv.revoke(lease.lease_id)
            return False
        if outcome.revision < self._seen:
            log.error("etcd has lost its newest history: restart this broker", revision=outcome.revision)
        self.lease, self.epoch = lease.lease_id, outcome.revision
        self._store.registration = Created(self._key, outcome.revision)
        self._fence.renewed(sent)
        self._lost.clear()
        self.stirred.set()
        log.info("registered", node_id=self.me.node_id, broker_epoch=self.epoch)
        return True

    # Staying

    async def stay(self) -> None:
        """Renew the lease, and register anew whenever it was lost, until cancelled."""
        while True:
            await self._renew()
            self._leave_off()
            try:
                await self.register()
            except (KvError, MembershipError) as error:
                log.error("cannot register anew", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    async def _renew(self) -> None:
        """Renew the lease until it is lost."""
        heard = True
        while True:
            try:
                async with asyncio.timeout(self.session / _RENEWALS if heard else _RETRY_SECONDS):
                    await self._lost.wait()
                return
            except TimeoutError:
                pass
            sent = self._now()
            try:
                ttl = await self._kv.keep_alive(self.lease, min(1.0, self.session / 4))
            except KvError as error:
                if heard:
                    log.warning("the lease is not renewed", reason=str(error))
                heard = False
                continue
            if ttl <= 0:
                log.warning("the lease is over", broker_epoch=self.epoch)
                return
            if not heard:
                log.info("the lease is renewed again", broker_epoch=self.epoch)
            heard = True
            self._fence.renewed(sent)

    def _leave_off(self) -> None:
        """Act no more: the registration is gone."""
        self._fence.close()
        self.epoch, self.lease = -1, 0
        self._store.registration = self._store.controllership = None

    async def look(self) -> None:
        """Watch who lives, until cancelled."""
        prefix = self.living.broker_prefix.removesuffix("broker/")
        while True:
            try:
                listing = await self._kv.range(prefix, prefix_end(prefix))
                self.living.listed(listing.entries)
                self._noted()
                async for changes in follow(self._kv, prefix, prefix_end(prefix), listing.revision):
                    self.living.changed(changes.changes)
                    self._noted()
            except KvCompacted:
                continue
            except KvError as error:
                log.debug("brokers cannot be listed", reason=str(error))
                await asyncio.sleep(_RETRY_SECONDS)

    def _noted(self) -> None:
        mine = self.living.brokers.get(self._key)
        if mine is None or mine.incarnation != self.me.incarnation:
            # What the watch brings may be older than the registration; then it is not lost but yet to come.
            if self._seen == self.epoch:
                self._fence.close()
                self._lost.set()
        else:
            self._seen = mine.epoch
        chosen = self.living.controller
        is_mine = chosen is not None and chosen.incarnation == self.me.incarnation
        self._store.controllership = (
            Created(self.living.controller_key, chosen.epoch) if chosen is not None and is_mine else None
        )
        self.stirred.set()

    # Going

    async def leave(self, cluster: Cluster, unclean: UncleanRule, seconds: float) -> None:
        """Hand partitions over before this broker goes (Kafka's controlled shutdown), if that is done in `seconds`."""
        if self.lease == 0:
            return
        # From now on it does not act, so that whoever takes over does not do so beside it.
        leaving = self.me = replace(self.me, leaving=True)
        try:
            async with asyncio.timeout(seconds):
                # First the controller has to know, or it would take this broker in again.
                await self._kv.txn([Created(self._key, self.epoch)], [Put(self._key, leaving.to_json(), self.lease)])

                def decide(image: Image) -> tuple[Sequence[Event], bool]:
                    events = controller.broker_fenced(image, leaving.node_id, self.epoch, unclean)
                    return events, bool(events)

                while await cluster.change(decide):
                    pass
        except (TimeoutError, KvError, KafkaError) as error:
            log.warning("partitions were not handed over", reason=str(error) or "it took too long")

    async def end(self) -> None:
        """Give up the registration."""
        lease = self.lease
        self._leave_off()
        if lease:
            try:
                await self._kv.revoke(lease)
            except KvUnavailable as error:
                log.warning("the registration ends with its lease only", reason=str(error))
            except KvError as error:
                log.debug("no registration to give up", reason=str(error))
