"""Formats consumed records: with kcat's format letters, or as JSON. Pure.

A format is compiled once into a function. Keys and values are printed as their bytes, except on terminals.
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from barnabas_client.structs import ConsumerRecord
from barnabas_protocol.printable import printable

#: Returns the bytes to print for a record.
Printer = Callable[[ConsumerRecord], bytes]

_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)


def _size(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(record: ConsumerRecord) -> bytes:
    return b",".join(
        name.encode() + b"=" + (b"NULL" if content is None else content) for name, content in record.headers
    )


def for_terminal(data: bytes) -> bytes:
    """Escape what a terminal would act on, and bytes that are not UTF-8; newlines and tabs stay."""
    return printable(data.decode(errors="backslashreplace"), "\n\t").encode()


#: What records contain as bytes of a client.
_CONTENTS: Final[dict[str, Printer]] = {
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "s": lambda record: record.value or b"",  # as in kcat
    "h": _headers,
}
_LETTERS: Final[dict[str, Printer]] = {
    **_CONTENTS,
    "K": lambda record: _size(record.key),
    "V": lambda record: _size(record.value),
    "S": lambda record: _size(record.value),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp,
    "%": lambda record: b"%",
}


def compile_format(text: str, *, terminal: bool = False) -> Printer:
    r"""Compile a format such as ``%p:%o %k=%v\n``.

    Args:
        text: the format. Its own characters are printed as they are.
        terminal: whether keys, values and headers are escaped with :func:`for_terminal`.

    Raises:
        ValueError: a letter has no meaning.
    """
    parts: list[Printer] = []
    for letter, code, escape, plain, other in _TOKEN.findall(text):
        if letter:
            if letter not in _LETTERS:
                raise ValueError(
                    f"the format has %{letter}, which has no meaning: use {' '.join('%' + one for one in _LETTERS)}"
                )
            parts.append(_escaped(_LETTERS[letter]) if terminal and letter in _CONTENTS else _LETTERS[letter])
        else:
            parts.append(_constant(bytes([int(code, 16)]) if code else _literal(escape, plain or other)))

    def printer(record: ConsumerRecord) -> bytes:
        return b"".join(part(record) for part in parts)

    return printer


def _escaped(content: Printer) -> Printer:
    return lambda record: for_terminal(content(record))


def _constant(data: bytes) -> Printer:
    return lambda record: data


def _literal(escape: str, plain: str) -> bytes:
    return _ESCAPES.get(escape, b"\\" + escape.encode()) if escape else plain.encode()


def unescape(text: str) -> str:
    r"""Replace ``\t``, ``\n`` and ``\xNN`` with their characters."""
    return "".join(
        bytes([int(code, 16)]).decode("latin-1")
        if code
        else _literal(escape, "").decode()
        if escape
        else f"%{letter}"
        if letter
        else plain or other
        for letter, code, escape, plain, other in _TOKEN.findall(text)
    )


def value_line(record: ConsumerRecord) -> bytes:
    r"""Format a record as ``%v\n``, faster than a compiled format."""
    return (record.value or b"") + b"\n"


def json_line(record: ConsumerRecord) -> bytes:
    """Format a record as one line of JSON. Bytes that are not UTF-8 are ``{"base64": "..."}``."""
    value = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": shown(record.key),
        "value": shown(record.value),
        "headers": [[name, shown(content)] for name, content in record.headers],
    }
    return json_text(value).encode() + b"\n"


def json_text(value: Any, indent: int | None = None) -> str:
    r"""Format data as JSON. Characters that a terminal would act on are ``\uXXXX``, all others stay as they are.

    Args:
        value: the data.
        indent: spaces per level; None for one line without spaces.
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=(",", ":") if indent is None else None)
    if indent is None and text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1] for character in text
    )


def shown(data: bytes | None) -> Any:
    """Convert bytes for JSON: to text if they are UTF-8, else to base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
