"""The text of an id of 16 bytes, as Kafka prints it."""

from base64 import urlsafe_b64encode

from barnabas_protocol.wire import Buffer


def uuid_text(value: Buffer) -> str:
    """22 characters: base64 for URLs, without padding."""
    return urlsafe_b64encode(value).decode().rstrip("=")
