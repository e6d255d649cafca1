"""Context managers of the test kit, for ordinary and asynchronous tests."""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Managed(ABC):
    """A context manager that starts at its begin and closes at its end, with ``with`` and with ``async with``."""

    @abstractmethod
    def start(self) -> None:
        """Start it, if it does not run."""

    @abstractmethod
    def close(self) -> None:
        """End it, and remove what it leaves behind."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)
