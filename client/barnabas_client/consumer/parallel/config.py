"""Settings of ``Consumer.run`` and ``ShareConsumer.run``, checked once."""

import inspect
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Final, Literal, Protocol, TypedDict, TypeVar, get_args

from barnabas_client.config import check_integer
from barnabas_client.keywords import Settings
from barnabas_client.structs import ConsumerRecord, Headers, K, V

K_contra = TypeVar("K_contra", contravariant=True)
V_contra = TypeVar("V_contra", contravariant=True)

#: Handles a record: a coroutine function, or a plain function for an executor. The result is ignored.
Handler = Callable[[ConsumerRecord[K, V]], object]
#: Handles a batch of records, with `batch_size`.
BatchHandler = Callable[[list[ConsumerRecord[K, V]]], object]
HandlerOrder = Literal["partition", "key", "none"]


class DeadLetterProducer(Protocol[K_contra, V_contra]):
    """A :class:`~barnabas.Producer`, as dead letters need it."""

    async def send_and_wait(self, topic: str, value: V_contra, key: K_contra | None, *, headers: Headers) -> object:
        """Send a record and wait for the acknowledgement."""


class HandlerConfig(Settings):
    """The settings of ``ShareConsumer.run``, which ``Consumer.run`` has as well. They describe them and take their
    defaults from here."""

    concurrency: int = 10
    executor: Executor | None = None
    retries: int = 3
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 10_000
    dead_letter_topic: str | None = None
    producer: DeadLetterProducer[Any, Any] | None = None
    drain_timeout_ms: int | None = None

    def check(self) -> None:
        for name, least in _INTEGERS:
            if not hasattr(self, name):
                continue  # a setting of the other run
            value = getattr(self, name)
            if value is None and name in ("drain_timeout_ms", "batch_size"):
                continue
            check_integer(name, value, least)
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


class RunConfig(HandlerConfig):
    """The settings of ``Consumer.run``, which describes them and takes its defaults from here."""

    order: HandlerOrder = "partition"
    max_in_flight: int = 10_000
    max_in_flight_bytes: int = 67_108_864
    commit_interval_ms: int = 1_000
    batch_size: int | None = None
    batch_timeout_ms: int = 0

    def check(self) -> None:
        super().check()
        if self.order not in get_args(HandlerOrder):
            raise ValueError(f'order is {self.order!r}: give "partition", "key" or "none"')
        if self.batch_timeout_ms and self.batch_size is None:
            raise ValueError("batch_timeout_ms is given without batch_size: give both")


class HandlerSettings(TypedDict, total=False):
    """The arguments of ``ShareConsumer.run`` except the handler and the producer."""

    concurrency: int
    executor: Executor | None
    retries: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    dead_letter_topic: str | None
    drain_timeout_ms: int | None


class RunSettings(HandlerSettings, total=False):
    """The arguments of ``Consumer.run`` except the handler, the producer and `batch_size`."""

    order: HandlerOrder
    max_in_flight: int
    max_in_flight_bytes: int
    commit_interval_ms: int
    batch_timeout_ms: int


_INTEGERS: Final = (
    ("concurrency", 1),
    ("retries", 0),
    ("retry_backoff_ms", 0),
    ("retry_backoff_max_ms", 0),
    ("max_in_flight", 1),
    ("max_in_flight_bytes", 1),
    ("drain_timeout_ms", 0),
    ("commit_interval_ms", 1),
    ("batch_size", 1),
    ("batch_timeout_ms", 0),
)
