"""Kafka's definitions, read from the data beside this module (see README.md), and our declarations in the same form."""

import json
from collections.abc import Iterator
from functools import cache
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

from barnabas_protocol.schema import Field, Message, Struct, Versions, WireType

FOLDER: Final = Path(__file__).parent
#: What Kafka's jars say. Exact for that release, without `ignorable` and without the versions that Kafka 4.0 removed.
EXACT: Final = "kafka-4.4.0.json"
#: Kafka's message definitions before 4.0 removed old versions (KIP-896).
SNAPSHOT: Final = "kafka-4.0-snapshot.json"
ERRORS: Final = "errors.json"


@cache
def load(name: str) -> Any:
    """A JSON file of the folder. A missing file fails the test."""
    return json.loads((FOLDER / name).read_text())


def snake(name: str) -> str:
    """Kafka's field name as ours: ``GroupInstanceId`` -> ``group_instance_id``."""
    out = ""
    for at, letter in enumerate(name):
        starts = letter.isupper() and at > 0
        if starts and (name[at - 1].islower() or name[at - 1].isdigit() or name[at + 1 : at + 2].islower()):
            out += "_"
        out += letter.lower()
    return ours(out)


def ours(name: str) -> str:
    """Kafka's field name in snake case as ours: a keyword of Python gets an underscore."""
    return f"{name}_" if iskeyword(name) else name


class Row(NamedTuple):
    """A field in one version of the message definitions. The path of names leads to it from its message."""

    path: str
    type: str
    nullable: bool
    tag: int | None
    compact: bool
    default: Any
    ignorable: bool


ZEROS: Final[dict[str, Any]] = {"bool": False, "float64": 0.0, "uuid": bytes(16), "string": "", "bytes": b""}


def _default_of(declared: dict[str, Any]) -> Any:
    of, text = declared["type"], declared.get("default")
    if text == "null":
        return None
    if of.startswith("[]"):
        return []
    if of == "records" or "fields" in declared or of[0].isupper():
        return None  # of a structure: its own fields at their defaults, for which None stands
    if text is None:
        return ZEROS.get(of, 0)
    if of in ("string", "bytes", "uuid"):
        return text
    if of == "bool":
        return text in (True, "true")
    return float(text) if of == "float64" else int(str(text), 0)


def snapshot_rows(message: dict[str, Any], version: int) -> list[Row]:
    """The fields of a message definition in `version`, depth first."""
    common = {struct["name"]: struct for struct in message.get("commonStructs", [])}
    flexible = version in Versions.of(message["flexibleVersions"])

    def walk(fields: list[dict[str, Any]], prefix: str) -> Iterator[Row]:
        for f in fields:
            tagged = Versions.of(f.get("taggedVersions", "none"))
            if version not in Versions.of(f.get("versions") or f["taggedVersions"]):
                continue
            path = f"{prefix}{snake(f['name'])}"
            own = f.get("flexibleVersions")
            yield Row(
                path,
                f["type"],
                version in Versions.of(f.get("nullableVersions", "none")),
                f["tag"] if version in tagged and flexible else None,
                flexible if own is None else version in Versions.of(own),
                _default_of(f),
                bool(f.get("ignorable", False)),
            )
            name = f["type"].removeprefix("[]")
            yield from walk(f.get("fields") or common.get(name, {"fields": []})["fields"], f"{path}.")

    return list(walk(message["fields"], ""))


def our_rows(message: type[Message], version: int) -> list[Row]:
    """The fields of one of our messages in `version`, depth first."""
    flexible = version in message.FLEXIBLE

    def walk(struct: type[Struct], prefix: str) -> Iterator[Row]:
        for f in struct.FIELDS:
            if version not in f.versions:
                continue
            path = f"{prefix}{f.name}"
            yield Row(
                path,
                f.type.name,
                version in f.nullable,
                f.tag if version in f.tagged and flexible else None,
                flexible if f.flexible is None else version in f.flexible,
                # The snapshot has no defaults of structures; `printed_default` compares those.
                None if isinstance(f.default, Struct) else f.absent(),
                f.ignorable,
            )
            inner = struct_of(f.type)
            if inner is not None:
                yield from walk(inner, f"{path}.")

    return list(walk(message, ""))


class Place(NamedTuple):
    """A field on the wire, in one version: what Kafka's jars say about it. Structures have no type of their own."""

    path: str
    type: str
    nullable: bool
    compact: bool
    tag: int | None


def exact_schema(by_range: dict[str, Any], version: int) -> list[Any] | None:
    """The schema of `version` out of ``{"3-8": schema, ...}``; None if Kafka has no such version."""
    for versions, schema in by_range.items():
        if version in Versions.of(versions):
            found: list[Any] = schema
            return found
    return None


