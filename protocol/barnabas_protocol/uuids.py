"""The text of an id of 16 bytes, as Kafka prints it."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

from barnabas_protocol.wire import Buffer


def uuid_text(value: Buffer) -> str:
    """22 characters: base64 for URLs, without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")


def read_uuid_text(text: str) -> bytes:
    """The id with a text; empty if the text is not that of an id."""
    try:
        value = urlsafe_b64decode(f"{text}==")
    except ValueError:
        return b""
    return value if uuid_text(value) == text else b""
