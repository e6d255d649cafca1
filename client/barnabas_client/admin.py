"""The admin client: topics and the cluster. Requests go to the controller where it matters, and are tried again when it
has moved.

A call about several topics answers for each: what could be done is done, and the first refusal is raised after that,
unless ``raise_errors=False`` asks for the results instead. Names are aiokafka's; results are typed. Source:
``KafkaAdminClient.java``.
"""

import asyncio
import ssl
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

from barnabas_client.backoff import Backoff
from barnabas_client.config import ClientConfig, parse_servers
from barnabas_client.errors import IllegalStateError, KafkaTimeoutError, UnsupportedVersionError, error_for
from barnabas_client.metadata import Broker, Topic
from barnabas_client.network import Network, jitter
from barnabas_protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas_protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas_protocol.apis.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

#: Time the broker is left with less than what the call has, so that its answer still comes, in milliseconds.
_MARGIN_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Attributes:
        name: 1 to 249 of the characters a-z, A-Z, 0-9, '.', '_' and '-'.
        num_partitions: -1 for the broker's default.
        replication_factor: -1 for the broker's default.
        replica_assignments: for each partition the brokers that hold it, instead of the two numbers.
        topic_configs: Kafka's keys, such as ``{"retention.ms": "60000"}``.
    """

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    replica_assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    topic_configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicResult:
    """What became of a topic. `topic_id` is all zero, and the numbers are -1, where the broker does not tell."""

    name: str
    error: KafkaError | None = None
    topic_id: bytes = bytes(16)
    num_partitions: int = -1
    replication_factor: int = -1


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster."""

    cluster_id: str
    controller_id: int
    brokers: tuple[Broker, ...]


