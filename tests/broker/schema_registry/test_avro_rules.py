"""Avro's rules: which schemas are valid, and which can read each other."""

import json
import warnings
from typing import Any

import pytest

from barnabas_broker.schema_registry.avro_rules import Parsed, parse, problems
from barnabas_broker.schema_registry.errors import RegistryError


def schema(value: Any, *uses: Any) -> Parsed:
    return Parsed(json.dumps(value), tuple(map(json.dumps, uses)))


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


A = {"name": "a", "type": "int"}
B = {"name": "b", "type": "int"}
B_DEFAULT = {**B, "default": 0}


@pytest.mark.parametrize(
    ("reader", "writer", "why"),
    [
        ("int", "int", None),
        ("long", "int", None),
        ("int", "long", "TYPE_MISMATCH"),
        ("string", "bytes", None),
        (["null", "int"], "int", None),
        ("int", ["null", "int"], "TYPE_MISMATCH"),
        (record(A), record(A, B), None),
        (record(A, B), record(A), "READER_FIELD_MISSING_DEFAULT_VALUE"),
        (record(A, B_DEFAULT), record(A), None),
        (record({"name": "c", "type": "int", "aliases": ["a"]}), record(A), None),
        (record(A), record(A, name="S"), "NAME_MISMATCH"),
        (
            {"type": "enum", "name": "E", "symbols": ["X"]},
            {"type": "enum", "name": "E", "symbols": ["X", "Y"]},
            "MISSING_ENUM_SYMBOLS",
        ),
        ({"type": "fixed", "name": "F", "size": 2}, {"type": "fixed", "name": "F", "size": 3}, "FIXED_SIZE_MISMATCH"),
        ({"type": "int", "logicalType": "date"}, "int", None),
    ],
)
def test_compatibility(reader: Any, writer: Any, why: str | None) -> None:
    found = problems(parse(schema(reader)), parse(schema(writer)))
    assert (len(found) == 0) if why is None else (why in found[0]), found


@pytest.mark.parametrize(
    "value",
    [
        7,
        {},
        "strinng",
        {"type": "record"},
        {"type": "record", "name": "R", "fields": {"a": 1}},
        {"type": "record", "name": "two words", "fields": []},
        {"type": "array"},
        {"type": "array", "items": []},
        {"type": "enum", "name": "E", "symbols": [1]},
        {"type": ["null", ["int"]]},
        {"type": "record", "name": "R", "fields": [None]},
    ],
)
def test_what_is_not_valid(value: Any) -> None:
    if value == {"type": "array", "items": []}:
        parse(schema(value))  # a union without types is one
        return
    with pytest.raises(RegistryError) as caught:
        parse(schema(value))
    assert caught.value.code == 42201


def test_a_schema_uses_others_by_name() -> None:
    money = {"type": "record", "name": "Money", "namespace": "shop", "fields": [A]}
    order = {"type": "record", "name": "Order", "fields": [{"name": "price", "type": "shop.Money"}]}
    assert problems(parse(schema(order, money)), parse(schema(order, money))) == []
    with pytest.raises(RegistryError, match=r"shop\.Money"):
        parse(schema(order))


def test_logical_types_that_the_library_does_not_know_are_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(schema({"type": "string", "logicalType": "colour"}))
        parse(schema({"type": "bytes", "logicalType": "decimal", "precision": -1}))


def test_many_optional_fields_are_compared() -> None:
    fields = [{"name": f"f{number}", "type": ["null", "string"], "default": None} for number in range(3_000)]
    assert problems(parse(schema(record(*fields))), parse(schema(record(*fields)))) == []


def test_a_comparison_has_an_end() -> None:
    many = [{"type": "fixed", "name": f"F{number}", "size": 1} for number in range(210)]
    with pytest.raises(RegistryError, match="too large"):
        problems(parse(schema(many)), parse(schema(many)))


def test_a_chain_of_types_is_too_long() -> None:
    names = [f"R{number}" for number in range(2_000)]
    chain = [record({"name": "next", "type": after}, name=name) for name, after in zip(names[1:], names, strict=False)]
    parsed = [parse(schema([record(name="R0"), *chain])) for _ in range(2)]
    with pytest.raises(RegistryError, match="too large"):
        problems(*(each.schemas[-1] for each in parsed))  # type: ignore[attr-defined]
