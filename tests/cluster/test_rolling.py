"""All brokers are restarted one after another; clients see only latency."""

import asyncio
import random
from pathlib import Path
from typing import Final

import pytest

from barnabas_client import Admin, KafkaError
from tests.checker.checker import check
from tests.checker.history import History, Kind, Outcome
from tests.checker.workload import Workload
from tests.cluster.harness import Etcd, eventually
from tests.cluster.load import PARTITIONS, Reader, Writer, read_all, with_outcome
from tests.cluster.nemesis import FOREIGN, HEAL_SECONDS, create_topics, group_at_end, replicas_in_sync
from tests.cluster.stand import Stand

#: States of transactional ids without a transaction, or whose last one has all of its markers.
_ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort")

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


async def test_a_rolling_restart_keeps_transactions_whole(etcd: Etcd, tmp_path: Path) -> None:
    """With confluent-kafka: producers, transactions with offsets, and members of a group.

    librdkafka may lose sight of a group's coordinator in `send_offsets_to_transaction` (its issues 5456 and 5511). The
    load leaves such a producer behind; the brokers abort its transaction after its timeout.
    """
    stand, history, seed = Stand(tmp_path, cuttable=False), History(), random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    try:
        await stand.start()
        await create_topics(stand.bootstrap)
        with Workload(
            stand.bootstrap, FOREIGN, PARTITIONS, history, seed=seed, rate=100.0, writers=1, transactional=2
        ) as workload:
            await asyncio.to_thread(workload.await_acknowledged, 5, HEAL_SECONDS, Kind.TXN)
            for broker in stand.brokers:
                await asyncio.to_thread(broker.stop)
                await asyncio.to_thread(workload.await_acknowledged, 5, HEAL_SECONDS, Kind.TXN)
                broker.start()
                await asyncio.wait_for(replicas_in_sync(stand.bootstrap), HEAL_SECONDS)
                await asyncio.to_thread(workload.await_acknowledged, 5, HEAL_SECONDS, Kind.TXN)
            await asyncio.to_thread(workload.finish, HEAL_SECONDS)
        assert not (wrong := check(history).lines()), "\n".join(wrong)
        for kind in (Kind.SEND, Kind.COMMIT, Kind.TXN):
            assert with_outcome(history, Outcome.OK, kind)
        ended = {outcome.value: with_outcome(history, outcome, Kind.TXN) for outcome in Outcome}
        print(f"transactions: {ended}")

        async def all_ended() -> bool:
            try:
                async with Admin(bootstrap_servers=stand.bootstrap) as admin:
                    found = await admin.list_transactions()
            except KafkaError:
                return False
            return bool(found) and all(each.state in _ENDED for each in found)

        await eventually("every transaction has ended", all_ended, HEAL_SECONDS)
    finally:
        await asyncio.to_thread(stand.close)
