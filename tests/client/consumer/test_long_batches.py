"""Batches of very many small records: memory grows with what a poll returns, and other tasks run meanwhile."""

import asyncio
import tracemalloc

from barnabas_protocol.records import build_batch
from tests.client.consumers import T0, consumer
from tests.world.broker import ScriptedBroker
from tests.world.programs import Machine, simulated

COUNT = 60_000


def nulls() -> bytearray:
    return build_batch([(None, None, (), 1_700_000_000_000)] * COUNT, compression="gzip")


@simulated
async def test_memory_is_bounded_in_records(broker: Machine) -> None:
    await broker.create("t")
    await broker.append("t", nulls())
    async with consumer(broker, "t") as reader:
        tracemalloc.start()
        seen = 0
        try:
            while seen < COUNT:
                for records in (await reader.getmany(timeout_ms=5_000)).values():
                    assert records[0].offset == seen
                    seen += len(records)
                    assert len(reader._subscription.states[T0].ready) <= 2_000
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 4 * 1024 * 1024, "60,000 records take 14 MB"


async def test_other_tasks_run_while_records_are_skipped(real: ScriptedBroker) -> None:
    await real.create("t")
    await real.append("t", nulls())
    async with consumer(real) as reader:
        reader.assign([T0])
        reader.seek(T0, COUNT - 1)
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                fetched = bool(reader._subscription.states[T0].parts)
                turns += fetched
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        assert (await reader.getone()).offset == COUNT - 1
        counting.cancel()
    assert turns >= COUNT // 2_000 - 2
