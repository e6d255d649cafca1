"""Waiting until what was written is as durable as it must be, once for all: Produce, the coordinators' appends and
DeleteRecords.

A condition is a future: an fsync (:meth:`.Log.durable`), the in-sync replicas (:meth:`.Replica.replicated`), the low
watermark (:meth:`.Replica.deleted_everywhere`). :class:`Completion` waits for the conditions of one partition,
:class:`DelayedOperation` for those of a request, within its timeout.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas_protocol.errors import ErrorCode, KafkaError

R = TypeVar("R")

#: Called once: without an error when all conditions are met, or with the first error.
Completed = Callable[[KafkaError | None], None]


class Completion:
    """Calls `completed` once, when all of its conditions are met or the first one fails.

    Args:
        conditions: at least one future.
        completed: called in the callback of the future that decides.
    """

    __slots__ = ("_completed", "_conditions", "_left")

    def __init__(self, conditions: "Sequence[asyncio.Future[Any]]", completed: Completed) -> None:
        self._conditions = conditions
        self._completed = completed
        self._left = len(conditions)
        for condition in conditions:
            condition.add_done_callback(self._met)

    def _met(self, condition: "asyncio.Future[Any]") -> None:
        # Also for a condition that no longer matters: asyncio logs exceptions that are never retrieved.
        error = _error(condition)
        if not self._left:
            return
        self._left = self._left - 1 if error is None else 0
        if not self._left:
            self._completed(error)

    def expire(self) -> None:
        """Fail with REQUEST_TIMED_OUT unless the conditions are met; they are cancelled."""
        if self._left:
            self._left = 0
            for condition in self._conditions:
                condition.cancel()
            self._completed(KafkaError(ErrorCode.REQUEST_TIMED_OUT))


def _error(condition: "asyncio.Future[Any]") -> KafkaError | None:
    if condition.cancelled():
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    error = condition.exception()
    if error is None or isinstance(error, KafkaError):
        return error
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))


class DelayedOperation(Generic[R]):
    """A response that waits for conditions of several partitions (Kafka's ``DelayedProduce`` and
    ``DelayedDeleteRecords``)."""

    def __init__(self) -> None:
        self._added: list[tuple[Sequence[asyncio.Future[Any]], Completed]] = []
        self._left = 0

    def add(self, conditions: "Sequence[asyncio.Future[Any]]", completed: Completed) -> None:
        """Wait for the conditions of one partition, if there are any.

        Args:
            conditions: futures; none if the partition is done.
            completed: writes the outcome into the response; REQUEST_TIMED_OUT if the timeout was first.
        """
        if conditions:
            self._added.append((conditions, completed))

    def respond(self, response: R, timeout: float | None) -> "R | asyncio.Future[R]":
        """The response at once if nothing waits. Otherwise a future of it, done when every partition is completed.

        Args:
            response: what the `completed` callbacks write into.
            timeout: seconds until partitions that are not completed fail; None to wait without end.
        """
        if not self._added:
            return response
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[R] = loop.create_future()
        self._left = len(self._added)
        completions: list[Completion] = []

        def expire() -> None:
            for completion in completions:
                completion.expire()

        timer = None if timeout is None else loop.call_later(max(timeout, 0), expire)

        def done(completed: Completed, error: KafkaError | None) -> None:
            completed(error)
            self._left -= 1
            if not self._left:
                if timer is not None:
                    timer.cancel()
                if not answered.done():
                    answered.set_result(response)

        completions += [Completion(conditions, partial(done, completed)) for conditions, completed in self._added]
        return answered
