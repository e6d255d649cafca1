"""examples/exactly_once_topics, killed at random moments: each record of the source is one result, in order.

After each kill, the next run waits until the session of the killed one has expired, after 6 s. `BARNABAS_KILLS` sets
the number of kills of the slow test (default 5).
"""

import asyncio
import os
import random
import sys
import uuid
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.interop.kafka_server import ApacheKafka

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("BARNABAS_KILLS", "5"))
#: Seconds that one step may take on a busy machine.
PATIENCE = 90
#: Records between two kills, at most.
STEP = 150


async def start(*arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "examples.exactly_once_topics", *arguments, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
    )


@pytest.fixture(params=["barnabas", pytest.param("apache_kafka", marks=pytest.mark.kafka)])
def servers(request: pytest.FixtureRequest) -> str:
    """A real broker."""
    if request.param == "barnabas":
        broker: Broker = request.getfixturevalue("broker")
        return broker.bootstrap_servers
    kafka: ApacheKafka = request.getfixturevalue("apache_kafka")
    return kafka.bootstrap_servers


@pytest.mark.programs
@pytest.mark.timeout(60 + KILLS * PATIENCE)
@pytest.mark.parametrize("kills", [2, pytest.param(KILLS, marks=pytest.mark.slow)])
async def test_each_record_is_one_result(servers: str, kills: int) -> None:
    name, chance = uuid.uuid4().hex, random.Random(kills)
    source, target, group = f"s-{name}", f"t-{name}", f"g-{name}"
    values = [b"%d" % number for number in range(STEP * (kills + 1))]
    async with Admin(bootstrap_servers=servers) as admin:
        await admin.create_topics([NewTopic(source, 1, 1), NewTopic(target, 1, 1)])
    async with Producer(bootstrap_servers=servers) as filler:
        for value in values:
            await filler.send(source, value)
    arguments = ["--bootstrap-servers", servers, "--topic", source, "--to", target, "--group", group]
    arguments += ["--transactional-id", name]
    async with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as watcher:
        watcher.assign([TopicPartition(target, 0)])
        for _ in range(kills):
            program = await start(*arguments)
            seen, enough = 0, chance.randrange(1, STEP)
            async with asyncio.timeout(PATIENCE):
                while seen < enough:
                    seen += len(await watcher.poll(100, max_records=enough - seen))
            program.kill()
            await program.wait()
    program = await start(*arguments)
    found: list[bytes | None] = []
    async with Consumer(
        bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as results:
        results.assign([TopicPartition(target, 0)])
        async with asyncio.timeout(PATIENCE):
            while len(found) < len(values):
                found += [record.value for record in await results.poll(200)]
        program.kill()
        await program.wait()
        assert found == values
        async with Admin(bootstrap_servers=servers) as admin:
            await admin.fence_producers([name])
        assert not await results.poll(500), "nothing comes twice"
