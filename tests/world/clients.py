"""Programs that write and read one partition of the cluster with the real client."""

import asyncio
from typing import Any, Final

from barnabas import Consumer, Producer, TopicPartition
from barnabas_broker.storage import TopicPartition as LogPartition
from barnabas_client.errors import CorruptRecordError, KafkaError, OffsetOutOfRangeError
from tests.world.ledger import Checker
from tests.world.loop import Life

#: Milliseconds that a program waits for an answer, and until it gives up a record.
_REQUEST_MS: Final = 2000
_DELIVERY_MS: Final = 300_000


class _Program:
    """A program with its own process."""

    def __init__(self, checker: Checker, name: str, where: LogPartition) -> None:
        self.world = checker.world
        self.checker = checker
        self.name = name
        self.where = where
        self.stop = False
        self.life = Life(self.world.loop, name)
        self.life.spawn(self._live(), name)

    @property
    def settings(self) -> dict[str, Any]:
        """Of its client."""
        return {
            "bootstrap_servers": [node.address for node in self.checker.nodes.values()],
            "client_id": self.name,
            "request_timeout_ms": _REQUEST_MS,
        }

    async def _live(self) -> None:
        while not self.stop:
            try:
                await self._run()
            except KafkaError as error:
                self.world.note("%s: %s", self.name, error)
                await asyncio.sleep(self.world.between(0.05, 0.3))

    async def _run(self) -> None:
        raise NotImplementedError


class Writing(_Program):
    """Sends one record after another with acks=all, and retries each until it is acknowledged.

    Attributes:
        acknowledged: the offset of each record that was acknowledged, in the order of the acknowledgements.
        over: whether it has ended.
        request_ms: milliseconds that it waits for a response.
    """

    def __init__(
        self,
        checker: Checker,
        number: int,
        where: LogPartition,
        *,
        idempotent: bool,
        pause: float,
        request_ms: int,
        restarts: float,
    ) -> None:
        self.idempotent = idempotent
        self.acknowledged: list[tuple[bytes, int]] = []
        self.over = False
        self._request_ms = request_ms
        self._restarts = restarts
        self._pause = pause
        self._count = 0
        super().__init__(checker, f"producer-{number}", where)

    async def _live(self) -> None:
        await super()._live()
        self.over = True

    async def _run(self) -> None:
        """A program with a producer; one that is idempotent has a successor, with another producer id."""
        world, settings = self.world, self.settings | {"request_timeout_ms": self._request_ms}
        async with Producer(
            acks="all", enable_idempotence=self.idempotent, delivery_timeout_ms=_DELIVERY_MS, **settings
        ) as producer:
            while not self.stop and not (self.idempotent and world.chance.random() < self._restarts):
                value = f"{self.name}:{self._count};".encode()
                self._count += 1
                sent = await producer.send_and_wait(self.where.topic, value, partition=self.where.partition)
                self._acknowledged(value, sent.offset)
                idle = world.happens(0.04)
                await asyncio.sleep(world.between(1.0, 4.0) if idle else world.between(0.0, 2 * self._pause))

    def _acknowledged(self, value: bytes, offset: int) -> None:
        world = self.world
        world.note("%s: %s at offset %d is acknowledged to %s", self.where, value, offset, self.name)
        known = self.checker.ledger(self.where).batches.get(offset)
        if known is None or value not in known[1]:
            world.fail(f"{self.where}: {value!r} was acknowledged at {offset}, but another batch is committed there")
        if self.acknowledged and self.acknowledged[-1][1] >= offset:
            world.fail(f"{self.where}: {value!r} at {offset} came after {self.acknowledged[-1]}")
        self.acknowledged.append((value, offset))


class Reading(_Program):
    """Reads one partition from its beginning up to the leader's high watermark.

    Attributes:
        position: of its next record.
    """

    def __init__(self, checker: Checker, where: LogPartition, number: int = 0) -> None:
        name = f"consumer-{where.partition}"
        self.position = 0
        super().__init__(checker, f"{name}-{number}" if number else name, where)

    async def _run(self) -> None:
        world, mine = self.world, TopicPartition(*self.where)
        async with Consumer(auto_offset_reset="none", fetch_max_wait_ms=800, **self.settings) as consumer:
            consumer.assign([mine])
            consumer.seek(mine, self.position)
            while not self.stop:
                try:
                    found = await consumer.getmany(timeout_ms=1000)
                except (OffsetOutOfRangeError, CorruptRecordError) as error:
                    world.fail(f"{self.name} is at {self.position}: {error}")
                    return
                for record in found.get(mine, ()):
                    if record.offset != self.position:
                        world.fail(f"{self.where}: {self.name} reads {record.offset} after {self.position}")
                    known = self.checker.ledger(self.where).batches.get(record.offset)
                    if known is None or record.value not in known[1]:
                        world.fail(f"{self.name} reads {record.value!r} at {record.offset}, which is not committed")
                    self.position = record.offset + 1
