"""Reads the file of ``--init``: YAML whose every mistake is reported with its line. Pure but for reading files.

::

    topics:
      orders:
        partitions: 6
        config: {retention.ms: 604800000}
        records: [orders.jsonl]
    users:
      ada: {password_file: ada.password}
    acls:
      ada: [read topic orders, read group billing]
    quotas:
      - {user: ada, producer_byte_rate: 1000000}
    groups:
      billing: {orders: earliest}
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from barnabas_broker.config import TOPIC_KEYS, ConfigError
from barnabas_broker.optional import require
from barnabas_broker.quotas.entities import CLIENT_ID, IP, USER, QuotaKey
from barnabas_broker.security.bindings import AclBinding
from barnabas_broker.security.permissions import read_acls
from barnabas_protocol.suggestions import did_you_mean

#: Maximum bytes of a file: records belong into files of their own.
_MOST_BYTES: Final = 4 * 1024 * 1024
#: Maximum number of collections within each other: those of a record's value have some.
_MOST_DEPTH: Final = 32
_ENTITIES: Final = {"user": USER, "client_id": CLIENT_ID, "ip": IP}
#: The name that stands for all that have no quota of their own.
DEFAULT_ENTITY: Final = "<default>"
#: Where a group may begin, and the timestamp that asks for it.
PLACES: Final = ("earliest", "latest")
_TRUE: Final = ("true", "yes", "on")


class InitError(ConfigError):
    """A declaration cannot be carried out; the text names file and line, and says what to do."""


@dataclass(frozen=True, slots=True)
class FileLine:
    """A line of a file."""

    file: Path
    line: int

    def error(self, text: str) -> InitError:
        """An error about this line."""
        return InitError(f"{self.file}:{self.line}: {text}")


@dataclass(frozen=True, slots=True)
class Seed:
    """Records of a topic: those of a file, or one that stands in the document.

    Attributes:
        place: where it is declared.
        file: the file, ``.jsonl`` or ``.csv``; None for one record.
        key: the name of the field, or the column, that is the key of a file's records; None for no key.
        record: the one record, as a line of JSON would have it.
    """

    place: FileLine
    file: Path | None = None
    key: str | None = None
    record: Any = None


@dataclass(frozen=True, slots=True)
class DeclaredTopic:
    """A topic.

    Attributes:
        name: its name.
        place: where it is declared.
        partitions: how many; None for the broker's default.
        config: Kafka's keys for topics.
        seeds: its first records.
    """

    name: str
    place: FileLine
    partitions: int | None = None
    config: dict[str, str] = field(default_factory=dict)
    seeds: list[Seed] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DeclaredQuota:
    """Quotas of an entity, by its types and names; the name None stands for all others."""

    place: FileLine
    entity: dict[str, str | None]
    values: dict[str, float]


@dataclass(frozen=True, slots=True)
class DeclaredOffsets:
    """Where a group begins in a topic: "earliest", "latest", an offset, or offsets by partition."""

    place: FileLine
    group: str
    topic: str
    offset: str | int | dict[int, int]


@dataclass(slots=True)
class Declared:
    """Everything that a file declares.

    Attributes:
        file: its path.
        topics: the topics.
        users: passwords by user.
        acls: the ACLs, with their places.
        quotas: the quotas.
        offsets: where groups begin.
    """

    file: Path
    topics: list[DeclaredTopic] = field(default_factory=list)
    users: dict[str, str] = field(default_factory=dict)
    acls: list[tuple[FileLine, AclBinding]] = field(default_factory=list)
    quotas: list[DeclaredQuota] = field(default_factory=list)
    offsets: list[DeclaredOffsets] = field(default_factory=list)


def read(file: Path) -> Declared:
    """Read a file.

    Raises:
        InitError: it cannot be read, or something in it is wrong; the text names the line.
        BrokerError: PyYAML is not installed.
    """
    yaml = require("yaml", wanted_by="--init", extra="init")
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise InitError(f"{file}: it has more than {_MOST_BYTES:,} bytes: put the records into files of their own")
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InitError(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            place = FileLine(file, event.start_mark.line + 1)
            if isinstance(event, yaml.AliasEvent):
                raise place.error("an alias (*NAME) is not accepted: write it out")
            if depth > _MOST_DEPTH:
                raise place.error(f"it is nested more than {_MOST_DEPTH} times")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise FileLine(file, mark.line + 1 if mark else 1).error(
            f"not YAML: {error.problem or error.context}"
        ) from None
    except yaml.YAMLError as error:
        raise InitError(f"{file}: not YAML: {error}") from None
    return _Reader(file, yaml).document(root)


class _Reader:
    """Turns the nodes of YAML into what is declared."""

    def __init__(self, file: Path, yaml: Any) -> None:
        self._file = file
        self._yaml = yaml

    def document(self, root: Any) -> Declared:
        declared = Declared(self._file)
        if root is None:
            return declared
        sections = {
            "topics": self._topics,
            "users": self._users,
            "acls": self._acls,
            "quotas": self._quotas,
            "groups": self._groups,
        }
        for name, place, node in self._entries(root, "the file", tuple(sections)):
            if not self._is_empty(node):
                sections[name](declared, place, node)
        return declared

    # Nodes

    def _place(self, node: Any) -> FileLine:
        return FileLine(self._file, node.start_mark.line + 1)

    def _is_empty(self, node: Any) -> bool:
        return isinstance(node, self._yaml.ScalarNode) and node.tag.endswith(":null")

    def _entries(self, node: Any, what: str, known: tuple[str, ...] = ()) -> Iterator[tuple[str, FileLine, Any]]:
        """Names, places and nodes of a mapping.

        Raises:
            InitError: it is not one, has a name twice, or one that is not known.
        """
        if not isinstance(node, self._yaml.MappingNode):
            raise self._place(node).error(f"{what} must be a mapping (name: value)")
        seen: dict[str, FileLine] = {}
        for key, value in node.value:
            place = self._place(key)
            name = self._text(key, f"a name in {what}")
            if name in seen:
                raise place.error(f"{name} is given twice, in line {seen[name].line} as well")
            if known and name not in known:
                hint = did_you_mean(name, known) or f": give one of {', '.join(known)}"
                raise place.error(f"{what} has no {name}{hint}")
            seen[name] = place
            yield name, place, value

    def _items(self, node: Any, what: str) -> list[Any]:
        if not isinstance(node, self._yaml.SequenceNode):
            raise self._place(node).error(f"{what} must be a list (- item)")
        return list(node.value)

    def _text(self, node: Any, what: str) -> str:
        if not isinstance(node, self._yaml.ScalarNode) or self._is_empty(node):
            raise self._place(node).error(f"{what} must be text")
        if node.tag.endswith(":bool"):
            return "true" if node.value.lower() in _TRUE else "false"
        return str(node.value)

    def _number(self, node: Any, what: str, low: int) -> int:
        text = self._text(node, what)
        try:
            number = int(text.replace("_", ""))
        except ValueError:
            number = low - 1
        if number < low:
            raise self._place(node).error(f"{what} must be a whole number from {low} on, got {text}")
        return number

    def _data(self, node: Any) -> Any:
        return self._yaml.safe_load(self._yaml.serialize(node, Dumper=self._yaml.SafeDumper))

    # Sections

    def _topics(self, declared: Declared, place: FileLine, node: Any) -> None:
        for name, at, value in self._entries(node, "topics"):
            topic = DeclaredTopic(name, at)
            declared.topics.append(topic)
            if self._is_empty(value):
                continue
            for key, _, each in self._entries(value, f"topic {name}", ("partitions", "config", "records")):
                if key == "partitions":
                    declared.topics[-1] = topic = DeclaredTopic(
                        name, at, self._number(each, "partitions", 1), topic.config, topic.seeds
                    )
                elif key == "config":
                    topic.config.update(self._config(each))
                else:
                    topic.seeds.extend(self._seeds(each))

    def _config(self, node: Any) -> dict[str, str]:
        found = {}
        for key, place, value in self._entries(node, "config", tuple(TOPIC_KEYS)):
            text = self._text(value, key)
            try:
                TOPIC_KEYS[key].read(text)
            except ConfigError as error:
                raise place.error(str(error)) from None
            found[key] = text
        return found

    def _seeds(self, node: Any) -> Iterator[Seed]:
        many = isinstance(node, self._yaml.SequenceNode)
        for item in node.value if many else [node]:
            place = self._place(item)
            if isinstance(item, self._yaml.ScalarNode):
                yield Seed(place, self._seed_file(item))
                continue
            given = {name: each for name, _, each in self._entries(item, "records")}
            if "file" in given:
                for name in given.keys() - {"file", "key"}:
                    raise place.error(f"records of a file have no {name}, only file and key")
                key = self._text(given["key"], "key") if "key" in given else None
                yield Seed(place, self._seed_file(given["file"]), key)
            elif "value" in given:
                yield Seed(place, record=self._data(item))
            else:
                raise place.error("records must have a file, or a value: - {file: orders.jsonl}, or - {value: one}")

    def _seed_file(self, node: Any) -> Path:
        name = self._text(node, "a file of records")
        if not name.endswith((".jsonl", ".csv")):
            raise self._place(node).error(f"{name}: a file of records must end with .jsonl or .csv")
        file = self._file.parent / name
        if not file.is_file():
            raise self._place(node).error(f"{file}: there is no such file")
        return file

    def _users(self, declared: Declared, place: FileLine, node: Any) -> None:
        for name, at, value in self._entries(node, "users"):
            given = {key: each for key, _, each in self._entries(value, f"user {name}", ("password", "password_file"))}
            if len(given) != 1:
                raise at.error(f"user {name}: give password, or password_file")
            if "password" in given:
                password = self._text(given["password"], "password")
            else:
                file = self._file.parent / self._text(given["password_file"], "password_file")
                try:
                    password = file.read_text("utf-8").partition("\n")[0].removesuffix("\r")
                except (OSError, UnicodeDecodeError) as error:
                    raise self._place(given["password_file"]).error(f"{file}: {error}") from None
            if not password:
                raise at.error(f"user {name}: its password is empty")
            declared.users[name] = password

    def _acls(self, declared: Declared, place: FileLine, node: Any) -> None:
        for user, _, value in self._entries(node, "acls"):
            for item in self._items(value, f"the ACLs of {user}"):
                at = self._place(item)
                try:
                    bindings = read_acls({user: [self._text(item, "an ACL")]})
                except ValueError as error:
                    raise at.error(str(error)) from None
                declared.acls.extend((at, binding) for binding in bindings)

    def _quotas(self, declared: Declared, place: FileLine, node: Any) -> None:
        known = (*_ENTITIES, *QuotaKey)
        for item in self._items(node, "quotas"):
            at = self._place(item)
            entity: dict[str, str | None] = {}
            values: dict[str, float] = {}
            for name, there, each in self._entries(item, "a quota", known):
                text = self._text(each, name)
                if name in _ENTITIES:
                    entity[_ENTITIES[name]] = None if text == DEFAULT_ENTITY else text
                    continue
                try:
                    values[name] = float(text.replace("_", ""))
                except ValueError:
                    raise there.error(f"{name} must be a number, got {text}") from None
            if not entity or not values:
                raise at.error("a quota needs user, client_id or ip, and a limit such as producer_byte_rate")
            declared.quotas.append(DeclaredQuota(at, entity, values))

    def _groups(self, declared: Declared, place: FileLine, node: Any) -> None:
        for group, _, value in self._entries(node, "groups"):
            for topic, at, where in self._entries(value, f"group {group}"):
                offset: str | int | dict[int, int]
                if isinstance(where, self._yaml.MappingNode):
                    offset = {}
                    for partition, there, each in self._entries(where, f"the offsets of {topic}"):
                        if not partition.isdecimal():
                            raise there.error(f"a partition must be a number, got {partition}")
                        offset[int(partition)] = self._number(each, "an offset", 0)
                elif (text := self._text(where, "an offset")) in PLACES:
                    offset = text
                elif text.isdecimal():
                    offset = int(text)
                else:
                    raise at.error(f"an offset must be earliest, latest or a number, got {text}")
                declared.offsets.append(DeclaredOffsets(at, group, topic, offset))
