"""Programs that `barnabas.run` runs: how they end, and with which exit status."""

import asyncio
import signal
import subprocess
import sys
import threading

import pytest

from barnabas_client import run
from barnabas_client.program import loop_for_thread, new_event_loop
from tests.interop import process

#: Ends at the second signal: after the first, its cleanup takes for ever.
STUBBORN = "await asyncio.Event().wait()"


def program(cleanup: str = "print('cleaned up')", begin: str = "", end: str = "") -> str:
    """A program that says that it runs, waits, and cleans up."""
    return f"""
import asyncio, signal
import barnabas

async def main():
    {begin}
    try:
        print("running", flush=True)
        await asyncio.Event().wait()
    {end or "finally"}:
        print("cleaning up", flush=True)
        {cleanup}
    return "returned"

print(barnabas.run(main()))
"""


def signalled(code: str, *numbers: signal.Signals) -> tuple[list[str], str, int]:
    """Run a program, and send it a signal after each line that it prints; its output, its errors and its status."""
    start = f"import os, sys; {process.HEAR_CTRL_C}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    running = process.spawn(
        [sys.executable, "-c", start, "-W", "error", "-c", code],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timer = threading.Timer(60, running.kill)
    timer.start()
    try:
        assert running.stdout is not None
        lines = []
        for number in numbers:
            lines.append(running.stdout.readline())
            running.send_signal(number)
        rest, errors = running.communicate()
    finally:
        timer.cancel()
        process.end(running, 0)
    return "".join([*lines, rest]).splitlines(), errors, running.returncode


@pytest.mark.programs
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_program_without_a_traceback(number: signal.Signals, status: int) -> None:
    assert signalled(program(), number) == (["running", "cleaning up", "cleaned up"], "", status)


@pytest.mark.programs
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_does_not_wait(number: signal.Signals, status: int) -> None:
    assert signalled(program(STUBBORN), number, number) == (["running", "cleaning up"], "", status)


@pytest.mark.programs
def test_a_program_that_handles_the_cancellation_decides() -> None:
    code = program("pass", end="except asyncio.CancelledError")
    assert signalled(code, signal.SIGTERM) == (["running", "cleaning up", "returned"], "", 0)


@pytest.mark.programs
def test_a_program_keeps_its_own_handler() -> None:
    begin = (
        "task = asyncio.current_task(); "
        "asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, lambda: (print('mine'), task.cancel()))"
    )
    printed, errors, status = signalled(program(begin=begin, end="except asyncio.CancelledError"), signal.SIGTERM)
    assert (printed, errors, status) == (["running", "mine", "cleaning up", "cleaned up", "returned"], "", 0)


async def answer() -> tuple[str, type]:
    return "done", type(asyncio.get_running_loop())


def test_the_result_is_returned_and_the_loop_is_uvloop() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run(answer()) == ("done", type(new_event_loop_of_uvloop()))
    assert signal.getsignal(signal.SIGTERM) is before


def new_event_loop_of_uvloop() -> asyncio.AbstractEventLoop:
    uvloop = pytest.importorskip("uvloop")
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    loop.close()
    return loop


def test_without_uvloop_the_loop_is_that_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = new_event_loop()
    loop.close()
    assert type(loop).__module__.startswith("asyncio")


async def loop_beside() -> tuple[str, str]:
    """The kinds of the running loop, and of one for a thread beside it."""
    loop = loop_for_thread()
    loop.close()
    return type(asyncio.get_running_loop()).__module__.split(".")[0], type(loop).__module__.split(".")[0]


def test_a_loop_for_a_thread_is_of_the_kind_of_the_running_one() -> None:
    assert run(loop_beside()) == ("uvloop", "uvloop")
    assert asyncio.run(loop_beside()) == ("asyncio", "asyncio")


def test_it_runs_in_any_thread() -> None:
    """Signals are those of the main thread."""
    results: list[str] = []
    thread = threading.Thread(target=lambda: results.append(run(answer())[0]))
    thread.start()
    thread.join(60)
    assert results == ["done"]


async def test_inside_a_running_loop_it_says_what_to_do() -> None:
    with pytest.raises(RuntimeError, match=r"event loop runs in this thread already.*`await` the coroutine"):
        run(answer())


def test_a_function_instead_of_a_coroutine() -> None:
    with pytest.raises(TypeError, match=r"run\(answer\): give a coroutine: run\(answer\(\)\)"):
        run(answer)  # type: ignore[arg-type]
