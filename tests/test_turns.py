"""The measure of turns of the loop sees what holds it."""

import asyncio
import time
from collections.abc import Callable

import pytest
import uvloop

from tests.turns import watched

HELD = 0.06


def busy() -> None:
    began = time.thread_time()
    while time.thread_time() - began < HELD:
        pass


async def measured() -> tuple[float, float]:
    with watched() as longest:
        await asyncio.sleep(0)
        quiet = longest()
        asyncio.get_running_loop().call_soon(busy)
        for _ in range(3):
            await asyncio.sleep(0)
        return quiet, longest()


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_what_holds_the_loop_is_seen(new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        quiet, held = runner.run(measured())
    assert quiet < HELD <= held
