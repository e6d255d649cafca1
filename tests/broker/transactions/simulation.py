"""Three brokers with real transaction coordinators in virtual time, under lost, late and repeated messages.

Coordinators crash before and after what they append is in the log, move, and go on as zombies; leaders of partitions
move; clients crash. The partitions are models that decide with the real :class:`ProducerState` which markers count.
Transactions are of version 2 (KIP-890). When all faults have ended, each transaction has ended in all of its
partitions in the same way, which is the one in the answer to its client.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from itertools import count
from typing import Any, Final

from barnabas_broker.cluster.image import Event, Image, PartitionChanged
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.coordinators.partitions import CoordinatorPartitions
from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.storage.producer_state import ProducerState
from barnabas_broker.transactions.records import TransactionReplay
from barnabas_broker.transactions.service import TransactionCoordinator
from barnabas_broker.transactions.transaction import NONE, SERVER_VERSION, Metadata, TxnReply
from barnabas_protocol.codec import encode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from barnabas_protocol.records import build_batch, decode_records, read_header
from barnabas_protocol.schema import Request
from tests.broker.groups.memory import Done, MemoryLog
from tests.broker.transactions.support import MemoryEvents
from tests.sim.brokers import Follower, Led, led_by, without_leaders
from tests.sim.virtual import run

NODES: Final = (1, 2, 3)
#: The topic that is written to.
TOPIC: Final = "t"
#: Partitions of ``__transaction_state``, and of the topic that is written to.
STATE_PARTITIONS: Final = 2
PARTITIONS: Final = 4
CLIENTS: Final = 3
_TOPICS: Final = without_leaders({TRANSACTIONS_TOPIC: STATE_PARTITIONS, TOPIC: PARTITIONS})
#: Virtual seconds of faults, and those without any after which everything has ended.
FAULTY: Final = 60.0
CALM: Final = 90.0
TIMEOUT_MS: Final = 8_000
#: Answers after which a client asks again.
RETRIABLE: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    )
)


class Violation(AssertionError):
    """A promise was broken; the text begins with the seed."""


class Partition:
    """A partition that clients write to.

    Attributes:
        leader: its leader.
        entries: producer id, value, and None for a record, else whether the marker commits.
        states: of the producers.
        markers: the number of markers of each producer.
        refused_newer: whether a transaction began while one with an older epoch was open. Coordinators write all
            markers before an epoch grows.
    """

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.entries: list[tuple[int, int, bool | None]] = []
        self.states: dict[int, ProducerState] = {}
        self.markers: dict[int, int] = {}
        self.refused_newer = False

    def append(self, producer_id: int, epoch: int, value: int, verified: int) -> ErrorCode:
        """A record, for which the coordinator was asked when the producer had so many markers here."""
        state = self.states.setdefault(producer_id, ProducerState(producer_id))
        if epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > state.epoch and state.transaction_start >= 0:
            self.refused_newer = True
            return ErrorCode.UNKNOWN_PRODUCER_ID
        if state.transaction_start < 0 and verified != self.markers.get(producer_id, 0):
            return ErrorCode.INVALID_TXN_STATE
        state.epoch = epoch
        if state.transaction_start < 0:
            state.transaction_start = len(self.entries)
        if (producer_id, value, None) not in self.entries:  # else a repeated request, which its sequence shows
            self.entries.append((producer_id, value, None))
        return ErrorCode.NONE

    def mark(self, marker: WritableTxnMarker) -> ErrorCode:
        state = self.states.setdefault(marker.producer_id, ProducerState(marker.producer_id))
        try:
            state.check_marker(
                marker.producer_epoch,
                marker.coordinator_epoch,
                marker.transaction_version,
                commit=marker.transaction_result,
            )
        except KafkaError as error:
            return error.code
        self.entries.append((marker.producer_id, -1, marker.transaction_result))
        self.markers[marker.producer_id] = self.markers.get(marker.producer_id, 0) + 1
        state.ended(marker.producer_epoch, marker.coordinator_epoch, 0)
        return ErrorCode.NONE

    def outcomes(self) -> dict[int, bool | None]:
        """Whether each value is committed; None if its transaction is open."""
        found: dict[int, bool | None] = {}
        opened: dict[int, list[int]] = {}
        for producer_id, value, committed in self.entries:
            if committed is None:
                opened.setdefault(producer_id, []).append(value)
                found[value] = None
            else:
                found.update(dict.fromkeys(opened.pop(producer_id, ()), committed))
        return found


class StateLog:
    """``__transaction_state`` as one process of a broker sees it."""

    def __init__(self, world: "World", broker: "Broker") -> None:
        self._world, self._broker = world, broker

    def append(self, partition: int, batch: bytearray, done: Done, verification: Any = None) -> None:
        """Append at once; it is replicated, and so certain, a little later."""
        world, broker = self._world, self._broker
        if not broker.alive or broker.state.epochs.get(partition) != world.epoch:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        if world.happens(0.03):
            done(ErrorCode.NOT_ENOUGH_REPLICAS)
            return
        world.log.put(partition, batch)
        epoch, end = world.epoch, len(world.log.batches[partition])

        def replicated() -> None:
            if not broker.alive:
                return
            if world.epoch != epoch:
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                world.replicated[partition] = max(world.replicated.get(partition, 0), end)
                done(ErrorCode.NONE)

        world.later(world.short(), replicated)

    def end_offset(self, partition: int) -> int:
        return self._world.log.end_offset(partition)

    def start_offset(self, partition: int) -> int:
        return self._world.log.start_offset(partition)

    async def read(self, partition: int, offset: int) -> bytes:
        await asyncio.sleep(self._world.short())
        return await self._world.log.read(partition, offset)


class Broker:
    """A broker in one of its lives, with the cluster's metadata as it knows it.

    Attributes:
        state: the partitions of ``__transaction_state`` that it believes to lead.
        coordinator: its coordinator of transactions.
        following: what it knows of the cluster.
    """

    def __init__(self, world: "World", node: int) -> None:
        self._world, self._node, self._life = world, node, world.lives[node]
        self.state = Led()
        self.following = Follower(world, _TOPICS, world.changes, lambda: self.alive)
        self.coordinator = TransactionCoordinator(
            world.config,
            node,
            StateLog(world, self),
            self.leader,
            self._write,
            Messages(world, node),
            self._producer_id,
            MemoryEvents(),
            now=lambda: world.now,
            wall_ms=lambda: 1_000_000 + round(world.now * 1000),
        )
        may_serve = self.following.metadata.may_serve
        self._led = CoordinatorPartitions(TRANSACTIONS_TOPIC, self.coordinator.runtime, self.state, may_serve)
        self.following.metadata.subscribe(self._changed)

    @property
    def alive(self) -> bool:
        return self._world.lives[self._node] == self._life

    def leader(self, where: TopicPartition) -> int:
        """The leader of a partition, as far as it knows."""
        return self.following.metadata.image.topics[where.topic].partitions[where.partition].leader

    def _changed(self, _: Image, events: Sequence[Event]) -> None:
        for event in events:
            assert isinstance(event, PartitionChanged)
            if event.name == TRANSACTIONS_TOPIC:
                leads = event.partition.leader == self._node
                self.state.lead(event.index, event.partition.leader_epoch) if leads else self.state.resign(event.index)
        self.coordinator.markers.leaders_changed()
        self._led.reconcile()

    async def _producer_id(self) -> int:
        world = self._world
        await asyncio.sleep(world.short())
        if world.happens(0.1):
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return next(world.ids)

    async def _write(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        await asyncio.sleep(self._world.short())
        return self.mark(request)

    def mark(self, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        """WriteTxnMarkers."""

        def result(marker: WritableTxnMarker, index: int) -> WritableTxnMarkerPartitionResult:
            partition = self._world.partitions[index]
            led = partition.leader == self._node == self.leader(TopicPartition(TOPIC, index))
            code = partition.mark(marker) if led else ErrorCode.NOT_LEADER_OR_FOLLOWER
            return WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)

        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=marker.producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=topic.name, partitions=[result(marker, index) for index in topic.partition_indexes]
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )

    async def close(self) -> None:
        """End what is running."""
        self._led.close()
        await self.coordinator.close()


class World:
    """Brokers, partitions and clients.

    Attributes:
        coordinator: the leader of ``__transaction_state``; -1 while there is none.
        lives: how often each broker was started.
        transactions: those of all clients.
        replicated: the batches of each partition of ``__transaction_state`` that a new leader has in any case.
        moves: how often the coordinator has moved or returned.
        changes: all elections, in their order.
        found: the first problem that was found during the faults.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(seed)
        self.calm = False
        self.log = MemoryLog()
        self.replicated: dict[int, int] = {}
        self.coordinator = NODES[0]
        self.epoch = 0
        self.moves = 0
        self.found: str | None = None
        self.lives = dict.fromkeys(NODES, 0)
        self.partitions = [Partition(self.chance.choice(NODES)) for _ in range(PARTITIONS)]
        self.transactions: list[ClientTransaction] = []
        self.values = count()
        self.ids = count(1000)
        self.changes: list[PartitionChanged] = []
        self._tasks: set[asyncio.Task[Any]] = set()
        self.config = Config(
            BROKER_KEYS,
            {
                "transaction.state.log.num.partitions": str(STATE_PARTITIONS),
                "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
                "request.timeout.ms": "2000",
            },
        )
        self.brokers = {node: Broker(self, node) for node in NODES}
        for index, partition in enumerate(self.partitions):
            self._changed(TOPIC, index, partition.leader, 0)

    # Chance and time

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def at(self, time: float, callback: Callable[..., object], *args: Any) -> object:
        return asyncio.get_running_loop().call_at(time, callback, *args)

    def happens(self, probability: float) -> bool:
        return not self.calm and self.chance.random() < probability

    def short(self) -> float:
        """Mostly some milliseconds, sometimes seconds."""
        return self.chance.uniform(0.5, 4.0) if self.happens(0.04) else self.chance.uniform(0.0005, 0.02)

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        asyncio.get_running_loop().call_later(seconds, call)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Brokers

    def _changed(self, topic: str, index: int, leader: int, epoch: int) -> None:
        """All brokers learn of an election, sooner or later."""
        self.changes.append(PartitionChanged(topic, index, led_by(leader, epoch)))
        for broker in self.brokers.values():
            broker.following.follow(self.short())

    async def answer(self, node: int, request: Request, version: int) -> bytes | bytearray:
        """What a broker answers to another one."""
        assert isinstance(request, WriteTxnMarkersRequest)
        return encode_response(self.brokers[node].mark(request), version, 7)[4:]

    def elect(self) -> None:
        """Some broker coordinates from now on. It knows who did before."""
        self.coordinator = self.chance.choice(NODES)
        for index in range(STATE_PARTITIONS):
            self.brokers[self.coordinator].following.catch_up(TRANSACTIONS_TOPIC, index)
        self._truncate()
        for index in range(STATE_PARTITIONS):
            self._changed(TRANSACTIONS_TOPIC, index, self.coordinator, self.epoch)

    async def move(self) -> None:
        """The coordinator moves: its broker crashes and returns, goes on as a zombie for a while, or leads again."""
        self.moves += 1
        self.compare()
        old, broker = self.coordinator, self.brokers[self.coordinator]
        self.epoch += 1
        if self.chance.random() < 0.6:
            self.lives[old] += 1
            self.coordinator = -1
            # What it has sent stays under way; what it waits for never comes.
            self.spawn(broker.close())
            self.brokers[old] = Broker(self, old)
            await asyncio.sleep(self.short())
        self.elect()

    def _truncate(self) -> None:
        """The new leader may lack what was not replicated."""
        for index, batches in self.log.batches.items():
            del batches[self.chance.randint(self.replicated.get(index, 0), len(batches)) :]
            self.replicated[index] = len(batches)
            self.log.ends[index] = read_header(batches[-1]).next_offset if batches else 0

    def compare(self) -> None:
        """What the coordinator has in memory is what a replay of the log gives, and a replay after compaction."""
        for index, batches in self.log.batches.items():
            runtime = self.brokers[self.coordinator].coordinator.runtime
            home = runtime.partitions.get(index)
            if home is None or home.loading or home.leader_epoch != self.epoch:
                continue
            if runtime.writer.unsettled(index) or any(each.append for each in home.hosted.values()):
                continue
            memory = {name: hosted.machine.metadata for name, hosted in home.hosted.items()}
            memory = {name: metadata._replace(last_epoch=NONE) for name, metadata in memory.items()}
            records = [record for batch in batches for record in decode_records(batch)]
            last = {record.key: (record.key, record.value, (), 0) for record in records}
            compacted = build_batch(last.values()) if last else b""
            for what, stored in (("the log", b"".join(batches)), ("the compacted log", bytes(compacted))):
                if memory != (there := replayed(stored)):
                    self.found = self.found or f"memory is not what {what} says: {memory} {there}"

    async def disturb(self) -> None:
        while not self.calm:
            await asyncio.sleep(self.chance.uniform(0.05, 4))
            self.compare()
            if self.happens(0.5):
                await self.move()
            else:
                index = self.chance.randrange(PARTITIONS)
                self.partitions[index].leader = self.chance.choice(NODES)
                self._changed(TOPIC, index, self.partitions[index].leader, len(self.changes))

    # Clients

    async def request(self, ask: Callable[[TransactionCoordinator], Awaitable[TxnReply]]) -> TxnReply | None:
        """Ask the coordinator; None if no answer comes."""
        node = self.chance.choice(NODES) if self.happens(0.05) or self.coordinator < 0 else self.coordinator
        await asyncio.sleep(self.short())
        if self.happens(0.06):
            return None
        life = self.lives[node]
        try:
            async with asyncio.timeout(5):
                reply = await ask(self.brokers[node].coordinator)
        except TimeoutError:
            return None
        await asyncio.sleep(self.short())
        return None if self.happens(0.06) or self.lives[node] != life else reply

    async def insist(self, ask: Callable[[TransactionCoordinator], Awaitable[TxnReply]]) -> tuple[TxnReply, bool]:
        """Ask until there is an answer that is final; also whether every earlier request was refused."""
        refused = True
        while True:
            reply = await self.request(ask)
            if reply is not None and reply.error not in RETRIABLE:
                return reply, refused
            # A refusal that names no cause of the state may hide that the request was carried out.
            refused = refused and reply is not None and reply.error is ErrorCode.CONCURRENT_TRANSACTIONS
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))

    async def client(self, name: str) -> None:
        """A program that is started again and again."""
        while not self.calm:
            reply, _ = await self.insist(lambda broker: broker.init_producer_id(name, TIMEOUT_MS, None, name))
            who = reply.producer_id, reply.producer_epoch
            if reply.error is not ErrorCode.NONE:
                continue
            for _ in range(self.chance.randint(1, 6)):
                transaction = ClientTransaction()
                self.transactions.append(transaction)
                written = await self._write(name, who, transaction)
                if self.happens(0.15):
                    transaction.committed = False  # the program crashes before it asks to commit
                    if self.happens(0.15):
                        return  # and is not started again
                    break
                if self.happens(0.05):
                    await asyncio.sleep(TIMEOUT_MS / 1000 * 1.5)
                after = await self._end(name, who, transaction, written and self.chance.random() < 0.8)
                if after is None:
                    break
                who = after

    async def _write(self, name: str, who: tuple[int, int], transaction: "ClientTransaction") -> bool:
        for index in self.chance.sample(range(PARTITIONS), self.chance.randint(1, 3)):
            partition, where = self.partitions[index], TopicPartition(TOPIC, index)
            for value in [next(self.values) for _ in range(self.chance.randint(1, 2))]:
                verified = partition.markers.get(who[0], 0)
                reply, _ = await self.insist(
                    lambda broker, where=where: broker.add_partitions(name, *who, [where], SERVER_VERSION, "")  # type: ignore[misc]
                )
                if reply.error is not ErrorCode.NONE:
                    return False
                await asyncio.sleep(self.short())
                transaction.values.append((index, value))
                if partition.append(*who, value, verified) is not ErrorCode.NONE:
                    return False
        return True

    async def _end(
        self, name: str, who: tuple[int, int], transaction: "ClientTransaction", commit: bool
    ) -> tuple[int, int] | None:
        """End it; the producer id and epoch of the next one, None if the producer is fenced."""
        reply, refused = await self.insist(
            lambda broker: broker.end(name, *who, commit, SERVER_VERSION, name)  # the client of version 2
        )
        if reply.error is ErrorCode.NONE:
            transaction.committed = commit
            return reply.producer_id, reply.producer_epoch
        if refused or not commit:
            transaction.committed = False
        return None

    # Judgement

    def problems(self) -> Iterator[str]:
        if any(each.refused_newer for each in self.partitions):
            yield "a transaction began while an older one of its producer was open"
        outcomes = [each.outcomes() for each in self.partitions]
        for index, found in enumerate(outcomes):
            yield from (
                f"the transaction of value {value} is open in t-{index}" for value in found if found[value] is None
            )
        for transaction in self.transactions:
            ends = {(index, value): outcomes[index].get(value, "missing") for index, value in transaction.values}
            there = {end for end in ends.values() if end != "missing"}
            if len(there) > 1:
                yield f"a transaction is committed in part: {ends}"
            elif transaction.committed is not None and there not in (set(), {transaction.committed}):
                yield f"a client was answered committed={transaction.committed}: {ends}"
            elif transaction.committed and "missing" in ends.values():
                yield f"a committed record is missing: {ends}"
        for name in (f"id-{number}" for number in range(CLIENTS)):
            state = self.brokers[self.coordinator].coordinator.describe(name).state.value
            if state.startswith(("Prepare", "Ongoing")):
                yield f"transaction {name} is in state {state}"

    async def live(self) -> None:
        self.elect()
        clients = [self.spawn(self.client(f"id-{number}")) for number in range(CLIENTS)]
        disturbing = self.spawn(self.disturb())
        await asyncio.sleep(FAULTY)
        self.calm = True
        found = None
        try:
            async with asyncio.timeout(CALM):
                await asyncio.gather(disturbing, *clients)
        except TimeoutError:
            found = "a client is refused for ever"
        else:
            await asyncio.sleep(CALM)
            self.compare()
            found = self.found or next(self.problems(), None)
        for broker in self.brokers.values():
            await broker.close()
        if found is not None:
            raise Violation(f"seed {self.seed}, {found}")


