"""Sends admin requests to the right brokers: the controller, a group's coordinator, a partition's leader, or any.

A call about several items, such as groups or partitions, needs requests to several brokers. :meth:`Driver.settle`
repeats rounds of requests until each item has its result or the time is over; each round looks for the right brokers
again, because groups and leaders move. Source: ``KafkaAdminClient.java`` and its ``AdminApiDriver``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from enum import Enum
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas_client.admin.refusals import COORDINATOR_MOVED, not_mentioned, refusal
from barnabas_client.errors import KafkaConnectionError, KafkaTimeoutError, UnsupportedVersionError, error_for
from barnabas_client.network.connections import Purpose
from barnabas_client.network.metadata import Cluster
from barnabas_client.network.network import Network
from barnabas_client.network.retries import retry_backoff
from barnabas_client.structs import TopicPartition
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)
K = TypeVar("K")
V = TypeVar("V")


class CoordinatorType(Enum):
    """Kinds of coordinators, by their key type in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1

    @property
    def noun(self) -> str:
        """The noun for its ids in errors."""
        return "group" if self is CoordinatorType.GROUP else "transactional id"


class Round(NamedTuple, Generic[K, V]):
    """The outcome of one round of requests.

    Attributes:
        done: the items that have their result.
        again: the items to ask about again, with the error of this round.
    """

    done: dict[K, V | KafkaError]
    again: dict[K, KafkaError]

    @classmethod
    def empty(cls) -> "Round[K, V]":
        """Create an outcome to fill."""
        return Round({}, {})

    def failed(self, items: Iterable[K], error: KafkaError) -> None:
        """Note items for which the request failed."""
        into: dict[K, KafkaError] | dict[K, V | KafkaError] = self.again if error.retriable else self.done
        for item in items:
            into[item] = error


#: A broker gets so many milliseconds less than the call has, so that its response still arrives in time.
_MARGIN_MS: Final = 1_000


