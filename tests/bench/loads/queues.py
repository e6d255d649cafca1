"""Loads for share groups; prints its measurements. SERVER is the server's process id.

python -m tests.bench.loads.queues drain   ADDRESS SERVER TOPIC PARTITIONS MEMBERS RECORDS
python -m tests.bench.loads.queues latency ADDRESS SERVER TOPIC PARTITIONS MEMBERS RATE SECONDS
python -m tests.bench.loads.queues hold    ADDRESS SERVER TOPIC PARTITIONS MEMBERS RECORDS

Members speak the raw protocol, with connections of their own, and behave as Kafka's clients do in the implicit mode:
each fetch accepts what the last one has returned. `latency` accepts with a request of its own, at once. Every wait has
a limit.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import uvloop

from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.messages.share_acknowledge import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
)
from barnabas_protocol.messages.share_fetch import (
    FetchAcknowledgementBatch,
    ShareFetchPartition,
    ShareFetchRequest,
    ShareFetchResponse,
    ShareFetchTopic,
)
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from barnabas_protocol.records.builder import build_batch
from tests.bench.loads.groups import Peer, connected, coordinated, cpu
from tests.bench.wire import PASSING, Link, named

#: Limit of one measurement in seconds.
LIMIT: Final = 180.0
#: Records that a member asks for, the default of Kafka's clients.
RECORDS: Final = 500
#: The largest window of a share partition that both servers allow.
LOCKS: Final = 4_000
#: Seconds between two heartbeats, the default of clients.
_INTERVAL: Final = 5.0
_PAUSE: Final = 0.02
_VERSION: Final = 1
_GROUP: Final = 32
_ACCEPT: Final = [1]
_PRODUCE: Final = 9
#: Seconds of records that are not counted.
_SKIPPED: Final = 0.5

#: First and last offset.
Run = tuple[int, int]


class Member:
    """A member of a share group: what it has acquired, and not acknowledged.

    It heartbeats on a connection of its own, as Kafka's clients do: a fetch that waits delays what comes after it.
    """

    def __init__(self, peer: Peer, coordinator: Peer, group: str, topic: str) -> None:
        self.id = str(uuid.uuid4())
        self.owned: set[int] = set()
        self.acquired: dict[int, list[Run]] = {}
        self._peer, self._coordinator = peer, coordinator
        self._group, self._topic = group, topic
        self._member_epoch = self._session_epoch = 0
        self._topic_id = b""

    async def heartbeat(self) -> None:
        """Join, or stay in the group."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.id,
            member_epoch=self._member_epoch,
            subscribed_topic_names=None if self._member_epoch else [self._topic],
        )
        while True:
            answer = await self._coordinator.ask(request, 1, ShareGroupHeartbeatResponse)
            if answer.error_code not in PASSING:
                break
            await asyncio.sleep(_PAUSE)
        if answer.error_code:
            raise RuntimeError(f"ShareGroupHeartbeat: error {answer.error_code} {answer.error_message}")
        self._member_epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = set()
            for topic in answer.assignment.topic_partitions:
                self._topic_id = bytes(topic.topic_id)
                self.owned.update(topic.partitions)

    async def fetch(self, wait_ms: int = 500) -> int:
        """Accept what was acquired, and acquire more; the number of records that were accepted."""
        begins = self._session_epoch == 0
        said, self.acquired = self.acquired, {}
        partitions = [
            ShareFetchPartition(
                partition_index=partition,
                acknowledgement_batches=[
                    FetchAcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=_ACCEPT)
                    for first, last in said.get(partition, ())
                ],
            )
            for partition in (self.owned if begins else said)
        ]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self.id,
            share_session_epoch=self._session_epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=50 * 1024 * 1024,
            max_records=RECORDS,
            batch_size=RECORDS,
            topics=[ShareFetchTopic(topic_id=self._topic_id, partitions=partitions)] if partitions else [],
            forgotten_topics_data=[],
        )
        answer = await self._peer.ask(request, _VERSION, ShareFetchResponse)
        if answer.error_code:
            raise RuntimeError(f"ShareFetch: error {answer.error_code} {answer.error_message}")
        self._session_epoch += 1
        for topic in answer.responses:
            for part in topic.partitions:
                if part.acknowledge_error_code or part.error_code not in PASSING | {0}:
                    raise RuntimeError(f"ShareFetch: errors {part.error_code}, {part.acknowledge_error_code}")
                if part.acquired_records:
                    self.acquired[part.partition_index] = [
                        (run.first_offset, run.last_offset) for run in part.acquired_records
                    ]
        return sum(last - first + 1 for runs in said.values() for first, last in runs)

    async def accept(self, said: dict[int, list[Run]]) -> None:
        """Accept records with a request of its own."""
        request = ShareAcknowledgeRequest(
            group_id=self._group,
            member_id=self.id,
            share_session_epoch=self._session_epoch,
            topics=[
                AcknowledgeTopic(
                    topic_id=self._topic_id,
                    partitions=[
                        AcknowledgePartition(
                            partition_index=partition,
                            acknowledgement_batches=[
                                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=_ACCEPT)
                                for first, last in runs
                            ],
                        )
                        for partition, runs in said.items()
                    ],
                )
            ],
        )
        answer = await self._peer.ask(request, _VERSION, ShareAcknowledgeResponse)
        errors = {answer.error_code} | {part.error_code for topic in answer.responses for part in topic.partitions}
        if errors - {0}:
            raise RuntimeError(f"ShareAcknowledge: errors {errors}")
        self._session_epoch += 1