def replayed(data: bytes) -> dict[str, Metadata]:
    """The transactional ids in a log."""
    problems: list[str] = []
    replay = TransactionReplay(lambda offset, reason: problems.append(reason), 0)
    for _ in replay.feed(data):
        pass
    assert not problems
    return {name: machine.metadata for name, machine in replay.transactions.items()}


class ClientTransaction:
    """A transaction as its client knows it.

    Attributes:
        values: what was written, with the partitions.
        committed: how it ended; None if the client cannot know.
    """

    def __init__(self) -> None:
        self.values: list[tuple[int, int]] = []
        self.committed: bool | None = None


class Messages:
    """Requests of a broker to others: lost, late, repeated. What is under way arrives also when its sender is gone."""

    def __init__(self, world: World, node: int) -> None:
        self._world, self._node = world, node

    async def ask(self, node_id: int, request: Request, version: int, timeout: float) -> bytes | bytearray:
        world = self._world
        if world.happens(0.08):
            raise ConnectionError("lost")
        await asyncio.sleep(world.short() if world.happens(0.5) else 0)
        arrival = world.spawn(self._deliver(node_id, request, version))
        if world.happens(0.15):
            world.later(world.chance.uniform(0, 3), lambda: world.spawn(self._deliver(node_id, request, version)))
        async with asyncio.timeout(timeout):
            answer = await asyncio.shield(arrival)
        if world.happens(0.08):
            raise ConnectionError("the answer is lost")
        return bytes(answer)

    async def _deliver(self, node_id: int, request: Request, version: int) -> bytes | bytearray:
        await asyncio.sleep(self._world.short())
        return await self._world.answer(node_id, request, version)


def run_seed(seed: int) -> World:
    """Run a seed to its end.

    Raises:
        Violation: a promise is broken.
    """

    async def main() -> World:
        world = World(seed)
        await world.live()
        return world

    return run(main())
