"""The small examples, run as programs against a broker in this process: their output and their effects."""

import asyncio
import json
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas_broker.testing import Broker
from barnabas_client import Consumer, TopicPartition
from tests.interop import process
from tests.sampling import slow

pytestmark = pytest.mark.programs

Run = Callable[..., str]
Fill = Callable[..., str]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex}"


def committed(broker: Broker, group: str, topic: str) -> dict[int, int]:
    async def ask() -> dict[int, int]:
        async with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=group) as consumer:
            found = await consumer.committed_offsets(TopicPartition(topic, 0), TopicPartition(topic, 1))
        return {tp.partition: one.offset for tp, one in found.items() if one is not None}

    return asyncio.run(ask())


def offsets(out: str) -> dict[int, list[int]]:
    """Return the printed offsets, by partition."""
    found: dict[int, list[int]] = {}
    for match in re.finditer(r"^\S+-(\d) offset (\d+): b'(\d+)'$", out, re.MULTILINE):
        assert match[2] == match[3]
        found.setdefault(int(match[1]), []).append(int(match[2]))
    return found


def test_the_list_is_complete() -> None:
    listed = set(
        re.findall(r"^\| \[(\w+)\]\((\w+\.py|flights/__main__\.py)\)", (ROOT / "examples/README.md").read_text(), re.M)
    )
    there = {one.stem for one in (ROOT / "examples").glob("*.py")} - {"arguments", "live_view"} | {"flights"}
    assert {name for name, _ in listed} == there


