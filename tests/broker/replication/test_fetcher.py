"""A follower rejects or bounds responses that a correct leader does not send."""

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from barnabas_broker.cluster.image import BrokerFenced, BrokerRegistered, Image, PartitionInfo
from barnabas_broker.config import BROKER_KEYS, TOPIC_KEYS, Config, TopicConfig
from barnabas_broker.replication import fetcher as fetcher_module
from barnabas_broker.replication.connection import BrokerConnection
from barnabas_broker.replication.fetcher import Registered, ReplicaFetcherManager, _ReplicaFetcher
from barnabas_broker.replication.following import PartitionFetchState
from barnabas_broker.replication.replica import Replica
from barnabas_broker.storage import LogDirectory, TopicPartition
from barnabas_protocol.codec import encode_response
from barnabas_protocol.errors import DecodeError, ErrorCode, KafkaError
from barnabas_protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchEpochEndOffset,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.schema import Request
from tests.sim import virtual

T = TypeVar("T")

LEADER = 2


async def ignored(node_id: int, epoch: int) -> None:
    """The process of a leader has ended."""


@pytest.fixture
def replica(tmp_path: Path) -> Replica:
    """A follower with five records, three of them committed."""
    config = Config(BROKER_KEYS, {})
    directory = LogDirectory.open(tmp_path, config, node_id=1, now_ms=0)
    log = directory.create(TopicPartition("t", 0), b"t" * 16, TopicConfig(config, {}, TOPIC_KEYS), 0)
    for _ in range(5):
        log.append_as_leader(build_batch([(None, b"value", (), 0)]), leader_epoch=0, now_ms=0)
    log.set_high_watermark(3)
    followed = Replica(log, PartitionInfo(LEADER, 1, (1, LEADER), (1, LEADER)))
    followed.follow(followed.info)
    return followed


@pytest.fixture
async def fetchers(replica: Replica) -> AsyncIterator[ReplicaFetcherManager]:
    made = ReplicaFetcherManager(
        Config(BROKER_KEYS, {}), 1, lambda leader: None, ignored, lambda: 10, "A" * 22, lambda: 0
    )
    made.follow(replica, LEADER)
    yield made
    await made.close()


def handle(fetchers: ReplicaFetcherManager, replica: Replica, answer: PartitionData) -> None:
    """Let the follower handle a response to a fetch from its log end offset."""
    fetchers._fetchers[LEADER]._handle_partition(
        replica, PartitionFetchState(1, replica.log.log_end_offset, 0, 0), answer
    )


def response(
    high_watermark: int = 3, log_start: int = 0, records: bytes = b"", end: int | None = None
) -> PartitionData:
    return PartitionData(
        partition_index=0,
        error_code=ErrorCode.NONE,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        diverging_epoch=None if end is None else FetchEpochEndOffset(epoch=0, end_offset=end),
        records=records,
    )


@pytest.mark.parametrize("mark", [2**63 - 1, 6])
async def test_a_high_watermark_beyond_the_log_end_is_bounded(
    fetchers: ReplicaFetcherManager, replica: Replica, mark: int
) -> None:
    handle(fetchers, replica, response(high_watermark=mark))
    assert replica.high_watermark == 5


@pytest.mark.parametrize("mark", [2, -1, -(2**63)])
async def test_the_high_watermark_does_not_go_back(
    fetchers: ReplicaFetcherManager, replica: Replica, mark: int
) -> None:
    handle(fetchers, replica, response(high_watermark=mark))
    assert replica.high_watermark == 3


async def test_a_log_start_offset_beyond_the_log_end_is_bounded(
    fetchers: ReplicaFetcherManager, replica: Replica
) -> None:
    handle(fetchers, replica, response(high_watermark=5, log_start=2**63 - 1))
    assert replica.log.log_start_offset == 5


