"""The contract of metadata stores: the journal of a single broker, and the store in etcd, over the model and over etcd
itself."""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.event_json import event_from_json
from barnabas_broker.cluster.image import (
    BrokerConfigured,
    Event,
    Image,
    PartitionInfo,
    ProducerIdsAllocated,
    TopicCreated,
    TopicDeleted,
)
from barnabas_broker.cluster.kv import Created, Delete, KeyValueStore, Put
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.store import (
    EventBatch,
    LoadedMetadata,
    MetadataStore,
    StoreError,
    StoreFenced,
    StoreUnavailable,
)
from tests.sim.etcd_model import EtcdModel, Fault, ModelKv

PREFIX = "/contract/"
TOPIC = TopicCreated("topic", b"i" * 16, (PartitionInfo(1, 0, (1, 2), (1,), 3, (2,), ()),), {"retention.ms": "5"})
OTHER = TopicCreated("other", b"j" * 16, (PartitionInfo(-1, 4, (2,), (2,)),), {})


@dataclass
class Place:
    """A place of storage; all stores that are opened there have the same content."""

    open: Callable[[], Awaitable[MetadataStore]]
    opened: list[MetadataStore] = field(default_factory=list)

    async def store(self) -> MetadataStore:
        self.opened.append(await self.open())
        return self.opened[-1]


@dataclass
class SharedPlace(Place):
    connect: Callable[[], KeyValueStore] = field(kw_only=True)
    prefix: str = PREFIX

    async def member(self, kv: KeyValueStore | None = None) -> EtcdStore:
        """A store of a registered broker, which becomes the controller if there is none."""
        kv = kv or self.connect()
        name = uuid.uuid4().hex
        store = EtcdStore(kv, self.prefix, name, time.monotonic)
        broker, controller = f"{self.prefix}live/broker/{name}", f"{self.prefix}live/controller"
        outcome = await kv.txn([], [Put(broker, b"{}")])
        store.registration = Created(broker, outcome.revision)
        elected = await kv.txn([Created(controller, 0)], [Put(controller, name.encode())])
        if elected.done:
            store.controllership = Created(controller, elected.revision)
        self.opened.append(store)
        return store


@pytest.fixture
def model() -> EtcdModel:
    return EtcdModel()


def shared_place(connect: Callable[[], KeyValueStore], prefix: str) -> SharedPlace:
    async def open_one() -> MetadataStore:
        return await made.member()

    made = SharedPlace(open_one, connect=connect, prefix=prefix)
    return made


@pytest.fixture(params=["model", pytest.param("etcd", marks=pytest.mark.cluster)])
async def shared(request: pytest.FixtureRequest) -> AsyncIterator[SharedPlace]:
    """A place for several brokers."""
    if request.param == "model":
        model: EtcdModel = request.getfixturevalue("model")
        place = shared_place(lambda: ModelKv(model, time.monotonic), PREFIX)
    else:
        port = request.getfixturevalue("etcd").port
        from barnabas_broker.cluster.etcd import EtcdClient, EtcdConfig

        place = shared_place(lambda: EtcdClient(EtcdConfig([f"127.0.0.1:{port}"])), f"/{uuid.uuid4().hex}/")
    yield place
    for store in place.opened:
        await store.close()


@pytest.fixture(params=["local", "model", pytest.param("etcd", marks=pytest.mark.cluster)])
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """A place for one broker at a time."""
    if request.param == "local":

        async def open_one() -> MetadataStore:
            for before in local.opened:
                await before.close()
            return LocalStore(tmp_path)

        local = Place(open_one)
        yield local
        for store in local.opened:
            await store.close()
        return
    shared = shared_place(lambda: connect(), PREFIX)
    if request.param == "model":
        model: EtcdModel = request.getfixturevalue("model")

        def connect() -> KeyValueStore:
            return ModelKv(model, time.monotonic)
    else:
        port = request.getfixturevalue("etcd").port
        shared.prefix = f"/{uuid.uuid4().hex}/"
        from barnabas_broker.cluster.etcd import EtcdClient, EtcdConfig

        def connect() -> KeyValueStore:
            return EtcdClient(EtcdConfig([f"127.0.0.1:{port}"]))

    yield shared
    for store in shared.opened:
        await store.close()


