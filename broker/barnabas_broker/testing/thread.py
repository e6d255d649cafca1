"""A broker in this process, on a thread with an event loop of its own."""

import asyncio
import contextlib
import os
import threading
from concurrent.futures import Future

import uvloop

from barnabas_broker.errors import BrokerError
from barnabas_broker.testing.host import Host
from barnabas_broker.testing.link import START_SECONDS, STOP_SECONDS, Command, Reply


class ThreadLink:
    """Starts a thread and talks to it."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._host: Host | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="broker", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_SECONDS):
            raise BrokerError("the broker's thread did not start")

    @property
    def alive(self) -> bool:
        """Whether the thread is there and listens."""
        return self._thread.is_alive() and self._host is not None

    @property
    def pid(self) -> int | None:
        """It has no process of its own."""
        return None

    def submit(self, command: Command) -> "Future[Reply]":
        """Send a command.

        Raises:
            BrokerError: the thread is gone.
        """
        if self._host is None or self._loop is None:
            raise BrokerError("the broker's thread has ended")
        return asyncio.run_coroutine_threadsafe(self._host.handle(command), self._loop)

    def close(self) -> None:
        """Stop the broker and end the thread. May be called twice."""
        if os.getpid() != self._owner:
            return  # forked off: there is no such thread here
        loop, end = self._loop, self._end
        self._host = None
        if loop is not None and end is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(end.set)
        self._thread.join(STOP_SECONDS)

    def kill(self) -> None:
        """There is nothing to kill here.

        Raises:
            BrokerError: always.
        """
        raise BrokerError("kill() needs a process of its own: Broker(process=True), or kafka_broker_mode = process")

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        host = Host()
        self._host, self._loop, self._end = host, asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await self._end.wait()
        await host.stop()
