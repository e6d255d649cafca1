"""Events of groups on two brokers: the one that has an event need not be the one that keeps it."""

import asyncio
from typing import Final

import pytest

from barnabas.explain import explain_group
from barnabas_broker.testing import Cluster
from barnabas_client import Admin, AlterConfigOp, ConfigResource, Producer, ShareConsumer
from barnabas_protocol.internal_topics import EVENTS_TOPIC, OFFSETS_TOPIC
from tests.cluster.harness import PATIENCE, need_etcd

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(6 * PATIENCE)]

TOPIC: Final = "work"
GROUP: Final = "workers"


@pytest.mark.parametrize("keeper", ["the coordinator", "the leader of the records"])
async def test_events_reach_the_broker_that_keeps_them(keeper: str) -> None:
    need_etcd()
    async with Cluster(2) as cluster:
        await asyncio.to_thread(cluster.create_topic, TOPIC)
        servers = cluster.bootstrap_servers
        async with Admin(bootstrap_servers=servers) as admin:
            begin = [AlterConfigOp("share.auto.offset.reset", "earliest")]
            await admin.incremental_alter_configs({ConfigResource.group(GROUP): begin})
            await admin.list_consumer_group_offsets("any")  # makes the topics of groups
        coordinator = await asyncio.to_thread(cluster.leader, OFFSETS_TOPIC)
        other = next(each for each in cluster.brokers if each is not coordinator)
        await asyncio.to_thread(cluster.wait_in_sync)
        await asyncio.to_thread(cluster.move_leader, TOPIC, 0, other)
        keeps = coordinator if keeper == "the coordinator" else other
        await asyncio.to_thread(cluster.move_leader, EVENTS_TOPIC, 0, keeps)
        async with Producer(bootstrap_servers=servers) as producer:
            await producer.send_and_wait(TOPIC, b"a")
        consumer = ShareConsumer(
            TOPIC, bootstrap_servers=servers, group_id=GROUP, share_acknowledgement_mode="explicit"
        )
        async with asyncio.timeout(PATIENCE), consumer:
            await (await anext(aiter(consumer))).release()
            told = ""
            while "released the record at offset 0 of work-0" not in told or "joined" not in told:
                await asyncio.sleep(0.1)
                told = "\n".join(each.text for each in await explain_group(GROUP, bootstrap_servers=servers))
