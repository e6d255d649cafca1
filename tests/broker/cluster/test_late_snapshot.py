"""A snapshot whose last transaction arrives after a newer snapshot, or after a restore of etcd."""

from collections.abc import Sequence

import pytest

from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import ControllerElected, Image
from barnabas_broker.cluster.kv import Created, Delete, Holds, KvUnavailable, Put, TxnOutcome
from barnabas_broker.cluster.store import StoreUnavailable
from tests.sim.etcd_model import EtcdModel, ModelKv


class SlowKv(ModelKv):
    """Delays one transaction that sets ``snapshot-head``."""

    def __init__(self, model: EtcdModel) -> None:
        super().__init__(model, lambda: 0.0)
        self.hold = False
        self.held: list[tuple[Sequence[Created | Holds], Sequence[Put | Delete]]] = []

    async def txn(
        self, conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        if self.hold and any(isinstance(each, Put) and each.key == "/p/snapshot-head" for each in then):
            self.hold = False
            self.held.append((conditions, then))
            raise KvUnavailable("no answer in time")
        return await super().txn(conditions, then, otherwise)


async def test_a_late_snapshot_does_not_undo_a_newer_one() -> None:
    kv = SlowKv(EtcdModel())
    store = EtcdStore(kv, "/p/", "me", lambda: 0.0)
    revision = (await kv.txn([], [Put("/p/live/broker/1", b"")])).revision
    store.registration = store.controllership = Created("/p/live/broker/1", revision)
    image = Image("id")
    for sequence in range(3):
        event = ControllerElected(sequence)
        assert await store.append([event], sequence)
        image = image.apply(event)
        if sequence == 1:
            kv.hold = True
            with pytest.raises(StoreUnavailable):
                await store.snapshot(image, 2)
    await store.snapshot(image, 3)
    ((conditions, then),) = kv.held
    assert not (await kv.txn(conditions, then)).done
    loaded = await EtcdStore(kv, "/p/", "another", lambda: 0.0).load()
    assert (loaded.sequence, Image("id").apply_all(loaded.events)) == (3, image)


async def test_a_late_snapshot_is_not_referred_to_if_a_restore_has_removed_it() -> None:
    kv = SlowKv(EtcdModel())
    store = EtcdStore(kv, "/p/", "me", lambda: 0.0)
    revision = (await kv.txn([], [Put("/p/live/broker/1", b"")])).revision
    store.registration = store.controllership = Created("/p/live/broker/1", revision)
    event = ControllerElected(1)
    assert await store.append([event], 0)
    image = Image("id").apply(event)
    kv.hold = True
    with pytest.raises(StoreUnavailable):
        await store.snapshot(image, 1)
    # What a restore to the revision before the snapshot's first part leaves.
    assert (await kv.txn([], [Delete("/p/snapshot/", "/p/snapshot0")])).done
    ((conditions, then),) = kv.held
    assert not (await kv.txn(conditions, then)).done
    loaded = await EtcdStore(kv, "/p/", "another", lambda: 0.0).load()
    assert (loaded.sequence, Image("id").apply_all(loaded.events)) == (1, image)
