"""etcd goes back to an earlier state under running brokers, and appends whose responses were lost."""

import asyncio
import time
from collections.abc import Sequence

import pytest

from barnabas_broker.cluster import member
from barnabas_broker.cluster.etcd_restore import EPOCH_STEP
from barnabas_broker.cluster.image import ProducerIdsAllocated
from barnabas_broker.cluster.kv import Created, Delete, Holds, KeyEntry, KvError, Put, TxnOutcome
from barnabas_broker.cluster.store import StoreError, StoreUnavailable
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.broker.cluster.test_member import SESSION, Process, World, partitions, scenario
from tests.broker.cluster.test_store_contract import SharedPlace, model, modelled
from tests.sim.etcd_model import EtcdModel, Fault, ModelKv

__all__ = ["model", "modelled"]


def reconnect(world: World) -> None:
    """A server that was restored closes all connections."""
    for process in world.processes:
        process.kv.break_watches()


def empty(model: EtcdModel) -> None:
    """Forget everything, as an etcd with a new disk."""
    model.revision, model.compacted = 1, 0
    model.entries, model.leases, model._lease_of = {}, {}, {}
    model._past, model._history = {1: {}}, []


def readiness(process: Process) -> list[str]:
    """The reasons that /readyz gives."""
    assert process.member is not None
    return [each.text for each in process.member.conditions() if not each.ready]


def test_a_broker_stops_serving_at_once_when_etcd_is_restored_from_a_backup() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        restore = world.model.backup()
        await one.create("topic", 4, 2)
        await world.until(lambda: len(two.leads("topic")) == 2)
        restore()
        # Their leases and registrations are in the backup: they are renewed.
        reconnect(world)
        since = asyncio.get_running_loop().time()
        await world.until(lambda: not one.may_serve() and not two.may_serve())
        assert asyncio.get_running_loop().time() - since < SESSION / 3
        for process in (one, two):
            assert process.member is not None
            halted = process.member.lifecycle.halted
            assert halted is not None and "barnabas cluster restore" in halted and "batch" in halted
            assert readiness(process) == [halted]
        await asyncio.sleep(SESSION * 5)
        assert not one.may_serve() and not two.may_serve()
        # They have ended their registrations, so that nothing of them is in the way of a restore.
        assert not [key for key in world.model.entries if "/live/" in key]

    scenario(steps)


@pytest.mark.parametrize("step", [1, 20_000])
def test_leader_epochs_grow_beyond_those_in_the_logs(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata is older than the logs: the same leader epoch must not be used for other records."""
    monkeypatch.setattr(member, "STEP", step)
    topic_id = bytes([5]) * 16

    async def steps(world: World) -> None:
        one, _ = await world.start(1, 2)
        await one.create("topic", 4, 2)
        before = [each.leader_epoch for each in partitions(one)]
        three = world.process(3)
        logs = {(topic_id, 0): 7, (topic_id, 1): before[1], (topic_id, 3): 40}
        # Of a topic that the metadata do not know, and of more partitions than it has.
        logs |= {(bytes([9]) * 16, 0): 70, (topic_id, 4): 70}
        await three.start(leader_epochs=logs)
        expected = [7 + EPOCH_STEP, before[1], before[2], 40 + EPOCH_STEP]
        await world.until(lambda: [each.leader_epoch for each in partitions(one)] == expected)
        assert [each.leader_epoch for each in partitions(three)] == expected
        assert len(one.leads("topic")) == 2, "its leaders go on, in the new epochs"
        # The step leaves room: a second broker with logs that are a little newer raises nothing.
        sequence = three.cluster.sequence
        four = world.process(4)
        await four.start(leader_epochs={(topic_id, 0): 7 + EPOCH_STEP, (topic_id, 3): 41})
        await world.until(lambda: 4 in one.cluster.image.brokers)
        assert [each.leader_epoch for each in partitions(one)] == expected
        assert four.cluster.sequence > sequence

    scenario(steps)


def test_a_broker_stops_serving_when_etcd_is_emptied() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 4, 2)
        await world.until(lambda: len(two.leads("topic")) == 2)
        empty(world.model)
        reconnect(world)
        await world.until(lambda: not one.may_serve() and not two.may_serve(), SESSION)
        await asyncio.sleep(SESSION * 5)
        assert not one.may_serve() and not two.may_serve()
        assert not [key for key in world.model.entries if "/live/" in key]

    scenario(steps)


def test_a_change_on_an_etcd_that_was_restored_is_refused_at_once() -> None:
    async def steps(world: World) -> None:
        (one,) = await world.start(1)
        restore = world.model.backup()
        await one.create("topic", 1, 1)
        restore()
        since = asyncio.get_running_loop().time()
        with pytest.raises(KafkaError) as caught:
            await one.create("other-topic", 1, 1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert asyncio.get_running_loop().time() - since < 1
        assert not one.may_serve()

    scenario(steps)


def test_another_history_of_the_same_length_is_noticed() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        restore = world.model.backup()
        await one.create("topic", 1, 1)
        await world.until(lambda: "topic" in two.cluster.image.topics)
        sequence = two.cluster.sequence
        two.kv.cut_off = True
        two.kv.break_watches()
        restore()
        entry = KeyEntry(f"/sim/log/{sequence:020}", b'{"writer": "x", "number": 1}', 5, 5)
        world.model.entries |= {entry.key: entry, "/sim/head": KeyEntry("/sim/head", b"%d" % sequence, 5, 5)}
        two.kv.cut_off = False
        await world.until(lambda: two.member is not None and two.member.lifecycle.halted is not None)
        assert not two.may_serve()

    scenario(steps)


def test_a_broker_whose_watch_breaks_goes_on() -> None:
    async def steps(world: World) -> None:
        one, two = await world.start(1, 2)
        await one.create("topic", 2, 2)
        for _ in range(20):
            reconnect(world)
            await asyncio.sleep(0.5)
            assert one.may_serve() and two.may_serve()
        world.model.compact()
        reconnect(world)
        await asyncio.sleep(SESSION)
        assert one.may_serve() and two.may_serve()

    scenario(steps)


async def test_an_append_that_is_rejected_after_a_lost_response_is_looked_up(
    modelled: SharedPlace, model: EtcdModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    kv = ModelKv(model, time.monotonic)
    member = await modelled.member(kv)
    await member.load()
    full = False
    txn = kv.txn

    async def attempt(
        conditions: Sequence[Created | Holds], then: Sequence[Put | Delete], otherwise: Sequence[str] = ()
    ) -> TxnOutcome:
        nonlocal full
        if full:
            raise KvError("etcdserver: mvcc: database space exceeded")
        full = True
        return await txn(conditions, then, otherwise)

    monkeypatch.setattr(kv, "txn", attempt)
    kv.faults = [Fault.ANSWER_LOST]
    assert await member.append([ProducerIdsAllocated(1)], 0), "the first attempt has stored it"
    full, kv.faults = False, [Fault.LOST]
    with pytest.raises(StoreUnavailable, match="unknown"):
        await member.append([ProducerIdsAllocated(2)], 1)
    with pytest.raises(StoreError, match="space exceeded") as caught:
        await member.append([ProducerIdsAllocated(2)], 1)
    assert not isinstance(caught.value, StoreUnavailable)
