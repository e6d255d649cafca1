"""The lifecycle of a broker in a cluster (Kafka's ``BrokerLifecycleManager``): it registers, renews its lease, stops
serving when it cannot renew it, and registers again.

Keys attached to leases are below ``live/``: one per broker, and one of the controller. The create revision of a
broker's key is its broker epoch. See :mod:`barnabas_broker.cluster.controller_runner` for the controller.
"""

import asyncio
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final

from barnabas_broker.backoff import jittered
from barnabas_broker.cluster import ClusterError, controller
from barnabas_broker.cluster.controller import MinIsrRule, UncleanRule
from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import NOT_INTACT, Event, Image
from barnabas_broker.cluster.kv import (
    Created,
    Delete,
    KeyValueStore,
    KvCompacted,
    KvError,
    KvUnavailable,
    Put,
    follow,
    prefix_end,
)
from barnabas_broker.cluster.lease import LeaseKeeper
from barnabas_broker.cluster.lease_fence import Fence
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.registration import MOST_LOST, BrokerRegistration, LiveBrokers, read_registration
from barnabas_broker.logs import logger
from barnabas_protocol.errors import KafkaError

log = logger("cluster")

#: Seconds between attempts while etcd does not answer: the first pause, and the longest.
_RETRY_SECONDS: Final = (0.2, 2.0)
#: Seconds between looks whether an earlier registration with this node id has ended.
_LOOK_SECONDS: Final = 0.2
#: Seconds that a lease may last beyond its time to live: etcd checks for expired leases twice a second, and a new etcd
#: leader restarts their time.
_GRACE_SECONDS: Final = 3.0
#: Seconds between the move of leaderships and the end of a broker that shuts down.
_HAND_OVER_SECONDS: Final = 0.5
#: What to do when etcd has lost metadata.
REMEDY: Final = (
    "To do: keep all data directories as they are, stop all brokers, and store the newest metadata of theirs in etcd "
    "with `barnabas cluster restore`, see docs/cluster.md"
)


class MembershipError(ClusterError):
    """This broker cannot join the cluster; the text says why and what to do."""


