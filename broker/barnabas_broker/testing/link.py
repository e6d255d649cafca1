"""The connection of a test to the host of its broker: commands out, replies in, in any order.

A command is a dict with ``do`` and arguments; a reply is a dict with ``ok``, or with ``failed`` (the text) and ``kind``
(one of :data:`FAILURES`). Both can be written as JSON, whether the host is a process or a thread.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from barnabas_broker.errors import BrokerError

Command = dict[str, Any]
Reply = dict[str, Any]

#: Seconds that a broker may take to start; a busy machine needs some for the imports.
START_SECONDS: Final = 60.0
#: Seconds that it may take to stop before it is killed.
STOP_SECONDS: Final = 15.0
#: Seconds that it may take for anything else.
CALL_SECONDS: Final = 30.0


#: What a failed command raises.
FAILURES: Final[dict[str, Callable[[str], Exception]]] = {
    "broker": BrokerError,
    "value": ValueError,
    "timeout": TimeoutError,
}


class Target(Protocol):
    """A broker that takes commands: what the parts of its public face need of it."""

    @property
    def running(self) -> bool:
        """Whether it runs."""

    def call(self, command: Command, timeout: float = CALL_SECONDS) -> Any:
        """Send a command to its host and wait for what it returns."""

    def start(self) -> None:
        """Start it, if it does not run."""

    def stop(self) -> None:
        """Stop it, if it runs."""

    def restart(self) -> None:
        """Stop it, if it runs, and start it."""


class HostLink(Protocol):
    """The connection to a running host."""

    def submit(self, command: Command) -> "Future[Reply]":
        """Send a command.

        Raises:
            BrokerError: the host has ended.
        """

    def close(self) -> None:
        """End the host, by force if it does not end by itself. May be called twice."""

    def kill(self) -> None:
        """End the host by force, now.

        Raises:
            BrokerError: a host of this type cannot be killed.
        """

    @property
    def alive(self) -> bool:
        """Whether the host runs."""

    @property
    def pid(self) -> int | None:
        """The host's process id; None without a process of its own."""


def refuse_in_loop(what: str) -> None:
    """Refuse to wait in an event loop, where clients run too: the wait would keep them from doing what it waits for.

    Raises:
        RuntimeError: an event loop runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{what}() would block the event loop: await asyncio.to_thread({what}, ...)")


def call(link: HostLink, command: Command, timeout: float = CALL_SECONDS) -> Any:
    """Send a command and wait for what it returns.

    Raises:
        BrokerError: it failed, or there was no reply in time.
        ValueError: an argument is wrong.
        TimeoutError: the command waited for something that did not happen.
    """
    try:
        reply = link.submit(command).result(timeout)
    except TimeoutError:
        raise BrokerError(f"the broker did not answer to {command['do']!r} within {timeout:.0f} s") from None
    if "failed" in reply:
        raise FAILURES[reply["kind"]](reply["failed"])
    return reply["ok"]
