"""construct's code generation, with the objects that generated code needs handed to it by name.

construct 2.10 links generated code to objects through imports and tables of ``id()``. Here :class:`Source` collects the
objects under their names, and the source is executed in a namespace that has them. There is no state between two
compilations, so any number of threads may compile at the same time.
"""

import struct
from collections.abc import Callable
from typing import Any

from construct import CodeGen, Construct


class Source(CodeGen):
    """Source code that grows block by block, and the objects it refers to.

    Attributes:
        names: the objects by the name that the source uses. construct's own fixed-width numbers need ``struct``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[str, Any] = {"struct": struct}

    def bind(self, name: str, value: Any) -> str:
        """Let the source use `value`. Returns its name there: `name`, with a number if another value has that name."""
        if self.names.setdefault(name, value) is not value:
            name = f"{name}_{self.allocateId()}"
            self.names[name] = value
        return name


def compile_parser(con: Construct, name: str) -> Callable[[Any, None], Any]:
    """Compile how `con` parses. It takes about half a millisecond for a message.

    Args:
        con: a construct whose parts all generate code.
        name: where tracebacks say that an error happened.

    Returns:
        A function of a reader and the context, None for Kafka's messages.

    Raises:
        TypeError: a part generates no code.
    """
    source = Source()
    source.append(f"def run(io, this): return {con._compileparse(source)}")
    return _function(source, name)


def compile_builder(con: Construct, name: str) -> Callable[[Any, Any, None], Any]:
    """Compile how `con` builds: as :func:`compile_parser`. The function takes a value, a buffer, and the context."""
    source = Source()
    source.append(f"def run(obj, io, this): return {con._compilebuild(source)}")
    return _function(source, name)


def _function(source: Source, name: str) -> Callable[..., Any]:
    if source.linkedinstances:
        parts = ", ".join(repr(part) for part in source.linkedinstances.values())
        raise TypeError(f"{name} cannot be compiled: no code for {parts}; define _emitparse and _emitbuild")
    exec(compile(source.toString(), f"<{name}>", "exec"), source.names)
    run: Callable[..., Any] = source.names["run"]
    return run