class BrokerLifecycle:
    """This broker's registration.

    Args:
        kv: etcd.
        store: the metadata store, which is given the registration that guards its writes.
        prefix: of all keys, with a slash at both ends.
        me: the registration to write.
        session: the lease's time to live, in seconds.
        now: see :func:`barnabas_broker.cluster.lease_fence.clock`.
        before: the incarnations that have used this data directory before; None if that is not known, so that every
            registration with the id of this directory counts as an earlier one of this broker.

    Attributes:
        live: the registered brokers and the controller.
        changed: set whenever `live`, the image or this broker's registration has changed.
        epoch: the broker epoch, -1 while this broker is not registered.
        lease: the id of the lease, 0 while there is none.
        lost: the replicas of this broker that have lost records, by topic id and partition.
        halted: why this broker serves nothing until it is restarted; None if it may serve.
    """

    def __init__(
        self,
        kv: KeyValueStore,
        store: EtcdStore,
        prefix: str,
        me: BrokerRegistration,
        session: float,
        now: Callable[[], float],
        before: Collection[str] | None = None,
    ) -> None:
        self.me = me
        self._mine = None if before is None else {*before, me.incarnation}
        self.session = session
        self.live = LiveBrokers(f"{prefix}live/")
        self.changed = asyncio.Event()
        self.epoch = -1
        self.lease = 0
        self.lost: Callable[[], Collection[tuple[bytes, int]]] = tuple
        self.halted: str | None = None
        store.on_lost = self.halt
        self._kv = kv
        self._store = store
        self._key = self.live.broker_key(me.node_id)
        self._fence = Fence(session)
        self._now = now
        self._known = -1
        self._keeper: LeaseKeeper | None = None
        self._lost = asyncio.Event()
        #: The broker epoch of this broker that the watch has delivered last.
        self._seen = -2

    def may_serve(self) -> bool:
        """Whether this broker may lead and coordinate now: it certainly holds its lease, and the image contains its
        present registration. Leadership from before a restart does not count: unflushed records may be gone."""
        held = self._known == self.epoch and self._fence.is_open(self._now())
        return held and not self.me.leaving and self.halted is None

    def halt(self, reason: str) -> None:
        """Serve nothing any more, and end the registration: etcd has lost metadata that this broker has applied."""
        if self.halted is None:
            self.halted = f"{reason}. {REMEDY}"
            self._fence.close()
            self._lost.set()
            log.error("etcd has lost metadata, this broker serves nothing until it is restarted", reason=self.halted)

    @property
    def lease_age(self) -> float:
        """Seconds since the last successful renewal was sent; infinite before the first."""
        return self._fence.age(self._now())

    @property
    def lease_has_ended(self) -> bool:
        """Whether the lease has expired by this broker's clock, so that others may lead and coordinate. That is later
        than :meth:`may_serve` ends: until then etcd may answer, and this broker goes on as if nothing had been."""
        return self.lease_age > self.session

    @property
    def lease_remaining(self) -> float:
        """Seconds for which this broker may serve unless its lease is renewed; 0 if it may not."""
        return self._fence.remaining(self._now())

    def image_changed(self, image: Image, events: Sequence[Event]) -> None:
        """Apply a new image."""
        broker = image.brokers.get(self.me.node_id)
        self._known = -2 if broker is None else broker.epoch
        self.changed.set()

    # Register

    async def register(self) -> None:
        """Register; wait for the end of an earlier registration with this node id.

        Raises:
            MembershipError: another broker has this node id.
            KvError: etcd does not answer, or rejects a request.
        """
        deadline = self._now() + self.session + _GRACE_SECONDS
        await self._check_directory()
        while True:
            existing = (await self._kv.range(self._key)).entries
            if not existing:
                if await self._register():
                    await self._check_directory()
                    return
                continue
            other = read_registration(existing[0])
            same = other is not None and other.directory == self.me.directory
            if other is not None and same and (self._mine is None or other.incarnation in self._mine):
                # This process has locked the directory, so the other one is dead.
                if other.incarnation == self.me.incarnation:
                    self._continues(existing[0].created)  # etcd's answer to this process was lost
                await self._kv.txn([Created(self._key, existing[0].created)], [Delete(self._key)])
            elif self._now() >= deadline:
                where = "another program" if other is None else f"the broker at {other.info.address}"
                if same:
                    raise MembershipError(
                        f"node id {self.me.node_id} is in use by {where}, which uses a copy of this data directory: "
                        "stop one of them"
                    )
                raise MembershipError(
                    f"node id {self.me.node_id} is in use by {where}: give this one another --node-id, or stop that one"
                )
            else:
                await asyncio.sleep(_LOOK_SECONDS)

    async def _check_directory(self) -> None:
        """Check that no other broker has registered this data directory before: one of the two has a copy.

        Raises:
            MembershipError: another broker has.
            KvError: etcd does not answer, or rejects a request.
        """
        start = self.live.broker_prefix
        for entry in (await self._kv.range(start, prefix_end(start))).entries:
            other = read_registration(entry)
            earlier = self.epoch < 0 or entry.created < self.epoch
            if (
                other is not None
                and other.node_id != self.me.node_id
                and other.directory == self.me.directory
                and earlier
            ):
                await self.end()
                raise MembershipError(
                    f"the broker {other.node_id} at {other.info.address} uses a copy of this data directory: give this "
                    "one the directory that belongs to its node id"
                )

    async def _register(self) -> bool:
        sent = self._now()
        lease = await self._kv.grant(math.ceil(self.session))
        if lease.ttl > math.ceil(self.session):
            log.warning("etcd grants a longer session than asked for", asked=self.session, granted=lease.ttl)
        elif lease.ttl < self.session:
            # This broker would continue to serve after its lease has expired.
            raise MembershipError(f"etcd grants a session of {lease.ttl} s only, not {self.session:g} s")
        self._lost.clear()
        # From now on: with a slow etcd the lease would expire while this broker registers.
        keeper = LeaseKeeper(
            self._kv, self._key, lease.lease_id, self.session, self._fence, sent, self._lost, self._now
        )
        try:
            outcome = await self._kv.txn(
                [Created(self._key, 0)],
                [Put(self._key, self._registration().to_json(), lease.lease_id)],
                [self._key],
            )
            if not outcome.done:
                await self._kv.revoke(lease.lease_id)
        except BaseException:
            await keeper.close()
            raise
        if not outcome.done:
            await keeper.close()
            return False
        self._keeper = keeper
        self.lease, self.epoch = lease.lease_id, outcome.revision
        self._continues(self.epoch)
        self._store.registration = Created(self._key, outcome.revision)
        self._fence.renewed(sent)
        if self.halted is not None:
            self._lost.set()
        if outcome.revision < self._seen:
            self.halt("etcd has lost its latest changes: this broker has registered with an older revision than before")
        self.changed.set()
        log.info("registered", node_id=self.me.node_id, broker_epoch=self.epoch)
        return True

    def _registration(self) -> BrokerRegistration:
        """This registration, with the replicas that have lost records. If they are too many, all count as such."""
        lost = self.lost()
        if len(lost) > MOST_LOST:
            return replace(self.me, intact=NOT_INTACT)
        return replace(self.me, lost=tuple(sorted(lost)))

    def _continues(self, epoch: int) -> None:
        """From now on the directory has lost nothing since this registration, until the process ends uncleanly."""
        first = self.me.intact[0]
        # If etcd was restored from a backup, epochs begin again at an earlier one.
        self.me = replace(self.me, intact=(min(first, epoch) if first >= 0 else epoch, epoch))

    # Renew

    async def keep_registered(self) -> None:
        """Register again whenever the registration is lost, until cancelled."""
        backoff = jittered(*_RETRY_SECONDS, seed=self._key)
        while True:
            await self._lost.wait()
            if self.halted is not None:
                await self.end()
                await asyncio.Event().wait()
            await self._unregistered()
            while self.lease == 0 and self.halted is None:
                try:
                    await self.register()
                    backoff.succeeded()
                except (KvError, MembershipError) as error:
                    log.error("cannot register again", reason=str(error))
                    # Another broker with this node id or directory stays for longer than an etcd that does not answer.
                    await asyncio.sleep(self.session if isinstance(error, MembershipError) else backoff.failed())

    async def _unregistered(self) -> None:
        """Stop serving: the registration is gone."""
        self._fence.close()
        self.epoch, self.lease = -1, 0
        self._store.registration = self._store.controllership = None
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await keeper.close()

    async def watch(self) -> None:
        """Watch the registrations of all brokers, until cancelled."""
        prefix = self.live.broker_prefix.removesuffix("broker/")
        backoff = jittered(*_RETRY_SECONDS, seed=self._key)
        while True:
            try:
                listing = await self._kv.range(prefix, prefix_end(prefix))
                backoff.succeeded()
                self.live.listed(listing.entries)
                self._live_changed()
                async for changes in follow(self._kv, prefix, prefix_end(prefix), listing.revision):
                    self.live.changed(changes.changes)
                    self._live_changed()
            except KvCompacted:
                continue
            except KvError as error:
                log.debug("registrations cannot be listed", reason=str(error))
                await asyncio.sleep(backoff.failed())

    def _live_changed(self) -> None:
        mine = self.live.brokers.get(self._key)
        if mine is None or mine.incarnation != self.me.incarnation:
            # The watch may lag behind the registration: it is lost only if the watch has delivered it before.
            if self._seen == self.epoch:
                self._fence.close()
                self._lost.set()
        else:
            self._seen = mine.epoch
        elected = self.live.controller
        is_mine = elected is not None and elected.incarnation == self.me.incarnation
        self._store.controllership = (
            Created(self.live.controller_key, elected.epoch) if elected is not None and is_mine else None
        )
        self.changed.set()

    # Other brokers

    async def process_ended(self, node_id: int, epoch: int) -> None:
        """End the registration of another broker, whose process has ended: its lease would last for some time yet.

        Args:
            node_id: of the broker.
            epoch: its broker epoch, when its process ended. A registration with another one is left alone. Each
                registration has a lease of its own, so a later one is safe while the request is on its way.
        """
        try:
            found = (await self._kv.range(self.live.broker_key(node_id))).entries
            if found and found[0].created == epoch and found[0].lease:
                await self._kv.revoke(found[0].lease)
                log.warning("the process of a broker has ended, its lease is revoked", node_id=node_id, epoch=epoch)
        except KvError as error:
            log.warning("lease of an ended process cannot be revoked, it expires", node_id=node_id, reason=str(error))

    # Leave

    async def leave(self, cluster: ClusterMetadata, unclean: UncleanRule, min_isr: MinIsrRule, seconds: float) -> None:
        """Move leaderships to other brokers (Kafka's controlled shutdown), within `seconds`."""
        if self.lease == 0:
            return
        # From now on this broker does not serve, so that it and the new leaders never do at the same time.
        leaving = self.me = replace(self.me, leaving=True)
        try:
            async with asyncio.timeout(seconds):
                await self._hand_over(cluster)
                # The controller must know first, or it would add this broker to the image again.
                await self._kv.txn([Created(self._key, self.epoch)], [Put(self._key, leaving.to_json(), self.lease)])

                def decide(image: Image) -> tuple[Sequence[Event], bool]:
                    events = controller.broker_fenced(
                        image, leaving.node_id, self.epoch, unclean, min_isr, stopped=True
                    )
                    return events, bool(events)

                while await cluster.change(decide):
                    pass
        except (TimeoutError, KvError, KafkaError) as error:
            log.warning("leaderships were not moved", reason=str(error) or "it took too long")

    async def _hand_over(self, cluster: ClusterMetadata) -> None:
        """Let others lead, and give clients the time to find them while this broker is still in the metadata.

        If the old leader vanishes when the new one appears, librdkafka (2.16) has no leader for a second.
        """

        def decide(image: Image) -> tuple[Sequence[Event], bool]:
            events = controller.hand_over(image, self.me.node_id)
            return events, bool(events)

        moved = False
        while await cluster.change(decide):
            moved = True
        if moved:
            await asyncio.sleep(_HAND_OVER_SECONDS)

    async def end(self) -> None:
        """End the registration."""
        lease = self.lease
        await self._unregistered()
        if lease:
            try:
                await self._kv.revoke(lease)
            except KvUnavailable as error:
                log.warning("registration cannot be ended, it expires with its lease", reason=str(error))
            except KvError as error:
                log.debug("no registration to end", reason=str(error))