def exact_places(schema: list[Any]) -> list[Place]:
    """The fields of a schema of `kafka-4.4.0.json`, depth first; a structure's tagged fields come last, ascending."""

    def walk(fields: list[Any], prefix: str) -> Iterator[Place]:
        for entry in fields:
            ((name, of),) = entry.items()
            if name != "_tagged_fields":
                yield from one(f"{prefix}{ours(name)}", of, None)
                continue
            for tag, tagged in sorted(of["tags"].items(), key=lambda item: int(item[0])):
                ((name, of_tagged),) = tagged.items()
                yield from one(f"{prefix}{ours(name)}", of_tagged, int(tag))

    def one(path: str, of: Any, tag: int | None) -> Iterator[Place]:
        if isinstance(of, list):
            yield Place(path, "", False, False, tag)
            yield from walk(of, f"{path}.")
        elif isinstance(of, dict):
            element = of["array"]
            # An element of an array of strings has an encoding of its own, which is that of the array.
            plain = element if isinstance(element, str) else ""
            name = plain.removeprefix("COMPACT_").lower()
            assert plain.startswith("COMPACT_") == of["compact"] or name not in _WITH_LENGTH
            yield Place(path, f"[]{_NAMES.get(name, name)}", of["nullable"], of["compact"], tag)
            if not plain:
                yield from walk(element, f"{path}.")
        else:
            compact = of.startswith("COMPACT_")
            name = of.removeprefix("COMPACT_").removeprefix("NULLABLE_").lower()
            yield Place(path, _NAMES.get(name, name), "NULLABLE" in of, compact, tag)

    return list(walk(schema, ""))


def our_places(message: type[Message], version: int) -> list[Place]:
    """The fields of one of our messages as :func:`exact_places` gives Kafka's."""
    flexible = version in message.FLEXIBLE

    def walk(struct: type[Struct], prefix: str) -> Iterator[Place]:
        present = [f for f in struct.FIELDS if version in f.versions]
        tagged = [f for f in present if f.tag is not None and version in f.tagged and flexible]
        untagged = [f for f in present if f not in tagged]
        for f in (*untagged, *sorted(tagged, key=lambda f: f.tag or 0)):
            inner = struct_of(f.type)
            path, tag = f"{prefix}{f.name}", f.tag if f in tagged else None
            compact = flexible if f.flexible is None else version in f.flexible
            if inner is None:
                name = f.type.name
                sized = name.startswith("[]") or name in _WITH_LENGTH
                yield Place(path, name, version in f.nullable, compact and sized, tag)
                continue
            if f.type.element is None:
                yield Place(path, "", False, False, tag)
            else:
                yield Place(path, "[]", version in f.nullable, compact, tag)
            yield from walk(inner, f"{path}.")

    return list(walk(message, ""))


_WITH_LENGTH: Final = ("string", "bytes", "records")
_NAMES: Final = {"boolean": "bool"}
#: An empty buffer, which a message has in the place of bytes that are not copied.
_BUFFERS: Final = {"java.nio.HeapByteBuffer[pos=0 lim=0 cap=0]": "[]"}


def exact_defaults(name: str) -> dict[str, str]:
    """The defaults of a class that Kafka generates, as its ``toString`` prints them, under our names of the fields.

    A structure's default is "{}", whatever it contains.
    """
    text = load(EXACT)["defaults"][name]
    assert text.startswith("(") and text.endswith(")"), text
    found, depth, start = {}, 0, 1
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            field, _, value = text[start:at].partition("=")
            found[snake(field)] = "{}" if value.endswith(")") else _BUFFERS.get(value, value)
            start = at + 2
    return found


def printed_default(f: Field) -> str:
    """The default of a field of ours as Kafka's ``toString`` prints it."""
    if f.default is None and f.type.struct is not None:
        return "null" if f.tag is None and list(f.nullable) else "{}"
    if isinstance(f.default, Struct):
        assert all(getattr(f.default, each.name) == each.absent() for each in f.default.FIELDS)
        return "{}"
    if f.type.name == "bytes" and f.default is not None:
        return str(list(f.default))
    if f.type.name == "uuid":
        assert not any(f.default)
        return "AAAAAAAAAAAAAAAAAAAAAA"
    match f.default:
        case None:
            return "null"
        case bool():
            return str(f.default).lower()
        case str():
            return f"'{f.default}'"
        case _:
            return str(f.default)


def struct_of(of: WireType[Any]) -> type[Struct] | None:
    """The structure that a field or its elements are; None for all other types."""
    return of.struct if of.element is None else struct_of(of.element)


def structs_of(message: type[Struct]) -> Iterator[type[Struct]]:
    """A message and all structures in it."""
    yield message
    for f in message.FIELDS:
        inner = struct_of(f.type)
        if inner is not None:
            yield from structs_of(inner)
