"""All brokers are restarted one after another; clients see only latency."""

import asyncio
from pathlib import Path

import pytest

from tests.checker.checker import check
from tests.checker.history import History, Outcome
from tests.cluster.harness import Etcd
from tests.cluster.load import Reader, Writer, read_all, with_outcome
from tests.cluster.nemesis import HEAL_SECONDS, create_topics, group_at_end, replicas_in_sync
from tests.cluster.stand import Stand

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * HEAL_SECONDS)]


async def test_a_rolling_restart_loses_and_rejects_nothing(etcd: Etcd, tmp_path: Path) -> None:
    stand, history = Stand(tmp_path, cuttable=False), History()
    try:
        await stand.start()
        await create_topics(stand.bootstrap)
        writer, reader = Writer(stand.bootstrap, history, 200.0), Reader(stand.bootstrap, history, "reader")
        load = [asyncio.create_task(writer.run()), asyncio.create_task(reader.run())]
        for broker in stand.brokers:
            await asyncio.to_thread(broker.stop)
            broker.start()
            await asyncio.wait_for(replicas_in_sync(stand.bootstrap), HEAL_SECONDS)
        writer.stopping = True
        await asyncio.wait_for(load[0], HEAL_SECONDS)
        wrong = await group_at_end(stand.bootstrap)
        reader.stopping = True
        await asyncio.wait_for(load[1], HEAL_SECONDS)
        await asyncio.wait_for(read_all(stand.bootstrap, history), HEAL_SECONDS)
        wrong += check(history).lines()
        assert not wrong, "\n".join(wrong)
        assert with_outcome(history, Outcome.OK) and not with_outcome(history, Outcome.UNKNOWN)
    finally:
        await asyncio.to_thread(stand.close)
