"""The registry as a machine: what it decides, and that its memory is the replay of its records."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas_broker.schema_registry import registry as module
from barnabas_broker.schema_registry.errors import RegistryError
from barnabas_broker.schema_registry.records import SchemaChange, decode
from barnabas_broker.schema_registry.registry import Registry
from barnabas_broker.schema_registry.schemas import Schema


def record(name: str, *fields: str) -> str:
    return json.dumps({"type": "record", "name": name, "fields": [{"name": each, "type": "int"} for each in fields]})


def avro(name: str, *uses: tuple[str, int]) -> Schema:
    references = [{"name": subject, "subject": subject, "version": version} for subject, version in uses]
    return Schema.of({"schema": record(name), "references": references})


class Driver:
    """A registry, and its log: every change goes through its bytes."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.log: list[tuple[bytes, bytes | None]] = []

    def do(self, changes: Sequence[SchemaChange]) -> None:
        for change in changes:
            self.log.append(change.encode())
            again = decode(*self.log[-1])
            assert again is not None
            self.registry.apply(again)

    def register(self, subject: str, schema: Schema, **more: int) -> int:
        if self.registry.known(subject, schema) is None:
            self.do(self.registry.register(subject, schema, **more))
        return self.registry.version(subject, None).id


def replayed(log: Sequence[tuple[bytes, bytes | None]]) -> Registry:
    registry = Registry()
    for change in map(decode, *zip(*log, strict=True)) if log else ():
        assert change is not None
        registry.apply(change)
    return registry


def compacted(log: Sequence[tuple[bytes, bytes | None]]) -> list[tuple[bytes, bytes | None]]:
    last = {key: number for number, (key, _) in enumerate(log)}
    return [(key, value) for number, (key, value) in enumerate(log) if last[key] == number and value is not None]


def seen(registry: Registry) -> dict[str, Any]:
    every = list(registry.all_versions(deleted=True))
    return {
        "versions": [(each.fields, each.deleted) for each in every],
        "ids": {each.id: [found.fields for found in registry.with_id(each.id)] for each in every},
        "used": {(each.subject, each.version): registry.referenced_by(each) for each in every},
        "levels": {subject: registry.level(subject, or_default=True) for subject in (None, "a", "b", "c")},
        "modes": {subject: registry.mode(subject, or_default=True) for subject in (None, "a", "b", "c")},
    }


def code(work: Callable[[], object]) -> int:
    with pytest.raises(RegistryError) as caught:
        work()
    return caught.value.code


def test_a_schema_has_one_id_in_all_subjects() -> None:
    driver = Driver()
    assert driver.register("a", avro("One")) == 1
    assert driver.register("b", avro("Two")) == 2
    assert driver.register("b", avro("One")) == 1
    assert [each.version for each in driver.registry.versions("b")] == [1, 2]
    assert [each.subject for each in driver.registry.with_id(1)] == ["a", "b"]
    assert driver.registry.lookup("b", avro("Two")).version == 1
    assert code(lambda: driver.registry.lookup("a", avro("Two"))) == 40403
    assert code(lambda: driver.registry.lookup("nothing", avro("Two"))) == 40401
    assert code(lambda: driver.registry.version("a", 2)) == 40402


def test_the_same_schema_in_another_notation() -> None:
    one = Schema.of({"schema": '{"type": "fixed", "name": "F", "size": 2}'})
    assert one.guid == Schema.of({"schema": '{"size":2,\n"name":"F","type":"fixed"}', "schemaType": "AVRO"}).guid
    assert one.guid != Schema.of({"schema": '{"size":2,"name":"F","type":"fixed"}', "schemaType": "JSON"}).guid
    assert one.guid != Schema.of({"schema": one.text, "metadata": {"properties": {"owner": "me"}}}).guid
    assert one.text == '{"type":"fixed","name":"F","size":2}'


def test_deletion_has_two_steps() -> None:
    driver = Driver()
    registry = driver.registry
    for name in ("One", "Two"):
        driver.register("a", avro(name))
    assert code(lambda: registry.delete_version("a", 1, permanent=True)) == 40407
    number, changes = registry.delete_version("a", 1, permanent=False)
    driver.do(changes)
    assert number == 1
    assert [each.version for each in registry.versions("a")] == [2]
    assert [each.version for each in registry.versions("a", deleted_only=True)] == [1]
    assert code(lambda: registry.version("a", 1)) == 40402
    assert registry.version("a", 1, deleted=True).deleted
    assert code(lambda: registry.delete_version("a", 1, permanent=False)) == 40406
    assert code(lambda: registry.delete_subject("a", permanent=True)) == 40405
    numbers, changes = registry.delete_subject("a", permanent=False)
    driver.do(changes)
    assert numbers == [2]
    assert registry.subjects() == []
    assert registry.subjects(deleted_only=True) == registry.subjects(deleted=True) == ["a"]
    assert code(lambda: registry.delete_subject("a", permanent=False)) == 40404
    assert registry.with_id(2)[0].subject == "a"
    driver.register("a", avro("One"))
    assert registry.version("a", None)[1:3] == (3, 1)
    driver.do(registry.delete_subject("a", permanent=False)[1])
    numbers, changes = registry.delete_subject("a", permanent=True)
    driver.do(changes)
    assert numbers == [1, 2, 3]
    assert code(lambda: registry.with_id(1)) == 40403
    assert code(lambda: registry.versions("a", deleted=True)) == 40401
    assert driver.register("a", avro("Three")) == 3