class Admin:
    """Manages topics.

    ::

        async with Admin(bootstrap_servers="localhost:9092") as admin:
            await admin.create_topics([NewTopic("flights", num_partitions=6)])

    Settings are explained at :class:`~barnabas_client.config.ClientConfig`.
    """

    def __init__(
        self,
        *,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = 40_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        metadata_max_age_ms: int = 300_000,
        connections_max_idle_ms: int = 540_000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._config = ClientConfig(
            servers=parse_servers(bootstrap_servers),
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            retry_backoff_ms=retry_backoff_ms,
            retry_backoff_max_ms=retry_backoff_max_ms,
            metadata_max_age_ms=metadata_max_age_ms,
            connections_max_idle_ms=connections_max_idle_ms,
            security_protocol=security_protocol,
            ssl_context=ssl_context,
        )
        self._network: Network | None = None
        self._closed = False

    async def start(self) -> None:
        """Connect.

        Raises:
            KafkaConnectionError: no broker answers.
            IllegalStateError: it was started before.
        """
        if self._network is not None or self._closed:
            raise IllegalStateError("start(): this admin client was started already. To do: make a new one")
        network = Network(self._config)
        try:
            await network.start()
        except BaseException:
            await network.close()
            raise
        self._network = network

    async def close(self) -> None:
        """Disconnect. A second call does nothing."""
        network, self._network, self._closed = self._network, None, True
        if network is not None:
            await network.close()

    async def stop(self) -> None:
        """The same as :meth:`close`."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        if getattr(self, "_network", None) is not None:
            warnings.warn(
                f"{self!r} was never closed: await close(), or use `async with`", ResourceWarning, stacklevel=2
            )

    async def create_topics(
        self,
        new_topics: Iterable[NewTopic],
        timeout_ms: int | None = None,
        *,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> list[TopicResult]:
        """Create topics.

        Args:
            new_topics: what to create.
            timeout_ms: how long the brokers may take; `request_timeout_ms` if None.
            validate_only: only check whether they could be created.
            raise_errors: raise the first refusal, after all others were created; otherwise it is in its result.

        Raises:
            TopicAlreadyExistsError, InvalidTopicError: as the names say.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: it refused otherwise.
        """
        topics = list(new_topics)
        milliseconds = self._milliseconds(timeout_ms)
        request = CreateTopicsRequest(
            topics=[_creatable(topic) for topic in topics],
            timeout_ms=max(milliseconds - _MARGIN_MS, 1),
            validate_only=validate_only,
        )
        response = await self._ask_controller(
            request, CreateTopicsResponse, lambda answer: [one.error_code for one in answer.topics], milliseconds
        )
        results = [_created(answer) for answer in response.topics]
        return _raise_first(results) if raise_errors else results

    async def delete_topics(
        self, topics: Iterable[str], timeout_ms: int | None = None, *, raise_errors: bool = True
    ) -> list[TopicResult]:
        """Delete topics by name.

        Args:
            topics: their names.
            timeout_ms: how long the brokers may take; `request_timeout_ms` if None.
            raise_errors: raise the first refusal, after all others were deleted; otherwise it is in its result.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaTimeoutError: the controller was not found or did not answer.
            KafkaError: it refused otherwise.
        """
        milliseconds = self._milliseconds(timeout_ms)
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name) for name in topics], timeout_ms=max(milliseconds - _MARGIN_MS, 1)
        )
        response = await self._ask_controller(
            request, DeleteTopicsResponse, lambda answer: [one.error_code for one in answer.responses], milliseconds
        )
        results = [
            TopicResult(
                answer.name or "",
                _error(answer.error_code, f"delete topic {answer.name!r}", answer.error_message),
                answer.topic_id,
            )
            for answer in response.responses
        ]
        return _raise_first(results) if raise_errors else results

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics that this client may see, ascending.

        Args:
            internal: with the brokers' own, such as ``__consumer_offsets``.

        Raises:
            KafkaError: no broker answers.
        """
        return [topic.name for topic in await self.describe_topics(internal=internal)]

    async def describe_topics(self, topics: Iterable[str] | None = None, *, internal: bool = True) -> list[Topic]:
        """Topics with their partitions, leaders and replicas, by name ascending.

        Args:
            topics: their names; all if None.
            internal: with the brokers' own, if all are asked for.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
            KafkaError: no broker answers.
        """
        names = None if topics is None else set(topics)
        cluster = await self._running().look_up(names)
        if names is None:
            return [topic for _, topic in sorted(cluster.topics.items()) if internal or not topic.internal]
        found = []
        for name in sorted(names):
            topic = cluster.topics.get(name)
            if topic is None or topic.error != ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                raise error_for(code, f"describe topic {name!r}")
            found.append(topic)
        return found

    async def describe_cluster(self) -> ClusterDescription:
        """The cluster's id, controller and brokers.

        Raises:
            KafkaError: no broker answers.
        """
        network = self._running()
        try:
            request = DescribeClusterRequest(include_cluster_authorized_operations=False)
            response = await network.ask_any(request, DescribeClusterResponse)
        except UnsupportedVersionError:
            # Before Kafka 2.8 metadata told the same (KIP-700).
            cluster = await network.refresh()
            brokers = tuple(cluster.brokers[node] for node in sorted(cluster.brokers))
            return ClusterDescription(cluster.cluster_id or "", cluster.controller_id, brokers)
        if response.error_code != ErrorCode.NONE:
            raise error_for(response.error_code, "describe the cluster", response.error_message)
        told = sorted(response.brokers, key=lambda broker: broker.broker_id)
        return ClusterDescription(
            response.cluster_id,
            response.controller_id,
            tuple(Broker(broker.broker_id, broker.host, broker.port, broker.rack) for broker in told),
        )

    # Inside.

    def _running(self) -> Network:
        if self._network is None:
            raise IllegalStateError(
                "this admin client was closed. To do: make a new one"
                if self._closed
                else "this admin client is not started. To do: await start() first, or use it in `async with`"
            )
        return self._network

    def _milliseconds(self, timeout_ms: int | None) -> int:
        if timeout_ms is None:
            return self._config.request_timeout_ms
        if timeout_ms < 1:
            raise ValueError(f"timeout_ms is {timeout_ms}: give milliseconds, at least 1")
        return timeout_ms

    async def _ask_controller(
        self, request: Request, answer: type[R], codes: Callable[[R], Iterable[int]], milliseconds: int
    ) -> R:
        """Ask the controller, looking for it again while it has moved or cannot be reached.

        A request that got no answer is not repeated: it may have been carried out.
        """
        network = self._running()
        backoff = Backoff(self._config.retry_backoff_ms / 1000, self._config.retry_backoff_max_ms / 1000, jitter)
        try:
            async with asyncio.timeout(milliseconds / 1000):
                while True:
                    controller = network.cluster.controller_id
                    if controller in network.cluster.brokers:
                        response = await network.ask(controller, request, answer)
                        if ErrorCode.NOT_CONTROLLER not in codes(response):
                            return response
                    await asyncio.sleep(backoff.failed())
                    await network.refresh()
        except TimeoutError as error:
            name = type(request).__name__.removesuffix("Request")
            raise KafkaTimeoutError(
                f"{name}: the controller was not found, or did not answer, within {milliseconds} ms. To do: check the "
                "brokers, or raise "
                f"timeout_ms"
            ) from error


def _creatable(topic: NewTopic) -> CreatableTopic:
    if not isinstance(topic, NewTopic):
        raise TypeError(f"create_topics: {topic!r}: give NewTopic(name, num_partitions, replication_factor)")
    return CreatableTopic(
        name=topic.name,
        # The broker wants -1 where the replicas are given.
        num_partitions=-1 if topic.replica_assignments else topic.num_partitions,
        replication_factor=-1 if topic.replica_assignments else topic.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers))
            for number, brokers in topic.replica_assignments.items()
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.topic_configs.items()],
    )


def _created(answer: CreatableTopicResult) -> TopicResult:
    return TopicResult(
        answer.name,
        _error(answer.error_code, f"create topic {answer.name!r}", answer.error_message),
        answer.topic_id,
        answer.num_partitions,
        answer.replication_factor,
    )


def _error(code: int, what: str, detail: str | None) -> KafkaError | None:
    return None if code == ErrorCode.NONE else error_for(code, what, detail)


def _raise_first(results: list[TopicResult]) -> list[TopicResult]:
    for result in results:
        if result.error is not None:
            raise result.error
    return results
