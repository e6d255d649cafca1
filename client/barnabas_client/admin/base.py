"""The admin client's life, and whom it asks: the controller, a group's coordinator, a partition's leader.

Requests about several things go to several brokers. :meth:`AdminBase._settle` asks about what is left until each thing
has its answer or time is up; what moved meanwhile is looked for again. Source: ``KafkaAdminClient.java`` and its
``AdminApiDriver``.
"""

import asyncio
import ssl
import warnings
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from barnabas_client.config import DEFAULT_SERVERS, ClientConfig, parse_servers
from barnabas_client.errors import IllegalStateError, KafkaConnectionError, KafkaTimeoutError, error_for
from barnabas_client.network.backoff import Backoff
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network, jitter
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
K = TypeVar("K")
V = TypeVar("V")

#: Time the broker is left with less than what the call has, so that its answer still comes, in milliseconds.
_MARGIN_MS: Final = 1_000
#: Answers of a broker that is not the right one, or not ready yet.
MOVED: Final = frozenset(
    (
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
)
_REMEDIES: Final = {
    ErrorCode.GROUP_ID_NOT_FOUND: "check its name",
    ErrorCode.NON_EMPTY_GROUP: "stop its members first",
    ErrorCode.UNKNOWN_MEMBER_ID: "stop the group's members first: while it has some, only they set its offsets",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the members that subscribe to the topic first",
    ErrorCode.INVALID_PARTITIONS: "ask for at least one, and for more than there are: they cannot be taken away",
    ErrorCode.INVALID_CONFIG: "check key and value against Kafka's documentation",
}


def refusal(code: int, what: str, detail: str | None = None) -> KafkaError:
    """The exception for a code that a broker answered, with what to do about it."""
    remedy = _REMEDIES.get(ErrorCode.of(code))
    error = error_for(code, what, detail)
    return error if remedy is None else KafkaError(error.code, f"{error}. To do: {remedy}")


def refused(code: int, what: str, detail: str | None = None) -> KafkaError | None:
    """:func:`refusal`, or None for NONE."""
    return None if code == ErrorCode.NONE else refusal(code, what, detail)


class HasError(Protocol):
    """A result."""

    @property
    def error(self) -> KafkaError | None: ...


def names_of(what: str, names: Iterable[str]) -> list[str]:
    """Names as given by a program. A single one would otherwise be taken for a list of its letters.

    Raises:
        TypeError: something else than a list of names.
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(f"{what}: {names!r}: give a list of names")
    listed = list(names)
    if not all(isinstance(name, str) for name in listed):
        raise TypeError(f"{what}: {listed!r}: give names, which are strings")
    return listed


def raise_first(results: Iterable[HasError]) -> None:
    """Raise the first error there is, with the others as its notes."""
    errors = [result.error for result in results if result.error is not None]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(f"and: {other}")
        raise errors[0]


class Asked(NamedTuple, Generic[K, V]):
    """What one round of asking has brought: what is settled, and what may be asked for again, with its error."""

    done: dict[K, V | KafkaError]
    again: dict[K, KafkaError]

    @classmethod
    def nothing(cls) -> "Asked[K, V]":
        """To be filled."""
        return Asked({}, {})

    def failed(self, items: Iterable[K], error: KafkaError) -> None:
        """A broker could not be asked."""
        into: dict[K, KafkaError] | dict[K, V | KafkaError] = self.again if error.retriable else self.done
        for item in items:
            into[item] = error


class AdminBase:
    """Starts, stops, and finds whom to ask."""

    def __init__(
        self,
        *,
        bootstrap_servers: str | Iterable[str] = DEFAULT_SERVERS,
        client_id: str = "barnabas-admin",
        request_timeout_ms: int = ClientConfig.request_timeout_ms,
        retry_backoff_ms: int = ClientConfig.retry_backoff_ms,
        retry_backoff_max_ms: int = ClientConfig.retry_backoff_max_ms,
        metadata_max_age_ms: int = ClientConfig.metadata_max_age_ms,
        connections_max_idle_ms: int = ClientConfig.connections_max_idle_ms,
        security_protocol: str = ClientConfig.security_protocol,
        ssl_context: ssl.SSLContext | None = ClientConfig.ssl_context,
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

    # For the parts.

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

    @staticmethod
    def _for_broker(milliseconds: int) -> int:
        """What a broker is told to take at most, of the time that a call has."""
        return max(milliseconds - _MARGIN_MS, milliseconds // 2, 1)

    def _backoff(self) -> Backoff:
        return Backoff(self._config.retry_backoff_ms / 1000, self._config.retry_backoff_max_ms / 1000, jitter)

    async def _ask_controller(
        self, request: Request, answer: type[R], codes: Callable[[R], Iterable[int]], milliseconds: int
    ) -> R:
        """Ask the controller, looking for it again while it has moved or is not known.

        A request that got no answer is not repeated: it may have been carried out.
        """
        network = self._running()
        backoff = self._backoff()
        try:
            async with asyncio.timeout(milliseconds / 1000):
                while True:
                    controller = network.cluster.controller_id
                    if network.ready(controller):
                        response = await network.ask(controller, request, answer)
                        if ErrorCode.NOT_CONTROLLER not in codes(response):
                            return response
                    await asyncio.sleep(backoff.failed())
                    await network.refresh()
        except TimeoutError as error:
            name = type(request).__name__.removesuffix("Request")
            raise KafkaTimeoutError(
                f"{name}: the controller was not found, or did not answer, within {milliseconds} ms. To do: check the "
                f"brokers, or raise timeout_ms"
            ) from error

    async def _settle(
        self,
        what: str,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Asked[K, V]]],
        milliseconds: int,
    ) -> dict[K, V | KafkaError]:
        """Ask about `items` until each has its answer or its error, those that may be asked for again with a pause.

        Args:
            what: what is done, for errors, such as "describe group".
            items: what to ask about.
            ask: asks once about what is left.
            milliseconds: for all of it; then what is left has a `KafkaTimeoutError`.
        """
        left = list(dict.fromkeys(items))
        settled: dict[K, V | KafkaError] = {}
        order = list(left)
        backoff = self._backoff()
        reasons: dict[K, KafkaError] = {}
        try:
            async with asyncio.timeout(milliseconds / 1000):
                while left:
                    asked = await ask(left)
                    settled |= asked.done
                    reasons = asked.again
                    left = [item for item in left if item not in settled]
                    if left:
                        await asyncio.sleep(backoff.failed())
        except TimeoutError:
            for item in left:
                last = f"; the last attempt: {reasons[item]}" if item in reasons else ""
                settled[item] = KafkaTimeoutError(f"{what} {item}: not within {milliseconds} ms{last}")
        return {item: settled[item] for item in order}

    async def _ask_coordinators(
        self,
        what: str,
        groups: Iterable[str],
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
        milliseconds: int,
    ) -> dict[str, V | KafkaError]:
        """Ask the coordinator of each group.

        Args:
            what: as for :meth:`_settle`.
            groups: their ids.
            ask: asks a broker about those groups that it coordinates.
            milliseconds: for all of it.
        """

        async def round_of(left: list[str]) -> Asked[str, V]:
            asked: Asked[str, V] = Asked.nothing()
            by_node = await self._coordinators(left, asked)

            async def one(node: int, names: list[str]) -> None:
                try:
                    answers = await ask(node, names)
                except KafkaError as error:
                    asked.failed(names, error)
                    return
                for name in names:
                    answer = answers.get(name)
                    if answer is None:
                        answer = _unmentioned(f"{what} {name!r}")
                    if isinstance(answer, KafkaError) and answer.code in MOVED:
                        asked.again[name] = answer
                    else:
                        asked.done[name] = answer

            await asyncio.gather(*(one(node, names) for node, names in by_node.items()))
            return asked

        return await self._settle(what, groups, round_of, milliseconds)

    async def _coordinators(self, groups: list[str], asked: Asked[str, V]) -> dict[int, list[str]]:
        """The groups by their coordinators' node ids; those whose coordinator is not known go to `asked`."""
        network = self._running()
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        await self._learn_brokers()

        async def find(group: str) -> None:
            try:
                request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
                response = await network.ask_any(request, FindCoordinatorResponse)
                found = response.coordinators[0]
            except KafkaError as error:
                asked.failed([group], error)
                return
            if found.error_code != ErrorCode.NONE:
                asked.failed([group], refusal(found.error_code, f"find group {group!r}", found.error_message))
            elif found.node_id not in network.cluster.brokers:
                network.want_refresh()
                asked.again[group] = KafkaConnectionError(f"the coordinator of {group!r}, {found.node_id}, is not up")
            else:
                by_node[found.node_id].append(group)

        await asyncio.gather(*(find(group) for group in groups))
        return by_node

    async def _learn_brokers(self) -> None:
        """The brokers are known since the start, unless none was up then."""
        network = self._running()
        if not network.cluster.brokers:
            await network.refresh()

    async def _ask_leaders(
        self,
        what: str,
        partitions: Collection[TopicPartition],
        ask: Callable[[Cluster, int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
        milliseconds: int,
    ) -> dict[TopicPartition, V | KafkaError]:
        """Ask the leader of each partition.

        Args:
            what: as for :meth:`_settle`.
            partitions: which.
            ask: asks a broker about those partitions that it leads, by a cluster in which it does.
            milliseconds: for all of it.
        """
        network = self._running()

        async def round_of(left: list[TopicPartition]) -> Asked[TopicPartition, V]:
            asked: Asked[TopicPartition, V] = Asked.nothing()
            cluster = await network.look_up({tp.topic for tp in left})
            if any(node not in network.cluster.brokers for node in cluster.brokers):
                await network.refresh()
            by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
            for tp in left:
                leader = cluster.leader(tp)
                if leader is not None:
                    by_leader[leader].append(tp)
                else:
                    error = _no_leader(cluster, tp, f"{what} {tp}")
                    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                        asked.done[tp] = error
                    else:
                        asked.failed([tp], error)

            async def one(leader: int, those: list[TopicPartition]) -> None:
                try:
                    answers = await ask(cluster, leader, those)
                except KafkaError as error:
                    asked.failed(those, error)
                    return
                for tp in those:
                    answer = answers.get(tp)
                    if answer is None:
                        answer = _unmentioned(f"{what} {tp}")
                    if isinstance(answer, KafkaError) and answer.retriable:
                        asked.again[tp] = answer
                    else:
                        asked.done[tp] = answer

            await asyncio.gather(*(one(leader, those) for leader, those in by_leader.items()))
            return asked

        return await self._settle(what, partitions, round_of, milliseconds)


def _no_leader(cluster: Cluster, tp: TopicPartition, what: str) -> KafkaError:
    if cluster.partition(tp) is not None:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, what)
    topic = cluster.topics.get(tp.topic)
    code = ErrorCode.NONE if topic is None else topic.error
    return error_for(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)


def _unmentioned(what: str) -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{what}: the broker's answer does not mention it")
