"""What clients send a thousand times is not a thousand log lines."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas_broker import log_throttle
from barnabas_broker.broker import BrokerServer
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.groups import sightings
from barnabas_broker.security import audit
from barnabas_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas_protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas_protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas_protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from tests.broker.http.support import commit, make_topic
from tests.certificates import Authority
from tests.wire import PATIENCE, Wire

pytestmark = pytest.mark.broad

TIMES = 1_000
ENDED = struct.pack(">i", 14)
#: What closes a connection, by a number that makes each one different.
GARBAGE: dict[str, Callable[[int], bytes]] = {
    "a size that is too large": lambda number: struct.pack(">i", 2**30 + number),
    "a negative size": lambda number: struct.pack(">i", -1 - number),
    "an unknown API": lambda number: ENDED + struct.pack(">hhih4s", 1000 + number, 0, 1, 4, b"test"),
    "an unknown version": lambda number: ENDED + struct.pack(">hhih4s", 3, 1000 + number, 1, 4, b"test"),
    "a client id of its own": lambda number: ENDED + struct.pack(">hhih4s", 78, 1, 1, 4, b"%04d" % number),
    "a body that is cut off": lambda number: ENDED + struct.pack(">hhih4s", 3, 9, number, 4, b"test"),
    "HTTP": lambda number: b"GET /%d HTTP/1.1\r\n\r\n" % number,
    "TLS": lambda number: b"\x16\x03\x01" + struct.pack(">h", number) + bytes(100),
}
#: What is not a request of HTTP.
ODD: dict[str, Callable[[int], bytes]] = {
    "no HTTP": lambda number: b"%d\r\n\r\n" % number,
    "a method": lambda number: b"G%d / HTTP/1.1\r\n\r\n" % number,
    "a header": lambda number: b"GET / HTTP/1.1\r\n%d\r\n\r\n" % number,
    "a length": lambda number: b"GET / HTTP/1.1\r\nContent-Length: x%d\r\n\r\n" % number,
    "a long line": lambda number: b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\n\r\n",
    "a Host": lambda number: b"GET / HTTP/1.1\r\nHost: h%d\r\n\r\n" % number,
    "TLS": lambda number: b"\x16\x03\x01" + struct.pack(">h", number) + bytes(100),
}

StartBroker = Callable[..., Awaitable[BrokerServer]]


@pytest.fixture(autouse=True)
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The times in which lines are counted do not end within a test, however slow the machine."""
    monkeypatch.setattr(log_throttle, "WINDOW", 3_600.0)
    monkeypatch.setattr(sightings, "_BACK_SECONDS", 3_600.0)


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[StartBroker]:
    started: list[BrokerServer] = []

    async def start(**settings: str) -> BrokerServer:
        given = {
            "log.dir": str(tmp_path / "data"),
            "transaction.state.log.num.partitions": "1",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        started.append(await BrokerServer.start(Config(BROKER_KEYS, given), port=0, http_port=0))
        return started[-1]

    yield start
    for broker in started:
        await broker.stop()


async def send(port: int, garbage: Callable[[int], bytes], times: int = TIMES) -> None:
    """Send it, each time on a connection of its own, until the broker closes it."""
    for number in range(times):
        async with await Wire.connect(port) as wire:
            wire.writer.write(garbage(number))
            wire.writer.write_eof()
            async with asyncio.timeout(PATIENCE):
                try:
                    while await wire.reader.read(1 << 16):
                        pass
                except ConnectionError:
                    pass


def lines(caplog: pytest.LogCaptureFixture) -> int:
    """The lines of the log at info and above, those of tracebacks included."""
    found = [record for record in caplog.records if record.levelno >= logging.INFO]
    return sum(1 + (record.exc_text or "").count("\n") for record in found)


def audited(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    """The lines of the audit log."""
    return [r.msg for r in caplog.records if r.name == "barnabas_broker.audit"]  # type: ignore[misc]


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
async def test_connections(
    start: StartBroker, garbage: Callable[[int], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    broker = await start()
    caplog.set_level(logging.INFO)
    caplog.clear()
    await send(broker.listeners[0].port, garbage)
    assert 1 <= lines(caplog) <= log_throttle.MOST_OF_CLIENT


@pytest.mark.parametrize("garbage", ODD.values(), ids=ODD)
async def test_http(start: StartBroker, garbage: Callable[[int], bytes], caplog: pytest.LogCaptureFixture) -> None:
    broker = await start()
    caplog.set_level(logging.INFO)
    caplog.clear()
    assert broker.http_port is not None
    await send(broker.http_port, garbage, 200)
    assert lines(caplog) <= log_throttle.MOST_OF_CLIENT


async def test_https(start: StartBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate = Authority(tmp_path).issue("broker")
    broker = await start(http_ssl_certfile=str(certificate))
    caplog.set_level(logging.INFO)
    caplog.clear()
    assert broker.http_port is not None
    for garbage in ODD.values():
        await send(broker.http_port, garbage, 100)
    assert lines(caplog) <= log_throttle.MOST_OF_CLIENT


async def test_markers(start: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start()
    caplog.set_level(logging.INFO)
    caplog.clear()
    topics = [WritableTxnMarkerTopic(name="missing", partition_indexes=list(range(TIMES)))]
    marker = WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=topics, coordinator_epoch=0
    )
    async with await Wire.connect(broker.listeners[0].port) as wire:
        for _ in range(3):
            answer = await wire.ask(WriteTxnMarkersRequest(markers=[marker]), 1, WriteTxnMarkersResponse)
            assert len(answer.markers[0].topics[0].partitions) == TIMES
    assert 1 <= lines(caplog) <= log_throttle.MOST_OF_CLIENT


async def test_transactions(start: StartBroker, caplog: pytest.LogCaptureFixture) -> None:
    broker = await start()
    async with await Wire.connect(broker.listeners[0].port) as wire:
        find = FindCoordinatorRequest(key="t", key_type=1)
        init = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        async with asyncio.timeout(PATIENCE):
            while (await wire.ask(find, 2, FindCoordinatorResponse)).error_code:
                pass
            while (made := await wire.ask(init, 3, InitProducerIdResponse)).error_code:
                pass
        caplog.set_level(logging.INFO)
        caplog.clear()
        end = EndTxnRequest(
            transactional_id="t", producer_id=made.producer_id, producer_epoch=made.producer_epoch, committed=True
        )
        for _ in range(TIMES):
            assert (await wire.ask(end, 3, EndTxnResponse)).error_code
    assert 1 <= lines(caplog) <= log_throttle.MOST_OF_CLIENT


async def test_ever_new_groups_and_what_is_done_to_them(
    start: StartBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The events of the groups, and the audit log of offsets that are set and of groups that are deleted."""
    monkeypatch.setattr(log_throttle, "MOST_LINES", 50)
    monkeypatch.setattr(audit, "MOST_CHANGES", 50)
    broker = await start(offsets_topic_num_partitions="1")
    names = [f"g{number}" for number in range(TIMES)]
    async with await Wire.connect(broker.listeners[0].port) as wire:
        await make_topic(wire, "t")
        await commit(wire, names[0], "t", {0: 5})
        caplog.set_level(logging.INFO)
        caplog.clear()
        for name in names:
            await commit(wire, name, "t", {0: 5})
        await wire.ask(DeleteGroupsRequest(groups_names=names), 2, DeleteGroupsResponse)
        topics = [
            CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for number in range(100)
        ]
        await wire.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7, CreateTopicsResponse)
    set_offsets = [line for line in audited(caplog) if line["event"] == "offsets set"]
    assert 1 <= len(set_offsets) <= log_throttle.MOST_OF_CLIENT
    assert 1 <= len(audited(caplog)) - len(set_offsets) <= 50
    # The topic is empty: these offsets are after its end.
    beyond = sum("after the ends of their logs" in record.getMessage() for record in caplog.records)
    assert 1 <= beyond <= 16
    assert lines(caplog) - beyond <= log_throttle.MOST_OF_CLIENT + 50 + 50
    caplog.clear()
    broker.services.audit.close()
    (more,) = (line for line in audited(caplog) if line["event"] == "changes")
    assert more["others"] >= TIMES + 100 - 50
