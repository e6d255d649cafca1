"""How a test talks to the broker that it started: commands go over, replies come back, in any order.

A command is a dict with ``do`` and arguments; a reply is a dict with ``ok``, or with ``failed`` (the text) and ``kind``
(one of :data:`FAILURES`). Both are JSON, whether a process or a thread is at the other end.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Protocol

from barnabas_broker.errors import BrokerError

Command = dict[str, Any]
Reply = dict[str, Any]

#: Seconds that a broker may take to start: a loaded machine needs a while to import it.
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


class Link(Protocol):
    """The way to a running host of brokers."""

    def submit(self, command: Command) -> "Future[Reply]":
        """Send a command.

        Raises:
            BrokerError: nobody is there to read it.
        """

    def close(self) -> None:
        """End what is at the other end: in order if it can be, else by force. May be called twice."""

    def kill(self) -> None:
        """End it by force, now.

        Raises:
            BrokerError: that is not possible here.
        """

    @property
    def alive(self) -> bool:
        """Whether there is anybody at the other end."""

    @property
    def pid(self) -> int | None:
        """The process at the other end, if it has one of its own."""


def refuse_in_loop(what: str) -> None:
    """Refuse to wait where that would keep what is waited for from happening: clients live in the event loop too.

    Raises:
        RuntimeError: an event loop runs in this thread.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError(f"{what}() would block the event loop: await asyncio.to_thread({what}, ...)")


def call(link: Link, command: Command, timeout: float = CALL_SECONDS) -> Any:
    """Send a command and wait for what it returns.

    Raises:
        BrokerError: it failed, or there was no reply in time.
        ValueError: an argument is wrong.
        TimeoutError: what it waited for did not happen.
    """
    try:
        reply = link.submit(command).result(timeout)
    except TimeoutError:
        raise BrokerError(f"the broker did not answer to {command['do']!r} within {timeout:.0f} s") from None
    if "failed" in reply:
        raise FAILURES[reply["kind"]](reply["failed"])
    return reply["ok"]