@pytest.mark.parametrize("in_sync", [True, False])
async def test_committed_records_that_the_leader_lacks_are_removed_only_by_a_replica_out_of_sync(
    fetchers: ReplicaFetcherManager, replica: Replica, *, in_sync: bool
) -> None:
    found: list[tuple[int, int]] = []
    replica.log.disk.damage_found = lambda where, damage: found.append((damage.offset, damage.next_offset))
    if not in_sync:
        replica.follow(replica.info._replace(isr=(LEADER,)))
    handle(fetchers, replica, response(end=1))
    assert (replica.log.log_end_offset, found) == ((5, [(1, 3)]) if in_sync else (1, []))


@pytest.mark.parametrize("end", [-2, -(2**63)])
async def test_a_negative_epoch_end_offset_is_rejected(
    fetchers: ReplicaFetcherManager, replica: Replica, end: int
) -> None:
    with pytest.raises(DecodeError, match="ends at -"):
        handle(fetchers, replica, response(end=end))
    assert replica.log.log_end_offset == 5


@pytest.mark.parametrize("base", [0, 4, -1, -(2**63)])
async def test_records_before_the_log_end_are_rejected(
    fetchers: ReplicaFetcherManager, replica: Replica, base: int
) -> None:
    batch = build_batch([(None, b"other", (), 0)])
    batch[0:8] = base.to_bytes(8, "big", signed=True)
    with pytest.raises((KafkaError, DecodeError)):
        handle(fetchers, replica, response(records=bytes(batch)))
    assert replica.log.log_end_offset == 5


@pytest.mark.parametrize("damage", [16, 30, 60])
async def test_corrupt_records_are_rejected(fetchers: ReplicaFetcherManager, replica: Replica, damage: int) -> None:
    batch = build_batch([(None, b"other", (), 0)])
    batch[0:8] = (5).to_bytes(8, "big")
    batch[damage] ^= 0xFF
    with pytest.raises((KafkaError, DecodeError)):
        handle(fetchers, replica, response(records=bytes(batch)))
    assert replica.log.log_end_offset == 5


class HeldDisk:
    """Runs background work when it is let go."""

    def __init__(self) -> None:
        self.held: list[Callable[[], None]] = []
        self.asked = asyncio.Event()

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        self.held.append(lambda: done(work()))
        self.asked.set()

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        for one in work:
            one()

    def close(self) -> None:
        """Nothing runs."""


@pytest.mark.parametrize("messages", ["1", "1000000"])
async def test_a_fetch_waits_for_the_fsync_of_what_was_fetched_before(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, messages: str
) -> None:
    """With flush.messages=1: the leader concludes from it that this replica has the records, and acknowledges them."""
    log, disk = replica.log, HeldDisk()
    log.flush()
    log.disk.background = disk
    log.configure(TopicConfig(Config(BROKER_KEYS, {}), {"flush.messages": messages}, TOPIC_KEYS))
    requests: list[FetchRequest] = []
    again = asyncio.Event()

    async def send(self: BrokerConnection, request: FetchRequest, version: int, timeout: float) -> bytes:
        requests.append(request)
        if len(requests) > 1:
            again.set()
            await asyncio.Event().wait()
        batch = build_batch([(None, b"new", (), 0)], base_offset=5, leader_epoch=1)
        answer = FetchableTopicResponse(topic_id=log.topic_id, partitions=[response(records=bytes(batch))])
        return encode_response(FetchResponse(session_id=7, responses=[answer]), version, 0)[4:]

    monkeypatch.setattr(BrokerConnection, "send", send)
    listening = socket.create_server(("127.0.0.1", 0))
    host, port = listening.getsockname()
    at = Registered(host, port, 20)
    made = ReplicaFetcherManager(
        Config(BROKER_KEYS, {}), 1, lambda leader: at, ignored, lambda: 10, "A" * 22, lambda: 0
    )
    made.follow(replica, LEADER)
    async with asyncio.timeout(60):
        if messages == "1":
            await disk.asked.wait()
            assert log.log_end_offset == 6
            for _ in range(20):
                await asyncio.sleep(0)
            assert not again.is_set()
            disk.held.pop()()
        await again.wait()
    (topic,) = requests[1].topics
    assert [each.fetch_offset for each in topic.partitions] == [6]
    assert (log.flusher.synced == 6) is (messages == "1")
    await made.close()
    listening.close()


