"""A host in this process, on a thread with an event loop of its own."""

import asyncio
import contextlib
import os
import threading
from concurrent.futures import Future
from typing import NamedTuple

import uvloop

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.host import BrokerHost
from barnabas_broker.testing.link import START_SECONDS, STOP_SECONDS, Command, Reply


class _Running(NamedTuple):
    """The host of the broker, its loop, and the event that ends the thread."""

    host: BrokerHost
    loop: asyncio.AbstractEventLoop
    end: asyncio.Event


class ThreadLink:
    """Starts a thread with a host on it.

    Raises:
        BrokerError: the thread does not start.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._closed = False
        started: Future[_Running] = Future()
        self._thread = threading.Thread(target=_run, args=(started,), name="broker", daemon=True)
        self._thread.start()
        try:
            self._running = started.result(START_SECONDS)
        except TimeoutError:
            raise BrokerError("the broker's thread did not start") from None

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive() and not self._closed

    @property
    def pid(self) -> int | None:
        """None: it has no process of its own."""
        return None

    def submit(self, command: Command) -> "Future[Reply]":
        """Send a command.

        Raises:
            BrokerError: the thread has ended.
        """
        if self._closed:
            raise BrokerError("the broker's thread has ended")
        return asyncio.run_coroutine_threadsafe(self._running.host.handle(command), self._running.loop)

    def close(self) -> None:
        """Stop the broker and end the thread. May be called twice."""
        if os.getpid() != self._owner:
            return  # in a fork: the thread belongs to the parent
        self._closed = True
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._running.loop.call_soon_threadsafe(self._running.end.set)
        self._thread.join(STOP_SECONDS)

    def kill(self) -> None:
        """Raise: a thread cannot be killed.

        Raises:
            BrokerError: always.
        """
        raise BrokerError("kill() needs a process of its own: Broker(process=True), or kafka_broker_mode = process")


def _run(started: "Future[_Running]") -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(started))


async def _serve(started: "Future[_Running]") -> None:
    running = _Running(BrokerHost(), asyncio.get_running_loop(), asyncio.Event())
    started.set_result(running)
    await running.end.wait()
    await running.host.stop()