class Driver:
    """Sends the requests of a call to the right brokers, and again where they moved.

    Args:
        network: the cluster.
        milliseconds: the time for all attempts of the call.

    Attributes:
        broker_ms: the timeout in a request.
    """

    def __init__(self, network: Network, milliseconds: int) -> None:
        self._network = network
        self.milliseconds = milliseconds
        self.broker_ms = max(milliseconds - _MARGIN_MS, milliseconds // 2, 1)

    async def ask_controller(self, request: Request, answer: type[R]) -> R:
        """Send a request to the controller; again, while the controller is not known or has moved.

        A request that got no response is not sent again, because the controller may have carried it out.

        Args:
            request: what to send.
            answer: the class of the response.

        Raises:
            KafkaTimeoutError: the time is over.
            KafkaError: the request failed.
        """
        network = self._network
        backoff = retry_backoff(network.config)
        try:
            async with asyncio.timeout(self.milliseconds / 1000):
                while True:
                    controller = network.cluster.controller_id
                    if network.ready(controller):
                        response = await network.ask(controller, request, answer)
                        if not _is_from_another(response):
                            return response
                    await asyncio.sleep(backoff.failed())
                    await network.refresh()
        except TimeoutError as error:
            name = type(request).__name__.removesuffix("Request")
            raise KafkaTimeoutError(
                f"{name}: the controller was not found, or did not answer, within {self.milliseconds} ms. To do: "
                "check the brokers, or raise timeout_ms"
            ) from error

    async def ask_node(self, node: int | None, request: Request, answer: type[R]) -> R:
        """Send a request to a broker, or to the controller if `node` is None, or to any broker if there is none.

        Raises:
            KafkaError: the request failed.
        """
        network = self._network
        chosen = network.cluster.controller_id if node is None else node
        if chosen in network.cluster.brokers and not network.ready(chosen):
            await network.refresh()  # the broker may be back
        if node is not None or chosen in network.cluster.brokers:
            return await network.ask(chosen, request, answer)
        return await network.ask_any(request, answer)

    async def ask_brokers(
        self,
        what: str,
        ask: Callable[[int], Awaitable[V | KafkaError]],
        nodes: Iterable[int] | None = None,
    ) -> dict[int, V | KafkaError]:
        """Ask every broker of the cluster.

        Args:
            what: as for :meth:`settle`.
            ask: asks a broker, by node id.
            nodes: only these brokers.
        """

        async def round_of(left: list[int]) -> Round[int, V]:
            outcome: Round[int, V] = Round.empty()

            async def one(node: int) -> None:
                try:
                    answer = await ask(node)
                except KafkaError as error:
                    outcome.failed([node], error)
                    return
                if isinstance(answer, KafkaError):
                    outcome.failed([node], answer)
                else:
                    outcome.done[node] = answer

            await asyncio.gather(*(one(node) for node in left))
            return outcome

        known = (await self._network.refresh()).brokers
        return await self.settle(what, known if nodes is None else nodes, round_of)

    async def ask_coordinators(
        self,
        what: str,
        groups: Iterable[str],
        ask: Callable[[int, list[str]], Awaitable[Mapping[str, V | KafkaError]]],
        *,
        of: CoordinatorType = CoordinatorType.GROUP,
    ) -> dict[str, V | KafkaError]:
        """Ask the coordinator of each group, or of each transactional id.

        Args:
            what: as for :meth:`settle`.
            groups: their ids.
            ask: asks a broker, by node id, about the groups that it coordinates.
            of: what the ids are.
        """

        async def round_of(left: list[str]) -> Round[str, V]:
            outcome: Round[str, V] = Round.empty()
            by_node = await self._coordinators(left, of, outcome)

            async def one(node: int, names: list[str]) -> None:
                try:
                    answers = await ask(node, names)
                except KafkaError as error:
                    outcome.failed(names, error)
                    return
                for name in names:
                    answer = answers.get(name)
                    if answer is None:
                        answer = not_mentioned(f"{what} {name!r}")
                    if isinstance(answer, KafkaError) and answer.code in COORDINATOR_MOVED:
                        outcome.again[name] = answer
                    else:
                        outcome.done[name] = answer

            await asyncio.gather(*(one(node, names) for node, names in by_node.items()))
            return outcome

        return await self.settle(what, groups, round_of)

    async def ask_coordinator(
        self,
        what: str,
        group: str,
        ask: Callable[[int], Awaitable[V | KafkaError]],
    ) -> V:
        """Ask the coordinator of one group.

        Args:
            what: as for :meth:`settle`.
            group: its id.
            ask: asks a broker, by node id.

        Raises:
            KafkaError: the request failed, or was refused.
        """

        async def ask_about(node: int, groups: list[str]) -> dict[str, V | KafkaError]:
            return {group: await ask(node)}

        answer = (await self.ask_coordinators(what, [group], ask_about))[group]
        if isinstance(answer, KafkaError):
            raise answer
        return answer

    async def ask_leaders(
        self,
        what: str,
        partitions: Collection[TopicPartition],
        ask: Callable[[Cluster, int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, V | KafkaError]]],
    ) -> dict[TopicPartition, V | KafkaError]:
        """Ask the leader of each partition.

        Args:
            what: as for :meth:`settle`.
            partitions: which.
            ask: asks a broker, by node id, about the partitions that it leads in the given cluster.
        """
        network = self._network

        async def round_of(left: list[TopicPartition]) -> Round[TopicPartition, V]:
            outcome: Round[TopicPartition, V] = Round.empty()
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
                        outcome.done[tp] = error
                    else:
                        outcome.failed([tp], error)

            async def one(leader: int, those: list[TopicPartition]) -> None:
                try:
                    answers = await ask(cluster, leader, those)
                except KafkaError as error:
                    outcome.failed(those, error)
                    return
                for tp in those:
                    answer = answers.get(tp)
                    if answer is None:
                        answer = not_mentioned(f"{what} {tp}")
                    if isinstance(answer, KafkaError) and answer.retriable:
                        outcome.again[tp] = answer
                    else:
                        outcome.done[tp] = answer

            await asyncio.gather(*(one(leader, those) for leader, those in by_leader.items()))
            return outcome

        return await self.settle(what, partitions, round_of)

    async def ask_owners(
        self,
        what: str,
        items: Iterable[K],
        owner: Callable[[K], int | None],
        ask: Callable[[int | None, list[K]], Awaitable[Mapping[K, V | KafkaError]]],
    ) -> dict[K, V | KafkaError]:
        """Ask about items that each belong to one broker or to none.

        Args:
            what: as for :meth:`settle`.
            items: what to ask about.
            owner: the node id of the broker that alone can answer for an item; None if any broker can.
            ask: asks a broker, see :meth:`ask_node`, about the items that it can answer for.
        """

        async def round_of(left: list[K]) -> Round[K, V]:
            outcome: Round[K, V] = Round.empty()
            by_node: defaultdict[int | None, list[K]] = defaultdict(list)
            for item in left:
                by_node[owner(item)].append(item)

            async def one(node: int | None, those: list[K]) -> None:
                try:
                    answers = await ask(node, those)
                except KafkaError as error:
                    outcome.done.update(dict.fromkeys(those, error))
                    return
                for item in those:
                    answer = answers.get(item)
                    if answer is None:
                        answer = not_mentioned(f"{what} {item}")
                    if isinstance(answer, KafkaError) and answer.code == ErrorCode.NOT_CONTROLLER:
                        outcome.again[item] = answer
                        await self._network.refresh()
                    else:
                        outcome.done[item] = answer

            await asyncio.gather(*(one(node, those) for node, those in by_node.items()))
            return outcome

        return await self.settle(what, items, round_of)

    async def settle(
        self,
        what: str,
        items: Iterable[K],
        ask: Callable[[list[K]], Awaitable[Round[K, V]]],
    ) -> dict[K, V | KafkaError]:
        """Ask about `items`, in rounds with a pause between them, until each has its result or its error.

        Args:
            what: what is done, for error messages, such as "describe group".
            items: what to ask about.
            ask: one round: asks about the items that have no result yet.

        Returns:
            A result or an error for each item, in the order of `items`: a `KafkaTimeoutError` if the time is over.
        """
        left = list(dict.fromkeys(items))
        settled: dict[K, V | KafkaError] = {}
        order = list(left)
        backoff = retry_backoff(self._network.config)
        reasons: dict[K, KafkaError] = {}
        try:
            async with asyncio.timeout(self.milliseconds / 1000):
                while left:
                    outcome = await ask(left)
                    settled |= outcome.done
                    reasons = outcome.again
                    left = [item for item in left if item not in settled]
                    if left:
                        await asyncio.sleep(backoff.failed())
        except TimeoutError:
            for item in left:
                last = f"; the last attempt: {reasons[item]}" if item in reasons else ""
                settled[item] = KafkaTimeoutError(f"{what} {item}: not within {self.milliseconds} ms{last}")
        return {item: settled[item] for item in order}

    async def require_version(self, node: int, key: ApiKey, version: int, what: str) -> None:
        """Check that a broker has a version of an API.

        Args:
            node: the broker.
            key: the API.
            version: which one is needed.
            what: what it is needed for.

        Raises:
            UnsupportedVersionError: the broker does not have it.
        """
        connection = await self._network.connection(node, Purpose.DATA)
        known = connection.versions.get(key)
        if known is None or known.high < version:
            raise UnsupportedVersionError(
                f"{key.name}: broker {node} does not support {what}, which needs version {version}. To do: "
                "use a newer broker"
            )

    async def _coordinators(
        self, groups: list[str], of: CoordinatorType, outcome: Round[str, V]
    ) -> dict[int, list[str]]:
        """The groups by the node ids of their coordinators; groups whose coordinator is not known go to `outcome`."""
        network = self._network
        by_node: defaultdict[int, list[str]] = defaultdict(list)
        if not network.cluster.brokers:  # none was known at the start
            await network.refresh()

        async def find(group: str) -> None:
            try:
                request = FindCoordinatorRequest(key_type=of.value, coordinator_keys=[group])
                response = await network.ask_any(request, FindCoordinatorResponse)
                found = response.coordinators[0]
            except KafkaError as error:
                outcome.failed([group], error)
                return
            if found.error_code != ErrorCode.NONE:
                outcome.failed([group], refusal(found.error_code, f"find {of.noun} {group!r}", found.error_message))
            elif found.node_id not in network.cluster.brokers:
                network.want_refresh()
                outcome.again[group] = KafkaConnectionError(f"the coordinator of {group!r}, {found.node_id}, is not up")
            else:
                by_node[found.node_id].append(group)

        await asyncio.gather(*(find(group) for group in groups))
        return by_node


def _is_from_another(response: Response) -> bool:
    """Whether a broker that is not the controller refused a request: as a whole, or each of its items."""
    values = [getattr(response, one.name) for one in response.FIELDS]
    items = [response, *(item for value in values if isinstance(value, list) for item in value)]
    return any(getattr(item, "error_code", None) == ErrorCode.NOT_CONTROLLER for item in items)


def _no_leader(cluster: Cluster, tp: TopicPartition, what: str) -> KafkaError:
    if cluster.partition(tp) is not None:
        return error_for(ErrorCode.LEADER_NOT_AVAILABLE, what)
    topic = cluster.topics.get(tp.topic)
    code = ErrorCode.NONE if topic is None else topic.error
    return error_for(code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, what)
