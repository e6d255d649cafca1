"""The gate between a program's polls and a rebalance."""

import asyncio

import pytest

from barnabas_client.consumer.rebalance import Gate

pytestmark = pytest.mark.usefixtures("no_complaints")


async def test_who_waits_passes_when_the_program_comes() -> None:
    gate, happened = Gate(), []
    waiting = asyncio.ensure_future(gate.passed(lambda: happened.append("held")))
    await asyncio.sleep(0)
    assert not happened
    gate.enter()
    assert happened == ["held"]  # before the poll hands out anything
    await waiting
    gate.leave()
    assert (gate.count, gate.inside) == (1, 0)


async def test_a_program_that_waits_in_a_poll_has_come() -> None:
    gate, happened = Gate(), []
    gate.enter()
    await gate.passed(lambda: happened.append("held"))
    assert happened == ["held"]


async def test_who_no_longer_waits_does_no_harm() -> None:
    gate = Gate()
    waiting = asyncio.ensure_future(gate.passed(lambda: None))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])
    gate.enter()
    assert gate.inside == 1
