"""Serializers and deserializers that get a context, or are coroutine functions.

A serializer or deserializer is a function of one argument, or of two: it then gets a
:class:`SerializationContext` as well. It may be a coroutine function. So those of ``confluent_kafka.schema_registry``
fit, which ask a schema registry. What a function takes is found out once, when a client is made; functions of one
argument that are not coroutine functions are called where they always were, and this module is not involved.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple


class SerializationContext:
    """The place of a key or a value, for serializers and deserializers that take it as their second argument.

    Attributes:
        topic: the name of the topic.
        field: "key" or "value".
        headers: names with values. What a serializer appends is sent.
    """

    __slots__ = ("field", "headers", "topic")

    def __init__(self, topic: str, field: str, headers: list[tuple[str, bytes | None]]) -> None:
        self.topic = topic
        self.field = field
        self.headers = headers

    def __repr__(self) -> str:
        return f"SerializationContext({self.topic!r}, {self.field!r}, {self.headers!r})"


#: The name that a second parameter with a default has if it takes the context. Others, such as the encoding of
#: `str.encode` or the context of `decimal.Decimal`, take something else.
_NAME: Final = "ctx"


def takes_context(function: object) -> bool:
    """Whether a serializer or deserializer takes the context as its second argument."""
    if not callable(function):
        return False
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False  # a built-in function
    places = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    return len(places) > 1 and (places[1].default is inspect.Parameter.empty or places[1].name == _NAME)


def _is_special(function: object) -> bool:
    if takes_context(function) or inspect.iscoroutinefunction(function):
        return True
    # An object may be called like a function.
    return callable(function) and inspect.iscoroutinefunction(type(function).__call__)


class _Half(NamedTuple):
    """The function of a key or of a value."""

    function: Callable[..., Any] | None
    field: str
    context: bool

    def call(self, topic: str, given: object, headers: list[tuple[str, Any]]) -> Any:
        """The result of the function, which may be awaitable. None stays None."""
        if self.function is None or given is None:
            return given
        if self.context:
            return self.function(given, SerializationContext(topic, self.field, headers))
        return self.function(given)


class Conversion:
    """The two functions of a client, of which at least one takes a context or is a coroutine function."""

    def __init__(self, key: Callable[..., Any] | None, value: Callable[..., Any] | None) -> None:
        self._key = _Half(key, "key", takes_context(key))
        self._value = _Half(value, "value", takes_context(value))

    async def convert(
        self, topic: str, key: object, value: object, headers: Sequence[tuple[str, Any]] | None
    ) -> tuple[Any, Any, list[tuple[str, Any]]]:
        """Convert a key and a value; returns them, and the headers with those that the functions have appended.

        Raises:
            Exception: a function raised it.
        """
        changed = list(headers or ())
        made_key = self._key.call(topic, key, changed)
        if inspect.isawaitable(made_key):
            made_key = await made_key
        made_value = self._value.call(topic, value, changed)
        if inspect.isawaitable(made_value):
            made_value = await made_value
        return made_key, made_value, changed

    def convert_now(
        self, topic: str, key: object, value: object, headers: Sequence[tuple[str, Any]] | None
    ) -> tuple[Any, Any, list[tuple[str, Any]]] | None:
        """As :meth:`convert`; None if a function has to be awaited."""
        steps = self.convert(topic, key, value, headers)
        try:
            steps.send(None)
        except StopIteration as done:
            made: tuple[Any, Any, list[tuple[str, Any]]] = done.value
            return made
        steps.close()
        return None


def conversion_of(key: Callable[..., Any] | None, value: Callable[..., Any] | None) -> Conversion | None:
    """The conversion of these functions; None if both may be called with one argument, and not be awaited."""
    return Conversion(key, value) if _is_special(key) or _is_special(value) else None
