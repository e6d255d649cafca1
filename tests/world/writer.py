"""Programs that write in transactions, one after the other."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from barnabas import Producer
from barnabas_client.errors import KafkaError
from tests.world.loop import Life
from tests.world.network import Network
from tests.world.world import World

#: Milliseconds until a transaction of a program that was killed is aborted.
_TIMEOUT_MS: Final = 3000


class _Abort(Exception):
    """The program does not want to commit."""


class Writer:
    """Writes in transactions.

    A program that fails has a successor with its transactional id, which fences it. That of one that is killed has
    another id: only the timeout ends what it has left open.

    Args:
        world: time and chance.
        network: closes the connections of a program that is killed.
        topic: where it writes.
        partitions: of the topic.
        addresses: of the brokers.

    Attributes:
        life: the process of the program that runs.
        outcomes: of each transaction whether it is committed; None if a commit was asked for, without an answer.
        written: the acknowledged records of each transaction, as partition and offset.
    """

    life: Life

    def __init__(
        self, world: World, network: Network, topic: str, partitions: int, addresses: Callable[[], Sequence[str]]
    ) -> None:
        self.outcomes: dict[int, bool | None] = {}
        self.written: dict[int, set[tuple[int, int]]] = {}
        self._world = world
        self._network = network
        self._topic = topic
        self._partitions = partitions
        self._addresses = addresses
        self._programs = self._killed = 0

    def start(self) -> None:
        """Start a program."""
        if self._world.faults:
            self._programs += 1
            self.life = Life(self._world.loop, f"writer-{self._programs}")
            self.life.spawn(self._run(), self.life.name)

    def kill(self) -> None:
        """Kill the program, and start the next one some seconds later."""
        self._killed += 1
        self.life.kill()
        self._network.died(self.life, silent=False)
        self._world.after(self._world.between(0.5, 10.0), self.start)

    def may_be_read(self, number: int) -> bool:
        """Whether consumers that read what is committed may get records of a transaction."""
        return self.outcomes[number] is not False

    async def _run(self) -> None:
        world, name = self._world, self.life.name
        try:
            async with Producer(
                bootstrap_servers=list(self._addresses()),
                client_id=name,
                transactional_id=f"w-{self._killed}",
                transaction_timeout_ms=_TIMEOUT_MS,
                request_timeout_ms=5000,
            ) as producer:
                while world.faults:
                    await asyncio.sleep(world.between(0.2, 1.5))
                    await self._write(producer)
        except KafkaError as error:
            world.note("%s ends: %s", name, error)
            world.after(1.0, self.start)

    async def _write(self, producer: Producer) -> None:
        world, number = self._world, len(self.outcomes)
        self.outcomes[number], written = False, self.written.setdefault(number, set())
        try:
            async with producer.transaction():
                for one in range(world.chance.randint(1, 3)):
                    value, partition = b"%d.%d" % (number, one), world.chance.randrange(self._partitions)
                    found = await producer.send_and_wait(self._topic, value, partition=partition)
                    written.add((found.partition, found.offset))
                await asyncio.sleep(world.between(0.0, 1.0))
                if world.chance.random() < 0.2:
                    raise _Abort
                self.outcomes[number] = None
            self.outcomes[number] = True
        except _Abort:
            world.note("%s aborted transaction %d", self.life.name, number)
