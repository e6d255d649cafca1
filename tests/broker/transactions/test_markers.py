"""Markers are sent until they are written: errors, moved leaders, brokers that are down, deleted partitions."""

import asyncio
from collections.abc import AsyncIterator, Collection

import pytest

from barnabas_broker.storage.names import TopicPartition
from barnabas_broker.transactions.markers import Marker, MarkerSender, partition_names
from barnabas_broker.transactions.transaction import SendMarkers
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.broker.transactions.support import NODE, T0, T1, Brokers
from tests.wire import until

E = ErrorCode


class Case:
    """A sender, and what it has reported."""

    def __init__(self) -> None:
        self.brokers = Brokers()
        self.sender = MarkerSender(NODE, self.brokers.leader, self.brokers.write, self.brokers, 60.0)
        self.wanted = True
        self.done: list[TopicPartition] = []

    def written(self, partitions: Collection[TopicPartition]) -> None:
        self.done += partitions

    def send(self, *partitions: TopicPartition, producer_id: int = 7) -> None:
        effect = SendMarkers(producer_id, 3, True, frozenset(partitions), 2)
        self.sender.send(Marker("id", 5, effect, lambda: self.wanted, self.written))

    async def finished(self, count: int) -> list[TopicPartition]:
        await until(lambda: len(self.done) >= count)
        assert self.sender.pending == 0
        return sorted(self.done)


@pytest.fixture
async def case(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Case]:
    monkeypatch.setattr("barnabas_broker.transactions.markers._RETRY_SECONDS", (0.001, 0.01))
    made = Case()
    yield made
    await made.sender.close()


async def test_markers_go_to_the_leaders(case: Case) -> None:
    case.brokers.leaders[T1] = 2
    case.send(T0, T1)
    assert case.done == [], "not during the call"
    assert await case.finished(2) == [T0, T1]
    assert sorted(case.brokers.written) == [(NODE, T0, 7, 3, True), (2, T1, 7, 3, True)]
    (_, request) = case.brokers.requests[0]
    assert isinstance(request, WriteTxnMarkersRequest)
    assert (request.markers[0].coordinator_epoch, request.markers[0].transaction_version) == (5, 2)


async def test_markers_that_come_meanwhile_go_together(case: Case) -> None:
    case.brokers.leaders = {T0: 2, T1: 2}
    case.brokers.release.clear()
    case.send(T0, producer_id=1)
    await asyncio.sleep(0)
    for producer_id in range(2, 12):
        case.send(T1, producer_id=producer_id)
    case.brokers.release.set()
    await case.finished(11)
    assert len(case.brokers.requests) == 2


@pytest.mark.parametrize(
    "error",
    [
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.TRANSACTION_COORDINATOR_FENCED,
        E.CORRUPT_MESSAGE,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
@pytest.mark.parametrize("node_id", [NODE, 2])
async def test_what_fails_is_tried_again(case: Case, error: ErrorCode, node_id: int) -> None:
    case.brokers.leaders = {T0: node_id, T1: node_id}
    case.brokers.fail = [error] * 5
    case.send(T0, T1)
    assert await case.finished(2) == [T0, T1]


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.UNSUPPORTED_FOR_MESSAGE_FORMAT])
async def test_a_partition_without_the_transaction_needs_no_marker(case: Case, error: ErrorCode) -> None:
    case.brokers.fail = [error]
    case.send(T0)
    assert await case.finished(1) == [T0]
    assert case.brokers.written == []


async def test_a_broker_that_is_down_gets_its_markers_later(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    case.brokers.leaders[T0] = 2
    case.brokers.down = {2}
    case.send(T0)
    await until(lambda: len(case.brokers.requests) >= 10)
    assert caplog.text.count("markers cannot be written") == 1
    case.brokers.down = set()
    assert await case.finished(1) == [T0]


async def test_another_leader_takes_over(case: Case) -> None:
    case.brokers.leaders[T0] = -1
    case.send(T0)
    case.brokers.leaders[T0] = 3
    case.sender.leaders_changed()
    await case.finished(1)
    assert case.brokers.written == [(3, T0, 7, 3, True)]


async def test_images_without_another_leader_do_not_shorten_the_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image comes with each change of an ISR: a leader that refuses markers would get them again each time."""
    monkeypatch.setattr("barnabas_broker.transactions.markers._RETRY_SECONDS", (3600.0, 3600.0))
    case = Case()
    case.brokers.leaders = {T0: 2, T1: 2}
    case.brokers.fail = [E.NOT_ENOUGH_REPLICAS] * 2
    case.send(T0, T1)
    await until(lambda: case.sender.pending == 2)
    for _ in range(100):
        case.sender.leaders_changed()
        await asyncio.sleep(0)
    assert [node_id for node_id, _ in case.brokers.requests] == [2]
    case.brokers.leaders[T1] = 3
    case.sender.leaders_changed()
    await until(lambda: case.done == [T1])
    assert [node_id for node_id, _ in case.brokers.requests] == [2, 3], "only the moved one goes on"
    assert case.sender.pending == 1
    await case.sender.close()


async def test_what_a_former_leader_does_not_answer_goes_to_the_next_one(case: Case) -> None:
    case.brokers.leaders = {T0: 2, T1: 2}
    case.brokers.release.clear()
    case.send(T0, T1)
    await until(lambda: len(case.brokers.requests) == 1)
    case.sender.leaders_changed()
    await asyncio.sleep(0)
    assert len(case.brokers.requests) == 1, "it still leads both"
    case.brokers.leaders[T1] = 3
    case.sender.leaders_changed()
    await until(lambda: len(case.brokers.requests) == 3)
    case.brokers.release.set()
    assert await case.finished(2) == [T0, T1]
    assert {marker[:2] for marker in case.brokers.written} == {(2, T0), (3, T1)}


async def test_deleted_partitions_need_no_marker(case: Case) -> None:
    case.brokers.leaders[T0] = None
    case.send(T0, T1)
    assert await case.finished(2) == [T0, T1]
    assert [marker[1] for marker in case.brokers.written] == [T1]


async def test_an_unexpected_error_or_an_answer_that_lacks_a_partition_is_tried_again(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[Exception | None] = [RuntimeError("a bug"), None]

    async def write(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if outcomes:
            outcome = outcomes.pop(0)
            if outcome is not None:
                raise outcome
            return WriteTxnMarkersResponse(markers=[])
        return await case.brokers.write(request)

    monkeypatch.setattr(case.sender, "_write", write)
    case.send(T0)
    assert await case.finished(1) == [T0]
    assert outcomes == []


async def test_what_is_not_wanted_any_more_is_dropped(case: Case) -> None:
    case.brokers.down = {2}
    case.brokers.leaders[T0] = 2
    case.send(T0)
    await until(lambda: len(case.brokers.requests) >= 3)
    case.wanted = False
    await until(lambda: not case.sender.pending)
    case.brokers.down = set()
    case.sender.leaders_changed()
    await asyncio.sleep(0)
    assert (case.done, case.brokers.written) == ([], [])


async def test_after_close_nothing_is_sent(case: Case) -> None:
    case.brokers.leaders[T0] = -1
    case.send(T0)
    await case.sender.close()
    case.send(T1)
    assert case.sender.pending == 0


def test_long_lists_of_partitions_are_cut_in_log_lines() -> None:
    many = [TopicPartition("t", index) for index in range(12)]
    assert partition_names(many[:2]) == "t-0,t-1"
    assert partition_names(many).endswith("t-9 and 2 more")
