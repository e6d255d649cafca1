"""A broker whose requests are recorded, and meet faults, on their way to the handlers."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, Self

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Image
from barnabas_broker.config import Config
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_broker.groups.coordinator.service import GroupCoordinator
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.init import Declared, apply
from barnabas_broker.optional import require
from barnabas_broker.replication.replica import Replica
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.testing.clock import AdvancingClock
from barnabas_broker.testing.leaders import moved_leader
from barnabas_broker.testing.rules import Rule, Rules
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.tap import Tap
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.registry import ApiKey

#: Seconds that a stop waits for responses that are not sent yet. Short, because a test that stops a broker should not
#: wait for members that wait for each other.
GRACE_SECONDS: Final = 0.5


class WatchedBroker:
    """A running broker with a tap. See :meth:`start`.

    Attributes:
        port: where it listens.
    """

    def __init__(self, broker: BrokerServer, tap: Tap, clock: AdvancingClock) -> None:
        self.port = broker.port
        self._clock = clock
        self._broker = broker
        self._tap = tap
        self._registry: Any = None

    @classmethod
    async def start(
        cls,
        config: Config,
        host: str,
        port: int,
        log: RequestLog,
        rules: Rules,
        users: Mapping[str, str],
        clock: AdvancingClock,
    ) -> Self:
        """Start a broker, and wait until its group coordinator has loaded.

        Args:
            config: its configuration.
            host: the address to listen on.
            port: the port to listen on; 0 picks a free one.
            log: where requests are recorded.
            rules: the faults that they meet.
            users: passwords of users for SCRAM.
            clock: the time of its groups, transactions and logs.

        Raises:
            BrokerError: the broker cannot start.
        """
        taps: list[Tap] = []

        def wrap(dispatch: Dispatch) -> Tap:
            taps.append(Tap(dispatch, log, rules))
            return taps[0]

        broker = await BrokerServer.start(config, host, port, wrap_dispatcher=wrap, users=users, clock=clock)
        watched = cls(broker, taps[0], clock)
        try:
            await watched.load_groups()
        except BaseException:
            await watched.stop()
            raise
        return watched

    async def stop(self) -> None:
        """Stop the broker, and its schema registry."""
        if self._registry is not None:
            await self._registry.stop()
        await self._broker.server.stop(GRACE_SECONDS)
        await self._broker.stop()

    @property
    def groups(self) -> GroupCoordinator:
        """Its group coordinator."""
        return self._broker.services.groups

    def partitions(self, topic: str) -> range:
        """The partitions of a topic; none if it does not exist."""
        known = self._broker.services.cluster.image.topics.get(topic)
        return range(0 if known is None else len(known.partitions))

    def replica(self, topic: str, partition: int) -> Replica:
        """A partition.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        return self._broker.services.replicas.find(topic, partition)

    async def ask(self, key: ApiKey, request: Any) -> Any:
        """Ask a handler that answers later, past the tap."""
        return await self._broker.ask(key, request, "test")

    async def load_groups(self) -> None:
        """Wait until groups can be coordinated.

        The first member of a group should not have to retry because the coordinator is still loading.
        """
        await self._broker.load_groups()

    async def serve_registry(self, port: int) -> int:
        """Start the schema registry, if it does not run; its port.

        Raises:
            BrokerError: it cannot start.
        """
        if self._registry is None:
            # In a thread: the import takes longer than a broker that serves clients may be held.
            load = partial(require, wanted_by="the schema registry", extra="registry")
            api = await asyncio.to_thread(load, "barnabas_broker.schema_registry.api")
            self._registry = await api.RegistryServer.start(self._broker, self._broker.host, port)
        served: int = self._registry.port
        return served

    async def clear_registry(self) -> None:
        """Remove what is in the schema registry, if it runs."""
        if self._registry is not None:
            await self._registry.clear()

    # Time

    def advance(self, seconds: float) -> float:
        """Move the clock on; the seconds by which it is ahead now."""
        self._clock.advance(seconds)
        self._broker.maintain()
        return self._clock.ahead

    def expire_member(self, group_id: str, name: str) -> str:
        """End the session of a member; its member id.

        Args:
            group_id: of its group.
            name: its member id, instance id or client id.

        Raises:
            ValueError: there is no such member, or several, or it waits for a rebalance.
        """
        hosted = self.groups.groups.get(group_id)
        members: dict[str, ClassicGroupMember] | dict[str, ConsumerGroupMember] = {}
        if hosted is not None:
            group = hosted.group
            members = group.members.by_id if isinstance(group, ClassicGroup) else group.members
        fitting = [
            each.member_id for each in members.values() if name in (each.member_id, each.instance_id, each.client_id)
        ]
        if len(fitting) != 1:
            known = ", ".join(sorted(f"{each.client_id} ({each.member_id})" for each in members.values())) or "none"
            number = "several members" if fitting else "no member"
            raise ValueError(f"group {group_id!r} has {number} {name!r}; its members are: {known}")
        self.groups.expire_member(group_id, fitting[0])
        if fitting[0] in members:
            raise ValueError(
                f"member {name!r} of group {group_id!r} waits for a rebalance, so its session cannot expire"
            )
        return fitting[0]

    # As one of a cluster

    @property
    def sequence(self) -> int:
        """The number of the last change of the metadata."""
        return self._broker.services.cluster.sequence

    def topics(self) -> list[str]:
        """All topics except Kafka's own."""
        return [name for name in self._broker.services.cluster.image.topics if name not in INTERNAL_TOPICS]

    async def wait(self, waits: Callable[[Image], str | None], timeout: float) -> Image:
        """Wait for a cluster image.

        Args:
            waits: says what of an image is not yet as it should be; None if it is.
            timeout: seconds to wait.

        Returns:
            The image.

        Raises:
            TimeoutError: there was none in time.
        """
        cluster = self._broker.services.cluster
        try:
            async with asyncio.timeout(timeout):
                while waits(cluster.image) is not None:
                    await cluster.reached(cluster.sequence + 1)
        except TimeoutError:
            raise TimeoutError(f"after {timeout:g} s {waits(cluster.image)}") from None
        return cluster.image

    async def process_ended(self, node_id: int) -> None:
        """Fence another broker of the cluster, whose process has ended."""
        lifecycle = self._broker.view.lifecycle
        known = self._broker.services.cluster.image.brokers.get(node_id)
        if lifecycle is not None and known is not None:
            await lifecycle.process_ended(node_id, known.epoch)

    async def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """Elect another leader of a partition; its node id.

        Raises:
            ValueError: there is no such partition, or no such replica that is in sync.
        """
        return await self._broker.services.cluster.change(lambda image: moved_leader(image, topic, partition, to))

    async def initialize(self, declared: Declared) -> list[str]:
        """Bring the broker to what a file declares; what was done."""
        return await apply(self._broker, declared)

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs; those that exist stay."""
        created = list(bindings)
        await self._broker.services.cluster.change(lambda image: (controller.create_acls(image, created), None))

    def release(self, rules: Iterable[Rule]) -> None:
        """Send the responses that these rules delay."""
        self._tap.release(rules)

    def disconnect(self, client_id: str | None) -> int:
        """Close connections now, without a response to their requests.

        Args:
            client_id: of these clients; None for all.

        Returns:
            How many were closed.
        """
        server = self._broker.server
        return server.disconnect(self._tap.peers_of(client_id, server.peers))
