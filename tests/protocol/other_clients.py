"""Modules of kafka-python, whose import warns on Python 3.11."""

import warnings
from importlib import import_module
from typing import Any


def kafka_python(name: str) -> Any:
    """The module `kafka.<name>`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of importlib.resources
        return import_module(f"kafka.{name}")
