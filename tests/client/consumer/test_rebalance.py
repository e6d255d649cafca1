"""The gate between a program's polls and a rebalance."""

import asyncio

import pytest

from barnabas_client.consumer.rebalance import Gate

pytestmark = pytest.mark.usefixtures("no_complaints")


async def test_a_rebalance_waits_for_a_poll() -> None:
    gate, happened = Gate(), []
    waiting = asyncio.ensure_future(gate.wait_for_poll(lambda: happened.append("revoking")))
    await asyncio.sleep(0)
    assert not happened
    assert gate.awaited
    gate.enter()
    assert happened == ["revoking"]  # before the poll returns records
    await waiting
    gate.leave()
    assert (gate.count, gate.inside, gate.awaited) == (1, 0, False)


async def test_a_poll_in_progress_is_enough() -> None:
    gate, happened = Gate(), []
    gate.enter()
    await gate.wait_for_poll(lambda: happened.append("revoking"))
    assert happened == ["revoking"]


async def test_a_cancelled_wait_does_not_disturb_polls() -> None:
    gate = Gate()
    waiting = asyncio.ensure_future(gate.wait_for_poll(lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.enter()
    assert gate.inside == 1
