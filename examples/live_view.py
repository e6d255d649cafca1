"""The display of both demos: a live view on a terminal, plain lines in a pipe."""

import time
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel


class LiveView(ABC):
    """A view that is redrawn, above the latest messages.

    Args:
        lines: the number of messages to show.

    Attributes:
        live: whether the view is drawn; otherwise each message is printed as a line.
        seconds: the time since the start.
    """

    def __init__(self, lines: int) -> None:
        self.console = Console()
        self._began = time.monotonic()
        self._messages: deque[str] = deque(maxlen=lines)
        self._live = Live(console=self.console, auto_refresh=False) if self.console.is_terminal else None

    @property
    def live(self) -> bool:
        return self._live is not None

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refresh()
        if self._live is not None:
            self._live.stop()

    def log(self, text: str) -> None:
        """Add a message."""
        line = f"{self.seconds:5.1f} s  {text}"
        self._messages.append(line)
        if self._live is None:
            print(line, flush=True)

    @abstractmethod
    def refresh(self) -> None:
        """Show the current state."""

    def draw(self, *parts: RenderableType) -> None:
        """Draw `parts` above the messages, on a terminal only."""
        if self._live is not None:
            messages = Panel("\n".join(self._messages), title="messages", title_align="left")
            self._live.update(Group(*parts, messages), refresh=True)
