"""What programs import: `barnabas` has all public names of the client and of the broker for tests, with types."""

import inspect
import re
import sys
import typing
from types import ModuleType
from typing import Any

import pytest

import barnabas
import barnabas.errors
import barnabas.testing
import barnabas_broker.testing
import barnabas_client
import barnabas_client.errors


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (barnabas, barnabas_client),
        (barnabas.errors, barnabas_client.errors),
        (barnabas.testing, barnabas_broker.testing),
    ],
    ids=lambda module: module.__name__,
)
def test_barnabas_has_the_same_objects(ours: ModuleType, theirs: ModuleType) -> None:
    assert set(ours.__all__) - {"errors"} == set(theirs.__all__) - {"errors"}
    for name in set(ours.__all__) - {"errors"}:
        assert getattr(ours, name) is getattr(theirs, name)


def test_errors_are_one_module() -> None:
    assert barnabas.errors is sys.modules["barnabas.errors"]


SPECIAL = {"__init__", "__aiter__", "__anext__", "__aenter__"}
#: `group_history` and `group_requests` are JSON, as the page has it; `call` is for the parts of its package;
#: `client_settings` are keyword arguments of several types.
JSON = ["Broker.call", "Broker.client_settings", "Broker.group_history", "Broker.group_requests"]


def annotations(function: Any) -> list[str]:
    """The annotations that a type checker uses: those of overloads, if there are any."""
    return [
        str(annotation)
        for one in typing.get_overloads(function) or [function]
        for annotation in inspect.get_annotations(one).values()
    ]


def leaks(cls: type) -> list[str]:
    """The public attributes of a class whose type is not known, or known to be Any."""
    found = [name for name, one in inspect.get_annotations(cls).items() if "Any" in str(one) and name[0] != "_"]
    for name, one in vars(cls).items():
        function = one.fget if isinstance(one, property) else getattr(one, "__func__", one)
        if inspect.isfunction(function) and (name[0] != "_" or name in SPECIAL) and function.__module__ != "typing":
            types = annotations(function)
            if not types or any(re.search(r"\bAny\b", one) for one in types):
                found.append(name)
    return [f"{cls.__name__}.{name}" for name in found]


def test_no_public_type_is_any() -> None:
    classes = [
        one
        for module in (barnabas, barnabas.errors, barnabas.testing)
        for one in (getattr(module, name) for name in module.__all__)
        if inspect.isclass(one)
    ]
    assert [leak for cls in classes for leak in leaks(cls)] == JSON
