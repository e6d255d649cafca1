"""A broker's life as a test sees it, in a process and on a thread."""

import asyncio
import os
import re
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiokafka
import pytest

from barnabas_broker.testing import Broker, BrokerError
from barnabas_client import Admin
from barnabas_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.sampling import slow
from tests.wire import Wire

pytestmark = pytest.mark.programs

MODES = pytest.mark.parametrize("process", [True, False], ids=["process", "thread"])
#: Where the mode makes no difference that `make test` has to see: a process takes a second.
MOSTLY_THREAD = pytest.mark.parametrize("process", [slow(True), False], ids=["process", "thread"])


async def topics(broker: Broker) -> dict[str, int]:
    """Every topic that a test made, with its number of partitions."""
    async with await Wire.connect(broker.port) as wire:
        answer = await wire.ask(MetadataRequest(topics=None), 12, MetadataResponse)
        return {topic.name or "": len(topic.partitions) for topic in answer.topics if not topic.is_internal}


@MODES
async def test_port_and_data_outlive_a_stop(process: bool) -> None:
    async with Broker(process=process) as broker:
        port, folder = broker.port, broker.data_dir
        broker.create_topic("kept", 3)
        assert await topics(broker) == {"kept": 3}
        await asyncio.to_thread(broker.stop)
        assert not broker.running
        with pytest.raises(ConnectionRefusedError):
            await Wire.connect(port)
        broker.stop()  # is stopped already
        broker.start()
        assert (broker.port, broker.bootstrap_servers) == (port, f"127.0.0.1:{port}")
        assert await topics(broker) == {"kept": 3}
        broker.restart()
        broker.start()  # runs already
        assert await topics(broker) == {"kept": 3}
        assert folder.is_dir()
    assert not broker.running
    assert not folder.exists()
    broker.close()  # is closed already


async def test_a_killed_broker_restarts_with_its_data() -> None:
    with Broker() as broker:
        pid, port = broker.pid, broker.port
        broker.create_topic("kept", 2)
        await topics(broker)
        broker.kill()
        assert not broker.running
        assert broker.pid is None
        assert broker.requests[-1].api == "Metadata"  # what it saw is not forgotten
        with pytest.raises(BrokerError, match="not running"):
            broker.kill()
        broker.start()
        assert broker.port == port
        assert broker.pid != pid
        assert await topics(broker) == {"kept": 2}
        assert [request.number for request in broker.requests] == [1, 2]


def test_a_thread_cannot_be_killed() -> None:
    with Broker(process=False) as broker:
        assert broker.pid is None
        with pytest.raises(BrokerError, match="needs a process of its own"):
            broker.kill()
        assert broker.running


