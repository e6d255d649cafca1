"""All brokers are restarted one after another; clients see only latency."""

import asyncio
from pathlib import Path

import pytest

from tests.cluster.harness import Etcd
from tests.cluster.load import Promises, Reader, Writer, broken, read_all
from tests.cluster.nemesis import HEAL_SECONDS, create_ledger, group_at_end, replicas_in_sync
from tests.cluster.stand import Stand

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * HEAL_SECONDS)]


async def test_a_rolling_restart_loses_and_rejects_nothing(etcd: Etcd, tmp_path: Path) -> None:
    stand, promises = Stand(tmp_path, cuttable=False), Promises()
    try:
        await stand.start()
        await create_ledger(stand.bootstrap)
        writer, reader = Writer(stand.bootstrap, promises, 200.0), Reader(stand.bootstrap, promises)
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
        wrong += broken(promises, await asyncio.wait_for(read_all(stand.bootstrap), HEAL_SECONDS))
        assert not wrong, "\n".join(wrong)
        assert promises.written and not promises.lost_count
    finally:
        await asyncio.to_thread(stand.close)
