"""What both demos show of themselves: a live picture on a terminal, plain lines in a pipe."""

import time
from abc import ABC, abstractmethod
from collections import deque
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel


class Story(ABC):
    """A picture that is drawn anew, above the last lines of what happened.

    Args:
        lines: how many of them.

    Attributes:
        live: whether there is a picture; else every line is printed when it is told.
        seconds: how long this has gone on.
    """

    def __init__(self, lines: int) -> None:
        self.console = Console()
        self._began = time.monotonic()
        self._events: deque[str] = deque(maxlen=lines)
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

    def tell(self, text: str) -> None:
        """Add a line."""
        line = f"{self.seconds:5.1f} s  {text}"
        self._events.append(line)
        if self._live is None:
            print(line, flush=True)

    @abstractmethod
    def refresh(self) -> None:
        """Show how things stand."""

    def draw(self, *parts: RenderableType) -> None:
        """Show these above the story, if there is a picture."""
        if self._live is not None:
            story = Panel("\n".join(self._events), title="what happened", title_align="left")
            self._live.update(Group(*parts, story), refresh=True)