@MOSTLY_THREAD
async def test_data_are_kept_where_they_are_wanted(process: bool, tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(process=process, data_dir=tmp_path / "data") as broker:
            if "kept" not in await topics(broker):
                broker.create_topic("kept")
    assert (tmp_path / "data" / "kept-0").is_dir()


@MOSTLY_THREAD
def test_configuration(process: bool) -> None:
    config = {"num.partitions": 3, "auto.create.topics.enable": True, "log.cleanup.policy": ["delete", "compact"]}
    with Broker(process=process, config=config) as broker:
        broker.create_topic("asked", -1)
        assert asyncio.run(topics(broker)) == {"asked": 3}


@MOSTLY_THREAD
def test_an_unknown_key_is_a_warning(process: bool) -> None:
    broker = Broker(process=process, config={"num.partition": 3})
    with pytest.warns(UserWarning, match=r"num.partition: no such configuration key, ignored, did you mean num.parti"):
        broker.start()
    broker.close()


@pytest.mark.parametrize("key", ["log.dir", "log.dirs"])
def test_the_folder_of_its_log_is_not_given_as_a_key(key: str) -> None:
    with pytest.raises(ValueError, match="give the folder as data_dir"):
        Broker(config={key: "/tmp/elsewhere"})


@MOSTLY_THREAD
def test_what_keeps_a_broker_from_starting(process: bool, tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match=r"num.partitions='many': not a whole number"):
        Broker(process=process, config={"num.partitions": "many"}).start()
    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(BrokerError, match=f"cannot listen on 127.0.0.1:{port}: Address already in use"):
            Broker(process=process, port=port).start()
    with (
        Broker(process=process, data_dir=tmp_path),
        pytest.raises(BrokerError, match=re.escape(str(tmp_path))),
    ):
        Broker(process=process, data_dir=tmp_path).start()


def test_what_cannot_be_asked_of_a_broker_that_is_not_started() -> None:
    broker = Broker()
    assert repr(broker) == "<Broker 127.0.0.1:0 (process, stopped)>"
    assert (broker.requests, broker.group_history, broker.explain("g"), broker.log_lines) == ([], {}, "", [])
    with pytest.raises(BrokerError, match="no port before it is started"):
        _ = broker.port
    with pytest.raises(BrokerError, match="no data before it is started"):
        _ = broker.data_dir
    with pytest.raises(BrokerError, match="not running"):
        broker.faults.drop("Fetch")


def test_a_process_that_ended_is_noticed() -> None:
    with Broker() as broker:
        assert broker.pid is not None
        descriptor = os.pidfd_open(broker.pid)
        os.kill(broker.pid, signal.SIGKILL)
        assert select.select([descriptor], [], [], 20)[0]
        os.close(descriptor)
        with pytest.raises(BrokerError, match="the broker's process was killed by SIGKILL"):
            broker.create_topic("t")
        assert not broker.running
        broker.start()
        broker.create_topic("t")


PARENT = """
import sys
from barnabas_broker.testing import Broker
broker = Broker()
broker.start()
print(broker.pid, broker.data_dir, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_it_dies_with_its_parent_and_leaves_nothing(parent: subprocess.Popen[str], how: str) -> None:
    assert parent.stdout is not None and parent.stdin is not None
    pid, folder = parent.stdout.readline().split()
    descriptor = os.pidfd_open(int(pid))
    if how == "kill":
        parent.kill()
    else:
        parent.stdin.close()  # it never closes its broker
    parent.wait(60)
    assert select.select([descriptor], [], [], 30)[0]
    os.close(descriptor)
    assert not Path(folder).parent.exists()


async def test_requests_are_remembered(running: Broker) -> None:
    before = running.requests[-1] if running.requests else None
    async with await Wire.connect(running.port) as wire:
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="no such topic!")])
        await wire.ask(wanted, 12, MetadataResponse, client_id="me")
        seen = running.requests[-1]
        assert before is None or seen.number == before.number + 1
        assert (seen.api, seen.version, seen.client_id, seen.topics) == ("Metadata", 12, "me", ["no such topic!"])
        assert seen.error == "INVALID_TOPIC_EXCEPTION"
        assert seen.peer.startswith("127.0.0.1:")
        assert seen.seconds is not None and 0 < seen.seconds < 20
        # What no handler sees.
        wire.writer.write(bytes.fromhex("0000000a 0000 0063 00000007 ffff".replace(" ", "")))
        assert await wire.closed()
    last = running.requests[-1]
    assert (last.api, last.version) == ("Produce", 99)
    assert last.error == "connection closed: PRODUCE version 99 is not served, only 0-13"


async def test_waiting_for_a_request_ends(running: Broker, line: Wire) -> None:
    before = next(reversed(running.requests), None)
    waiting = asyncio.create_task(asyncio.to_thread(running.wait_for_request, "ApiVersions", after=before, timeout=60))
    await line.ask(ApiVersionsRequest(), 0, ApiVersionsResponse, client_id="late")
    assert (await waiting).client_id == "late"
    with pytest.raises(RuntimeError, match=r"would block the event loop: await asyncio.to_thread\(wait_for_request"):
        running.wait_for_request("ApiVersions")


def test_waiting_for_what_does_not_come(running: Broker) -> None:
    with pytest.raises(TimeoutError, match=r"within 0.01 s 0 DeleteGroups requests of client 'x' were seen, not 2"):
        running.wait_for_request("DeleteGroups", count=2, client_id="x", timeout=0.01)
    with pytest.raises(ValueError, match="no API has this name"):
        running.wait_for_request("Nonsense")


async def test_the_history_of_a_group_is_explained(running: Broker) -> None:
    running.create_topic("explained")
    consumer = aiokafka.AIOKafkaConsumer(
        "explained", bootstrap_servers=running.bootstrap_servers, group_id="readers", client_id="reader"
    )
    await consumer.start()
    await asyncio.to_thread(running.wait_for_request, "Heartbeat", client_id="reader")
    await consumer.stop()
    before = running.group_history["readers"]
    assert [event["type"] for event in before][:2] == ["member_joined", "rebalance_started"]
    assert "reader (127.0.0.1) joined." in running.explain("readers")
    assert running.explain("nobody") == ""
    for again in (running.restart, running.stop, running.start):
        again()
        assert running.group_history["readers"][: len(before)] == before


async def test_the_history_of_a_group_that_was_removed_is_explained(running: Broker) -> None:
    """An empty group without offsets is removed by the next check of the offsets' retention, too."""
    running.create_topic("removed")
    consumer = aiokafka.AIOKafkaConsumer(
        "removed", bootstrap_servers=running.bootstrap_servers, group_id="gone", client_id="reader"
    )
    await consumer.start()
    await asyncio.to_thread(running.wait_for_request, "Heartbeat", client_id="reader")
    await consumer.stop()
    async with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
        await admin.delete_consumer_groups(["gone"])
    assert "reader (127.0.0.1) joined." in running.explain("gone")


def test_topics(running: Broker) -> None:
    running.create_topic("made", 2, {"cleanup.policy": "compact"})
    with pytest.raises(ValueError, match=r"topic 'made' cannot be created: .*exists"):
        running.create_topic("made")
    with pytest.raises(ValueError, match=r"topic 'x' cannot be created: .*no.such"):
        running.create_topic("x", config={"no.such": 1})
    running.delete_topic("made")
    running.delete_topic("made")  # is deleted already
    assert "made" not in asyncio.run(topics(running))


async def test_a_process_says_what_is_wrong(capfd: pytest.CaptureFixture[str]) -> None:
    async with Broker() as broker:
        async with await Wire.connect(broker.port) as wire:
            wire.writer.write(b"\x00\x00\x00\x03abc")
            assert await wire.closed()
        assert broker.requests[-1].api == "?"
        assert [line for line in broker.log_lines if "connection closed" in line and "request header" in line]
    assert capfd.readouterr() == ("", "")


THREAD = """
import logging, socket
from barnabas_broker.testing import Broker

heard = []
handler = logging.Handler()
handler.emit = lambda record: heard.append(record.getMessage())
logging.getLogger().addHandler(handler)
with Broker(process=False) as broker:
    with socket.create_connection(("127.0.0.1", broker.port), 20) as connection:
        connection.sendall(b"\\0\\0\\0\\3abc")
        assert connection.recv(1) == b""
print(*[line for line in heard if "connection closed" in line])
"""


def test_a_thread_says_it_to_logging() -> None:
    run = subprocess.run([sys.executable, "-c", THREAD], capture_output=True, text=True, timeout=100, check=False)
    assert run.stderr == ""
    assert re.fullmatch(
        r"connection closed peer=127\.0\.0\.1:\d+ reason='request header: .*'", run.stdout.splitlines()[-1]
    )
