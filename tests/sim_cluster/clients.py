"""Producers and consumers over the real protocol, with the checks of Kafka's clients."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.replication.connection import BrokerConnection
from barnabas_broker.storage import TopicPartition
from barnabas_protocol.codec import decode_response
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.hot.fetch import decode_fetch_response
from barnabas_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas_protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from barnabas_protocol.records.batches import iter_batches
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.schema import Request
from tests.sim_cluster.broker import LISTENER, Node
from tests.sim_cluster.checker import Checker
from tests.world.loop import Life
from tests.world.world import World

_PRODUCE: Final = 9
_FETCH: Final = 12
_REQUEST_SECONDS: Final = 2.0
#: Seconds that a broker may wait for the replicas of a record.
_REPLICATION_SECONDS: Final = 1.5
_BACKOFF: Final = (0.05, 0.3)
#: Errors that an idempotent producer that retries never receives unless records are lost.
_NEVER: Final = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
)


class _Client:
    """A client of one partition; finds its leader by metadata that may be out of date."""

    def __init__(self, checker: Checker, name: str, where: TopicPartition) -> None:
        self.world: World = checker.world
        self.checker = checker
        self.name = name
        self.where = where
        self.life = Life(self.world.loop, name)
        self._leader: tuple[str, int] | None = None
        self._connection: BrokerConnection | None = None
        self._newest = 0

    async def refresh(self) -> None:
        """Ask any broker for the leader."""
        await asyncio.sleep(self.world.between(*_BACKOFF))
        known: list[Node] = list(self.checker.nodes.values())
        node = self.world.chance.choice(known)
        running = node.up
        if running is None or running.life.frozen or running.cluster is None:
            return
        image: Image = running.cluster.image
        topic = image.topics.get(self.where.topic)
        if topic is None:
            return
        info = topic.partitions[self.where.partition]
        if info.leader_epoch < self._newest:
            return  # a client takes no older metadata than it has (KIP-320)
        self._newest = info.leader_epoch
        broker = image.brokers.get(info.leader)
        leader = None if broker is None else (broker.endpoints[LISTENER][0], info.leader_epoch)
        if leader != self._leader:
            self.hang_up()
            self._leader = leader

    def hang_up(self) -> None:
        """Use a new connection for the next request."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def ask(self, request: Request, version: int, seconds: float) -> bytes | bytearray | None:
        """The leader's response; None if there is none in time."""
        if self._leader is None:
            return None
        try:
            if self._connection is None:
                self._connection = await BrokerConnection.open(self._leader[0], 9092, self.name, seconds)
            return await self._connection.send(request, version, seconds)
        except OSError:
            self.hang_up()
            return None


