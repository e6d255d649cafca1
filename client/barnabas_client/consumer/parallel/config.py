"""Settings of ``Consumer.run``, checked once."""

import inspect
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, Final

from barnabas_client.consumer.parallel.work import Order
from barnabas_client.producer.producer import Producer
from barnabas_client.structs import ConsumerRecord

#: Handles a record: a coroutine function, or a plain function for an executor. The result is ignored.
Handler = Callable[[ConsumerRecord], Awaitable[Any] | Any]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """How records are handled. Times are in milliseconds. ``Consumer.run`` takes its defaults from here.

    Attributes:
        concurrency: how many handlers run at a time.
        order: "partition": records of a partition one after the other; "key": records of a partition with the same key
            one after the other, those without a key in any order; "none": in any order.
        executor: the thread or process pool that runs `handler`, which is a plain function then. None: it is a
            coroutine function and runs as a task. For processes, the handler must be importable and records picklable.
        retries: how often a record is tried again after its handler raised.
        retry_backoff_ms: the pause before the first retry; it doubles up to `retry_backoff_max_ms`. Other records are
            handled in the meantime, except for those that must not overtake this one.
        dead_letter_topic: the topic for records without attempts left. None: the first one ends the run with the
            handler's error.
        producer: a started producer for the dead letters; it receives keys and values as they were consumed. None makes
            one from the consumer's settings.
        max_in_flight: the limit of records from the first unfinished one on, divided among the partitions; a partition
            at its limit is paused. After a crash, up to so many may be handled twice.
        max_in_flight_bytes: likewise for the bytes of keys and values; one poll may exceed it.
        drain_timeout_ms: how long running handlers may take to finish when their partition is revoked or the run ends.
            Then they are cancelled, which a function in a thread or process does not notice. None means half of the
            rebalance timeout.
        commit_interval_ms: how often finished records are committed, beside rebalances and the end of the run.
    """

    concurrency: int = 10
    order: str = "partition"
    executor: Executor | None = None
    retries: int = 3
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    dead_letter_topic: str | None = None
    producer: Producer | None = None
    max_in_flight: int = 10_000
    max_in_flight_bytes: int = 67_108_864
    drain_timeout_ms: int | None = None
    commit_interval_ms: int = 1_000

    def __post_init__(self) -> None:
        for name, least in _INTEGERS:
            value = getattr(self, name)
            if value is None and name == "drain_timeout_ms":
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"{name} is {value!r}: give an integer")
            if value < least:
                raise ValueError(f"{name} is {value}: give at least {least}")
        if self.order not in [one.value for one in Order]:
            raise ValueError(f'order is {self.order!r}: give "partition", "key" or "none"')
        if self.executor is not None and not isinstance(self.executor, Executor):
            raise TypeError(f"executor is {self.executor!r}: give a ThreadPoolExecutor or a ProcessPoolExecutor")
        if self.dead_letter_topic is not None and (
            not isinstance(self.dead_letter_topic, str) or not self.dead_letter_topic
        ):
            raise TypeError(f"dead_letter_topic is {self.dead_letter_topic!r}: give the topic's name")
        if self.producer is not None and self.dead_letter_topic is None:
            raise ValueError("producer is given without dead_letter_topic: give both")

    def check_handler(self, handler: object) -> None:
        """Check a handler as far as that is possible before it is called.

        Raises:
            TypeError: it is not callable, or a coroutine function for an executor.
        """
        if not callable(handler):
            raise TypeError(f"handler is {handler!r}: give a function that takes a record")
        asynchronous = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__)
        if asynchronous and self.executor is not None:
            raise TypeError("handler is a coroutine function: an executor runs plain ones. To do: leave executor out")


_INTEGERS: Final = (
    ("concurrency", 1),
    ("retries", 0),
    ("retry_backoff_ms", 0),
    ("retry_backoff_max_ms", 0),
    ("max_in_flight", 1),
    ("max_in_flight_bytes", 1),
    ("drain_timeout_ms", 0),
    ("commit_interval_ms", 1),
)
