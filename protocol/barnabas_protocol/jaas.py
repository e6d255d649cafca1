"""JAAS: the form in which Kafka's configurations have users and passwords.

Pure. ``MODULE required username="ada" password="...";``: brokers, and options of Spark, are configured this way.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_MODULE: Final = re.compile(r"\s*([\w.$]+)\s+(required|requisite|sufficient|optional)\b", re.ASCII | re.IGNORECASE)
_OPTION: Final = re.compile(
    r"""\s*([\w.-]+)\s*=\s*(?:"((?:\\.|[^"\\])*)"|'((?:\\.|[^'\\])*)'|([^\s;"']+))""", re.DOTALL
)
_END: Final = re.compile(r"\s*;\s*")
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class LoginModule(NamedTuple):
    """A JAAS configuration: the name of a module, and its options."""

    module: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.module!r})"


def parse_jaas(text: str) -> LoginModule:
    """Read a JAAS configuration of one module: ``MODULE required name="value" ...;``.

    Raises:
        ValueError: what is expected instead; no part of the text, because it has passwords.
    """
    head = _MODULE.match(text)
    if head is None:
        raise ValueError('must be MODULE required name="value" ...;')
    options: dict[str, str] = {}
    at = head.end()
    while (found := _OPTION.match(text, at)) is not None:
        name, double, single, bare = found.groups()
        quoted = double if double is not None else single
        options[name] = bare if quoted is None else _ESCAPE.sub(r"\1", quoted)
        at = found.end()
    end = _END.match(text, at)
    if end is None or end.end() != len(text):
        raise ValueError(
            f'must be MODULE required name="value" ...; with the semicolon last, after {len(options)} options'
        )
    return LoginModule(head[1], options)


def quoted(value: str) -> str:
    """A value of an option, as :func:`parse_jaas` reads it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
