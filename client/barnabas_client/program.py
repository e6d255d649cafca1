"""Runs the coroutine of a program: its event loop, and its end at Ctrl-C and SIGTERM."""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, NoReturn, TypeVar

T = TypeVar("T")

#: The exit statuses that shells and service managers know.
INTERRUPTED: Final = 128 + signal.SIGINT
TERMINATED: Final = 128 + signal.SIGTERM


class Terminated(KeyboardInterrupt):
    """SIGTERM was received: the program ends and cleans up as it does after Ctrl-C."""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """An event loop of uvloop, or of asyncio where uvloop is not installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def loop_for_thread() -> asyncio.AbstractEventLoop:
    """An event loop for a thread beside the running one: of uvloop if that is."""
    uvloop = sys.modules.get("uvloop")
    if uvloop is not None and isinstance(asyncio.get_running_loop(), uvloop.Loop):
        loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        return loop
    return asyncio.new_event_loop()


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a program's coroutine on uvloop, and end with it: `asyncio.run` for programs that run until Ctrl-C.

    ::

        from barnabas import Consumer, run

        async def main() -> None:
            async with Consumer("flights") as consumer:
                async for record in consumer:
                    print(record.value)

        run(main())

    Ctrl-C and SIGTERM cancel `main`, so that each ``async with`` block stops its client: it commits, leaves its group
    and sends what is pending. Then the program exits without a traceback, with status 130 or 143. A second signal does
    not wait. A program that sets handlers of its own for these signals keeps them.

    Args:
        main: the coroutine: ``main()``, with parentheses.

    Returns:
        What `main` returns, also if it handles the cancellation and returns.

    Raises:
        SystemExit: a signal has ended it.
        RuntimeError: an event loop runs in this thread already, as in a notebook.
        TypeError: it is not a coroutine.
    """
    _check_coroutine(main)
    try:
        return run_in_loop(main)
    except Terminated:
        raise SystemExit(TERMINATED) from None
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


def _check_coroutine(main: object) -> None:
    if not asyncio.iscoroutine(main):
        name = getattr(main, "__name__", None)
        raise TypeError(f"run({name or repr(main)}): give a coroutine" + (f": run({name}())" if name else ""))


def run_in_loop(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a new event loop.

    Raises:
        KeyboardInterrupt: Ctrl-C has cancelled it.
        Terminated: SIGTERM has.
        RuntimeError: an event loop runs in this thread already.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        pass
    else:
        main.close()
        raise RuntimeError("an event loop runs in this thread already, as in a notebook. To do: `await` the coroutine")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_until_terminated(main))


async def _until_terminated(main: Coroutine[Any, Any, T]) -> T:
    """Cancel `main` at SIGTERM, as `asyncio.Runner` does at Ctrl-C: the second signal raises where the program is."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    terminated = False

    def terminate(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        if terminated:
            raise Terminated
        terminated = True
        task.cancel()
        loop.call_soon_threadsafe(lambda: None)  # wakes up a loop that waits

    with sigterm_calls(terminate):
        try:
            return await main
        except asyncio.CancelledError:
            if terminated:
                raise Terminated from None
            raise


@contextmanager
def sigterm_calls(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have SIGTERM call a function, unless the program handles it itself, or this is not the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    if before not in (signal.SIG_DFL, raise_terminated):
        yield
        return
    signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def raise_terminated(number: int, frame: FrameType | None) -> NoReturn:
    """Signal handler: end a program that runs without an event loop as Ctrl-C does."""
    raise Terminated