class Producer(_Client):
    """Sends one record after another with acks=all, and retries each until it is acknowledged."""

    def __init__(self, checker: Checker, number: int, where: TopicPartition, *, idempotent: bool, pause: float) -> None:
        super().__init__(checker, f"producer-{number}", where)
        self.number = number
        self.idempotent = idempotent
        #: Offset of each record that was acknowledged, in the order of the acknowledgements.
        self.acknowledged: list[tuple[bytes, int]] = []
        self.over = False
        self.stop = False
        #: Seconds that it waits for a response at least, and lets a broker wait for the replicas of a record.
        self.patience = _REPLICATION_SECONDS
        self._pause = pause
        self._producer_id = -1
        self._sequence = 0
        self.life.spawn(self._run(), self.name)

    async def _run(self) -> None:
        count = 0
        while not self.stop:
            if self.idempotent and (self._producer_id < 0 or self.world.chance.random() < 0.1):
                await self._identify()
            value = f"{self.name}:{count};".encode()
            count += 1
            await self._send(value)
            idle = self.world.happens(0.04)
            await asyncio.sleep(self.world.between(1.0, 4.0) if idle else self.world.between(0.0, 2 * self._pause))
        self.hang_up()
        self.over = True

    async def _identify(self) -> None:
        """Get a producer id from any broker (InitProducerId)."""
        world = self.world
        while not self.stop:
            given: asyncio.Future[int] = world.loop.create_future()

            async def ask(cluster: ClusterMetadata, settle: Callable[[int], None]) -> None:
                with suppress(KafkaError):
                    producer_id = await cluster.next_producer_id()
                    self.life.call(settle, producer_id)

            def settle(producer_id: int, given: "asyncio.Future[int]" = given) -> None:
                if not given.done():
                    given.set_result(producer_id)

            running = world.chance.choice(list(self.checker.nodes.values())).up
            if running is not None and running.cluster is not None and running.cluster.may_serve():
                running.life.spawn(ask(running.cluster, settle), "identify")
                with suppress(TimeoutError):
                    async with asyncio.timeout(_REQUEST_SECONDS):
                        self._producer_id, self._sequence = await given, 0
                        world.note("%s: has producer id %d", self.name, self._producer_id)
                        return
            await asyncio.sleep(world.between(*_BACKOFF))

    async def _send(self, value: bytes) -> None:
        identity = (self._producer_id, 0, self._sequence) if self.idempotent else (-1, -1, -1)
        batch = build_batch(
            [(None, value, (), 0)], producer_id=identity[0], producer_epoch=identity[1], base_sequence=identity[2]
        )
        self._sequence += 1
        data = PartitionProduceData(index=self.where.partition, records=bytes(batch))
        topics = [TopicProduceData(name=self.where.topic, partition_data=[data])]
        while True:
            request = ProduceRequest(acks=-1, timeout_ms=int(self.patience * 1000), topic_data=topics)
            frame = await self.ask(request, _PRODUCE, max(_REQUEST_SECONDS, self.patience))
            if frame is not None:
                answer = decode_response(ProduceResponse, _PRODUCE, frame).responses[0].partition_responses[0]
                code = ErrorCode.of(answer.error_code)
                if code is ErrorCode.NONE:
                    self._acknowledged(value, answer.base_offset)
                    return
                if code in _NEVER:
                    self.world.fail(f"{self.where}: {self.name} receives {code.name} for {value!r}: records were lost")
                    return
            elif not self.idempotent and self.stop:
                return  # the answer is lost, and the client does not ask again
            await self.refresh()

    def _acknowledged(self, value: bytes, offset: int) -> None:
        world = self.world
        world.note("%s: %s at offset %d is acknowledged to %s", self.where, value, offset, self.name)
        known = self.checker.ledger(self.where).batches.get(offset)
        if known is None or value not in known[1]:
            world.fail(f"{self.where}: {value!r} was acknowledged at {offset}, but another batch is committed there")
        if self.acknowledged and self.acknowledged[-1][1] >= offset:
            world.fail(f"{self.where}: {value!r} at {offset} came after {self.acknowledged[-1]}")
        self.acknowledged.append((value, offset))


class Consumer(_Client):
    """Reads one partition from its beginning up to the leader's high watermark."""

    def __init__(self, checker: Checker, where: TopicPartition, number: int = 0) -> None:
        name = f"consumer-{where.partition}"
        super().__init__(checker, f"{name}-{number}" if number else name, where)
        self.position = 0
        self.stop = False
        self.life.spawn(self._run(), self.name)

    async def _run(self) -> None:
        while not self.stop:
            if not await self._fetch():
                await self.refresh()
        self.hang_up()

    async def _fetch(self) -> bool:
        assert self.checker is not None
        wanted = FetchPartition(
            partition=self.where.partition,
            current_leader_epoch=-1 if self._leader is None else self._leader[1],
            fetch_offset=self.position,
            partition_max_bytes=65536,
        )
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=800,
            min_bytes=1,
            max_bytes=65536,
            session_epoch=-1,
            topics=[FetchTopic(topic=self.where.topic, partitions=[wanted])],
        )
        frame = await self.ask(request, _FETCH, _REQUEST_SECONDS)
        if frame is None:
            return False
        response = decode_fetch_response(_FETCH, frame)
        if response.error_code or not response.responses:
            return False
        answer = response.responses[0].partitions[0]
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.world.fail(f"{self.where}: the consumer's position {self.position} is out of range at the leader")
        if answer.error_code != ErrorCode.NONE:
            return False
        if answer.records:
            for header, batch in iter_batches(answer.records, partial_ok=True):
                if header.next_offset <= self.position:
                    continue
                if header.base_offset != self.position:
                    self.world.fail(f"{self.where}: the consumer reads {header.base_offset} after {self.position}")
                self.checker.compare(self.where, header.base_offset, batch, "the consumer")
                self.position = header.next_offset
        return True