def image_of(loaded: LoadedMetadata) -> Image:
    return Image("cluster").apply_all(loaded.events)


async def take(updates: AsyncIterator[EventBatch | LoadedMetadata]) -> EventBatch | LoadedMetadata:
    async with asyncio.timeout(60):
        return await anext(updates)


async def test_a_new_store_is_empty(place: Place) -> None:
    loaded = await (await place.store()).load()
    assert (loaded.sequence, image_of(loaded)) == (0, Image("cluster"))


async def test_stored_events_are_loaded_in_order(place: Place) -> None:
    store = await place.store()
    sequence = (await store.load()).sequence
    batches: list[list[Event]] = [[TOPIC, ProducerIdsAllocated(1000)], [TopicDeleted("topic"), OTHER], [TOPIC]]
    for batch in batches:
        assert await store.append(batch, sequence)
        sequence += 1
    expected = Image("cluster").apply_all([event for batch in batches for event in batch])
    assert image_of(await (await place.store()).load()) == expected


async def test_only_events_decided_on_the_last_batch_are_stored(place: Place) -> None:
    store = await place.store()
    sequence = (await store.load()).sequence
    assert await store.append([TOPIC], sequence)
    assert not await store.append([OTHER], sequence)
    assert not await store.append([OTHER], sequence + 2)
    assert await store.append([ProducerIdsAllocated(5)], sequence + 1)
    assert image_of(await (await place.store()).load()) == Image("cluster").apply_all([TOPIC, ProducerIdsAllocated(5)])


async def test_the_number_of_the_newest_batch(place: Place) -> None:
    store = await place.store()
    assert await store.newest() == (await store.load()).sequence == 0
    assert await store.append([TOPIC], 0)
    assert await store.append([OTHER], 1)
    assert not await store.append([OTHER], 1)
    assert await store.newest() == 2


async def test_a_large_batch_is_stored_completely(place: Place) -> None:
    partitions = tuple(PartitionInfo(n % 3, n, (0, 1, 2), (0, 1, 2), n) for n in range(10_000))
    big = TopicCreated("big", b"b" * 16, partitions, {})
    store = await place.store()
    assert await store.append([big], (await store.load()).sequence)
    assert image_of(await (await place.store()).load()).topics["big"].partitions == partitions


async def test_the_watch_delivers_batches_of_other_brokers(shared: SharedPlace) -> None:
    one, two = await shared.member(), await shared.member()
    assert await one.append([TOPIC], (await one.load()).sequence)
    assert (await two.load()).sequence == 1
    updates = two.watch()
    for number in range(2, 6):
        assert await one.append([ProducerIdsAllocated(number)], number - 1)
        assert await take(updates) == EventBatch(number, [ProducerIdsAllocated(number)])


async def test_one_of_racing_writers_wins(shared: SharedPlace) -> None:
    members = [await shared.member() for _ in range(4)]
    for member in members:
        await member.load()
    for round_number in range(5):
        won = await asyncio.gather(
            *(m.append([ProducerIdsAllocated(100 * round_number + n)], round_number) for n, m in enumerate(members))
        )
        assert sum(won) == 1
    assert (await members[0].load()).sequence == 5


async def test_a_broker_that_lost_its_registration_cannot_write(shared: SharedPlace) -> None:
    kv = shared.connect()
    member = await shared.member(kv)
    await member.load()
    assert member.registration is not None
    # Deleted and created again by another process with the same node id.
    await kv.txn([], [Delete(member.registration.key)])
    await kv.txn([], [Put(member.registration.key, b"{}")])
    with pytest.raises(StoreFenced):
        await member.append([TOPIC], 0)
    member.registration = None
    with pytest.raises(StoreFenced):
        await member.append([TOPIC], 0)