def _configured(address: str, locks: int = 2_000) -> str:
    """The id of a group that begins with the first record."""
    group = named()
    configs = {"share.auto.offset.reset": "earliest", "share.partition.max.record.locks": str(locks)}
    resource = IncrementalAlterConfigsResource(
        resource_type=_GROUP,
        resource_name=group,
        configs=[IncrementalAlterableConfig(name=k, config_operation=0, value=v) for k, v in configs.items()],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with Link(address) as link:
        (done,) = link.ask(request, 1, IncrementalAlterConfigsResponse).responses
    if done.error_code:
        raise RuntimeError(f"IncrementalAlterConfigs: error {done.error_code} {done.error_message}")
    return group


@asynccontextmanager
async def _joined(address: str, group: str, topic: str, partitions: int, count: int) -> AsyncIterator[list[Member]]:
    """Members that stay in a group until the context ends. Each has partitions, and each partition has members."""
    coordinated(address)
    async with asyncio.timeout(LIMIT), connected(address, Peer, count) as some, connected(address, Peer, count) as more:
        members = [Member(*peers, group, topic) for peers in zip(some, more, strict=True)]

        async def beat() -> bool:
            """Whether each member has partitions, and each partition has members."""
            await asyncio.gather(*(member.heartbeat() for member in members))
            owned = [member.owned for member in members]
            return all(owned) and len(set().union(*owned)) == partitions

        async def stay() -> None:
            while True:
                await asyncio.sleep(_INTERVAL)
                await beat()

        await beat()
        while (
            not all(each.owned for each in members) or len(set().union(*(each.owned for each in members))) < partitions
        ):
            await asyncio.sleep(_PAUSE * 10)
            await beat()
        staying = asyncio.create_task(stay())
        try:
            yield members
        finally:
            staying.cancel()
        await asyncio.wait([staying])
        if not staying.cancelled():
            staying.result()


async def drain(address: str, server: int, topic: str, partitions: int, members: int, records: int) -> dict[str, float]:
    """Measure how long a group takes to accept all records of a topic."""
    group, left = _configured(address), records
    async with _joined(address, group, topic, partitions, members) as everyone:

        async def work(member: Member) -> None:
            nonlocal left
            while left > 0:
                accepted = await member.fetch()
                left -= accepted

        used, started = cpu(server), time.perf_counter()
        workers = [asyncio.create_task(work(member)) for member in everyone]
        await asyncio.wait(workers, return_when=asyncio.FIRST_COMPLETED)
        elapsed, used = time.perf_counter() - started, cpu(server) - used
        await asyncio.gather(*workers)
    if left:
        raise RuntimeError(f"{-left} records were accepted twice")
    return {"rate": records / elapsed, "cpu": used / records}


async def latency(
    address: str, server: int, topic: str, partitions: int, members: int, rate: int, seconds: float
) -> dict[str, float]:
    """Measure the time from when each record is due until it is accepted, and the server's processor time."""
    group, total = _configured(address), int(rate * seconds)
    times: dict[int, float] = {}
    async with _joined(address, group, topic, partitions, members) as everyone, connected(address, Peer, 1) as (peer,):
        over = asyncio.Event()

        async def work(member: Member) -> None:
            while not over.is_set():
                await member.fetch(100)
                said, member.acquired = member.acquired, {}
                if not said:
                    continue
                await member.accept(said)
                now = time.perf_counter()
                # There is one producer, and one partition: the offset is the number of the record.
                times.update(dict.fromkeys((n for first, last in said[0] for n in range(first, last + 1)), now))
                if len(times) >= total:
                    over.set()

        async def write() -> None:
            data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
            request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
            done = await peer.ask(request, _PRODUCE, ProduceResponse)
            if error := done.responses[0].partition_responses[0].error_code:
                raise RuntimeError(f"Produce: error {error}")

        batch = build_batch([(None, bytes(100), (), int(time.time() * 1000))])
        workers = [asyncio.create_task(work(member)) for member in everyone]
        await asyncio.sleep(1)
        used, started = cpu(server), time.perf_counter()
        writing: list[asyncio.Task[None]] = []
        while len(writing) < total:
            now = time.perf_counter()
            while len(writing) < total and started + len(writing) / rate <= now:
                writing.append(asyncio.create_task(write()))
            await asyncio.sleep(0.0005)
        await asyncio.gather(*writing)
        await asyncio.gather(*workers)
        used = cpu(server) - used
    skipped = int(rate * _SKIPPED)
    taken = sorted(at - started - n / rate for n, at in times.items() if n >= skipped)
    return {"p50": taken[len(taken) // 2], "p99": taken[len(taken) * 99 // 100], "cpu": used / total}


async def hold(address: str, server: int, topic: str, partitions: int, members: int, records: int) -> dict[str, float]:
    """Measure the memory of records that are acquired, and of every second of them once the others are accepted."""
    await drain(address, server, topic, partitions, members, records)
    group = _configured(address, LOCKS)
    async with _joined(address, group, topic, partitions, members) as everyone:
        before, left = _memory(server), records
        mine: dict[Member, dict[int, list[Run]]] = {member: {} for member in everyone}

        async def work(member: Member) -> None:
            nonlocal left
            while left > 0:
                await member.fetch(100)
                for partition, runs in member.acquired.items():
                    mine[member].setdefault(partition, []).extend(runs)
                    left -= sum(last - first + 1 for first, last in runs)
                member.acquired = {}

        await asyncio.gather(*(work(member) for member in everyone))
        acquired = _memory(server)
        for member, parts in mine.items():
            for partition, runs in parts.items():
                every = [n for first, last in runs for n in range(first, last + 1, 2)]
                await member.accept({partition: [(n, n) for n in every]})
        alone = _memory(server)
    return {"acquired": acquired - before, "alone": alone - before}


def _memory(server: int) -> float:
    """Bytes that a server holds: live objects of a JVM, resident memory otherwise."""
    if Path(f"/proc/{server}/comm").read_text().strip() != "java":
        return int(Path(f"/proc/{server}/statm").read_text().split()[1]) * resource.getpagesize()
    # A histogram counts live objects only: it collects garbage first.
    shown = subprocess.run(["jcmd", str(server), "GC.class_histogram"], capture_output=True, text=True, check=True)
    return int(shown.stdout.splitlines()[-1].split()[2])


def main(what: str, address: str, server: int, topic: str, *rest: float) -> None:
    partitions, members, *more = (int(each) for each in rest)
    loads: dict[str, Callable[..., Coroutine[None, None, dict[str, float]]]]
    loads = {"drain": drain, "latency": latency, "hold": hold}
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(loads[what](address, server, topic, partitions, members, *more))))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4], *map(float, sys.argv[5:]))
