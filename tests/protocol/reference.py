"""Kafka's own definitions as data, where they are beside the checkout: `../shared/kafka-protocol`."""

import json
from collections.abc import Iterator
from keyword import iskeyword
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from barnabas_protocol.schema import Field, Message, Struct, Versions, WireType

FOLDER: Final = Path(__file__).parents[3] / "shared" / "kafka-protocol"


def load(name: str) -> Any:
    """A JSON file of the folder; skips the test where there is none."""
    path = FOLDER / name
    if not path.exists():
        pytest.skip(f"no {name} beside the checkout")
    return json.loads(path.read_text())


def snake(name: str) -> str:
    """Kafka's field name as ours: ``GroupInstanceId`` -> ``group_instance_id``."""
    out = ""
    for at, letter in enumerate(name):
        starts = letter.isupper() and at > 0
        if starts and (name[at - 1].islower() or name[at - 1].isdigit() or name[at + 1 : at + 2].islower()):
            out += "_"
        out += letter.lower()
    return f"{out}_" if iskeyword(out) else out


class Row(NamedTuple):
    """What one field is in one version. A path of names leads to it from its message."""

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


def kafkas_rows(message: dict[str, Any], version: int) -> list[Row]:
    """The fields of one of Kafka's messages in `version`, depth first."""
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
                f.absent(),
                f.ignorable,
            )
            inner = _struct_of(f.type)
            if inner is not None:
                yield from walk(inner, f"{path}.")

    return list(walk(message, ""))


def _struct_of(of: WireType[Any]) -> type[Struct] | None:
    return of.struct if of.element is None else _struct_of(of.element)


def fields_of(struct: type[Struct], prefix: str = "") -> Iterator[tuple[str, Field]]:
    """All fields of a structure of ours, depth first, with the path that leads to each."""
    for f in struct.FIELDS:
        yield f"{prefix}{f.name}", f
        inner = _struct_of(f.type)
        if inner is not None:
            yield from fields_of(inner, f"{prefix}{f.name}.")
