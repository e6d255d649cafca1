"""Share consumers on a broker without settings: each record is processed, though a worker is killed.

The workers are programs with confluent-kafka's ShareConsumer, and with Kafka's own, in both modes of acknowledgement.
"""

import asyncio
import subprocess
import sys
import threading
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path
from queue import Queue

import pytest

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

RECORDS = 10_000
WORKERS = 3
#: Seconds to wait for the next record.
PATIENCE = 60.0
JAVA = Path(__file__).with_name("java") / "ShareWorker.java"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(4 * PATIENCE)]

#: Worker, word and number of a line.
Line = tuple[int, str, str]


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


def test_every_record_is_processed_though_a_worker_is_killed(barnabas: BarnabasBroker) -> None:
    program = Path(__file__).with_name("share_worker.py")
    lines: Queue[Line] = Queue()
    workers = [
        Worker(
            n,
            subprocess.Popen(
                [sys.executable, str(program), barnabas.bootstrap_servers, "work", "work"],
                stdout=subprocess.PIPE,
                text=True,
            ),
            lines,
        )
        for n in range(WORKERS)
    ]
    try:
        run(barnabas.bootstrap_servers, "work", workers, lines)
    finally:
        for worker in workers:
            worker.kill()


@pytest.mark.kafka
@pytest.mark.usefixtures("needs_jars")
@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_every_record_is_processed_though_a_worker_of_kafka_is_killed(barnabas: BarnabasBroker, mode: str) -> None:
    lines: Queue[Line] = Queue()
    name = f"work-{mode}"
    with ExitStack() as stack:
        workers = []
        for n in range(WORKERS):
            process = stack.enter_context(start_tool(str(JAVA), barnabas.bootstrap_servers, name, name, mode))
            workers.append(Worker(n, process, lines))
            stack.callback(workers[-1].kill)
        run(barnabas.bootstrap_servers, name, workers, lines)


def run(bootstrap_servers: str, name: str, workers: list[Worker], lines: "Queue[Line]") -> None:
    """Produce, kill a worker in the middle, and look at who has had what.

    Args:
        bootstrap_servers: of the broker.
        name: of the topic and of the group.
        workers: their processes.
        lines: what they print.
    """
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
    while len(done) < RECORDS // 3:
        assert read(PATIENCE)
    workers[0].kill()
    # What the killed worker had is either acknowledged, although it could not say so any more, or delivered again.
    while missing := {number for number in wanted - done.keys() if got[number] != [0]}:
        assert read(PATIENCE), f"{len(missing)} records are not processed"
    producer.produce(name, b"end")
    producer.flush()
    while not done["end"]:
        assert read(PATIENCE)
    asyncio.run(everything_is_acknowledged(bootstrap_servers, name))
    assert set(done.values()) == {1}, "what is acknowledged is not delivered again"
    again = {number for number, by in got.items() if len(by) > 1}
    assert all(got[number][0] == 0 for number in again), "only what the killed worker had is delivered again"


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