async def test_only_the_controller_writes_as_one(shared: SharedPlace) -> None:
    one, two = await shared.member(), await shared.member()
    await one.load()
    assert await one.append([TOPIC], 0, as_controller=True)
    with pytest.raises(StoreFenced):
        await two.append([OTHER], 1, as_controller=True)
    two.controllership = Created(f"{shared.prefix}live/controller", 1)
    with pytest.raises(StoreFenced):
        await two.append([OTHER], 1, as_controller=True)


async def test_a_snapshot_replaces_batches(shared: SharedPlace) -> None:
    one = await shared.member()
    loaded = await one.load()
    image, sequence = image_of(loaded), loaded.sequence
    for round_number in range(3):
        for number in range(4):
            events: list[Event] = [BrokerConfigured(str(number), {"round": str(round_number)}), TOPIC]
            assert await one.append(events, sequence)
            image, sequence = image.apply_all(events), sequence + 1
        await one.snapshot(image, sequence)
        again = await (await shared.member()).load()
        assert (again.sequence, image_of(again)) == (sequence, image)
    kv = shared.connect()
    keys = (await kv.range(f"{shared.prefix}log/", f"{shared.prefix}log0")).entries
    parts = (await kv.range(f"{shared.prefix}snapshot/", f"{shared.prefix}snapshot0")).entries
    await kv.close()
    assert (len(keys), len(parts)) == (0, 1)
    assert await one.append([OTHER], sequence)


async def test_a_snapshot_of_many_parts(shared: SharedPlace) -> None:
    one = await shared.member()
    await one.load()
    image = Image("cluster").apply_all(
        TopicCreated(f"topic-{n}", os.urandom(16), (PartitionInfo(1, 0, (1, 2, 3), (1, 2, 3)),) * 3, {"a": "b"})
        for n in range(20_000)
    )
    await one.snapshot(image, 0)
    assert image_of(await (await shared.member()).load()) == image


async def test_the_cluster_id_is_stored_once(shared: SharedPlace) -> None:
    one, two = await shared.member(), await shared.member()
    assert await one.cluster_id(None) is None
    assert await one.cluster_id("first") == "first"
    assert await two.cluster_id("second") == "first"


# With faults, over the model


@pytest.fixture
def modelled(model: EtcdModel) -> SharedPlace:
    return shared_place(lambda: ModelKv(model, time.monotonic), PREFIX)


async def test_an_append_without_a_response_happens_once(modelled: SharedPlace, model: EtcdModel) -> None:
    kv = ModelKv(model, time.monotonic)
    member = await modelled.member(kv)
    await member.load()
    for number, faults in enumerate([[Fault.LOST], [Fault.ANSWER_LOST], [Fault.LOST, Fault.ANSWER_LOST, Fault.LOST]]):
        kv.faults = list(faults)
        assert await member.append([ProducerIdsAllocated(number)], number)
    loaded = await member.load()
    assert loaded.sequence == 3
    assert [e.next_id for e in loaded.events if isinstance(e, ProducerIdsAllocated)] == [0, 1, 2]


async def test_an_append_after_another_is_a_conflict(modelled: SharedPlace, model: EtcdModel) -> None:
    kv = ModelKv(model, time.monotonic)
    one, two = await modelled.member(kv), await modelled.member()
    await one.load()
    kv.faults = [Fault.LOST]
    asked = asyncio.create_task(one.append([TOPIC], 0))
    await asyncio.sleep(0)
    assert await two.append([OTHER], 0)
    assert not await asked


