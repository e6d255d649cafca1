"""Carries out what changes the registry: checks, decides, appends the records, applies them.

One change after the other, so that what was decided is still true when it is applied. Avro's library takes its time for
a large schema, so checks are done in a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from barnabas_broker.schema_registry.avro_rules import Parsed, parse, problems
from barnabas_broker.schema_registry.errors import RegistryError
from barnabas_broker.schema_registry.records import SchemaChange
from barnabas_broker.schema_registry.registry import Registry, Version
from barnabas_broker.schema_registry.schemas import AVRO, Schema
from barnabas_broker.schema_registry.topic import SchemasTopic
from barnabas_protocol.errors import KafkaError

T = TypeVar("T")


class _Earlier(NamedTuple):
    """A version that a new schema is compared with."""

    version: int
    type: str
    given: Parsed


class RegistryService:
    """The registry of a broker.

    Args:
        topic: where its records are.

    Attributes:
        registry: its state.
    """

    def __init__(self, topic: SchemasTopic) -> None:
        self.registry = Registry()
        self._topic = topic
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the state.

        Raises:
            BrokerError: it cannot be read.
        """
        await self._topic.open()
        async for change in self._topic.read():
            self.registry.apply(change)

    async def register(self, subject: str, schema: Schema, id: int | None, version: int | None) -> Version:
        """Register a schema, unless the subject has it; the version.

        Raises:
            RegistryError: it is not valid, not compatible, or may not be registered.
        """
        async with self._lock:
            found = self.registry.known(subject, schema)
            if found is not None and (id is None or id == found.id):
                return found
            changes = self.registry.register(subject, schema, id, version)
            level = "NONE" if id is not None else self.registry.level(subject, or_default=True)
            found_problems = await self._problems(schema, level, self._live(subject))
            if found_problems:
                raise RegistryError(
                    40901,
                    "Schema being registered is incompatible with an earlier schema for subject "
                    f'"{subject}", details: [{"; ".join(found_problems)}]',
                )
            await self._write(changes)
            return self.registry.version(subject, changes[0].key.version)

    async def compatible(self, subject: str, schema: Schema, version: int | None, *, all: bool) -> list[str]:
        """Reasons why a schema is not compatible; none if it is.

        Args:
            subject: the subject.
            schema: the schema.
            version: of the subject; None for the latest.
            all: compare with all versions, if the level asks for that.

        Raises:
            RegistryError: there is no such version, or the schema is not valid.
        """
        async with self._lock:
            level = self.registry.level(subject, or_default=True)
            if all:
                return await self._problems(schema, level, self._live(subject))
            compared = [] if version is None else [self.registry.version(subject, version)]
            if version is None and self._live(subject):
                compared = [self.registry.version(subject, None)]
            return await self._problems(schema, level, compared)

    def _live(self, subject: str) -> list[Version]:
        return self.registry.versions(subject) if subject in self.registry.subjects(prefix=subject) else []

    async def change(self, decide: Callable[[Registry], tuple[T, Sequence[SchemaChange]]]) -> T:
        """Decide on a change, and make it; the result.

        Raises:
            RegistryError: it cannot be made.
        """
        async with self._lock:
            result, changes = decide(self.registry)
            await self._write(changes)
            return result

    async def _write(self, changes: Sequence[SchemaChange]) -> None:
        if not changes:
            return
        try:
            await self._topic.append(changes)
        except KafkaError as error:
            raise RegistryError(50001, f"Error while writing to the topic of the registry: {error}") from error
        for change in changes:
            self.registry.apply(change)

    async def _problems(self, schema: Schema, level: str, versions: Sequence[Version]) -> list[str]:
        """Check a schema, and compare it with earlier versions; the problems, oldest version first.

        Raises:
            RegistryError: it is not valid.
        """
        used = self.registry.used_by(schema)
        compared = versions if level.endswith("_TRANSITIVE") else versions[-1:]
        earlier = [] if level == "NONE" else [self._earlier(each) for each in compared]
        if schema.type != AVRO:
            return [_OTHER_TYPE.format(each.version) for each in earlier if each.type != schema.type]
        return await asyncio.to_thread(_compared, _given(schema, used), level, earlier)

    def _earlier(self, each: Version) -> _Earlier:
        return _Earlier(each.version, each.schema.type, _given(each.schema, self.registry.used_by(each.schema)))


_OTHER_TYPE = "version {} is a schema of another type"


def _given(schema: Schema, used: Sequence[Schema]) -> Parsed:
    return Parsed(schema.text, tuple(each.text for each in used))


def _compared(given: Parsed, level: str, earlier: Sequence[_Earlier]) -> list[str]:
    new = parse(given)
    found: list[str] = []
    for each in earlier:
        if each.type != AVRO:
            found.append(_OTHER_TYPE.format(each.version))
            continue
        old = parse(each.given)
        directions = [("the new schema cannot read version", new, old)] if not level.startswith("FORWARD") else []
        directions += (
            [("the new schema cannot be read by version", old, new)] if level.startswith(("FORWARD", "FULL")) else []
        )
        for how, reader, writer in directions:
            found += (f"{level}: {how} {each.version}: {why}" for why in problems(reader, writer))
    return found