async def test_a_broker_that_is_not_registered_does_not_fetch(replica: Replica) -> None:
    opened: list[int] = []
    epoch = -1
    asked = asyncio.Event()

    async def lead(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        opened.append(epoch)
        asked.set()
        writer.close()

    def epoch_now() -> int:
        looked.set()
        return epoch

    looked = asyncio.Event()
    server = await asyncio.start_server(lead, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    address = Registered(host, port, 20)
    config = Config(BROKER_KEYS, {"replica.fetch.backoff.ms": "1"})
    made = ReplicaFetcherManager(config, 1, lambda leader: address, ignored, epoch_now, "A" * 22, lambda: 0)
    made.follow(replica, LEADER)
    async with asyncio.timeout(60):
        for _ in range(2):
            looked.clear()
            await looked.wait()
        epoch = 10
        await asked.wait()
    assert set(opened) == {10}
    await made.close()
    server.close()
    await server.wait_closed()


def fetcher_of(fetchers: ReplicaFetcherManager) -> _ReplicaFetcher:
    return fetchers._fetchers[LEADER]


async def test_pauses_grow_while_the_broker_does_not_lead_yet(
    fetchers: ReplicaFetcherManager, replica: Replica
) -> None:
    where, fetcher = replica.log.topic_partition, fetcher_of(fetchers)
    loop = asyncio.get_running_loop()

    def pause(code: ErrorCode) -> float:
        now = loop.time()
        fetcher._pause(where, code)
        delay = fetcher._paused[where].when() - now
        fetcher._wake(where)
        return delay

    early = [pause(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in range(9)]
    assert early[0] < 0.5, "the image of the leader is some milliseconds late"
    assert all(after > before for before, after in itertools.pairwise(early[:6]))
    assert early[-1] >= 1.0, "replica.fetch.backoff.ms"
    fetchers.follow(replica, LEADER)
    assert pause(ErrorCode.UNKNOWN_LEADER_EPOCH) < 0.5, "another image, another leader epoch"
    assert pause(ErrorCode.KAFKA_STORAGE_ERROR) >= 1.0


def test_a_connection_that_breaks_after_a_long_time_is_opened_again_at_once(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[float] = []
    enough = asyncio.Event()

    async def fetch(self: _ReplicaFetcher, at: Registered) -> None:
        calls.append(asyncio.get_running_loop().time())
        if len(calls) == 4:
            enough.set()
            await asyncio.Event().wait()
        if len(calls) != 2:
            await asyncio.sleep(30)
        raise ConnectionResetError("the broker was restarted")

    monkeypatch.setattr(_ReplicaFetcher, "_fetch", fetch)

    async def main() -> None:
        config = Config(BROKER_KEYS, {})
        registered = Registered("h", 1, 20)
        made = ReplicaFetcherManager(config, 1, lambda leader: registered, ignored, lambda: 10, "A" * 22, lambda: 0)
        made.follow(replica, LEADER)
        await enough.wait()
        await made.close()

    virtual.run(main())
    pauses = [after - before for before, after in itertools.pairwise(calls)]
    assert pauses == pytest.approx([30, 1, 30]), "only a connection that fails early is followed by a pause"


class Ending:
    """A leader that answers one Fetch, and then ends or hangs; and a follower, which may find that it has ended."""

    def __init__(self, replica: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ended: list[tuple[int, int]] = []
        self.epoch = 20
        self.answered = asyncio.Event()
        #: Ends the connection that has answered.
        self.lost = asyncio.Event()
        #: Failures of the follower, and whether there is another one.
        self.failures: list[str] = []
        self.failed = asyncio.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        monkeypatch.setattr(BrokerConnection, "send", self._send)
        monkeypatch.setattr(_ReplicaFetcher, "_handle", lambda fetcher, response, asked: self.answered.set())
        monkeypatch.setattr(_ReplicaFetcher, "_report", lambda fetcher, reason: self._report(reason))
        monkeypatch.setattr(fetcher_module, "decode_fetch_response", lambda version, frame: None)
        config = Config(BROKER_KEYS, {"replica.fetch.backoff.ms": "10"})
        self.fetchers = ReplicaFetcherManager(
            config,
            1,
            lambda leader: Registered(*self.address, self.epoch),
            self._ended,
            lambda: 10,
            "A" * 22,
            lambda: 0,
        )
        self.address: tuple[str, int] = self.socket.getsockname()
        self.fetchers.follow(replica, LEADER)

    async def _send(self, request: Request, version: int, timeout: float) -> bytes:
        if not self.answered.is_set():
            return b""
        await self.lost.wait()
        raise self.error

    error: Exception = ConnectionResetError("connection reset by peer")

    async def _ended(self, node_id: int, epoch: int) -> None:
        self.ended.append((node_id, epoch))

    def _report(self, reason: str) -> None:
        self.failures.append(reason)
        self.failed.set()

    async def fails(self, times: int) -> None:
        """Wait until the follower has failed this often from now on."""
        async with asyncio.timeout(60):
            for _ in range(times):
                self.failed.clear()
                await self.failed.wait()


@pytest.fixture
async def ending(replica: Replica, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Ending]:
    made = Ending(replica, monkeypatch)
    async with asyncio.timeout(60):
        await made.answered.wait()
    yield made
    await made.fetchers.close()
    made.socket.close()


async def test_a_leader_whose_kernel_refuses_connections_has_ended(ending: Ending) -> None:
    ending.socket.close()
    ending.lost.set()
    await ending.fails(4)
    assert set(ending.ended) == {(LEADER, 20)}


async def test_refusals_before_the_first_connection_in_a_broker_epoch_do_not_end_that(ending: Ending) -> None:
    ending.epoch = 30  # it has registered again
    ending.socket.close()
    ending.lost.set()
    await ending.fails(6)
    assert ending.ended == []


@pytest.mark.parametrize("error", [TimeoutError(), ConnectionResetError("reset by a proxy")])
async def test_a_leader_whose_kernel_accepts_connections_has_not_ended(ending: Ending, error: Exception) -> None:
    ending.error = error
    ending.lost.set()
    await ending.fails(8)
    assert ending.ended == []


async def test_a_broker_that_leads_nothing_has_ended() -> None:
    """acks=all waits for it as long as it is in ISRs: its process is noticed by an idle connection."""
    ended: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
    connected = asyncio.Event()

    async def process_ended(node_id: int, epoch: int) -> None:
        ended.put_nowait((node_id, epoch))

    held: list[asyncio.StreamWriter] = []

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        connected.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    registered = BrokerRegistered(LEADER, {"PLAINTEXT": server.sockets[0].getsockname()}, None, 20)
    image = Image("c").apply(registered)

    def find(node_id: int) -> Registered | None:
        broker = image.brokers.get(node_id)
        return None if broker is None else Registered(*broker.endpoints["PLAINTEXT"], broker.epoch)

    config = Config(BROKER_KEYS, {"replica.fetch.backoff.ms": "10"})
    fetchers = ReplicaFetcherManager(config, 1, find, process_ended, lambda: 10, "A" * 22, lambda: 0)
    try:
        fetchers.image_changed(image, [registered])
        async with asyncio.timeout(60):
            await connected.wait()
            server.close()
            for writer in held:
                writer.transport.abort()
            assert await ended.get() == (LEADER, 20)
            # It is fenced, and registers again elsewhere: it is connected again.
            image = image.apply(BrokerFenced(LEADER, 20))
            connected.clear()
            again = await asyncio.start_server(hold, "127.0.0.1", 0)
            returned = BrokerRegistered(LEADER, {"PLAINTEXT": again.sockets[0].getsockname()}, None, 30)
            image = image.apply(returned)
            fetchers.image_changed(image, [returned])
            await connected.wait()
            again.close()
    finally:
        await fetchers.close()
        for writer in held:
            writer.transport.abort()