async def test_without_etcd_the_outcome_of_an_append_is_unknown(
    modelled: SharedPlace, model: EtcdModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas_broker.cluster.etcd_store.APPEND_SECONDS", 0.3)
    kv = ModelKv(model, time.monotonic)
    member = await modelled.member(kv)
    await member.load()
    kv.cut_off = True
    with pytest.raises(StoreUnavailable, match="unknown"):
        await member.append([TOPIC], 0)


async def test_the_watch_continues_after_a_lost_connection(modelled: SharedPlace, model: EtcdModel) -> None:
    kv = ModelKv(model, time.monotonic)
    one, two = await modelled.member(), await modelled.member(kv)
    await two.load()
    updates = two.watch()
    sequences = []
    for number in range(1, 8):
        assert await one.append([ProducerIdsAllocated(number)], number - 1)
        if number % 2:
            kv.break_watches()
        sequences.append((await take(updates)).sequence)
    assert sequences == list(range(1, 8))


async def test_after_a_compaction_everything_is_loaded_again(modelled: SharedPlace, model: EtcdModel) -> None:
    kv = ModelKv(model, time.monotonic)
    one, two = await modelled.member(), await modelled.member(kv)
    await two.load()
    updates = two.watch()
    assert await one.append([TOPIC], 0)
    assert isinstance(await take(updates), EventBatch)
    kv.cut_off = True
    kv.break_watches()
    pending = asyncio.ensure_future(take(updates))
    await asyncio.sleep(0)
    image = Image("cluster").apply(TOPIC)
    for number in range(1, 4):
        event = ProducerIdsAllocated(number)
        assert await one.append([event], number)
        image = image.apply(event)
    await one.snapshot(image, 4)
    model.compact()
    kv.cut_off = False
    update = await pending
    assert isinstance(update, LoadedMetadata)
    assert (update.sequence, image_of(update)) == (4, image)
    assert await one.append([OTHER], 4)
    assert await take(updates) == EventBatch(5, [OTHER])


async def test_values_of_another_program_are_rejected(modelled: SharedPlace, model: EtcdModel) -> None:
    member = await modelled.member()
    kv = modelled.connect()
    await kv.txn([], [Put(f"{PREFIX}log/00000000000000000001", b"\xff\xfe")])
    with pytest.raises(StoreError, match="cannot be read"):
        await member.load()
    await kv.txn([], [Put(f"{PREFIX}log/00000000000000000001", b'{"a": 1}\n{"b": 2}')])
    with pytest.raises(StoreError, match="not an event"):
        await member.load()
    for number in (b"many", b"9" * 5000):
        await kv.txn([], [Put(f"{PREFIX}snapshot-head", number)])
        with pytest.raises(StoreError, match="is not a number"):
            await member.load()


@pytest.mark.parametrize("key", ["0000000000000000000²", "9" * 5000, "more"])
async def test_a_batch_of_another_program_is_rejected(modelled: SharedPlace, model: EtcdModel, key: str) -> None:
    member = await modelled.member()
    await modelled.connect().txn([], [Put(f"{PREFIX}log/{key}", b"{}"), Put(f"{PREFIX}log/1", b"{}")])
    with pytest.raises(StoreError, match="is not a batch of events"):
        await member.load()


@pytest.mark.parametrize(
    "event",
    [
        '{"event":"BrokerFenced","node_id":[1],"epoch":2}',
        '{"event":"BrokerRegistered","node_id":1,"rack":7,"epoch":1,"endpoints":{"A":["h",1]}}',
        '{"event":"BrokerRegistered","node_id":1,"rack":null,"epoch":1,"endpoints":{"A":["h",Infinity]}}',
        '{"event":"PartitionChanged","name":"t","index":"0","partition":[1,0,[1],[1],0,[],[]]}',
        '{"event":"PartitionChanged","name":"t","index":0,"partition":[1,0,["1"],[1],0,[],[]]}',
        '{"event":"PartitionChanged","name":"t","index":0,"partition":[1,null,[1],[1],0,[],[]]}',
        '{"event":"TopicCreated","name":"t","topic_id":"00","partitions":[],"configs":{}}',
        '{"event":"TopicConfigured","name":"t","configs":{"retention.ms":5}}',
        '{"event":"ProducerIdsAllocated","next_id":NaN}',
        '{"event":"TopicDeleted","name":"t","more":1}',
        "[" * 100_000,
    ],
)
def test_an_invalid_event_is_rejected(event: str) -> None:
    with pytest.raises(StoreError, match="not an event"):
        event_from_json(event)
