"""How long a message is: before it is encoded, and before it is freed. Pure."""

from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

from barnabas_protocol.schema import Message, Struct


def exceeds(message: Message, most: int) -> bool:
    """Whether the lists of a message, those within its elements included, have more than `most` elements in all."""
    return _elements(type(message), (message,), most) > most


def _elements(cls: type[Struct], items: Iterable[Any], most: int) -> int:
    """The elements of the lists in `items`, which are of class `cls`; not all, if there are more than `most`."""
    found, owners = 0, list(items)
    for name, element in _lists(cls):
        # What is encoded already, such as long lists of aborted transactions, weighs nothing.
        lists = [given for each in owners if isinstance(given := getattr(each, name), list) and given]
        found += sum(map(len, lists))
        if found > most:
            break
        if element is not None and lists:
            found += _elements(element, chain.from_iterable(lists), most - found)
    return found


def elements(message: Message) -> list[Any]:
    """The elements of the lists of a message, those within its elements included.

    While there is a list of its elements, only they are left when the last reference to the message ends, and
    :func:`~barnabas_broker.steps.release` frees them some per step.
    """
    found: list[Any] = []
    _collect(type(message), (message,), found)
    return found


def _collect(cls: type[Struct], owners: Sequence[Any], found: list[Any]) -> None:
    for name, element in _lists(cls):
        lists = [given for each in owners if isinstance(given := getattr(each, name), list) and given]
        if element is not None:
            _collect(element, [each for given in lists for each in given], found)
        for given in lists:
            found += given


@cache
def _lists(cls: type[Struct]) -> tuple[tuple[str, type[Struct] | None], ...]:
    """The lists of a class, with the class of their elements if these have lists themselves."""
    found: list[tuple[str, type[Struct] | None]] = []
    for field in cls.FIELDS:
        if field.type.element is not None:
            element = field.type.element.struct
            found.append((field.name, element if element is not None and _lists(element) else None))
    return tuple(found)
