"""A broker is brought to what a file declares: once, again, and not by half."""

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from barnabas import Producer
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.init import InitError, apply, read
from barnabas_broker.testing import Broker, BrokerError

DOCUMENT = """
topics:
  orders:
    partitions: 2
    config: {retention.ms: 604800000}
    records:
      - {key: customer-7, value: two chairs}
      - {key: customer-7, value: a table}
      - {value: a lamp, partition: 0}
  audit:
users:
  ada: {password: lovelace}
acls:
  ada: [read topic orders, read group *]
quotas:
  - {user: ada, producer_byte_rate: 1000000}
groups:
  billing: {orders: earliest}
  late: {orders: {1: 1}}
"""
AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def write(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")


@asynccontextmanager
async def running(folder: Path, **config: str) -> AsyncIterator[BrokerServer]:
    keys = {"log.dirs": str(folder / "data"), "offsets.topic.num.partitions": "1", **AUTHORIZER, **config}
    broker = await BrokerServer.start(Config(BROKER_KEYS, keys), port=0)
    try:
        yield broker
    finally:
        await broker.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "init.yaml"
    made.write_text(DOCUMENT)
    return made


async def test_everything_is_there_and_again_nothing_changes(tmp_path: Path, file: Path) -> None:
    async with running(tmp_path) as broker:
        assert await apply(broker, read(file)) == [
            "user ada added",
            "2 ACLs added",
            "quotas set for {user=ada}",
            "topic orders created with 2 partitions",
            "topic audit created with 1 partition",
            "3 records written to topic orders",
            "group billing begins in topic orders at 0: 0, 1: 0",
            "group late begins in topic orders at 1: 1",
        ]
        assert await apply(broker, read(file)) == []
    async with running(tmp_path) as broker:
        assert await apply(broker, read(file)) == []
        image = broker.services.cluster.image
        assert image.topics["orders"].configs["retention.ms"] == "604800000"
        assert {user for user, _ in image.users.credentials} == {"ada"}
        ends = [broker.services.replicas.find("orders", number).log.log_end_offset for number in range(2)]
        assert sum(ends) == 3


async def test_what_has_changed_is_brought_up(tmp_path: Path, file: Path) -> None:
    async with running(tmp_path) as broker:
        await apply(broker, read(file))
        text = DOCUMENT.replace("partitions: 2", "partitions: 4").replace("604800000", "1000")
        write(file, text.replace("1000000}", "5}").replace("{1: 1}", "latest"))
        assert await apply(broker, read(file)) == [
            "quotas set for {user=ada}",
            "topic orders grown to 4 partitions",
            "topic orders: retention.ms set",
            # Of `late`, partition 1 has an offset already.
            "group billing begins in topic orders at 2: 0, 3: 0",
            "group late begins in topic orders at " + ", ".join(f"{n}: {end}" for n, end in _ends(broker) if n != 1),
        ]


def _ends(broker: BrokerServer) -> Iterator[tuple[int, int]]:
    for number in range(4):
        yield number, broker.services.replicas.find("orders", number).log.high_watermark


@pytest.mark.parametrize(
    ("old", "new", "error"),
    [
        ("a lamp, partition: 0", "a lamp, partition: 2", "9: topic orders has 2 partitions, no partition 2"),
        ("billing: {orders", "billing: {nothing", "18: there is no topic nothing. To do: declare it below topics"),
        ("{1: 1}", "{2: 1}", "19: topic orders has 2 partitions: 0 to 1"),
        ("  audit:", "  'a b':", "10: topic a b: "),
        ("producer_byte_rate: 1000000", "producer_byte_rate: 0.5", "16: quotas for {user=ada}: "),
    ],
)
async def test_what_cannot_be_had_is_found_before_anything_changes(
    tmp_path: Path, file: Path, old: str, new: str, error: str
) -> None:
    write(file, DOCUMENT.replace(old, new))
    async with running(tmp_path) as broker:
        with pytest.raises(InitError) as raised:
            await apply(broker, read(file))
        assert f"{file}:{error}" in str(raised.value)
        image = broker.services.cluster.image
        assert not image.topics
        assert not image.users.credentials
        assert not image.acls


async def test_partitions_cannot_become_fewer(tmp_path: Path, file: Path) -> None:
    async with running(tmp_path) as broker:
        await apply(broker, read(file))
        write(file, DOCUMENT.replace("partitions: 2", "partitions: 1").replace(", partition: 0", ""))
        with pytest.raises(
            InitError, match=r"3: topic orders has 2 partitions, which cannot become 1. To do: declare 2"
        ):
            await apply(broker, read(file))


async def test_acls_that_nothing_checks(tmp_path: Path, file: Path) -> None:
    keys = {"authorizer.class.name": ""}
    async with running(tmp_path, **keys) as broker:
        with pytest.raises(InitError, match=r"14: ACLs are declared, and nothing checks them. To do: set authorizer"):
            await apply(broker, read(file))


async def test_what_was_done_before_a_failure_is_listed(tmp_path: Path, file: Path) -> None:
    config = "config: {max.message.bytes: 100}"
    write(file, f"topics:\n  small:\n    {config}\n    records: [large.jsonl]\n  other:\n")
    write(tmp_path / "large.jsonl", f'"small"\n"{"x" * 1000}"\n')
    async with running(tmp_path) as broker:
        with pytest.raises(InitError) as raised:
            await apply(broker, read(file))
    assert re.search(
        r"large.jsonl:1: records cannot be written to small-0: .* Done before it: topic small created with 1 "
        r"partition; topic other created with 1 partition. To do: repair it, and start again",
        str(raised.value),
    )


async def test_keys_get_the_partitions_of_kafkas_producers(tmp_path: Path, file: Path) -> None:
    keys = [f"key-{number}" for number in range(40)]
    lines = "".join(f'{{"key": "{key}", "value": ""}}\n' for key in keys)
    write(tmp_path / "keys.jsonl", lines)
    write(file, "topics:\n  seeded: {partitions: 16, records: keys.jsonl}\n  sent: {partitions: 16}\n")
    with Broker(process=False, init=file) as broker:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for key in keys:
                await producer.send_and_wait("sent", b"", key=key.encode())
        seeded, sent = [await asyncio.to_thread(_partitions, broker, topic) for topic in ("seeded", "sent")]
    assert seeded == sent
    assert len(seeded) == 40


def _partitions(broker: Broker, topic: str) -> dict[bytes | None, int]:
    return {record.key: record.partition for record in broker.records(topic, 40)}


@pytest.mark.programs
@pytest.mark.parametrize("process", [True, False], ids=["process", "thread"])
def test_the_broker_of_a_test(tmp_path: Path, file: Path, process: bool) -> None:
    write(file, "topics:\n  orders: {records: [{value: one}]}\n")
    with Broker(process=process, init=file) as broker:
        assert [record.value for record in broker.records("orders")] == [b"one"]
        broker.restart()
        assert [record.value for record in broker.records("orders")] == [b"one"]
    write(file, "topics: []\n")
    with pytest.raises(BrokerError, match=r"init.yaml:1: topics must be a mapping"), Broker(process=process, init=file):
        pass


@pytest.mark.programs
def test_the_program_says_what_it_has_done(tmp_path: Path, file: Path) -> None:
    command = [sys.executable, "-m", "barnabas_broker", "--port", "0", "--data-dir", str(tmp_path / "d")]
    write(file, "topics:\n  orders:\n    records: [{value: 1}]\n")
    with subprocess.Popen(
        [*command, "--init", str(file)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "barnabas: topic orders created with 1 partition\n"
        assert process.stdout.readline() == "barnabas: 1 record written to topic orders\n"
        assert process.stdout.readline().startswith("barnabas: listening on ")
        process.terminate()
    for text, flags, error in [
        ("topics: 7\n", [], "init.yaml:1: topics must be a mapping (name: value)"),
        ("topics:\n", ["--cores", "2"], "--init works with a single broker: leave out --cluster and --cores"),
    ]:
        write(file, text)
        ended = subprocess.run([*command, *flags, "--init", str(file)], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2
        assert error in ended.stderr
        assert ended.stderr.count("\n") == 1
