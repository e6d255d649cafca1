"""The world: time, processes, connections and disks are as on real machines, and a seed repeats its run."""

import asyncio
import time
from typing import Any

import pytest

from barnabas import Consumer, Producer
from barnabas_broker.clock import Clock
from barnabas_client.errors import KafkaConnectionError
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.world.answers import Answer
from tests.world.network import WINDOW
from tests.world.programs import START, Machine, Simulation, simulated
from tests.world.world import Violation


async def _write(machine: Machine, *values: bytes) -> None:
    async with Producer(bootstrap_servers=machine.address) as producer:
        for value in values:
            await producer.send_and_wait("t", value)


async def _read(machine: Machine, count: int) -> list[bytes | None]:
    async with Consumer("t", bootstrap_servers=machine.address, auto_offset_reset="earliest") as consumer:
        return [(await consumer.getone()).value for _ in range(count)]


@simulated
async def test_records_are_sent_and_read(world: Simulation) -> None:
    machine = await world.machine()
    await _write(machine, b"a", b"b")
    assert await _read(machine, 2) == [b"a", b"b"]


@simulated
async def test_time_passes_at_once(world: Simulation) -> None:
    began, steps = world.now, world.loop.steps
    machine = await world.machine()
    await asyncio.sleep(30)
    assert machine.broker.services.now() == Clock().now() == world.now
    assert world.now - began >= 30
    assert world.loop.steps - steps < 1000


@simulated
async def test_a_broker_that_is_killed_has_its_records_when_it_returns(world: Simulation) -> None:
    machine = await world.machine()
    await _write(machine, b"a")
    machine.kill()
    with pytest.raises(KafkaConnectionError):
        await _write(machine, b"b")
    await machine.start()
    assert await _read(machine, 1) == [b"a"]


@simulated
async def test_a_broker_is_stopped_and_started(world: Simulation) -> None:
    machine = await world.machine()
    await _write(machine, b"a")
    await machine.stop()
    await machine.start()
    assert await _read(machine, 1) == [b"a"]


def _run(seed: int) -> list[str]:
    """The history of a run with pieces, delays and a lost answer."""
    world = Simulation(seed)
    world.network.torn = world.network.jitter = 0.2

    async def main() -> None:
        machine = await world.machine()
        machine.rules.add("drop", "Produce", executed=True)
        await _write(machine, b"a", b"b")
        async with Consumer("t", group_id="g", bootstrap_servers=machine.address) as consumer:
            await consumer.getmany(timeout_ms=5000)

    world.play(main)
    return world.history()


def test_a_seed_repeats_its_run() -> None:
    history = _run(1)
    assert history == _run(1)
    assert history != _run(2)


def test_an_exception_that_is_not_caught_fails_with_the_history() -> None:
    world = Simulation(7)

    async def main() -> None:
        await world.machine()
        world.loop.call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(Violation, match=r"(?s)^seed 7, .*uncaught ZeroDivisionError.*broker-0 starts"):
        world.play(main)


def test_what_waits_in_a_finally_ends_with_the_world() -> None:
    world, ended = Simulation(), []

    async def stop() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            try:
                await asyncio.sleep(10)
            finally:
                ended.append("stop")

    async def live() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await stop()

    async def main() -> None:
        world.program("p").spawn(live(), "live")
        await asyncio.sleep(1)

    world.play(main)
    assert ended == ["stop"]


def test_the_clock_of_a_machine_drifts() -> None:
    world = Simulation()
    world.rates["slow"] = 0.5

    async def clock() -> float:
        return time.monotonic()

    async def main() -> None:
        life = world.program("slow")
        assert time.monotonic() == await world.run_in(life, clock())
        await asyncio.sleep(10)
        assert (time.monotonic() - START, await world.run_in(life, clock()) - START) == (10, 5)

    world.play(main)


class _Peer(asyncio.BufferedProtocol):
    """Keeps what happens to it."""

    def __init__(self, *, keeps_open: bool = False) -> None:
        self.transport: Any = None
        self.events: list[str] = []
        self.received = bytearray()
        self.pieces = 0
        self._keeps_open = keeps_open
        self._room = bytearray(1 << 20)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.pieces += 1
        self.received += self._room[:nbytes]

    def eof_received(self) -> bool:
        self.events.append("end")
        return self._keeps_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, error: Exception | None) -> None:
        self.events.append("lost" if error is None else "reset")


