"""The host of a test's broker: carries out the commands of the test in the broker's event loop.

It runs brokers one after another, on a thread or in a process of its own.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_broker.broker import BrokerServer
from barnabas_broker.cluster import controller
from barnabas_broker.cluster.image import Image
from barnabas_broker.cluster.metadata import ClusterMetadata
from barnabas_broker.config import BROKER_KEYS, PLAINTEXT, Config, Listener
from barnabas_broker.config.checks import check_config
from barnabas_broker.config.keys import LISTENERS, SECURITY_INTER_BROKER_PROTOCOL
from barnabas_broker.errors import BrokerError
from barnabas_broker.groups.classic.group import ClassicGroup
from barnabas_broker.groups.classic.members import ClassicGroupMember
from barnabas_broker.groups.consumer.members import ConsumerGroupMember
from barnabas_broker.handlers.dispatch import Dispatch
from barnabas_broker.init import Declared, apply, read
from barnabas_broker.optional import require
from barnabas_broker.replication.contents import append_records
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.permissions import read_acls
from barnabas_broker.testing.clock import AdvancingClock
from barnabas_broker.testing.contents import read_records
from barnabas_broker.testing.leaders import leader_of, moved_leader, not_in_sync
from barnabas_broker.testing.link import Command, Reply
from barnabas_broker.testing.records import decoded
from barnabas_broker.testing.rules import Rules, find_api
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.tap import Tap
from barnabas_broker.testing.warm import warm_up
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord, read_event, record_of
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import INTERNAL_TOPICS
from barnabas_protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas_protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from barnabas_protocol.registry import ApiKey

#: Events of a group that are kept over restarts.
_MOST_EVENTS: Final = 200
#: The type of a group's configuration, and the operation, in a request.
_GROUP, _SET = 32, 0


#: Seconds that a stop waits for responses that are not sent yet. Short, because a test that stops a broker should not
#: wait for members that wait for each other.
GRACE_SECONDS: Final = 0.5


class _Running(NamedTuple):
    """A running broker.

    Attributes:
        server: the broker.
        tap: records its requests, and lets them meet faults.
        clock: the time of its groups, transactions and logs.
    """

    server: BrokerServer
    tap: Tap
    clock: AdvancingClock


class BrokerHost:
    """Carries out commands: each is a public method of the same name."""

    def __init__(self) -> None:
        self._broker: _Running | None = None
        self._given: dict[str, str] = {}
        self._where = ("127.0.0.1", 0)
        self._security = PLAINTEXT
        self._users: dict[str, str] = {}
        self._acls: list[AclBinding] = []
        self._ahead = 0.0
        self._init: Declared | None = None
        self._registry: int | None = None
        self._schemas: Any = None
        self._log = RequestLog()
        self._rules = Rules(time.time_ns())
        self._past: dict[str, list[EventRecord]] = {}
        self._warming: asyncio.Task[None] | None = None

    async def handle(self, command: Command) -> Reply:
        """Carry out a command; always returns a reply."""
        arguments = {name: value for name, value in command.items() if name not in ("do", "id")}
        try:
            result = getattr(self, command["do"])(**arguments)
            return {"ok": await result if isawaitable(result) else result}
        except BrokerError as error:
            return {"failed": str(error), "kind": "broker"}
        except ValueError as error:
            return {"failed": str(error), "kind": "value"}
        except TimeoutError as error:
            return {"failed": str(error), "kind": "timeout"}
        except Exception as error:
            return {"failed": f"{command['do']}: {type(error).__name__}: {error}", "kind": "broker"}

    async def start(
        self,
        config: dict[str, str],
        host: str,
        port: int,
        count: int,
        history: dict[str, list[EventRecord]],
        security: str,
        users: dict[str, str],
        acls: dict[str, list[str]],
        ahead: float,
        init: str | None,
        registry: int | None,
    ) -> dict[str, Any]:
        """Start a broker.

        Args:
            config: Kafka's keys.
            host: the address to listen on.
            port: 0 picks a free one.
            count: the number of requests before this start.
            history: the events of every group before this start.
            security: what the listener speaks.
            users: passwords of users for SCRAM.
            acls: what each user may do.
            ahead: seconds by which its clock is ahead of the machine's.
            init: the file that declares what it has; None for none.
            registry: the port of its schema registry; None for no registry.

        Returns:
            The port, and warnings about the configuration.

        Raises:
            ValueError: an ACL cannot be read.
        """
        self._acls = read_acls(acls)
        self._ahead = ahead
        self._init = None if init is None else read(Path(init))
        self._registry = registry
        self._given, self._where = config, (host, port)
        self._security, self._users = security, users
        self._log.count, self._past = count, history
        warnings = check_config(Config(BROKER_KEYS, config))
        await self._start()
        self._warming = asyncio.get_running_loop().create_task(warm_up())
        return {"port": self._where[1], "warnings": warnings}

    async def _start(self) -> None:
        config = Config(BROKER_KEYS, dict(self._given))
        if self._security != PLAINTEXT:
            config.set_static(LISTENERS, str(Listener(self._security, *self._where)))
            config.set_static(SECURITY_INTER_BROKER_PROTOCOL, self._security)
        clock = AdvancingClock(self._ahead)
        taps: list[Tap] = []

        def wrap(dispatch: Dispatch) -> Tap:
            taps.append(Tap(dispatch, self._log, self._rules))
            return taps[0]

        server = await BrokerServer.start(config, *self._where, wrap_dispatcher=wrap, users=self._users, clock=clock)
        self._broker = _Running(server, taps[0], clock)
        self._where = (self._where[0], server.port)
        try:
            await self.load_groups()
            if self._acls:
                await self._cluster.change(lambda image: (controller.create_acls(image, self._acls), None))
            if self._init is not None:
                await apply(server, self._init)
            if self._registry is not None:
                await self.serve_registry()
        except BaseException:
            await self.stop()
            raise

    @property
    def _running(self) -> _Running:
        if self._broker is None:
            raise BrokerError("the broker is not running")
        return self._broker

    @property
    def _server(self) -> BrokerServer:
        return self._running.server

    @property
    def _cluster(self) -> ClusterMetadata:
        return self._server.services.cluster

    async def load_groups(self) -> None:
        """Wait until groups can be coordinated.

        The first member of a group should not have to retry because the coordinator is still loading.
        """
        await self._server.load_groups()

    async def stop(self) -> None:
        """Stop the broker, if one is running."""
        broker, self._broker = self._broker, None
        if self._warming is not None:
            self._warming.cancel()
        if broker is not None:
            self._past = _histories(broker.server, self._past)
            broker.tap.release(self._rules)
            schemas, self._schemas = self._schemas, None
            if schemas is not None:
                await schemas.stop()
            await broker.server.server.stop(GRACE_SECONDS)
            await broker.server.stop()

    async def restart(self) -> None:
        """Stop the broker and start it again, with the same port and data; faults stay."""
        await self.stop()
        await self._start()

    # Faults

    async def fault(self, **given: Any) -> int:
        """Add a fault; its number."""
        return self._rules.add(**given).number

    async def end_fault(self, number: int) -> None:
        """End a fault; the responses that it delays are sent."""
        rule = self._rules.remove(number)
        if rule is not None and self._broker is not None:
            self._broker.tap.release([rule])

    async def clear_faults(self) -> None:
        """End all faults."""
        for number in [rule.number for rule in self._rules]:
            await self.end_fault(number)

    async def fired(self, number: int) -> int:
        """The number of requests that have met a fault."""
        return self._rules[number].fired

    async def wait_fired(self, number: int, times: int, timeout: float) -> None:
        """Wait until that many requests have met a fault."""
        rule = self._rules[number]
        try:
            await self._log.wait(lambda: rule.fired >= times, timeout)
        except TimeoutError:
            raise TimeoutError(f"within {timeout:g} s {rule.fired} requests met {rule}, not {times}") from None

    # Requests and group events

    async def requests(self, after: int) -> list[dict[str, Any]]:
        """The requests after a number."""
        return [asdict(request) for request in self._log.after(after)]

    async def wait_request(
        self, api: str | int, count: int, after: int, client_id: str | None, answered: bool, timeout: float
    ) -> dict[str, Any]:
        """Wait for requests, and return the last of them."""
        name = find_api(api).title

        def fitting() -> list[dict[str, Any]]:
            return [
                asdict(request)
                for request in self._log.after(after)
                if request.api == name
                and client_id in (None, request.client_id)
                and (request.seconds is not None or not answered)
            ]

        try:
            await self._log.wait(lambda: len(fitting()) >= count, timeout)
        except TimeoutError:
            client = "" if client_id is None else f" of client {client_id!r}"
            seen = len(fitting())
            raise TimeoutError(f"within {timeout:g} s {seen} {name} requests{client} were seen, not {count}") from None
        return fitting()[count - 1]

    async def history(self) -> dict[str, dict[str, Any]]:
        """The events of every group, their explanations, and the requests of its members since the last start."""
        events = self._past if self._broker is None else _histories(self._server, self._past)
        return {
            group: {
                "events": each,
                "explanations": [explanation.as_data() for explanation in explain(filter(None, map(read_event, each)))],
                "requests": None if self._broker is None else self._server.services.groups.requests.of(group),
            }
            for group, each in events.items()
        }

    # Topics

    async def create_topic(self, name: str, partitions: int, config: dict[str, str], replication_factor: int) -> None:
        """Create a topic.

        Raises:
            ValueError: the broker refuses it.
        """
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in config.items()]
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[],
            configs=configs,
        )
        answer = await self._server.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]), "test")
        result = answer.topics[0]
        if result.error_code != ErrorCode.NONE:
            why = result.error_message or ErrorCode.of(result.error_code).name
            raise ValueError(f"topic {name!r} cannot be created: {why}")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, if there is one."""
        states = [DeleteTopicState(name=name, topic_id=bytes(16))]
        request = DeleteTopicsRequest(topics=states, timeout_ms=30_000)
        await self._server.ask(ApiKey.DELETE_TOPICS, request, "test")

    async def set_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set configuration keys of a group.

        Raises:
            ValueError: the broker refuses them.
        """
        keys = [IncrementalAlterableConfig(name=key, config_operation=_SET, value=text) for key, text in config.items()]
        resource = IncrementalAlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=keys)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._server.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, "test")
        result = answer.responses[0]
        if result.error_code != ErrorCode.NONE:
            why = result.error_message or ErrorCode.of(result.error_code).name
            raise ValueError(f"group {group!r} cannot be configured: {why}")

    # Records

    async def append(self, topic: str, partition: int, records: list[list[str | None]]) -> None:
        """Append records, and wait until consumers can read them.

        Args:
            topic: the topic.
            partition: the partition.
            records: key and value of each, in base64.

        Raises:
            ValueError: the broker refuses them.
        """
        now_ms = time.time_ns() // 1_000_000
        given = [(decoded(key), decoded(value), (), now_ms) for key, value in records]
        try:
            await append_records(self._server.services.replicas.find(topic, partition), given, now_ms)
        except KafkaError as error:
            raise ValueError(f"records cannot be written to {topic}-{partition}: {error}") from None

    async def records(self, topic: str, count: int, timeout: float) -> list[list[Any]]:
        """The records of a topic, once there are so many; see :func:`.contents.read_records`.

        Raises:
            ValueError: there is no such topic.
            TimeoutError: there were fewer.
        """
        known = self._cluster.image.topics.get(topic)
        if known is None:
            raise ValueError(f"there is no topic {topic!r}")
        find = self._server.services.replicas.find
        replicas = [(number, find(topic, number)) for number in range(len(known.partitions))]
        return await read_records(replicas, count, timeout)

    # Schemas

    async def serve_registry(self) -> int:
        """Start the schema registry, if it does not run; its port, which it keeps after a restart.

        Raises:
            BrokerError: it cannot start.
        """
        server = self._server
        if self._schemas is None:
            # In a thread: the import takes longer than a broker that serves clients may be held.
            load = partial(require, wanted_by="the schema registry", extra="registry")
            api = await asyncio.to_thread(load, "barnabas_broker.schema_registry.api")
            self._schemas = await api.RegistryServer.start(server, server.host, self._registry or 0)
        registry: int = self._schemas.port
        self._registry = registry
        return registry

    async def clear_registry(self) -> None:
        """Remove what is in the schema registry, if it runs."""
        if self._schemas is not None:
            await self._schemas.clear()

    # Time

    async def advance(self, seconds: float) -> float:
        """Move the clock on; the seconds by which it is ahead now."""
        running = self._running
        running.clock.advance(seconds)
        running.server.maintain()
        self._ahead = running.clock.ahead
        return self._ahead

    def expire_member(self, group_id: str, name: str) -> str:
        """End the session of a member; its member id.

        Args:
            group_id: of its group.
            name: its member id, instance id or client id.

        Raises:
            ValueError: there is no such member, or several, or it waits for a rebalance.
        """
        groups = self._server.services.groups
        hosted = groups.groups.get(group_id)
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
        groups.expire_member(group_id, fitting[0])
        if fitting[0] in members:
            raise ValueError(
                f"member {name!r} of group {group_id!r} waits for a rebalance, so its session cannot expire"
            )
        return fitting[0]

    # As one of a cluster

    async def sequence(self) -> int:
        """The number of the last change of the metadata that this broker knows."""
        return self._cluster.sequence

    async def reached(self, sequence: int, timeout: float) -> None:
        """Wait until this broker knows a change.

        Raises:
            TimeoutError: it did not in time.
        """
        cluster = self._cluster
        await self._wait(lambda image: "a change is not known" if cluster.sequence < sequence else None, timeout)

    async def members(self, node_ids: list[int], timeout: float) -> None:
        """Wait until this broker knows that exactly these brokers are there.

        Raises:
            TimeoutError: they were not in time.
        """
        await self._wait(
            lambda image: None if sorted(image.brokers) == node_ids else f"the brokers are {sorted(image.brokers)}",
            timeout,
        )

    async def leader(self, topic: str, partition: int, timeout: float) -> int:
        """Wait until a partition has a leader; its node id.

        Raises:
            TimeoutError: it has none in time.
        """

        def waits(image: Image) -> str | None:
            return None if leader_of(image, topic, partition) is not None else f"{topic}-{partition} has no leader"

        return leader_of(await self._wait(waits, timeout), topic, partition) or 0

    async def in_sync(self, topic: str | None, timeout: float) -> None:
        """Wait until all replicas of a topic, or of all topics, are in sync.

        Raises:
            TimeoutError: they were not in time.
        """
        await self._wait(lambda image: not_in_sync(image, topic), timeout)

    def topics(self) -> list[str]:
        """All topics except Kafka's own."""
        return [name for name in self._cluster.image.topics if name not in INTERNAL_TOPICS]

    async def _wait(self, waits: Callable[[Image], str | None], timeout: float) -> Image:
        """Wait for a cluster image.

        Args:
            waits: says what of an image is not yet as it should be; None if it is.
            timeout: seconds to wait.

        Returns:
            The image.

        Raises:
            TimeoutError: there was none in time.
        """
        cluster = self._cluster
        try:
            async with asyncio.timeout(timeout):
                while waits(cluster.image) is not None:
                    await cluster.reached(cluster.sequence + 1)
        except TimeoutError:
            raise TimeoutError(f"after {timeout:g} s {waits(cluster.image)}") from None
        return cluster.image

    async def process_ended(self, node_id: int) -> None:
        """Fence another broker of the cluster, whose process has ended."""
        lifecycle = self._server.view.lifecycle
        known = self._cluster.image.brokers.get(node_id)
        if lifecycle is not None and known is not None:
            await lifecycle.process_ended(node_id, known.epoch)

    async def move_leader(self, topic: str, partition: int, to: int | None) -> int:
        """Elect another leader of a partition; its node id.

        Raises:
            ValueError: there is no such partition, or no such replica that is in sync.
        """
        return await self._cluster.change(lambda image: moved_leader(image, topic, partition, to))

    def disconnect(self, client_id: str | None) -> int:
        """Close connections now, without a response to their requests.

        Args:
            client_id: of these clients; None for all.

        Returns:
            How many were closed.
        """
        server = self._server.server
        return server.disconnect(self._running.tap.peers_of(client_id, server.peers))


def _histories(broker: BrokerServer, past: dict[str, list[EventRecord]]) -> dict[str, list[EventRecord]]:
    """The events of every group, before and with this broker."""
    journal = broker.services.groups.journal
    out = {group: list(events) for group, events in past.items()}
    for group in journal.groups:
        events = out.get(group, []) + [record_of(event) for event in journal.recent(group)]
        out[group] = events[-_MOST_EVENTS:]
    return out
