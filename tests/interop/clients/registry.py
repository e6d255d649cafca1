"""The libraries by name, in the order of the README's table. A library is imported on first use."""

import importlib
import warnings
from collections.abc import Mapping
from typing import Final

from tests.interop.clients.base import Client

MODULES: Final[Mapping[str, str]] = {
    "confluent-kafka": "confluent",
    "aiokafka": "aio",
    "kafka-python": "kafka_python",
    "barnabas": "barnabas",
}


def client_class(name: str) -> type[Client]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # deprecated imports inside a library do not concern us
        module = importlib.import_module(f"tests.interop.clients.{MODULES[name]}")
    (found,) = (
        thing
        for thing in vars(module).values()
        if isinstance(thing, type) and issubclass(thing, Client) and thing is not Client
    )
    return found