async def _connected(world: Simulation, server: _Peer) -> _Peer:
    world.network.listening["server"] = world.program("server"), lambda end: end.connected(server)
    _, client = await world.loop.create_connection(_Peer, "server", 1)
    assert isinstance(client, _Peer)
    return client


@simulated
async def test_a_transport_pauses_its_protocol_while_the_peer_does_not_read(world: Simulation) -> None:
    server = _Peer()
    client = await _connected(world, server)
    server.transport.pause_reading()
    client.transport.set_write_buffer_limits(high=1000)
    client.transport.write(bytes(WINDOW + 1000))
    assert client.events == []
    client.transport.write(b"x")
    assert client.events == ["pause"]
    client.transport.close()
    await asyncio.sleep(1)
    assert (client.events, server.events) == (["pause"], [])
    server.transport.resume_reading()
    await asyncio.sleep(1)
    assert len(server.received) == WINDOW + 1001
    assert (client.events, server.events) == (["pause", "resume", "lost"], ["end", "lost"])


@simulated
async def test_a_connection_that_is_half_closed_still_receives(world: Simulation) -> None:
    server = _Peer(keeps_open=True)
    client = await _connected(world, server)
    client.transport.write_eof()
    await asyncio.sleep(1)
    server.transport.write(b"late")
    server.transport.close()
    await asyncio.sleep(1)
    assert (bytes(client.received), client.events, server.events) == (b"late", ["end", "lost"], ["end", "lost"])


@simulated
async def test_bytes_arrive_in_pieces(world: Simulation) -> None:
    world.network.torn = 0.9
    server = _Peer()
    client = await _connected(world, server)
    client.transport.write(b"0123456789" * 10)
    await asyncio.sleep(1)
    assert (bytes(server.received), server.pieces > 1) == (b"0123456789" * 10, True)


@simulated
async def test_an_abort_resets_the_peer(world: Simulation) -> None:
    server = _Peer()
    client = await _connected(world, server)
    client.transport.abort()
    await asyncio.sleep(1)
    assert (client.events, server.events) == (["lost"], ["reset"])


@simulated
async def test_a_process_that_is_frozen_goes_on_later(world: Simulation) -> None:
    server = _Peer()
    client = await _connected(world, server)
    life = world.network.listening["server"][0]
    life.freeze()
    client.transport.write(b"x")
    await asyncio.sleep(10)
    assert not server.received
    life.thaw()
    await asyncio.sleep(0)
    assert server.received == b"x"


@simulated
async def test_a_group_goes_on_when_the_leader_of_its_partition_is_killed(world: Simulation) -> None:
    machines = await world.cluster(3)
    await machines[0].create("t")
    addresses = [machine.address for machine in machines]
    async with (
        Producer(bootstrap_servers=addresses) as producer,
        Consumer("t", group_id="g", bootstrap_servers=addresses, auto_offset_reset="earliest") as consumer,
    ):
        await producer.send_and_wait("t", b"a")
        assert (await consumer.getone()).value == b"a"
        await consumer.commit()
        leader = machines[0].broker.services.cluster.image.topics["t"].partitions[0].leader
        machines[leader].kill()
        await producer.send_and_wait("t", b"b")
        assert (await consumer.getone()).value == b"b"
        await consumer.commit()
        await machines[leader].start()
        await asyncio.sleep(10)
    image = machines[leader].broker.services.cluster.image
    assert sorted(image.topics["t"].partitions[0].isr) == [0, 1, 2]


def test_a_mistake_in_a_script_fails_the_run() -> None:
    world = Simulation()

    def wrong(request: Request) -> Answer:
        raise ZeroDivisionError

    async def main() -> None:
        machine = await world.machine()
        machine.script.always(ApiKey.METADATA, wrong)
        await _write(machine, b"a")

    with pytest.raises(Violation, match=r"uncaught ZeroDivisionError.*a mistake of a test"):
        world.play(main)
