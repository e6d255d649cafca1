"""The clinic on three brokers: the one that coordinates the group leads none of the partitions that its members read.

Their Fetches go to the other two, and what is said is the same.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import pytest

from barnabas_broker.testing import Cluster
from barnabas_client import Admin, Consumer, NewTopic, Producer
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from tests.clinic.diseases import DISEASES, Disease
from tests.clinic.test_diseases import SETTINGS, Clinic
from tests.clinic.ward import LIMIT
from tests.cluster.harness import eventually, need_etcd
from tests.interop.process import run

pytestmark = [pytest.mark.cluster]

#: Diseases that show in Fetches, and in the logs of partitions.
_OF_FETCHES: Final = (
    "a record at which a program fails, and reads it again and again",
    "a partition is paused, and not resumed",
    "a program that waits before it works on a record (a delay queue, healthy)",
    "the worker of one partition hangs, while the program reads on",
    "a program that commits one of the partitions that it reads",
    "a group that reads and never commits",
    "a rebalance listener that goes back to the beginning",
    "records are deleted before a member reads them, and its position falls back to latest",
)
#: Those that show only if the coordinator follows the leader.
_OF_REPLICAS: Final = (
    "a member commits an offset after the end of the log",
    "the first records of a partition come while the program restarts, and it goes on at latest",
)
_FOLLOWS, _HAS_NONE = "it follows the leaders", "it has no replica"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    need_etcd()
    with Cluster(3, config=SETTINGS) as cluster:
        yield cluster


def elsewhere(cluster: Cluster, has_replicas: bool) -> Mapping[int, Sequence[int]]:
    """The replicas of two partitions, the leader first, which is not the coordinator."""
    coordinator = cluster.leader(OFFSETS_TOPIC)
    one, two = (each.node_id for each in cluster.brokers if each is not coordinator)
    last = coordinator.node_id
    return {0: [one, two, last], 1: [two, one, last]} if has_replicas else {0: [one], 1: [two]}


def cases() -> Iterator[tuple[Disease, bool]]:
    for disease in DISEASES:
        if disease.name in (*_OF_FETCHES, *_OF_REPLICAS):
            yield disease, True
        if disease.name in _OF_FETCHES:
            yield disease, False


@pytest.mark.parametrize(
    ("disease", "has_replicas"),
    list(cases()),
    ids=[f"{disease.name}: {_FOLLOWS if has_replicas else _HAS_NONE}" for disease, has_replicas in cases()],
)
def test_what_is_said_about_a_disease(cluster: Cluster, fresh: str, disease: Disease, has_replicas: bool) -> None:
    """With one library: the others are compared on one broker."""
    clinic = Clinic(cluster.bootstrap_servers, None, fresh, replicas=elsewhere(cluster, has_replicas))
    clinic.treat(disease, ("barnabas", "classic"))


class Group:
    """A group with a topic, both of one name."""

    def __init__(self, servers: str, name: str) -> None:
        self.servers = servers
        self.name = name

    async def says(self, *parts: str) -> None:
        """Wait until both commands say this."""

        async def said() -> bool:
            texts = [await asyncio.to_thread(self._ask, command) for command in ("doctor", "explain")]
            return all(part in text for part in parts for text in texts)

        await eventually(f"{parts} in {self._ask('doctor')}", said, LIMIT)

    def _ask(self, command: str) -> str:
        asked = [sys.executable, "-m", "barnabas_client.cli", "groups", command, self.name, "-b", self.servers]
        return run(asked, LIMIT).stdout


@pytest.fixture(params=[True, False], ids=[_FOLLOWS, _HAS_NONE])
async def group(request: pytest.FixtureRequest, cluster: Cluster, fresh: str) -> Group:
    replicas = await asyncio.to_thread(elsewhere, cluster, request.param)
    async with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(fresh, replica_assignments=replicas)])
    return Group(cluster.bootstrap_servers, fresh)


@asynccontextmanager
async def in_background(work: AsyncIterator[None]) -> AsyncIterator[None]:
    async def do() -> None:
        async for _ in work:
            pass

    task = asyncio.create_task(do())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def test_a_group_that_waits_for_an_open_transaction(group: Group) -> None:
    writer = Producer(
        bootstrap_servers=group.servers, transactional_id=f"of {group.name}", transaction_timeout_ms=60_000
    )
    reader = Consumer(
        group.name,
        bootstrap_servers=group.servers,
        group_id=group.name,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
    )

    async def reads() -> AsyncIterator[None]:
        async for _ in reader:
            yield

    async with writer, reader, in_background(reads()):
        async with writer.transaction():
            for partition in range(2):
                await writer.send_and_wait(group.name, b"committed", partition=partition)
        async with writer.transaction():
            for partition in range(2):
                await writer.send_and_wait(group.name, b"open", partition=partition)
            await group.says(f"of {group.name}", "open")


async def test_a_group_with_too_few_members(group: Group) -> None:
    reader = Consumer(
        group.name,
        bootstrap_servers=group.servers,
        group_id=group.name,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        client_id="slow",
    )

    async def writes() -> AsyncIterator[None]:
        async with Producer(bootstrap_servers=group.servers) as writer:
            while True:
                for number in range(100):
                    await writer.send(group.name, b"record", partition=number % 2)
                await asyncio.sleep(0.25)
                yield

    async def reads() -> AsyncIterator[None]:
        while True:
            await reader.getmany(timeout_ms=100, max_records=10)
            await reader.commit()
            await asyncio.sleep(0.25)
            yield

    async with reader, in_background(writes()), in_background(reads()):
        await group.says("are written", "the lag grew from", "times the work")
