"""Output of a command of this package, which the `barnabas` program gives it."""

from typing import Any, Protocol


class Output(Protocol):
    """Where a command prints."""

    json: bool

    def line(self, text: str, /) -> None:
        """Print a line of text; characters that a terminal would act on are escaped."""

    def data(self, value: Any) -> None:
        """Print the one JSON document of a command."""

    def row(self, value: Any) -> None:
        """Print one of several JSON documents, each on a line of its own."""

    def error(self, text: str) -> None:
        """Print what failed, in one line."""
