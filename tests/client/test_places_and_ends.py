"""Where clients may be called, and how soon they end: another thread, another loop, a start in progress, Ctrl-C."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from typing import Any, Final

import pytest

from barnabas_client import Admin, Consumer, ConsumerRecord, Producer, ShareConsumer
from barnabas_client.errors import IllegalStateError, KafkaError, ProducerClosedError
from barnabas_protocol.registry import ApiKey
from tests.client.consumers import T0, member
from tests.client.producers import producer
from tests.world.answers import silence
from tests.world.broker import ScriptedBroker, until
from tests.world.programs import Machine, Simulation, simulated

pytestmark = pytest.mark.usefixtures("no_complaints")

#: Far longer than the bound of a test.
HOUR = 3_600_000


# Another thread, or another event loop.


def entered(result: Any) -> Any:
    """What a call returned; of a context manager the start of its block."""
    return result.__aenter__() if isinstance(result, AbstractAsyncContextManager) else result


def elsewhere(call: Callable[[], Any]) -> BaseException | None:
    """What a call raises in a thread with an event loop of its own, and in one without: it must be the same."""
    raised: list[BaseException | None] = []

    async def wait() -> None:
        result = entered(call())
        if asyncio.iscoroutine(result):
            await result

    def run(work: Callable[[], Any]) -> None:
        try:
            work()
        except Exception as error:
            raised.append(error)
        else:
            raised.append(None)

    def drive() -> None:
        """Without an event loop."""
        result = entered(call())
        if asyncio.iscoroutine(result):
            try:
                result.send(None)
            finally:
                result.close()

    for work in (lambda: asyncio.run(wait()), drive):
        thread = threading.Thread(target=run, args=(work,))
        thread.start()
        thread.join(60)
    with_loop, without = raised
    assert type(with_loop) is type(without)
    return with_loop


#: Arguments of the public methods; those that are left out are called without.
ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "subscribe": (["t"],),
    "assign": ([T0],),
    "pause": (T0,),
    "resume": (T0,),
    "seek": (T0, 1),
    "position": (T0,),
    "highwater": (T0,),
    "last_stable_offset": (T0,),
    "last_poll_timestamp": (T0,),
    "partitions_for_topic": ("t",),
    "beginning_offsets": ([T0],),
    "end_offsets": ([T0],),
    "offsets_for_times": ({T0: 1},),
    "committed": (T0,),
    "committed_offsets": (T0,),
    "run": (lambda record: None,),
    "send": ("t", b"x"),
    "send_and_wait": ("t", b"x"),
    "send_many": ("t", [b"x"]),
    "send_nowait": ("t", b"x"),
    "partitions_for": ("t",),
    "send_offsets_to_transaction": ({T0: 1}, "g"),
}


@pytest.mark.parametrize("kind", [Consumer, Producer])
async def test_every_public_call_from_elsewhere_is_refused(real: ScriptedBroker, kind: type) -> None:
    await real.create("t")
    client: Any = (
        member(real, "t", enable_auto_commit=False) if kind is Consumer else producer(real)  # run() needs it off
    )
    names = [name for name in vars(kind) if not name.startswith("_") and name != "wakeup"]
    async with client:
        for name in names:
            call = getattr(client, name)
            error = await asyncio.to_thread(elsewhere, lambda call=call, name=name: call(*ARGUMENTS.get(name, ())))  # type: ignore[misc]
            assert isinstance(error, IllegalStateError), (name, error)
            assert "another event loop or thread" in str(error) or name == "start", name
            assert "run_coroutine_threadsafe" in str(error) or name == "start", name
    assert len(names) > 6


async def test_an_admin_client_is_refused_elsewhere(real: ScriptedBroker) -> None:
    async with Admin(bootstrap_servers=real.address) as admin:
        for call in (admin.list_topics, admin.describe_cluster, admin.close):
            error = await asyncio.to_thread(elsewhere, call)
            assert isinstance(error, IllegalStateError)
            assert "admin client belongs to the event loop" in str(error)


async def test_wakeup_may_be_called_from_any_thread(real: ScriptedBroker) -> None:
    await real.create("t")
    async with member(real, "t") as reader:
        poll = asyncio.create_task(reader.getone())
        await asyncio.sleep(0)
        await asyncio.to_thread(reader.wakeup)
        with pytest.raises(KafkaError, match="wakeup"):
            await poll


def test_plain_calls_are_fine_while_the_loop_does_not_run() -> None:
    """As in a program that runs its loop step by step."""
    reader = Consumer("t", bootstrap_servers="127.0.0.1:1")
    reader._life._thread = threading.get_ident()
    loop = reader._life._loop = asyncio.new_event_loop()
    reader.subscribe(["u"])
    assert reader.subscription() == {"u"}
    loop.close()


# A stop during the start.


#: Makes a client, and names a call that needs a started one.
CLIENTS: Final[Mapping[str, tuple[Callable[..., Any], str]]] = {
    "admin": (Admin, "list_topics"),
    "consumer": (partial(Consumer, "t", group_id="g"), "getmany"),
    "producer": (Producer, "flush"),
    "share consumer": (partial(ShareConsumer, "t", group_id="g"), "getmany"),
}


@pytest.mark.parametrize("step", [ApiKey.API_VERSIONS, ApiKey.METADATA])
@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_stop_ends_a_start(real: ScriptedBroker, kind: str, step: ApiKey) -> None:
    real.script.always(step, silence)
    threads, before = set(threading.enumerate()), asyncio.all_tasks()
    make, call = CLIENTS[kind]
    client = make(bootstrap_servers=real.address, request_timeout_ms=HOUR)
    starting = asyncio.create_task(client.start())
    await until(lambda: bool(real.script.versions(step)))
    with pytest.raises(IllegalStateError, match="start"):
        await client.start()
    await client.stop()
    with pytest.raises(IllegalStateError, match="while it started"):
        await starting
    with pytest.raises(IllegalStateError, match="make a new one"):
        await getattr(client, call)()
    assert asyncio.all_tasks() <= before
    left = set(threading.enumerate()) - threads
    assert all(thread.name.startswith("asyncio_") for thread in left), "which look up host names"


async def test_a_stop_right_after_the_connection(real: ScriptedBroker) -> None:
    """The start has connected, but its caller has not run yet."""
    client = producer(real)
    stops: list[asyncio.Task[None]] = []
    client._network.listeners.append(lambda cluster: stops.append(asyncio.create_task(client.stop())))
    with pytest.raises(ProducerClosedError, match="while it started"):
        await client.start()
    await stops[0]


@simulated
async def test_a_cancelled_start_raises_cancelled_error(broker: Machine) -> None:
    broker.script.always(ApiKey.METADATA, silence)
    client = producer(broker, request_timeout_ms=HOUR)
    starting = asyncio.create_task(client.start())
    await until(lambda: bool(broker.script.versions(ApiKey.METADATA)))
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await client.stop()


#: More steps of the event loop than any of these stops takes.
STEPS: Final = 400


@pytest.mark.parametrize("kind", ["producer", "transactional producer", "member", "admin"])
async def test_a_stop_that_is_cancelled_leaves_nothing_behind(real: ScriptedBroker, kind: str) -> None:
    """Cancelled after one step of the event loop, after two, after three, until it ends by itself."""
    await real.create("t")
    quick = {"request_timeout_ms": 1_000, "delivery_timeout_ms": 1_000}
    make: dict[str, Callable[[], Any]] = {
        "producer": lambda: producer(real, **quick),
        "transactional producer": lambda: producer(real, **quick, transactional_id="x"),
        "member": lambda: member(real, "t"),
        "admin": lambda: Admin(bootstrap_servers=real.address),
    }
    cancelled = True
    for steps in range(STEPS):
        before = asyncio.all_tasks()
        client = make[kind]()
        await client.start()
        if kind == "transactional producer":
            await client.begin_transaction()
        if "producer" in kind:
            await client.send("t", b"x")
        stopping = asyncio.create_task(client.stop())
        for _ in range(steps):
            await asyncio.sleep(0)
        cancelled = stopping.cancel()
        await asyncio.wait([stopping])
        assert stopping.cancelled() == cancelled
        if steps:  # before the first step, it has not begun
            # What was asked to end, and is not waited for, ends with the next steps.
            await until(lambda before=before: not asyncio.all_tasks() - before)  # type: ignore[misc]
        else:
            await client.stop()
        if not cancelled:
            break
    assert not cancelled, "it takes more steps"


# Ends that are bounded.


@simulated
async def test_a_cancelled_block_waits_for_a_silent_broker_only_so_long(simulation: Simulation) -> None:
    broker = await simulation.machine()
    await broker.create("t")
    broker.script.always(ApiKey.PRODUCE, silence)
    receipts = []

    async def program() -> None:
        settings = {"request_timeout_ms": HOUR, "delivery_timeout_ms": HOUR, "close_timeout_ms": 100}
        async with producer(broker, **settings) as sender:
            receipts.append(await sender.send("t", b"x"))
            await asyncio.Event().wait()

    running = asyncio.create_task(program())
    await until(lambda: bool(broker.script.versions(ApiKey.PRODUCE)))
    running.cancel()  # what asyncio.run does at Ctrl-C
    with pytest.raises(asyncio.CancelledError):
        await running
    assert isinstance(receipts[0].exception(), ProducerClosedError)
    assert any("cancelled; waiting for acknowledgements" in line for line in simulation.logged)


@simulated
async def test_stop_during_a_run_takes_the_close_timeout_once(broker: Machine) -> None:
    """Neither the handlers nor the commit end in time."""
    await broker.create("t")
    await broker.write("t", [b"a", b"b"])
    broker.script.always(ApiKey.OFFSET_COMMIT, silence)
    stuck = asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        if record.offset == 0:
            return
        stuck.set()
        while not over.is_set():
            with suppress(asyncio.CancelledError):
                await over.wait()

    over = asyncio.Event()
    reader = member(broker, "t", enable_auto_commit=False, close_timeout_ms=1_000, request_timeout_ms=HOUR)
    await reader.start()
    run = asyncio.create_task(reader.run(handler, order="none"))
    await stuck.wait()
    loop = asyncio.get_running_loop()
    began = loop.time()
    await reader.stop()
    stopped = loop.time() - began
    over.set()
    run.cancel()
    await asyncio.wait((run,))
    assert stopped < 1.9, "twice the timeout would be 2 s"


@simulated
async def test_a_cancelled_run_does_not_wait_for_a_silent_broker(broker: Machine) -> None:
    await broker.create("t")
    await broker.write("t", [b"a"])
    broker.script.always(ApiKey.OFFSET_COMMIT, silence)
    done = asyncio.Event()

    async def handler(record: ConsumerRecord) -> None:
        done.set()

    async def program() -> None:
        settings: dict[str, Any] = {"enable_auto_commit": False, "close_timeout_ms": 100, "request_timeout_ms": HOUR}
        async with member(broker, "t", **settings) as reader:
            await reader.run(handler, commit_interval_ms=HOUR)

    running = asyncio.create_task(program())
    await done.wait()
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
