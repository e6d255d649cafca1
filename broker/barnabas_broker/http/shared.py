"""A long text that is made once for all requests which accept one of its age."""

import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import chain

import xxhash

from barnabas_broker.http.text import gather


class SharedText:
    """A text that many pages ask for again and again: any number of pages costs no more than one.

    Args:
        make: builds it, in pieces.
        seconds: for how long it may be sent to requests that accept an older one.
    """

    def __init__(self, make: Callable[[], Iterable[str]], seconds: float) -> None:
        self._make = make
        self._seconds = seconds
        self._made: tuple[float, list[bytes], str] | None = None
        self._making: asyncio.Task[list[bytes]] | None = None

    async def get(self, *, fresh: bool) -> tuple[list[bytes], str]:
        """The text in chunks, and its ETag.

        Args:
            fresh: whether it must be made now.
        """
        if not fresh and self._made is not None and time.monotonic() - self._made[0] <= self._seconds:
            return self._made[1], self._made[2]
        if self._making is None or fresh:
            pieces = gather(chain(self._make(), "\n"), time.perf_counter)
            self._making = asyncio.get_running_loop().create_task(pieces)
        task = self._making
        try:
            chunks = await asyncio.shield(task)
        finally:
            if self._making is task:
                self._making = None
        tag = xxhash.xxh3_64()
        for chunk in chunks:
            tag.update(chunk)
        etag = f'"{tag.hexdigest()}"'
        self._made = (time.monotonic(), chunks, etag)
        return chunks, etag

    def cancel(self) -> None:
        """Stop to build it."""
        if self._making is not None:
            self._making.cancel()
