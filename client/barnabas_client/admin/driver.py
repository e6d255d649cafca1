"""Carries out admin operations: finds the brokers, sends the requests, and asks again where a broker has moved.

An operation is one call of a :class:`Driver`: the brokers by their :class:`Route`, the request, the class of the
response, and the results in it. A call about several items, such as groups or partitions, needs requests to several
brokers: rounds of them are repeated until each item has its result or the time is over. Each round looks for the right
brokers again, because groups and leaders move. Source: ``KafkaAdminClient.java`` and its ``AdminApiDriver``.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from barnabas_client.admin.asked import Asked
from barnabas_client.admin.refusals import COORDINATOR_MOVED, HasCode, label, not_mentioned, refusal
from barnabas_client.admin.types import ConfigResource, ResourceType
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
Row = TypeVar("Row", bound=HasCode)

#: A broker gets so many milliseconds less than the call has, so that its response still arrives in time.
_MARGIN_MS: Final = 1_000
_NO_ANSWER: Final = "no broker has answered. To do: check the brokers, or raise timeout_ms"
#: The key types of FindCoordinator.
_KEY_TYPES: Final = {"group": 0, "transactional id": 1}


class Work(Generic[K, V]):
    """The items of an operation, with the results so far.

    Attributes:
        what: what is done, for error messages.
        done: the results and errors of items that are settled.
        again: the last errors of items that are asked about again.
    """

    def __init__(self, route: "Route[K]", what: str) -> None:
        self.what = what
        self.done: dict[K, V | KafkaError] = {}
        self.again: dict[K, KafkaError] = {}
        self._route = route

    def asked(self, items: list[K], node: int, cluster: Cluster) -> Asked[K]:
        """A request about items to a broker."""
        return Asked(self.what, items, node, cluster)

    def failed(self, items: Iterable[K], error: KafkaError) -> None:
        """Note items for which the request failed."""
        again = error.retriable and self._route.repeats
        into: dict[K, KafkaError] | dict[K, V | KafkaError] = self.again if again else self.done
        into.update(dict.fromkeys(items, error))

    def answered(self, item: K, answer: V | KafkaError) -> None:
        """Note the answer of a broker about an item."""
        moved = self._route.moved
        if isinstance(answer, KafkaError) and (answer.retriable if moved is None else answer.code in moved):
            self.again[item] = answer
        else:
            self.done[item] = answer


@dataclass(frozen=True, slots=True)
class Route(Generic[K]):
    """How the items of an operation find the brokers to ask.

    Attributes:
        place: finds the brokers for items that are left; notes items that have none.
        moved: the errors of items that have another broker, or none yet: they are asked about again. All retriable
            errors if None.
        repeats: whether a request that got no response is sent again. False where a broker may have carried it out.
    """

    place: Callable[[Network, Work[K, Any], list[K]], Awaitable[list[Asked[K]]]]
    moved: frozenset[ErrorCode] | None = None
    repeats: bool = True


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

    async def controller(self, what: str, request: Request, answer: type[R], read: Callable[[R], V | KafkaError]) -> V:
        """Send one request to the controller.

        A request that got no response is not sent again, because the controller may have carried it out.

        Args:
            what: what is done, for error messages, such as "create topics".
            request: what to send.
            answer: the class of the response.
            read: the result in a response, or its error.

        Raises:
            KafkaError: the request failed, or was refused.
        """
        return await self._one(CONTROLLER, what, None, request, answer, read)

    async def group(
        self,
        what: str,
        group_id: str,
        request: Request,
        answer: type[R],
        read: Callable[[R, str], V | KafkaError],
        *,
        at_most: int | None = None,
    ) -> V:
        """Send one request to the coordinator of a group.

        Args:
            what: what is done, for error messages, such as "delete offsets of group"; the group's id follows.
            group_id: the group.
            request: what to send.
            answer: the class of the response.
            read: the result in a response, or its error; gets `what` with the group's id.
            at_most: the newest version to send.

        Raises:
            KafkaError: the request failed, or was refused.
        """
        of = label(what, group_id)
        return await self._one(GROUP, what, group_id, request, answer, lambda response: read(response, of), at_most)

    async def _one(
        self,
        route: "Route[K]",
        what: str,
        item: K,
        request: Request,
        answer: type[R],
        read: Callable[[R], V | KafkaError],
        at_most: int | None = None,
    ) -> V:
        def of(response: R, _: Asked[K]) -> dict[K, V | KafkaError]:
            moved = refusal(ErrorCode.NOT_CONTROLLER, what) if _is_from_another(response) else None
            return {item: moved or read(response)}

        async def ask(asked: Asked[K]) -> dict[K, V | KafkaError]:
            return await self.send(asked, request, answer, of, at_most)

        (found,) = (await self.settle(route, what, [item], ask)).values()
        if isinstance(found, KafkaError):
            raise found
        return found

    async def brokers(
        self, what: str, nodes: Iterable[int] | None, request: Request, answer: type[R], read: Callable[[R, int], V]
    ) -> dict[int, V | KafkaError]:
        """Send a request to brokers, by node id ascending; to all if `nodes` is None.

        Args:
            what: what is done, for error messages, such as "list the groups of broker"; the node id follows.
            nodes: the brokers.
            request: what to send.
            answer: the class of the response.
            read: the result in the response of a broker.
        """
        known = (await self._network.refresh()).brokers
        return await self.each(
            BROKER,
            what,
            sorted(known if nodes is None else nodes),
            lambda _: request,
            answer,
            lambda response, asked: {node: read(response, node) for node in asked.items},
        )

    async def each(
        self,
        route: "Route[K]",
        what: str,
        items: Iterable[K],
        request: Callable[[list[K]], Request],
        answer: type[R],
        read: Callable[[R, Asked[K]], Mapping[K, V | KafkaError]],
        *,
        alone: bool = False,
    ) -> dict[K, V | KafkaError]:
        """Send requests about items to their brokers.

        Args:
            route: how the brokers are found.
            what: what is done, for error messages, such as "delete group"; the item follows.
            items: what to ask about.
            request: makes the request about items that have the same broker.
            answer: the class of the response.
            read: the results in a response, or errors.
            alone: send a request for each item.

        Returns:
            As :meth:`settle`.
        """
        return await self.settle(
            route, what, items, lambda asked: self.send(asked, request(asked.items), answer, read), alone=alone
        )

    async def settle(
        self,
        route: "Route[K]",
        what: str,
        items: Iterable[K],
        ask: Callable[[Asked[K]], Awaitable[Mapping[K, V | KafkaError]]],
        *,
        alone: bool = False,
    ) -> dict[K, V | KafkaError]:
        """Ask about items, in rounds with a pause between them, until each has its result or its error.

        Args:
            route: how the brokers are found.
            what: what is done, for error messages.
            items: what to ask about.
            ask: asks one broker; see :meth:`send`.
            alone: ask about each item by itself.

        Returns:
            A result or an error for each item, in their order: a `KafkaTimeoutError` if the time is over.
        """
        network, order = self._network, list(dict.fromkeys(items))
        work: Work[K, V] = Work(route, what)
        backoff = retry_backoff(network.config)

        async def one(asked: Asked[K]) -> None:
            try:
                answers = await ask(asked)
            except KafkaError as error:
                work.failed(asked.items, error)
                return
            for item in asked.items:
                work.answered(item, answers[item] if item in answers else not_mentioned(label(what, item)))

        try:
            async with asyncio.timeout(self.milliseconds / 1000):
                while left := [item for item in order if item not in work.done]:
                    if work.again:
                        await asyncio.sleep(backoff.failed())
                    if any(error.code == ErrorCode.NOT_CONTROLLER for error in work.again.values()):
                        await network.refresh()
                    placed = await route.place(network, work, left)
                    if alone:
                        placed = [asked._replace(items=[item]) for asked in placed for item in asked.items]
                    await asyncio.gather(*map(one, placed))
        except TimeoutError:
            for item in order:
                last = f"the last attempt: {work.again[item]}" if item in work.again else _NO_ANSWER
                error = KafkaTimeoutError(f"{label(what, item)}: not within {self.milliseconds} ms; {last}")
                work.done.setdefault(item, error)
        return {item: work.done[item] for item in order}

    async def send(
        self,
        asked: Asked[K],
        request: Request,
        answer: type[R],
        read: Callable[[R, Asked[K]], Mapping[K, V | KafkaError]],
        at_most: int | None = None,
    ) -> dict[K, V | KafkaError]:
        """Send a request to one broker, and read its response. The error of a whole response is that of its items.

        Raises:
            KafkaError: the request failed.
        """
        if asked.node < 0:
            response = await self._network.ask_any(request, answer)
        else:
            response = await self._network.ask(asked.node, request, answer, at_most=at_most)
        code, detail = getattr(response, "error_code", 0), getattr(response, "error_message", None)
        if code != ErrorCode.NONE:
            return {item: refusal(code, label(asked.what, item), detail) for item in asked.items}
        return dict(read(response, asked))

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


async def _controller(network: Network, work: Work[None, Any], left: list[None]) -> list[Asked[None]]:
    if not network.ready(network.cluster.controller_id):
        await network.refresh()
    controller = network.cluster.controller_id
    if network.ready(controller):
        return [work.asked(left, controller, network.cluster)]
    work.again[None] = KafkaConnectionError(
        "the controller was not found. To do: check the brokers, or raise timeout_ms"
    )
    return []


async def _owners(
    network: Network, work: Work[ConfigResource, Any], left: list[ConfigResource]
) -> list[Asked[ConfigResource]]:
    by_owner: defaultdict[int, list[ConfigResource]] = defaultdict(list)
    for resource in left:
        by_owner[_owner(resource)].append(resource)
    placed = []
    for owner, resources in by_owner.items():
        node = network.cluster.controller_id if owner < 0 else owner
        if node in network.cluster.brokers and not network.ready(node):
            await network.refresh()  # the broker may be back
        anywhere = owner < 0 and node not in network.cluster.brokers
        placed.append(work.asked(resources, -1 if anywhere else node, network.cluster))
    return placed


async def _coordinators(network: Network, work: Work[str, Any], left: list[str], of: str) -> list[Asked[str]]:
    by_node: defaultdict[int, list[str]] = defaultdict(list)
    if not network.cluster.brokers:  # none was known at the start
        await network.refresh()

    async def find(name: str) -> None:
        try:
            request = FindCoordinatorRequest(key_type=_KEY_TYPES[of], coordinator_keys=[name])
            response = await network.ask_any(request, FindCoordinatorResponse)
            found = response.coordinators[0]
        except KafkaError as error:
            work.failed([name], error)
            return
        if found.error_code != ErrorCode.NONE:
            work.failed([name], refusal(found.error_code, f"find {of} {name!r}", found.error_message))
        elif found.node_id not in network.cluster.brokers:
            network.want_refresh()
            work.again[name] = KafkaConnectionError(f"the coordinator of {name!r}, {found.node_id}, is not up")
        else:
            by_node[found.node_id].append(name)

    await asyncio.gather(*(find(name) for name in left))
    return [work.asked(names, node, network.cluster) for node, names in by_node.items()]


async def _leaders(
    network: Network, work: Work[TopicPartition, Any], left: list[TopicPartition]
) -> list[Asked[TopicPartition]]:
    cluster = await network.look_up({tp.topic for tp in left})
    if any(node not in network.cluster.brokers for node in cluster.brokers):
        await network.refresh()
    by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp in left:
        leader = cluster.leader(tp)
        if leader is not None:
            by_leader[leader].append(tp)
            continue
        error = _no_leader(cluster, tp, label(work.what, tp))
        if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            work.done[tp] = error
        else:
            work.failed([tp], error)
    return [work.asked(those, leader, cluster) for leader, those in by_leader.items()]


async def _brokers(network: Network, work: Work[int, Any], left: list[int]) -> list[Asked[int]]:
    return [work.asked([node], node, network.cluster) for node in left]


def _owner(resource: ConfigResource) -> int:
    """The node id of the broker that alone can answer for a resource; -1 if any broker can."""
    named = resource.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and resource.name.isdecimal()
    return int(resource.name) if named else -1


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


_NOT_CONTROLLER: Final = frozenset((ErrorCode.NOT_CONTROLLER,))

CONTROLLER: Final[Route[None]] = Route(_controller, _NOT_CONTROLLER, repeats=False)
#: The broker that alone can answer for a resource, or the controller.
OWNER: Final[Route[ConfigResource]] = Route(_owners, _NOT_CONTROLLER, repeats=False)
#: The coordinator of a group.
GROUP: Final[Route[str]] = Route(partial(_coordinators, of="group"), COORDINATOR_MOVED)
#: The coordinator of a transactional id.
TRANSACTION: Final[Route[str]] = Route(partial(_coordinators, of="transactional id"), COORDINATOR_MOVED)
#: The leader of a partition.
LEADER: Final[Route[TopicPartition]] = Route(_leaders)
#: The broker of a node id.
BROKER: Final[Route[int]] = Route(_brokers)
