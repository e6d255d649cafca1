"""Real clients push their metrics to a subscription that asks for them (KIP-714), without a setting of their own."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from barnabas import Admin, AlterConfigOp, ConfigResource
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from tests.interop.kafka_server import run_tool

pytestmark = pytest.mark.interop

PATIENCE = 60.0


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[BrokerServer]:
    running = await BrokerServer.start(Config(BROKER_KEYS, {"log.dir": str(tmp_path)}), port=0)
    metrics = [AlterConfigOp("metrics", "org.apache.kafka."), AlterConfigOp("interval.ms", "100")]
    async with Admin(bootstrap_servers=f"127.0.0.1:{running.port}") as admin:
        await admin.incremental_alter_configs({ConfigResource.client_metrics("all"): metrics})
    yield running
    await running.stop()


async def pushed(broker: BrokerServer, client_id: str, name: str) -> float:
    """Wait for a metric; its value."""
    async with asyncio.timeout(PATIENCE):
        while True:
            for one in broker.services.telemetry.known():
                if one is not None and one.client.client_id == client_id:
                    for (found, _), each in one.values.items():
                        if found == name:
                            return each.value
            await asyncio.sleep(0.05)


async def test_librdkafka(broker: BrokerServer) -> None:
    servers = {"bootstrap.servers": f"127.0.0.1:{broker.port}"}
    producer = Producer({**servers, "client.id": "producer"})
    producer.produce("t", b"v")
    assert await pushed(broker, "producer", "producer_connection_creation_total") >= 1
    assert await asyncio.to_thread(producer.flush, PATIENCE) == 0
    consumer = Consumer({**servers, "group.id": "g", "client.id": "consumer"})
    consumer.subscribe(["t"])
    assert await pushed(broker, "consumer", "consumer_connection_creation_total") >= 1
    await asyncio.to_thread(consumer.close)


@pytest.mark.kafka
async def test_java(broker: BrokerServer, needs_jars: None) -> None:
    servers = ("--bootstrap-server", f"127.0.0.1:{broker.port}")
    written = await asyncio.to_thread(
        run_tool, "kafka-console-producer", *servers, "--topic", "t", timeout=PATIENCE, stdin="v\n"
    )
    assert written.returncode == 0, written.stderr
    assert await pushed(broker, "console-producer", "producer_connection_creation_total") >= 1
    described = await asyncio.to_thread(
        run_tool, "kafka-client-metrics", *servers, "--describe", "--name", "all", timeout=PATIENCE
    )
    assert "interval.ms=100" in described.stdout, described.stderr
