"""The host of a test's broker: carries out the commands of the test in the broker's event loop.

It runs brokers one after another, on a thread or in a process of its own.
"""

import asyncio
import time
from dataclasses import asdict
from inspect import isawaitable
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cluster.image import Image
from barnabas_broker.config import BROKER_KEYS, PLAINTEXT, Config, Listener
from barnabas_broker.config.checks import check_config
from barnabas_broker.config.keys import LISTENERS, SECURITY_INTER_BROKER_PROTOCOL
from barnabas_broker.errors import BrokerError
from barnabas_broker.init import Declared, read
from barnabas_broker.replication.contents import append_records
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.permissions import read_acls
from barnabas_broker.testing.clock import AdvancingClock
from barnabas_broker.testing.contents import read_records
from barnabas_broker.testing.leaders import leader_of, not_in_sync
from barnabas_broker.testing.link import Command, Reply
from barnabas_broker.testing.records import decoded
from barnabas_broker.testing.rules import Rules, find_api
from barnabas_broker.testing.seen import RequestLog
from barnabas_broker.testing.warm import warm_up
from barnabas_broker.testing.watched import WatchedBroker
from barnabas_explain.explain import explain
from barnabas_explain.records import EventRecord, read_event, record_of
from barnabas_protocol.errors import ErrorCode, KafkaError
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


#: Commands that methods of the running broker carry out.
_OF_BROKER: Final = frozenset(
    ("clear_registry", "disconnect", "expire_member", "load_groups", "move_leader", "process_ended", "topics")
)


class BrokerHost:
    """Carries out commands: each is a public method of the same name, of this object or of the running broker."""

    def __init__(self) -> None:
        self._broker: WatchedBroker | None = None
        self._given: dict[str, str] = {}
        self._where = ("127.0.0.1", 0)
        self._security = PLAINTEXT
        self._users: dict[str, str] = {}
        self._acls: list[AclBinding] = []
        self._ahead = 0.0
        self._init: Declared | None = None
        self._registry: int | None = None
        self._log = RequestLog()
        self._rules = Rules(time.time_ns())
        self._past: dict[str, list[EventRecord]] = {}
        self._warming: asyncio.Task[None] | None = None

    async def handle(self, command: Command) -> Reply:
        """Carry out a command; always returns a reply."""
        arguments = {name: value for name, value in command.items() if name not in ("do", "id")}
        try:
            return {"ok": await self._carry_out(command["do"], arguments)}
        except BrokerError as error:
            return {"failed": str(error), "kind": "broker"}
        except ValueError as error:
            return {"failed": str(error), "kind": "value"}
        except TimeoutError as error:
            return {"failed": str(error), "kind": "timeout"}
        except Exception as error:
            return {"failed": f"{command['do']}: {type(error).__name__}: {error}", "kind": "broker"}

    async def _carry_out(self, name: str, arguments: dict[str, Any]) -> Any:
        if name not in _OF_BROKER:
            return await getattr(self, name)(**arguments)
        result = getattr(self._running, name)(**arguments)
        return await result if isawaitable(result) else result

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
        self._broker = await WatchedBroker.start(config, *self._where, self._log, self._rules, self._users, clock)
        if self._acls:
            await self._broker.create_acls(self._acls)
        self._where = (self._where[0], self._broker.port)
        try:
            if self._init is not None:
                await self._broker.initialize(self._init)
            if self._registry is not None:
                await self._broker.serve_registry(self._registry)
        except BaseException:
            await self.stop()
            raise

    @property
    def _running(self) -> WatchedBroker:
        if self._broker is None:
            raise BrokerError("the broker is not running")
        return self._broker

    async def stop(self) -> None:
        """Stop the broker, if one is running."""
        broker, self._broker = self._broker, None
        if self._warming is not None:
            self._warming.cancel()
        if broker is not None:
            self._past = _histories(broker, self._past)
            broker.release(self._rules)
            await broker.stop()

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
            self._broker.release([rule])

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
        events = self._past if self._broker is None else _histories(self._broker, self._past)
        return {
            group: {
                "events": each,
                "explanations": [explanation.as_data() for explanation in explain(filter(None, map(read_event, each)))],
                "requests": None if self._broker is None else self._broker.groups.requests.of(group),
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
        answer = await self._running.ask(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics=[topic]))
        result = answer.topics[0]
        if result.error_code != ErrorCode.NONE:
            why = result.error_message or ErrorCode.of(result.error_code).name
            raise ValueError(f"topic {name!r} cannot be created: {why}")

    async def delete_topic(self, name: str) -> None:
        """Delete a topic, if there is one."""
        states = [DeleteTopicState(name=name, topic_id=bytes(16))]
        await self._running.ask(ApiKey.DELETE_TOPICS, DeleteTopicsRequest(topics=states, timeout_ms=30_000))

    async def set_group_config(self, group: str, config: dict[str, str]) -> None:
        """Set configuration keys of a group.

        Raises:
            ValueError: the broker refuses them.
        """
        keys = [IncrementalAlterableConfig(name=key, config_operation=_SET, value=text) for key, text in config.items()]
        resource = IncrementalAlterConfigsResource(resource_type=_GROUP, resource_name=group, configs=keys)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = await self._running.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request)
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
            await append_records(self._running.replica(topic, partition), given, now_ms)
        except KafkaError as error:
            raise ValueError(f"records cannot be written to {topic}-{partition}: {error}") from None

    async def records(self, topic: str, count: int, timeout: float) -> list[list[Any]]:
        """The records of a topic, once there are so many; see :func:`.contents.read_records`.

        Raises:
            ValueError: there is no such topic.
            TimeoutError: there were fewer.
        """
        running = self._running
        replicas = [(number, running.replica(topic, number)) for number in running.partitions(topic)]
        if not replicas:
            raise ValueError(f"there is no topic {topic!r}")
        return await read_records(replicas, count, timeout)

    # Schemas

    async def serve_registry(self) -> int:
        """Start the schema registry; its port, which it keeps after a restart."""
        self._registry = await self._running.serve_registry(self._registry or 0)
        return self._registry

    # Time

    async def advance(self, seconds: float) -> float:
        """Move the clock on; the seconds by which it is ahead now."""
        self._ahead = self._running.advance(seconds)
        return self._ahead

    # As one of a cluster

    async def sequence(self) -> int:
        """The number of the last change of the metadata that this broker knows."""
        return self._running.sequence

    async def reached(self, sequence: int, timeout: float) -> None:
        """Wait until this broker knows a change.

        Raises:
            TimeoutError: it did not in time.
        """
        running = self._running
        await running.wait(lambda image: "a change is not known" if running.sequence < sequence else None, timeout)

    async def members(self, node_ids: list[int], timeout: float) -> None:
        """Wait until this broker knows that exactly these brokers are there.

        Raises:
            TimeoutError: they were not in time.
        """
        await self._running.wait(
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

        return leader_of(await self._running.wait(waits, timeout), topic, partition) or 0

    async def in_sync(self, topic: str | None, timeout: float) -> None:
        """Wait until all replicas of a topic, or of all topics, are in sync.

        Raises:
            TimeoutError: they were not in time.
        """
        await self._running.wait(lambda image: not_in_sync(image, topic), timeout)


def _histories(broker: WatchedBroker, past: dict[str, list[EventRecord]]) -> dict[str, list[EventRecord]]:
    """The events of every group, before and with this broker."""
    journal = broker.groups.journal
    out = {group: list(events) for group, events in past.items()}
    for group in journal.groups:
        events = out.get(group, []) + [record_of(event) for event in journal.recent(group)]
        out[group] = events[-_MOST_EVENTS:]
    return out
