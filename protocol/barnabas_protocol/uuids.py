"""The text of an id of 16 bytes, as Kafka prints it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final

from barnabas_protocol.wire import Buffer

_SIZE: Final = 16


def uuid_text(value: Buffer) -> str:
    """22 characters: base64 for URLs, without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def read_uuid_text(text: str) -> bytes:
    """The id with a text; empty if the text is not that of an id."""
    try:
        value = urlsafe_b64decode(f"{text}==")
    except ValueError:
        return b""
    return value if len(value) == _SIZE and uuid_text(value) == text else b""
