"""Futures that wait for offsets."""

from barnabas_broker.storage.waiters import OffsetWaiters
from barnabas_protocol.errors import ErrorCode, KafkaError


async def test_a_mark_completes_the_futures_up_to_it() -> None:
    waiters: OffsetWaiters[int] = OffsetWaiters()
    third, first, second = waiters.wait(3), waiters.wait(1), waiters.wait(2)
    assert not waiters.reached(0)
    assert waiters.reached(1)
    waiters.complete(2, 7)
    assert (first.result(), second.result(), third.done()) == (7, 7, False)
    waiters.complete(3, 8)
    assert third.result() == 8
    assert not waiters


async def test_futures_fail_from_the_end() -> None:
    waiters: OffsetWaiters[None] = OffsetWaiters()
    futures = [waiters.wait(offset) for offset in range(4)]
    waiters.fail_after(2, ErrorCode.NOT_LEADER_OR_FOLLOWER, "truncated")
    assert [future.done() for future in futures] == [False, False, False, True]
    waiters.fail_all(ErrorCode.KAFKA_STORAGE_ERROR, "no space")
    codes = []
    for future in futures:
        error = future.exception()
        assert isinstance(error, KafkaError)
        codes.append(error.code)
    assert codes == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ]


async def test_cancelled_futures_are_skipped_and_dropped() -> None:
    waiters: OffsetWaiters[None] = OffsetWaiters()
    for offset in (5, 6, 6):
        waiters.wait(offset).cancel()
    kept = waiters.wait(4)
    assert len(waiters) == 1
    waiters.complete(9, None)
    assert kept.done()
    assert not waiters
