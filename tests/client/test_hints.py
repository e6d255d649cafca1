"""Errors and log lines for what people try first: other clients' names, a dict, `with`, a topic that does not exist."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from barnabas_client import Admin, Consumer, Producer, sync
from tests.client.consumers import consumer, member
from tests.client.producers import producer
from tests.world.broker import until
from tests.world.programs import Machine, Simulation, simulated


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda **given: Consumer("t", **given), r"^Consumer\(\) got an unexpected keyword argument"),
        (lambda **given: Producer(**given), r"^Producer\(\) got an unexpected keyword argument"),
        (lambda **given: Admin(**given), r"^Admin\(\) got an unexpected keyword argument"),
        (lambda **given: sync.Consumer("t", **given), r"^Consumer\(\) got an unexpected keyword argument"),
        (lambda **given: sync.Producer(**given), r"^Producer\(\) got an unexpected keyword argument"),
        (lambda **given: sync.Admin(**given), r"^Admin\(\) got an unexpected keyword argument"),
    ],
)
def test_an_unknown_argument(make: Callable[..., Any], message: str) -> None:
    for given, meant in (("bootstrap_server", "bootstrap_servers"), ("bootstrap.servers", "bootstrap_servers")):
        with pytest.raises(TypeError, match=rf"{message} '{given}', did you mean {meant}\?"):
            make(**{given: "x"})
    with pytest.raises(TypeError, match=rf"{message} 'zzz'$"):
        make(zzz=1)


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        ("send", {"value": b"v", "timestamp": 1}, "timestamp_ms"),
        ("send_and_wait", {"value": b"v", "header": []}, "headers"),
        ("send_nowait", {"value": b"v", "partitions": 1}, "partition"),
        ("send_many", {"values": [b"v"], "timestamp_ms": [1]}, "timestamps_ms"),
    ],
)
async def test_an_unknown_argument_of_a_send(call: str, given: dict[str, Any], meant: str) -> None:
    message = rf"^Producer\.{call}\(\) got an unexpected keyword argument '{[*given][-1]}', did you mean {meant}\?$"
    with pytest.raises(TypeError, match=message):
        await getattr(Producer(), call)("t", **given)


async def test_an_unknown_argument_of_a_run() -> None:
    made: Any = Consumer("t")
    with pytest.raises(TypeError, match=r"^Consumer\.run\(\) got .*'concurency', did you mean concurrency\?$"):
        await made.run(print, concurency=1)


@pytest.mark.parametrize("kind", [Consumer, Producer, Admin])
def test_the_dict_of_another_client(kind: Callable[..., Any]) -> None:
    name = kind.__name__
    with pytest.raises(TypeError, match=rf"^{name}\(\) takes settings as arguments.*{name}\(bootstrap_servers=\.\.\."):
        kind({"bootstrap.servers": "localhost:9092", "group.id": "g", "unknown.key": 1})
    with pytest.raises(TypeError, match=r"Consumer\(group_id=\.\.\., auto_offset_reset=\.\.\.\)$"):
        Consumer({"group.id": "g", "auto.offset.reset": "earliest"})  # type: ignore[call-overload]


@pytest.mark.parametrize("kind", [Consumer, Producer, Admin])
def test_a_block_without_async(kind: Callable[..., Any]) -> None:
    name = kind.__name__
    message = rf"^{name} has no `with` block: write `async with`.*barnabas\.sync\.{name}"
    with pytest.raises(TypeError, match=message), kind():
        pass


def test_a_loop_without_async() -> None:
    made: Any = Consumer("t")
    with pytest.raises(TypeError, match=r"write `async for`, or take barnabas\.sync\.Consumer"):
        for _ in made:
            pass


@pytest.mark.parametrize("make", [consumer, member])
@simulated
async def test_a_topic_that_does_not_exist(simulation: Simulation, make: Callable[..., Consumer]) -> None:
    logging.getLogger("barnabas_client").setLevel(logging.INFO)
    broker = await simulation.machine(auto_create_topics_enable="false")
    await broker.create("t")

    def said() -> list[str]:
        return [line for line in simulation.logged if "does not exist yet" in line]

    async with make(broker, "t", "nothing") as reader:
        await until(lambda: bool(said()))
        for _ in range(3):
            await reader._running().network.refresh()
    assert len(said()) == 1
    assert "topic='nothing'" in said()[0]


@simulated
async def test_a_poll_without_a_timeout_waits(broker: Machine) -> None:
    await broker.create("t")
    async with consumer(broker, "t") as reader:
        assert await reader.poll(0) == []
        received: list[Any] = []
        while not received:  # each poll waits for up to a second
            poll = asyncio.create_task(reader.poll())
            await asyncio.sleep(0)
            assert not poll.done()
            await broker.write("t", [b"x"])
            received = await poll
        assert received[0].value == b"x"


@simulated
async def test_the_metrics_of_a_producer(broker: Machine) -> None:
    await broker.create("t")
    async with producer(broker) as sender:
        assert sender.metrics()["record-send-total"] == 0
        assert sender.metrics()["request-latency-avg"] is None
        await sender.send("t", b"a" * 100)
        await sender.send("t", b"b" * 100)
        assert sender.metrics()["buffer-available-bytes"] < sender.metrics()["buffer-total-bytes"]  # type: ignore[operator]
        await sender.flush()
        metrics = sender.metrics()
    assert metrics["record-send-total"] == 2
    assert metrics["record-retry-total"] == metrics["record-error-total"] == 0
    assert metrics["request-total"] == 1
    assert isinstance(metrics["byte-total"], int)
    assert metrics["byte-total"] > 200
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]
    for name in ("request-latency-avg", "record-queue-time-max", "batch-size-avg"):
        assert isinstance(metrics[name], float), name
