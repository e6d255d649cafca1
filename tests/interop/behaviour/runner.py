"""Plays scenarios: sends their requests over raw connections and records the responses."""

import asyncio
import random
import struct
import uuid
from collections import deque
from collections.abc import Mapping
from string import Template
from typing import Any, Final

from barnabas_protocol import codec
from barnabas_protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas_protocol.records.builder import build_batch
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request, Struct, WireType
from tests.interop.behaviour.language import (
    START,
    Ask,
    Assignment,
    Batch,
    Hang,
    Hear,
    Raw,
    Scenario,
    Server,
    Subscription,
)
from tests.interop.behaviour.normal import Normaliser
from tests.interop.behaviour.servers import USERS, log_in
from tests.wire import Wire

#: Seconds after which a condition fails.
LIMIT: Final = 90.0
#: Seconds between two checks of a condition.
PAUSE: Final = 0.02

Transcript = list[dict[str, Any]]


class Player:
    """Plays one scenario against the broker on a port.

    Args:
        port: the port of the broker on 127.0.0.1.
    """

    def __init__(self, port: int) -> None:
        unique = uuid.UUID(int=random.getrandbits(128)).hex[:12]
        self.saved: dict[str, Any] = {"topic": f"topic-{unique}", "group": f"group-{unique}"}
        self._port = port
        self._secured = False
        self._wires: dict[str, Wire] = {}
        self._open: dict[str, deque[Ask]] = {}
        self._normal = Normaliser(port, self.saved)

    async def play(self, scenario: Scenario) -> Transcript:
        """Play the scenario; return each step with its normalised response.

        Raises:
            AssertionError: a condition of the scenario did not become true, or a response did not arrive.
        """
        transcript: Transcript = []
        self._secured = scenario.server == "secured"
        self._normal.texts = scenario.texts
        try:
            for number, step in enumerate(scenario.steps):
                try:
                    answer = await self._step(step)
                except (AssertionError, TimeoutError, asyncio.IncompleteReadError) as error:
                    raise AssertionError(f"{scenario.name}, step {number}, {step}: {error!r} {transcript}") from error
                if answer is not None:
                    transcript.append({"step": f"{number} {step}", "answer": answer})
        finally:
            for wire in self._wires.values():
                await wire.close()
        return transcript

    async def _step(self, step: Ask | Hear | Raw | Hang) -> Any:
        if isinstance(step, Hang):
            await self._wires.pop(step.on).close()
            self._open.pop(step.on, None)
            return None
        wire = await self._wire(step.on)
        if isinstance(step, Raw):
            return await self._raw(wire, step)
        if isinstance(step, Hear):
            asked = self._open[step.on].popleft()
            return await self._hear(wire, asked, step.save, step.quiet)
        if step.later or step.unanswered:
            wire.send(self._request(step), step.version, step.client_id)
            if step.later:
                self._open.setdefault(step.on, deque()).append(step)
            return None
        return await self._ask(wire, step)

    async def _wire(self, name: str) -> Wire:
        if name not in self._wires:
            wire = await Wire.connect(self._port)
            if self._secured and not name.startswith("new"):
                await log_in(wire, name if name in USERS else "root")
            self._wires[name] = wire
        return self._wires[name]

    async def _raw(self, wire: Wire, step: Raw) -> Any:
        size = len(step.frame) if step.size is None else step.size
        wire.writer.write(struct.pack(">i", size) + step.frame)
        try:
            return (await wire.frame()).hex()
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"

    async def _ask(self, wire: Wire, step: Ask) -> Any:
        request = self._request(step)
        wanted = {path: self._resolve(value) for path, value in step.until.items()}
        deadline = asyncio.get_running_loop().time() + LIMIT
        while True:
            wire.send(request, step.version, step.client_id)
            answer = await self._answer(wire, step)
            self._narrow(answer, step)
            if isinstance(answer, str) or all(_has(answer, path, value) for path, value in wanted.items()):
                return self._tell(answer, step.save, step.quiet)
            assert asyncio.get_running_loop().time() < deadline, f"not {wanted} after {LIMIT:.0f} s: {answer}"
            await asyncio.sleep(PAUSE)

    async def _hear(self, wire: Wire, asked: Ask, save: Mapping[str, str], quiet: bool) -> Any:
        return self._tell(await self._answer(wire, asked), save, quiet)

    async def _answer(self, wire: Wire, asked: Ask) -> Struct | str:
        try:
            frame = await wire.frame()
        except (asyncio.IncompleteReadError, ConnectionError):
            return "closed"
        version = asked.version
        if asked.api is ApiKey.API_VERSIONS and struct.unpack_from(">h", frame, 4)[0] == 35:
            version = 0
        return codec.decode_response(api(asked.api).response, version, frame)

    def _narrow(self, answer: Struct | str, step: Ask) -> None:
        """Remove list elements that do not belong to this scenario."""
        for path, value in step.only.items():
            where, _, name = path.rpartition(".")
            elements = at(answer, where)
            elements[:] = [one for one in elements if getattr(one, name) == self._resolve(value)]

    def _tell(self, answer: Struct | str, save: Mapping[str, str], quiet: bool) -> Any:
        if isinstance(answer, str):
            return answer
        for name, path in save.items():
            self.saved[name] = at(answer, path)
        return None if quiet else self._normal.normalise(answer)

    def _request(self, step: Ask) -> Request:
        made = self._build(api(step.api).request, step.content)
        assert isinstance(made, Request)
        return made

    def _build(self, cls: type[Struct], content: Mapping[str, Any]) -> Struct:
        unknown = set(content) - {f.name for f in cls.FIELDS}
        assert not unknown, f"{cls.__name__} has no {unknown}"
        return cls(
            **{f.name: self._value(f.type, content[f.name]) if f.name in content else f.absent() for f in cls.FIELDS}
        )

    def _value(self, of: WireType[Any], value: Any) -> Any:
        if value is None:
            return None
        if of.element is not None:
            element = of.element
            return [self._value(element, one) for one in value]
        if of.struct is not None:
            return self._build(of.struct, value)
        return self._resolve(value)

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, str):
            if value[:1] == "$" and value[1:] in self.saved:
                return self.saved[value[1:]]
            return Template(value).substitute(self.saved)
        if isinstance(value, Batch):
            return self._batch(value)
        if isinstance(value, Subscription):
            owned = [
                TopicPartition(topic=self._resolve(topic), partitions=list(partitions))
                for topic, partitions in value.owned.items()
            ]
            topics = [self._resolve(topic) for topic in value.topics]
            subscription = ConsumerProtocolSubscription(topics=topics, owned_partitions=owned)
            return struct.pack(">h", value.version) + codec.encode(subscription, value.version)
        if isinstance(value, Assignment):
            assigned = [
                ConsumerProtocolAssignmentTopicPartition(topic=self._resolve(topic), partitions=list(partitions))
                for topic, partitions in value.partitions.items()
            ]
            assignment = ConsumerProtocolAssignment(assigned_partitions=assigned, user_data=value.user_data)
            return b"\x00\x00" + codec.encode(assignment, 0)
        return value

    def _batch(self, batch: Batch) -> bytes:
        start = START if batch.start is None else batch.start
        records = []
        for number, value in enumerate(batch.values):
            key, text = (None, value) if isinstance(value, str) else value
            records.append((_bytes(key), _bytes(text), (), start + 1000 * number))
        made = build_batch(
            records,
            compression=batch.compression,
            producer_id=self._resolve(batch.producer_id),
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            transactional=batch.transactional,
            control=batch.control,
        )
        if batch.spoil is not None:
            where, what = batch.spoil
            made[where : where + len(what)] = what
        return bytes(made) * batch.times


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def at(answer: Any, path: str) -> Any:
    """Return the value at a path like ``topics.0.topic_id``."""
    for part in path.split("."):
        answer = answer[int(part)] if isinstance(answer, list) else getattr(answer, part)
    return answer


def _has(answer: Any, path: str, value: Any) -> bool:
    try:
        if path.endswith(".length"):
            return bool(len(at(answer, path.removesuffix(".length"))) == value)
        return bool(at(answer, path) == value)
    except (IndexError, AttributeError):  # the list is shorter, or the structure is null
        return False


async def warm_up(port: int, server: Server = "plain") -> None:
    """Wait until the group coordinator and producer ids work: the first use creates what they need."""
    groups = {"groups": [{"group_id": "warm", "topics": None}]}
    find = Ask(ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["warm"]}, until={"coordinators.0.error_code": 0})
    load = Ask(ApiKey.OFFSET_FETCH, 8, groups, until={"groups.0.error_code": 0})
    ids = Ask(
        ApiKey.INIT_PRODUCER_ID, 0, {"transactional_id": None, "transaction_timeout_ms": 1}, until={"error_code": 0}
    )
    await Player(port).play(Scenario("warm up", (find, load, ids), server=server))