def test_print_records(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic = fill(each=10)
    out = example("print_records", "--topic", topic, "--group", group, "--count", 20)
    lines = re.findall(r"^Received message: \(b'key', b'(\d)'\) at offset (\d)$", out, re.MULTILINE)
    assert sorted(lines) == sorted([(str(n), str(n)) for n in range(10)] * 2)
    assert committed(broker, group, topic) == {0: 10, 1: 10}


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("print_records", r"at offset \d+$"),
        slow(("rewind_group", r"offset \d+: b'")),
        slow(("offset_store_group", r"offset \d+: b'")),
        slow(("rewind_on_failure", r"^3 records are processed$")),
        ("exactly_once", r"in 3 records$"),
    ],
)
def test_no_more_records_are_taken_than_asked_for(
    example: Run, fill: Fill, group: str, tmp_path: Path, name: str, printed: str
) -> None:
    topic = fill(each=50)
    files = {"offset_store_group": ("--store", tmp_path / "s"), "exactly_once": ("--database", tmp_path / "d")}
    out = example(name, "--topic", topic, "--group", group, "--count", 3, *files.get(name, ()))
    assert len(re.findall(printed, out, re.MULTILINE)) == (1 if "3 records" in printed else 3), out


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("print_records", ()),
        slow(("auto_commit", ())),
        slow(("commit_batches", ("--database", "d", "--batch", 10))),
        slow(("offset_store_group", ("--store", "s"))),
        slow(("rewind_on_failure", ())),
        slow(("rewind_group", ())),
        slow(("exactly_once", ("--database", "d"))),
        ("parallel_work", ()),
    ],
)
def test_ctrl_c_ends_a_program_without_a_traceback(
    broker: Broker, fill: Fill, group: str, tmp_path: Path, name: str, files: tuple[str | int, ...]
) -> None:
    topic = fill(each=50)
    code = (
        f"import os, sys; {process.HEAR_CTRL_C}; os.chdir({str(tmp_path)!r});"
        " os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    )
    module = (
        f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module('examples.{name}', None, '__main__')"
    )
    settings = ("--bootstrap-servers", broker.bootstrap_servers, "--topic", topic, "--group", group, *map(str, files))
    program = process.spawn(
        [sys.executable, "-c", code, "-c", module, *settings],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timer = threading.Timer(60, program.kill)
    timer.start()
    try:
        assert program.stdout is not None
        # rewind_on_failure prints a failure, exactly_once where it starts: they run then, too.
        assert program.stdout.readline()
        program.send_signal(signal.SIGINT)
        _, errors = program.communicate()
    finally:
        timer.cancel()
        process.end(program, 0)
    assert errors == ""
    assert program.returncode == 130


def test_auto_commit(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic, other = fill(each=10), fill(each=5)
    out = example("auto_commit", "--topic", topic, "--topic2", other, "--group", group, "--count", 30)
    assert len(re.findall(r"^offset = (\d), key = b'key', value = b'\1'$", out, re.MULTILINE)) == 30
    assert committed(broker, group, topic) == {0: 10, 1: 10}
    assert committed(broker, group, other) == {0: 5, 1: 5}


def test_commit_batches(example: Run, fill: Fill, broker: Broker, group: str, tmp_path: Path) -> None:
    topic, database = fill(each=120), tmp_path / "records.sqlite"
    shared = ("--topic", topic, "--group", group, "--database", database, "--batch", 100)
    out = example("commit_batches", *shared, "--count", 240)
    assert out.splitlines() == ["100 records are inserted and committed"] * 2
    assert sum(committed(broker, group, topic).values()) == 200
    # The last 40 records are not committed: they are delivered again.
    fill(each=30, topic=topic)
    assert example("commit_batches", *shared, "--count", 100).splitlines() == ["100 records are inserted and committed"]
    with sqlite3.connect(database) as store:
        rows = store.execute("SELECT partition, offset FROM records").fetchall()
    store.close()
    assert sorted(rows) == [(partition, offset) for partition in range(2) for offset in range(150)]


def test_assigned_partitions(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic = fill(each=10)
    out = example("assigned_partitions", "--topic", topic, "--group", group, "--partitions", 0, 1)
    assert offsets(out) == {0: list(range(10)), 1: list(range(10))}
    assert out.splitlines()[-1] == f"read up to {topic}-0: 10, {topic}-1: 10"
    fill(each=3, topic=topic, partitions=1)
    out = example("assigned_partitions", "--topic", topic, "--group", group, "--partitions", 0, 1)
    assert out.count("offset") == 3
    assert committed(broker, group, topic) == {0: 13, 1: 10}


def test_offset_store(example: Run, fill: Fill, tmp_path: Path) -> None:
    topic, store = fill(each=10), tmp_path / "offsets.json"
    out = example("offset_store", "--topic", topic, "--store", store)
    assert offsets(out) == {0: list(range(10)), 1: list(range(10))}
    assert json.loads(store.read_text()) == {f"{topic}-0": 10, f"{topic}-1": 10}
    store.write_text(json.dumps({f"{topic}-0": 8, f"{topic}-1": 10}))
    assert offsets(example("offset_store", "--topic", topic, "--store", store)) == {0: [8, 9]}


def test_rewind_on_failure(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic = fill(each=200)
    out = example("rewind_on_failure", "--topic", topic, "--group", group, "--count", 400, "--failures", 3)
    assert len(re.findall(r"^the database is unavailable at \S+ offset \d*[49]9: retrying$", out, re.MULTILINE)) == 3
    assert out.splitlines()[-1] == "400 records are processed"
    assert committed(broker, group, topic) == {0: 200, 1: 200}


def test_rewind_group(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic = fill(each=30)
    shared = ("--topic", topic, "--group", group)
    assert offsets(example("rewind_group", *shared, "--count", 60)) == {0: list(range(30)), 1: list(range(30))}
    out = example("rewind_group", *shared, "--count", 20, "--rewind", 10)
    assert f"{topic}-0 is rewound from 30 to 20" in out
    assert offsets(out) == {0: list(range(20, 30)), 1: list(range(20, 30))}
    assert offsets(example("rewind_group", *shared, "--count", 60, "--rewind", 1000))[1] == list(range(30))
    assert committed(broker, group, topic) == {0: 30, 1: 30}


def test_offset_store_group(example: Run, fill: Fill, broker: Broker, group: str, tmp_path: Path) -> None:
    topic, store = fill(each=60), tmp_path / "offsets.sqlite"
    shared = ("--topic", topic, "--group", group, "--store", store)
    out = example("offset_store_group", *shared, "--count", 120)
    assert f"{topic}-0 continues at 0" in out
    assert offsets(out) == {0: list(range(60)), 1: list(range(60))}
    assert out.splitlines()[-1] == f"saved {topic}-0: 60, {topic}-1: 60"
    with sqlite3.connect(store) as database:
        database.execute("UPDATE offsets SET next = 50 WHERE partition = 1")
    database.close()
    assert offsets(example("offset_store_group", *shared, "--count", 10)) == {1: list(range(50, 60))}
    assert committed(broker, group, topic) == {}


def test_exactly_once(example: Run, fill: Fill, group: str, tmp_path: Path) -> None:
    topic, database = fill(each=100), tmp_path / "totals.sqlite"
    shared = ("--topic", topic, "--group", group, "--database", database)
    out = example("exactly_once", *shared, "--count", 200)
    assert out.splitlines()[-1] == f"b'key': {2 * sum(range(100))} in 200 records"
    # Records that the database contains are not added again, whatever offset the group has committed.
    fill(each=1, topic=topic)
    out = example("exactly_once", *shared, "--count", 2)
    assert f"{topic}-0 continues at 100" in out
    assert out.splitlines()[-1] == f"b'key': {2 * sum(range(100))} in 202 records"


def test_parallel_work(example: Run, fill: Fill, broker: Broker, group: str) -> None:
    topic = fill(each=10)
    out = example("parallel_work", "--topic", topic, "--group", group, "--count", 20)
    assert offsets(out) == {0: list(range(10)), 1: list(range(10))}
    assert out.splitlines()[-1] == "20 records are processed"
    assert committed(broker, group, topic) == {0: 10, 1: 10}
