"""Changes of the metadata by one broker: decided, stored, applied, passed to listeners."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from barnabas_broker.cluster.etcd_store import EtcdStore
from barnabas_broker.cluster.image import BrokerConfigured, Event, Image, ProducerIdsAllocated
from barnabas_broker.cluster.kv import Created, Put
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.cluster.store import EventBatch, StoreError, StoreUnavailable
from barnabas_protocol.errors import ErrorCode, KafkaError
from tests.sim.etcd_model import EtcdModel, ModelKv


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterMetadata]:
    store = LocalStore(tmp_path)
    loaded = await store.load()
    yield ClusterMetadata(Image("cluster").apply_all(loaded.events), store, loaded.sequence)
    await store.close()


def setting(name: str) -> tuple[Sequence[Event], str]:
    return [BrokerConfigured(name, {"log.retention.ms": "7"})], name


async def test_listeners_are_called_after_a_change_is_stored(cluster: ClusterMetadata) -> None:
    notified: list[tuple[set[str], int]] = []
    cluster.subscribe(lambda image, events: notified.append((set(image.broker_configs), len(events))))
    assert await cluster.change(lambda image: setting("a")) == "a"
    assert notified == [({"a"}, 1)]
    assert cluster.may_serve()


async def test_a_rejected_change_changes_nothing(cluster: ClusterMetadata) -> None:
    def refuse(image: Image) -> tuple[Sequence[Event], None]:
        raise KafkaError(ErrorCode.INVALID_CONFIG)

    before = cluster.image
    with pytest.raises(KafkaError):
        await cluster.change(refuse)
    assert cluster.image is before


async def test_a_rejected_change_is_decided_again_after_changes_of_other_brokers() -> None:
    kv = ModelKv(EtcdModel(), time.monotonic)
    brokers = []
    for name in ("one", "two"):
        store = EtcdStore(kv, "/refused/", name, time.monotonic)
        outcome = await kv.txn([], [Put(f"/refused/live/broker/{name}", b"{}")])
        store.registration = Created(f"/refused/live/broker/{name}", outcome.revision)
        loaded = await store.load()
        brokers.append(ClusterMetadata(Image("cluster"), store, loaded.sequence))
    one, two = brokers
    seen: list[bool] = []

    def decide(image: Image) -> tuple[Sequence[Event], str]:
        seen.append("a" in image.broker_configs)
        if not seen[-1]:
            raise KafkaError(ErrorCode.INVALID_CONFIG)
        return setting("b")

    with pytest.raises(KafkaError):
        await two.change(decide)
    await one.change(lambda image: setting("a"))
    following = asyncio.create_task(two.follow())
    async with asyncio.timeout(60):
        assert await two.change(decide) == "b"
    following.cancel()
    assert seen == [False, False, True]


async def test_a_rejection_stands_when_the_store_does_not_answer(
    cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: LocalStore) -> int:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(LocalStore, "newest", fail)

    def refuse(image: Image) -> tuple[Sequence[Event], None]:
        raise KafkaError(ErrorCode.INVALID_CONFIG)

    with pytest.raises(KafkaError) as caught:
        await cluster.change(refuse)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_a_rejection_after_a_failed_journal_is_immediate(
    cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: LocalStore, handles: Sequence[int], events: Sequence[Event]) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(LocalStore, "_append", fail)
    with pytest.raises(KafkaError):
        await cluster.change(lambda image: setting("a"))

    def refuse(image: Image) -> tuple[Sequence[Event], None]:
        raise KafkaError(ErrorCode.INVALID_CONFIG)

    with pytest.raises(KafkaError) as caught:
        await cluster.change(refuse)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


async def test_changes_wait_for_one_another(cluster: ClusterMetadata) -> None:
    async def add(number: int) -> None:
        def decide(image: Image) -> tuple[Sequence[Event], None]:
            return [ProducerIdsAllocated(image.next_producer_id + 1)], None

        await cluster.change(decide)

    await asyncio.gather(*(add(n) for n in range(20)))
    assert cluster.image.next_producer_id == 20
    assert cluster.sequence == 20


async def test_all_listeners_are_called_though_one_fails(cluster: ClusterMetadata) -> None:
    heard = []

    def fail(image: Image, events: Sequence[Event]) -> None:
        raise ZeroDivisionError

    cluster.subscribe(fail)
    cluster.subscribe(lambda image, events: heard.append(image))
    with pytest.raises(ZeroDivisionError):
        await cluster.change(lambda image: setting("a"))
    assert heard == [cluster.image]
    assert "a" in cluster.image.broker_configs


async def test_a_batch_that_cannot_be_applied_is_not_skipped(
    cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.change(lambda image: setting("a"))
    before = cluster.image, cluster.sequence
    with monkeypatch.context() as broken:

        def fail(self: Image, events: object) -> Image:
            raise ZeroDivisionError

        broken.setattr(Image, "apply_all", fail)
        with pytest.raises(ZeroDivisionError):
            cluster._apply(EventBatch(2, [BrokerConfigured("b", {"log.retention.ms": "7"})]))
        assert (cluster.image, cluster.sequence) == before
    cluster._apply(EventBatch(2, [BrokerConfigured("b", {"log.retention.ms": "7"})]))
    assert cluster.image.broker_configs.keys() == {"a", "b"}


async def test_a_failed_store_is_a_storage_error(cluster: ClusterMetadata, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(self: LocalStore, *_: object, **__: object) -> bool:
        raise StoreError("no space left")

    monkeypatch.setattr(LocalStore, "append", fail)
    with pytest.raises(KafkaError, match="no space left") as caught:
        await cluster.change(lambda image: setting("a"))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "a" not in cluster.image.broker_configs


async def test_producer_ids_are_unique(cluster: ClusterMetadata) -> None:
    before = cluster.sequence
    ids = await asyncio.gather(*(cluster.next_producer_id() for _ in range(1500)))
    assert len(set(ids)) == 1500
    # Each block has a thousand ids, and is a change of the metadata.
    assert cluster.sequence == before + 2


async def test_producer_ids_go_on_after_a_restore(tmp_path: Path) -> None:
    given: list[int] = []
    for number in range(3):
        store = LocalStore(tmp_path / str(number))  # the backup contains no allocation
        (tmp_path / str(number)).mkdir()
        await store.load()
        restored = ClusterMetadata(
            Image("cluster"), store, wall_ms=iter(range(10**12 + 2 * number, 2 * 10**12)).__next__
        )
        given += [await restored.next_producer_id() for _ in range(1500)]
        await store.close()
    assert len(set(given)) == len(given)


async def test_producer_ids_in_the_logs_are_skipped(cluster: ClusterMetadata) -> None:
    await cluster.skip_producer_ids([7, 10**17 - 1, 41])
    assert await cluster.next_producer_id() == 10**17
    await cluster.skip_producer_ids([4])
    assert cluster.image.next_producer_id > 10**17


async def test_producer_ids_in_the_logs_that_no_broker_has_allocated_are_not_believed(cluster: ClusterMetadata) -> None:
    await cluster.skip_producer_ids([2**63 - 1, 10**17, 2**62])
    assert await cluster.next_producer_id() == 10**17 + 1


@pytest.mark.parametrize("counter", [2**63 - 2**20, 2**63 - 1, 2**63])
async def test_producer_ids_continue_after_the_counter_was_at_its_end(cluster: ClusterMetadata, counter: int) -> None:
    await cluster.change(lambda image: ([ProducerIdsAllocated(counter)], None))
    before = time.time_ns() // 1_000_000 * 1000
    ids = [await cluster.next_producer_id() for _ in range(1500)]
    assert len(set(ids)) == 1500
    assert before <= min(ids) <= max(ids) < before + 10**12
    assert cluster.image.next_producer_id > max(ids)


async def test_a_start_repairs_a_counter_of_producer_ids_that_is_at_its_end(cluster: ClusterMetadata) -> None:
    await cluster.change(lambda image: ([ProducerIdsAllocated(2**63)], None))
    await cluster.skip_producer_ids([2**63 - 1, 10**17])
    assert cluster.image.next_producer_id == 10**17 + 1
    assert await cluster.next_producer_id() == 10**17 + 1


async def test_ids_that_another_broker_may_have_allocated_are_below_the_limit(cluster: ClusterMetadata) -> None:
    now_ms = 1_700_000_000_000
    another_clock = (now_ms + 3_600_000) * 1000
    assert another_clock < cluster.producer_id_limit(now_ms) < 2 * another_clock
    await cluster.skip_producer_ids([10**17])
    assert 10**17 + 1000 < cluster.producer_id_limit(now_ms) < 2 * 10**17