def test_what_is_used_stays() -> None:
    driver = Driver()
    registry = driver.registry
    driver.register("base", avro("Base"))
    driver.register("middle", avro("Middle", ("base", 1)))
    driver.register("top", avro("Top", ("middle", 1), ("base", 1)))
    assert registry.referenced_by(registry.version("base", 1)) == [2, 3]
    assert [each.text for each in registry.used_by(avro("X", ("top", 1)))] == [
        avro(name).text for name in ("Base", "Middle", "Top")
    ]
    assert code(lambda: registry.delete_version("base", 1, permanent=False)) == 42206
    assert code(lambda: registry.delete_subject("middle", permanent=False)) == 42206
    assert code(lambda: registry.used_by(avro("X", ("top", 2)))) == 42201
    driver.do(registry.delete_subject("top", permanent=False)[1])
    driver.do(registry.delete_subject("middle", permanent=False)[1])
    driver.do(registry.delete_version("base", None, permanent=False)[1])


def test_a_schema_that_uses_too_many_others() -> None:
    driver = Driver()
    driver.register("0", avro("S0"))
    for number in range(1, 600):
        driver.register(str(number), avro(f"S{number}", (str(number - 1), 1)))
    assert code(lambda: driver.registry.used_by(avro("X", ("599", 1)))) == 42201


def test_levels() -> None:
    driver = Driver()
    registry = driver.registry
    assert registry.level(None, or_default=False) == "BACKWARD"
    assert code(lambda: registry.level("a", or_default=False)) == 40408
    driver.do(registry.set_level(None, "none"))
    driver.do(registry.set_level("a", "FULL_TRANSITIVE"))
    assert [registry.level(each, or_default=True) for each in ("a", "b", None)] == ["FULL_TRANSITIVE", "NONE", "NONE"]
    for wrong in ("SIDEWAYS", None, 7, ["NONE"]):
        assert code(lambda wrong=wrong: registry.set_level("a", wrong)) == 42203  # type: ignore[misc]
    was, changes = registry.delete_level("a")
    driver.do(changes)
    assert (was, registry.level("a", or_default=True)) == ("FULL_TRANSITIVE", "NONE")
    assert code(lambda: registry.delete_level("a")) == 40401


def test_modes() -> None:
    driver = Driver()
    registry = driver.registry
    driver.register("a", avro("One"))
    assert code(lambda: registry.set_mode(None, "import", force=False)) == 42205
    assert code(lambda: registry.set_mode("a", "sometimes", force=False)) == 42204
    assert code(lambda: registry.mode("b", or_default=False)) == 40409
    driver.do(registry.set_mode(None, "READONLY", force=False))
    driver.do(registry.set_mode("a", "READWRITE", force=False))
    driver.register("a", avro("Two"))
    assert code(lambda: registry.register("b", avro("One"))) == 42205
    driver.do(registry.set_mode(None, "READONLY_OVERRIDE", force=False))
    assert code(lambda: registry.delete_subject("a", permanent=False)) == 42205
    driver.do(registry.set_mode(None, "READWRITE", force=False))
    driver.do(registry.set_mode("b", "IMPORT", force=False))
    assert code(lambda: registry.register("b", avro("One"))) == 42205
    assert driver.register("b", avro("Old"), id=70, version=5) == 70
    assert registry.version("b", None).version == 5
    assert code(lambda: registry.register("b", avro("Other"), id=70)) == 42205
    driver.do(registry.delete_mode("b")[1])
    assert code(lambda: registry.register("b", avro("Other"), id=71)) == 42205
    assert code(lambda: registry.register("b", avro("Other"), version=9)) == 42202
    assert driver.register("b", avro("Other")) == 71


@pytest.mark.parametrize("subject", ["", "x" * 1_001, "two\nlines", ":.other:orders", "\ud800"])
def test_names_that_are_none(subject: str) -> None:
    assert code(lambda: Registry().register(subject, avro("One"))) == 42208


def test_a_full_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2_500)
    driver = Driver()
    driver.register("a", avro("One"))
    driver.register("b", avro("One"))
    assert code(lambda: driver.registry.register("c", avro("One"))) == 42209
    driver.do(driver.registry.delete_subject("a", permanent=False)[1])
    driver.do(driver.registry.delete_subject("a", permanent=True)[1])
    driver.register("c", avro("One"))


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["register", "delete", "remove", "subject", "subject", "level", "mode", "clear"]),
        st.sampled_from(["a", "b", "c"]),
        st.integers(0, 4),
    ),
    max_size=30,
)


@given(OPERATIONS)
@settings(max_examples=300, deadline=None)
def test_memory_is_the_replay_of_the_log_also_after_compaction(operations: list[tuple[str, str, int]]) -> None:
    driver = Driver()
    registry = driver.registry
    for kind, subject, number in operations:
        try:
            match kind:
                case "register":
                    uses = [("a", 1)] if number == 4 and subject != "a" else []
                    registry.used_by(avro(f"S{number}", *uses))
                    driver.register(subject, avro(f"S{number}", *uses))
                case "delete" | "remove":
                    driver.do(registry.delete_version(subject, number or None, permanent=kind == "remove")[1])
                case "subject":
                    driver.do(registry.delete_subject(subject, permanent=number > 2)[1])
                case "level":
                    driver.do(registry.set_level(subject, module.LEVELS[number]))
                case "mode":
                    driver.do(registry.set_mode(subject, ["READWRITE", "READONLY"][number % 2], force=True))
                case _ if number == 0:
                    driver.do(registry.clear())
        except RegistryError:
            pass
    assert seen(replayed(driver.log)) == seen(registry)
    assert seen(replayed(compacted(driver.log))) == seen(registry)
