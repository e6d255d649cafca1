"""Share consumers on a broker without settings: each record is processed, though workers are killed, and what they
reject becomes a dead letter.

The workers are programs with confluent-kafka's ShareConsumer, with ours, and with Kafka's own, in both modes of
acknowledgement.
"""

import asyncio
import os
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import pytest

from barnabas import Admin, AlterConfigOp, ConfigResource, NewTopic
from barnabas_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
)
from tests.interop.barnabas_server import BarnabasBroker
from tests.interop.kafka_server import start_tool
from tests.wire import Wire

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("confluent-kafka before 2.15 has no ShareConsumer", allow_module_level=True)

#: Records of a test; the run before a release has 200,000.
RECORDS = int(os.environ.get("BARNABAS_SHARE_RECORDS", "10000"))
WORKERS = 4
#: Seconds to wait for the next record.
PATIENCE = 60.0
JAVA = Path(__file__).with_name("java") / "ShareWorker.java"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(4 * PATIENCE + RECORDS / 200)]

#: Worker, word and number of a line.
Line = tuple[int, str, str]


#: How the values of records end that workers reject, if they may.
BAD = "999"


class Worker:
    """A process of a worker, whose lines go to a queue."""

    def __init__(self, index: int, process: "subprocess.Popen[str]", lines: "Queue[Line]") -> None:
        self.process = process
        self._reader = threading.Thread(target=self._read, args=(index, lines), daemon=True)
        self._reader.start()

    def _read(self, index: int, lines: "Queue[Line]") -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            word, _, number = line.rstrip("\n").partition(" ")
            lines.put((index, word, number))

    def kill(self) -> None:
        """End it without a word, and read what it has printed."""
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("client", ["confluent", "barnabas"])
def test_every_record_is_processed_though_workers_are_killed(barnabas: BarnabasBroker, client: str) -> None:
    program = Path(__file__).with_name("share_worker.py")
    lines: Queue[Line] = Queue()
    name = f"work-{client}"
    command = [sys.executable, str(program), client, barnabas.bootstrap_servers, name, name]
    workers = [Worker(n, subprocess.Popen(command, stdout=subprocess.PIPE, text=True), lines) for n in range(WORKERS)]
    try:
        run(barnabas.bootstrap_servers, name, workers, lines, rejects=True)
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_every_record_is_processed_though_workers_of_kafka_are_killed(barnabas: BarnabasBroker, mode: str) -> None:
    lines: Queue[Line] = Queue()
    name = f"work-{mode}"
    with ExitStack() as stack:
        workers = []
        for n in range(WORKERS):
            process = stack.enter_context(start_tool(str(JAVA), barnabas.bootstrap_servers, name, name, mode))
            workers.append(Worker(n, process, lines))
            stack.callback(workers[-1].kill)
        run(barnabas.bootstrap_servers, name, workers, lines, rejects=mode == "explicit")


async def allow_dead_letters(bootstrap_servers: str, name: str) -> None:
    """Let the group of this name write dead letters to a topic."""
    async with Admin(bootstrap_servers=bootstrap_servers) as admin:
        allowed = {"errors.deadletterqueue.group.enable": "true"}
        await admin.create_topics([NewTopic(f"dlq.{name}", num_partitions=1, topic_configs=allowed)])
        letters = [
            AlterConfigOp("errors.deadletterqueue.topic.name", f"dlq.{name}"),
            AlterConfigOp("errors.deadletterqueue.copy.record.enable", "true"),
        ]
        await admin.incremental_alter_configs({ConfigResource.group(name): letters})


def run(bootstrap_servers: str, name: str, workers: list[Worker], lines: "Queue[Line]", *, rejects: bool) -> None:
    """Produce, kill two workers on the way, and look at who has had what.

    Args:
        bootstrap_servers: of the broker.
        name: of the topic and of the group.
        workers: their processes.
        lines: what they print.
        rejects: whether they reject what nothing could process.
    """
    asyncio.run(allow_dead_letters(bootstrap_servers, name))
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap_servers})
    got: defaultdict[str, list[int]] = defaultdict(list)
    done: Counter[str] = Counter()

    def read(timeout: float) -> bool:
        """Take over a line; False if there is none in time."""
        try:
            worker, word, number = lines.get(timeout=timeout)
        except Exception:
            return False
        if word == "got":
            got[number].append(worker)
        elif word == "done":
            done[number] += 1
        return True

    # A new group begins at the end of the topic: produce until a worker has one.
    probes = 0
    while not done:
        producer.produce(name, f"probe {probes}".encode())
        producer.flush()
        probes += 1
        read(0.5)
    for number in range(RECORDS):
        producer.produce(name, str(number).encode())
        producer.poll(0)
    producer.flush()
    wanted = {str(number) for number in range(RECORDS)}
    killed: set[int] = set()
    for worker in range(2):
        while len(done) < RECORDS // 3 * (worker + 1):
            assert read(PATIENCE)
        workers[worker].kill()
        killed.add(worker)
    # What a killed worker had is either acknowledged, although it could not say so any more, or delivered again.
    missing = {number for number in wanted - done.keys() if not got[number] or set(got[number]) - killed}
    while missing:
        assert read(PATIENCE), f"{len(missing)} records are not processed"
        if lines.empty() or len(missing) < 100:
            missing = {number for number in wanted - done.keys() if not got[number] or set(got[number]) - killed}
    producer.produce(name, b"end")
    producer.flush()
    while not done["end"]:
        assert read(PATIENCE)
    asyncio.run(everything_is_acknowledged(bootstrap_servers, name))
    assert set(done.values()) == {1}, "what is acknowledged is not delivered again"
    again = {number for number, by in got.items() if len(by) > 1}
    assert all(got[number][0] in killed for number in again), "only what a killed worker had is delivered again"
    bad = {number for number in wanted if number.endswith(BAD)} if rejects else set()
    assert dead_letters(bootstrap_servers, name, len(bad)) == bad


def dead_letters(bootstrap_servers: str, name: str, most: int) -> set[str]:
    """The values of the dead letters of a group: at least so many, and all that are there."""
    reader = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": f"reader of {name}"})
    reader.assign([confluent_kafka.TopicPartition(f"dlq.{name}", 0, 0)])
    try:
        found: set[str] = set()
        _, end = reader.get_watermark_offsets(confluent_kafka.TopicPartition(f"dlq.{name}", 0), PATIENCE)
        assert end >= most
        for _ in range(end):
            (message,) = reader.consume(1, PATIENCE)
            found.add(message.value().decode())
        return found
    finally:
        reader.close()


async def everything_is_acknowledged(bootstrap_servers: str, name: str) -> None:
    """Wait until the group has no record left: the killed worker may have acknowledged some without a word."""
    topic = DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=[topic])]
    )
    _, _, port = bootstrap_servers.partition(":")
    async with asyncio.timeout(PATIENCE), await Wire.connect(int(port)) as wire:
        while True:
            answer = await wire.ask(request, 1, DescribeShareGroupOffsetsResponse)
            if answer.groups[0].topics[0].partitions[0].lag == 0:
                return
