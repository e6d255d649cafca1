"""The transaction coordinator with a log in memory: requests, loading, timeouts, expiry, verification, memory."""

import asyncio
import gc
import re
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from barnabas_broker.transactions.service import HostedTransaction
from barnabas_broker.transactions.transaction import Decision, Transaction, TxnReply
from barnabas_protocol.backoff import Backoff
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import TRANSACTIONS_TOPIC
from barnabas_protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from barnabas_protocol.records import build_batch
from tests.broker.transactions.support import NODE, T0, T1, Coordinator
from tests.sampling import slow
from tests.wire import until

E = ErrorCode
DAY_MS = 24 * 3_600_000
WEEK_MS = 7 * DAY_MS


@pytest.fixture
async def coordinator() -> AsyncIterator[Coordinator]:
    made = Coordinator()
    await made.load()
    yield made
    await made.transactions.close()


async def swept(coordinator: Coordinator, which: str) -> None:
    """Do what the coordinator does after each interval."""
    for _ in getattr(coordinator.transactions, which)():
        await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_a_transaction_from_its_begin_to_its_end(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    assert (who.error, who.producer_id, who.producer_epoch) == (E.NONE, 101, 0)
    assert await coordinator.add(who, [T0]) is E.NONE
    assert await coordinator.add(who, [T0, T1]) is E.NONE
    assert (coordinator.state(), coordinator.transactions.open) == ("Ongoing", 1)
    coordinator.ms += 500
    assert coordinator.transactions.oldest_ms == 500
    assert (await coordinator.end(who)).error is E.NONE
    assert await coordinator.settled() == "CompleteCommit"
    assert sorted(coordinator.brokers.written) == [(NODE, T0, 101, 0, True), (NODE, T1, 101, 0, True)]
    assert coordinator.transactions.metrics.ended == {("commit", "client"): 1}
    assert (coordinator.transactions.open, coordinator.transactions.oldest_ms) == (0, 0)


async def test_requests_that_cannot_be_right(coordinator: Coordinator) -> None:
    assert (await coordinator.init("")).error is E.INVALID_REQUEST
    assert (await coordinator.init("x" * 40_000)).error is E.INVALID_REQUEST
    for timeout in (0, -1, 900_001):
        assert (await coordinator.init(timeout_ms=timeout)).error is E.INVALID_TRANSACTION_TIMEOUT
    nobody = TxnReply(E.NONE, 1, 1)
    assert await coordinator.add(nobody, name="") is E.INVALID_REQUEST
    assert await coordinator.add(nobody) is E.INVALID_PRODUCER_ID_MAPPING
    assert (await coordinator.end(nobody, name="")).error is E.INVALID_REQUEST
    assert (await coordinator.end(nobody)).error is E.INVALID_PRODUCER_ID_MAPPING
    assert coordinator.transactions.transactional_ids == 0
    for name, code in (("", E.INVALID_REQUEST), ("id", E.TRANSACTIONAL_ID_NOT_FOUND)):
        with pytest.raises(KafkaError) as raised:
            coordinator.transactions.describe(name)
        assert raised.value.code is code


async def test_a_broker_that_is_not_the_coordinator_says_so() -> None:
    coordinator = Coordinator()
    assert (await coordinator.init()).error is E.NOT_COORDINATOR
    assert coordinator.transactions.verify_here("id", 1, 1, [T0]) == {T0: E.NOT_COORDINATOR}
    coordinator.log.put(0, bytearray(await _batch()))
    loading = asyncio.create_task(coordinator.load())
    await asyncio.sleep(0)
    with pytest.raises(KafkaError) as raised:
        coordinator.transactions.listed()
    assert raised.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
    await loading
    await coordinator.transactions.close()
    assert (await coordinator.init()).error is E.COORDINATOR_NOT_AVAILABLE


async def _batch() -> bytes:
    """A batch of ``__transaction_state``."""
    other = Coordinator()
    await other.load()
    await other.init("other")
    await other.transactions.close()
    return next(batch for batches in other.log.batches.values() for batch in batches)


async def test_while_no_producer_id_can_be_had_clients_are_told_to_try_again(coordinator: Coordinator) -> None:
    coordinator.refuse_ids = True
    assert (await coordinator.init()).error is E.COORDINATOR_NOT_AVAILABLE
    coordinator.refuse_ids = False
    assert (await coordinator.init()).error is E.NONE


async def test_an_id_that_could_not_be_written_is_forgotten(coordinator: Coordinator) -> None:
    coordinator.log.fail = E.NOT_ENOUGH_REPLICAS
    assert (await coordinator.init()).error is E.COORDINATOR_NOT_AVAILABLE
    assert coordinator.transactions.transactional_ids == 0


async def test_two_producers_with_the_same_new_id_share_its_producer_id(coordinator: Coordinator) -> None:
    one, other = await asyncio.gather(coordinator.init(), coordinator.init())
    assert (one.error, other.error, one.producer_id) == (E.NONE, E.NONE, other.producer_id)
    assert (one.producer_epoch, other.producer_epoch) == (0, 1), "the second one fences the first one"
    assert coordinator.transactions.transactional_ids == 1


async def test_a_new_producer_aborts_and_fences_the_old_one(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    old = await coordinator.init()
    await coordinator.add(old)
    assert (await coordinator.init()).error is E.CONCURRENT_TRANSACTIONS
    assert await coordinator.settled() == "CompleteAbort"
    assert coordinator.brokers.written == [(NODE, T0, 101, 1, False)]
    new = await coordinator.init()
    assert (new.error, new.producer_epoch) == (E.NONE, 2)
    assert await coordinator.add(old) is E.PRODUCER_FENCED
    assert (await coordinator.end(old)).error is E.PRODUCER_FENCED
    assert coordinator.transactions.metrics.ended == {("abort", "fenced"): 1}
    lines = [record.getMessage() for record in caplog.records if "transaction aborted" in record.getMessage()]
    assert len(lines) == 1
    assert re.search(r"client_id=.?client.*partitions=.?t-0", lines[0])


async def test_overdue_transactions_are_aborted_and_slow_ones_reported(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.ms += 29_000
    await swept(coordinator, "_check_open")
    assert coordinator.transactions.metrics.slow == 0
    for _ in range(2):
        coordinator.ms += 10_000
        await swept(coordinator, "_check_open")
        assert coordinator.transactions.metrics.slow == 1, "one warning for each transaction"
    assert coordinator.state() == "Ongoing"
    coordinator.ms += 11_001
    await swept(coordinator, "_check_open")
    assert await coordinator.settled() == "CompleteAbort"
    assert coordinator.transactions.metrics.ended == {("abort", "timeout"): 1}
    assert coordinator.transactions._timed_out._newest["id"].open_ms >= 0
    assert (await coordinator.end(who)).error is E.PRODUCER_FENCED
    text = "\n".join(record.getMessage() for record in caplog.records)
    assert "transaction is open for long" in text
    assert "its timeout is over" in text


@pytest.mark.parametrize("moved", [False, True])
async def test_a_transaction_ends_after_its_timeout_when_the_time_of_day_is_set_back(
    coordinator: Coordinator, moved: bool
) -> None:
    who = await coordinator.init(timeout_ms=3_000)
    await coordinator.add(who)
    coordinator.set_ms -= DAY_MS
    if moved:
        await coordinator.restart()
    coordinator.ms += 2_000
    assert coordinator.transactions.oldest_ms == 2_000
    await swept(coordinator, "_check_open")
    assert coordinator.state() == "Ongoing"
    coordinator.ms += 1_001
    await swept(coordinator, "_check_open")
    assert await coordinator.settled() == "CompleteAbort"


async def test_a_time_of_day_that_is_set_forward_aborts_no_transaction(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.set_ms += DAY_MS
    await swept(coordinator, "_check_open")
    assert (coordinator.state(), coordinator.transactions.metrics.slow) == ("Ongoing", 0)
    assert (await coordinator.end(who)).error is E.NONE


async def test_the_intervals_are_those_of_the_configuration() -> None:
    coordinator = Coordinator(transaction_abort_timed_out_transaction_cleanup_interval_ms="1")
    await coordinator.load()
    who = await coordinator.init(timeout_ms=1)
    await coordinator.add(who)
    coordinator.ms += 10
    await until(lambda: coordinator.state() == "CompleteAbort")
    await coordinator.transactions.close()


async def test_ids_that_are_not_used_expire(coordinator: Coordinator) -> None:
    for number in range(2_500):
        coordinator.transactions.init_producer_id(f"id-{number}", 1000, None, "")
    busy = await coordinator.init()
    await coordinator.add(busy)
    assert coordinator.transactions.transactional_ids == 2_501
    coordinator.ms += WEEK_MS - 1
    await swept(coordinator, "_expire")
    assert coordinator.transactions.transactional_ids == 2_501
    coordinator.ms += 1
    await swept(coordinator, "_expire")
    assert coordinator.transactions.transactional_ids == 1, "an open transaction stays"
    await coordinator.restart()
    assert coordinator.transactions.transactional_ids == 1, "the tombstones are in the log"


@pytest.mark.parametrize("replayed", [slow(False), True])
async def test_an_id_that_is_not_used_takes_little_memory_until_it_expires(
    coordinator: Coordinator, replayed: bool
) -> None:
    many = 5_000
    await coordinator.init("first")
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(many):
            coordinator.transactions.init_producer_id(f"id-{number:08d}", 1000, None, "")
            if not number % 100:
                await asyncio.sleep(0)
        await until(lambda: all(each.append is None for each in hosted(coordinator)))
        if replayed:
            await coordinator.restart()
        written = sum(len(batch) for batches in coordinator.log.batches.values() for batch in batches)
        gc.collect()
        each = (tracemalloc.get_traced_memory()[0] - written) / many
        assert each < 550  # the sets and tuples that stand for nothing are shared
        coordinator.ms += WEEK_MS
        coordinator.log.batches.clear()
        await swept(coordinator, "_expire")
        await until(lambda: coordinator.transactions.transactional_ids == 0)
        coordinator.log.batches.clear()
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / many < 50
    finally:
        tracemalloc.stop()


def hosted(coordinator: Coordinator) -> list[HostedTransaction]:
    return [one for home in coordinator.transactions.runtime.partitions.values() for one in home.hosted.values()]


@pytest.mark.parametrize("committed", [True, False])
async def test_the_next_coordinator_completes_what_was_decided(coordinator: Coordinator, committed: bool) -> None:
    who = await coordinator.init()
    await coordinator.add(who, [T0, T1])
    coordinator.brokers.release.clear()
    assert (await coordinator.end(who, committed)).error is E.NONE
    assert coordinator.state().startswith("Prepare")
    await coordinator.restart()
    coordinator.brokers.release.set()
    assert await coordinator.settled() == ("CompleteCommit" if committed else "CompleteAbort")
    assert {marker[1:] for marker in coordinator.brokers.written} == {
        (T0, 101, 0, committed),
        (T1, 101, 0, committed),
    }


async def test_the_next_coordinator_knows_open_transactions_and_their_timeouts(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    await coordinator.restart()
    assert coordinator.transactions.open == 1
    assert coordinator.transactions.verify_here("id", who.producer_id, 0, [T0, T1]) == {
        T0: E.NONE,
        T1: E.TRANSACTION_ABORTABLE,
    }
    coordinator.ms += 60_001
    await swept(coordinator, "_check_open")
    assert await coordinator.settled() == "CompleteAbort"


async def test_requests_that_wait_for_the_log_fail_when_the_partition_moves(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    coordinator.log.hold = True
    waiting = coordinator.transactions.add_partitions("id", who.producer_id, 0, [T0], 0, "")
    await asyncio.sleep(0)
    coordinator.transactions.runtime.unload(coordinator.transactions.runtime.partition_for("id"))
    assert (await waiting).error is E.NOT_COORDINATOR
    coordinator.log.release()
    assert (await coordinator.init()).error is E.NOT_COORDINATOR


async def test_markers_of_a_partition_that_has_moved_are_left_to_its_new_coordinator(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.brokers.fail = [E.NOT_LEADER_OR_FOLLOWER]
    await coordinator.end(who)
    await until(lambda: not coordinator.brokers.fail)
    coordinator.transactions.runtime.unload(coordinator.transactions.runtime.partition_for("id"))
    coordinator.transactions.topics_changed({"t": 2, TRANSACTIONS_TOPIC: 4})
    assert coordinator.transactions.markers.pending == 0
    assert coordinator.brokers.written == []


async def test_the_end_that_cannot_be_written_is_tried_again(
    coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator.transactions.runtime, "_backoff", Backoff(0.001, 0.001))
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.brokers.release.clear()
    await coordinator.end(who)
    coordinator.log.fail = E.NOT_ENOUGH_REPLICAS
    before = coordinator.log.appends
    coordinator.brokers.release.set()
    await until(lambda: coordinator.log.appends >= before + 3)
    assert coordinator.state() == "PrepareCommit"
    coordinator.log.fail = E.NONE
    await until(lambda: coordinator.state() == "CompleteCommit")


async def test_version_2_gives_an_epoch_to_each_transaction(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    for epoch in range(1, 4):
        added = await coordinator.transactions.verify("id", who.producer_id, who.producer_epoch, [T0], add=True)
        assert added == {T0: E.NONE}
        who = await coordinator.end(who, version=2)
        assert (who.error, who.producer_epoch) == (E.NONE, epoch)
        await coordinator.settled()
    assert [marker[3] for marker in coordinator.brokers.written] == [1, 2, 3]


async def test_verification_here(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    verify = coordinator.transactions.verify
    assert await verify("id", who.producer_id, 0, [T0], add=False) == {T0: E.TRANSACTION_ABORTABLE}
    await coordinator.add(who)
    assert await verify("id", who.producer_id, 0, [T0], add=False) == {T0: E.NONE}
    # Producers know the older name of a fence.
    assert await verify("id", who.producer_id, 7, [T0], add=False) == {T0: E.INVALID_PRODUCER_EPOCH}
    assert await verify("id", who.producer_id, 7, [T0], add=True) == {T0: E.INVALID_PRODUCER_EPOCH}
    assert await verify("other", who.producer_id, 0, [T0], add=False) == {T0: E.INVALID_PRODUCER_ID_MAPPING}
    assert coordinator.transactions.verify_here("", 1, 1, [T0]) == {T0: E.INVALID_REQUEST}


async def test_adding_waits_for_the_markers_of_the_last_transaction(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.brokers.release.clear()
    who = await coordinator.end(who, version=2)
    adding = coordinator.transactions.verify("id", who.producer_id, who.producer_epoch, [T1], add=True)
    await asyncio.sleep(0)
    coordinator.brokers.release.set()
    assert await adding == {T1: E.NONE}
    coordinator.brokers.release.clear()
    who = await coordinator.end(who, version=2)
    coordinator.ms += 1
    adding = coordinator.transactions.verify("id", who.producer_id, who.producer_epoch, [T1], add=True)
    await asyncio.sleep(0)
    coordinator.ms += 1000
    assert await adding == {T1: E.CONCURRENT_TRANSACTIONS}, "after a while the client asks again"
    coordinator.brokers.release.set()


async def ended(coordinator: Coordinator) -> TxnReply:
    """A producer whose transaction is committed, but has no markers yet."""
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.brokers.release.clear()
    assert (await coordinator.end(who)).error is E.NONE
    return who


async def test_requests_wait_for_the_markers_of_the_last_transaction(coordinator: Coordinator) -> None:
    """A client that is refused waits for 20 ms and more; the markers take some ms."""
    who = await ended(coordinator)
    pair = who.producer_id, who.producer_epoch
    adding = coordinator.transactions.add_partitions("id", *pair, [T1], 0, "client")
    ending = coordinator.transactions.end("id", *pair, True, 0, "client")
    beginning = coordinator.transactions.init_producer_id("id", 60_000, None, "client")
    for _ in range(3):
        await asyncio.sleep(0)
        assert not adding.done() and not ending.done() and not beginning.done()
    coordinator.brokers.release.set()
    assert (await adding).error is E.NONE
    assert (await ending).error is E.NONE, "in their order: it ends the transaction that was just begun"
    new = await beginning
    assert (new.error, new.producer_epoch) == (E.NONE, 1)
    assert not coordinator.transactions.runtime._waiting
    assert [partition for _, partition, *_ in coordinator.brokers.written] == [T0, T1]


async def test_requests_do_not_wait_for_long() -> None:
    coordinator = Coordinator(add_partitions_to_txn_retry_backoff_max_ms="10")
    await coordinator.load()
    who = await ended(coordinator)
    async with asyncio.timeout(60):
        assert await coordinator.add(who) is E.CONCURRENT_TRANSACTIONS
    assert not coordinator.transactions.runtime._waiting
    coordinator.brokers.release.set()
    assert await coordinator.settled() == "CompleteCommit"
    assert await coordinator.add(who) is E.NONE
    await coordinator.transactions.close()


async def test_each_of_many_requests_about_one_id_is_decided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all that wait again and again, each time that one of them has made its change."""
    coordinator = Coordinator(add_partitions_to_txn_retry_backoff_max_ms="60000")
    await coordinator.load()
    await coordinator.init()
    decide, decided = Transaction.init_producer_id, 0

    def counted(self: Transaction, *given: Any) -> Decision:
        nonlocal decided
        decided += 1
        return decide(self, *given)

    monkeypatch.setattr(Transaction, "init_producer_id", counted)
    asked = 500
    async with asyncio.timeout(60):
        answers = await asyncio.gather(*(coordinator.init() for _ in range(asked)))
    assert decided <= 2 * asked
    done = [each.producer_epoch for each in answers if each.error is E.NONE]
    assert done == list(range(1, len(done) + 1)), "in their order"
    assert done
    assert {each.error for each in answers} == {E.NONE, E.CONCURRENT_TRANSACTIONS}
    assert not coordinator.transactions.runtime._waiting
    await coordinator.transactions.close()


async def test_requests_that_wait_for_markers_fail_when_the_partition_moves(coordinator: Coordinator) -> None:
    who = await ended(coordinator)
    adding = coordinator.transactions.add_partitions("id", who.producer_id, who.producer_epoch, [T1], 0, "client")
    await asyncio.sleep(0)
    coordinator.transactions.runtime.unload(coordinator.transactions.runtime.partition_for("id"))
    assert adding.done() and (await adding).error is E.NOT_COORDINATOR
    coordinator.brokers.release.set()


def answer(code: ErrorCode, name: str = "id") -> AddPartitionsToTxnResponse:
    partition = AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=code)
    topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=[partition])
    result = AddPartitionsToTxnResult(transactional_id=name, topic_results=[topic])
    return AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=[result])


async def test_requests_to_other_brokers_take_request_timeout_ms() -> None:
    coordinator = Coordinator(request_timeout_ms="1234")
    await coordinator.load()
    home = T0._replace(topic=TRANSACTIONS_TOPIC, partition=coordinator.transactions.runtime.partition_for("other"))
    coordinator.brokers.leaders = {T0: 2, home: 2}
    coordinator.brokers.answers = [answer(E.NONE, "other")]
    who = await coordinator.init()
    await coordinator.add(who)
    await coordinator.end(who)
    await coordinator.settled()
    assert await coordinator.transactions.verify("other", 5, 6, [T0], add=False) == {T0: E.NONE}
    assert coordinator.brokers.timeouts == [1.234] * 2
    await coordinator.transactions.close()


@pytest.mark.parametrize("add", [True, False])
async def test_verification_on_another_broker(coordinator: Coordinator, add: bool) -> None:
    home = coordinator.transactions.runtime.partition_for("id")
    brokers, verify = coordinator.brokers, coordinator.transactions.verify
    where = T0._replace(topic=TRANSACTIONS_TOPIC, partition=home)
    brokers.leaders[where] = 2
    brokers.answers = [answer(E.NONE), answer(E.PRODUCER_FENCED), answer(E.NONE, "other")]
    assert await verify("id", 5, 6, [T0], add=add) == {T0: E.NONE}
    node_id, request = brokers.requests[0]
    assert isinstance(request, AddPartitionsToTxnRequest)
    (asked,) = request.transactions
    assert (node_id, asked.transactional_id, asked.producer_id, asked.producer_epoch) == (2, "id", 5, 6)
    assert asked.verify_only is not add
    assert await verify("id", 5, 6, [T0], add=add) == {T0: E.INVALID_PRODUCER_EPOCH}
    assert await verify("id", 5, 6, [T0], add=add) == {T0: E.INVALID_TXN_STATE}, "an answer about something else"
    brokers.answers = [AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=E.CLUSTER_AUTHORIZATION_FAILED)]
    assert await verify("id", 5, 6, [T0], add=add) == {T0: E.INVALID_TXN_STATE}
    brokers.down = {2}
    assert await verify("id", 5, 6, [T0], add=add) == {T0: E.NETWORK_EXCEPTION}
    for gone in (-1, None):
        brokers.leaders[where] = gone
        assert await verify("id", 5, 6, [T0], add=add) == {T0: E.COORDINATOR_NOT_AVAILABLE}


async def test_a_coordinator_that_refuses_to_verify_is_logged_once_a_minute(
    coordinator: Coordinator, caplog: pytest.LogCaptureFixture
) -> None:
    transactions, brokers = coordinator.transactions, coordinator.brokers
    home = transactions.runtime.partition_for("id")
    brokers.leaders[T0._replace(topic=TRANSACTIONS_TOPIC, partition=home)] = 2
    for error in [E.CLUSTER_AUTHORIZATION_FAILED] * 3 + [E.UNSUPPORTED_VERSION, E.CLUSTER_AUTHORIZATION_FAILED]:
        brokers.answers = [AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=error)]
        await transactions.verify("id", 5, 6, [T0], add=False)
    assert caplog.text.count("the coordinator refuses to verify") == 2, "one line for each cause"
    coordinator.ms += 60_000
    list(transactions._check_open())
    assert caplog.text.count("the coordinator refuses to verify") == 3
    assert "repeated=3" in caplog.text


@pytest.mark.parametrize("add", [True, False])
async def test_a_question_to_a_former_coordinator_is_given_up(coordinator: Coordinator, add: bool) -> None:
    """It may be cut off: a Produce with a transaction would wait for request.timeout.ms."""
    brokers, transactions = coordinator.brokers, coordinator.transactions
    where = T0._replace(topic=TRANSACTIONS_TOPIC, partition=transactions.runtime.partition_for("id"))
    brokers.leaders[where] = 2
    brokers.release.clear()
    verified = transactions.verify("id", 5, 6, [T0], add=add)
    await until(lambda: len(brokers.requests) == 1)
    transactions.topics_changed({})
    await asyncio.sleep(0)
    assert not verified.done(), "it still coordinates"
    brokers.leaders[where] = 3
    transactions.topics_changed({})
    async with asyncio.timeout(60):
        assert await verified == {T0: E.NOT_COORDINATOR}
    brokers.release.set()


async def test_a_broker_that_closes_answers_what_waits() -> None:
    coordinator = Coordinator()
    await coordinator.load()
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.brokers.release.clear()
    await coordinator.end(who, version=2)
    adding = coordinator.transactions.verify("id", who.producer_id, 1, [T1], add=True)
    new = coordinator.transactions.init_producer_id("new", 1000, None, "")
    await asyncio.sleep(0)
    async with asyncio.timeout(60):
        await coordinator.transactions.close()
        assert (await adding)[T1] is not E.NONE
        assert (await new).error is not E.NONE


async def test_corrupt_records_are_reported_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    coordinator = Coordinator()
    coordinator.log.put(0, build_batch([(b"\x00\x00\x00\x01a", b"rubbish", (), 0)]))
    await coordinator.load()
    assert "corrupt record in __transaction_state" in caplog.text
    assert coordinator.transactions.runtime.loaded == {0, 1, 2, 3}
    await coordinator.transactions.close()


async def test_events_of_slow_and_aborted_transactions(coordinator: Coordinator) -> None:
    quick, slow, late = [await coordinator.init(name) for name in ("quick", "slow", "late")]
    for who, name in ((quick, "quick"), (slow, "slow"), (late, "late")):
        await coordinator.add(who, (T0, T1), name)
    await coordinator.end(quick, name="quick")
    coordinator.ms += 31_000
    for _ in range(2):
        await swept(coordinator, "_check_open")
    await coordinator.end(slow, name="slow")
    coordinator.ms += 30_000
    await swept(coordinator, "_check_open")
    assert await coordinator.settled("late") == "CompleteAbort"
    written = coordinator.events.written
    said = [(each["transactional_id"], each["type"], each.get("committed"), each.get("cause")) for each in written]
    assert said == [
        ("slow", "transaction_slow", None, None),
        ("late", "transaction_slow", None, None),
        ("slow", "transaction_ended", True, "client"),
        ("late", "transaction_ended", False, "timeout"),
    ], "nothing is said of one that commits in time"
    one = written[0]
    assert (one["producer_id"], one["producer_epoch"], one["client_id"]) == (slow.producer_id, 0, "client")
    assert (one["open_ms"], one["timeout_ms"], one["time"]) == (31_000, 60_000, coordinator.ms - 30_000)
    assert (one["partitions"], one["partition_count"]) == ({"t": [0, 1]}, 2)

    again = await coordinator.init("quick")
    await coordinator.add(again, name="quick")
    await coordinator.init("quick")
    await until(lambda: len(written) == 5)
    assert (written[4]["transactional_id"], written[4]["committed"], written[4]["cause"]) == ("quick", False, "fenced")


async def test_events_that_are_not_written_yet_are_written_at_a_stop(coordinator: Coordinator) -> None:
    who = await coordinator.init()
    await coordinator.add(who)
    coordinator.ms += 31_000
    for _ in coordinator.transactions._check_open():
        pass
    assert not coordinator.events.written
    await coordinator.transactions.close()
    assert [each["type"] for each in coordinator.events.written] == ["transaction_slow"]
