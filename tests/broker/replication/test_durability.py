"""Waiting for several conditions: completed once, by the last success, the first error or the timeout."""

import asyncio

from barnabas_broker.replication.durability import Completion, DelayedOperation
from barnabas_protocol.errors import ErrorCode, KafkaError

Outcomes = list[ErrorCode | None]


def future() -> "asyncio.Future[None]":
    return asyncio.get_running_loop().create_future()


def note(outcomes: Outcomes, error: KafkaError | None) -> None:
    outcomes.append(None if error is None else error.code)


async def turn() -> None:
    """Let the callbacks of futures run."""
    await asyncio.sleep(0)


async def test_a_completion_waits_for_all_conditions() -> None:
    first, second, outcomes = future(), future(), Outcomes()
    Completion([first, second], lambda error: note(outcomes, error))
    first.set_result(None)
    await turn()
    assert outcomes == []
    second.set_result(None)
    await turn()
    assert outcomes == [None]


async def test_the_first_error_completes_and_later_ones_are_ignored() -> None:
    first, second, outcomes = future(), future(), Outcomes()
    completion = Completion([first, second], lambda error: note(outcomes, error))
    first.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    await turn()
    second.set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    await turn()
    completion.expire()
    assert outcomes == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


async def test_other_errors_and_cancellation_are_storage_errors() -> None:
    failed, cancelled, outcomes = future(), future(), Outcomes()
    Completion([failed], lambda error: note(outcomes, error))
    Completion([cancelled], lambda error: note(outcomes, error))
    failed.set_exception(OSError("no space"))
    cancelled.cancel()
    await turn()
    assert outcomes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]


async def test_completions_keep_the_order_of_their_conditions() -> None:
    shared = [future() for _ in range(3)]
    synced = future()
    order: list[int] = []
    Completion([synced, shared[0]], lambda _: order.append(0))
    Completion([shared[1]], lambda _: order.append(1))
    Completion([shared[2]], lambda _: order.append(2))
    synced.set_result(None)
    await turn()
    for each in shared:
        each.set_result(None)
    await turn()
    assert order == [0, 1, 2]


async def test_a_response_without_conditions_is_not_delayed() -> None:
    delayed: DelayedOperation[str] = DelayedOperation()
    delayed.add([], lambda error: None)
    assert delayed.respond("response", 1.0) == "response"


async def test_a_response_waits_for_every_partition() -> None:
    delayed: DelayedOperation[str] = DelayedOperation()
    first, second, outcomes = future(), future(), Outcomes()
    for each in (first, second):
        delayed.add([each], lambda error: note(outcomes, error))
    answered = delayed.respond("response", None)
    assert isinstance(answered, asyncio.Future)
    first.set_exception(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
    await turn()
    assert not answered.done()
    second.set_result(None)
    assert await answered == "response"
    assert outcomes == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, None]


async def test_after_the_timeout_incomplete_partitions_fail_and_their_conditions_are_cancelled() -> None:
    delayed: DelayedOperation[str] = DelayedOperation()
    done, pending, outcomes = future(), future(), Outcomes()
    for each in (done, pending):
        delayed.add([each], lambda error: note(outcomes, error))
    answered = delayed.respond("response", 0)
    done.set_result(None)
    assert isinstance(answered, asyncio.Future)
    assert await answered == "response"
    assert outcomes == [None, ErrorCode.REQUEST_TIMED_OUT]
    assert pending.cancelled()
