"""The port through which histories read: consumers of one cluster."""

from typing import Any, Protocol

from barnabas_client.consumer.consumer import Consumer


class Connect(Protocol):
    """Creates consumers of one cluster."""

    def __call__(self, **own: Any) -> Consumer:
        """Create a consumer that is not started; `own` are its further settings."""
