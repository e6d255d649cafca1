"""The names of the package: a class name stands for one class."""

import inspect
from collections import defaultdict
from importlib import import_module
from pkgutil import walk_packages

import barnabas_protocol


def test_two_classes_do_not_share_a_name() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for module in walk_packages(barnabas_protocol.__path__, "barnabas_protocol."):
        for name, value in vars(import_module(module.name)).items():
            if inspect.isclass(value) and value.__module__.startswith("barnabas_protocol."):
                found[name].add(f"{value.__module__}.{value.__qualname__}")
    assert len(found) > 200
    assert {name: sorted(where) for name, where in found.items() if len(where) > 1} == {}
