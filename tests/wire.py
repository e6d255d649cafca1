"""A client for tests: it sends any message in any version over one connection."""

import asyncio
import struct
from collections.abc import Callable
from typing import Self, TypeVar

from barnabas_protocol.codec import decode_response, encode_request
from barnabas_protocol.registry import ApiKey, api
from barnabas_protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

#: Seconds to wait for a response.
PATIENCE = 60.0


async def until(condition: Callable[[], bool]) -> None:
    """Let other tasks run until a condition is met."""
    async with asyncio.timeout(PATIENCE):
        for _ in iter(condition, True):
            await asyncio.sleep(0.001)


class Wire:
    """One connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.asked = 0

    @classmethod
    async def connect(cls, port: int, host: str = "127.0.0.1", *, limit: int = 2**16) -> Self:
        """Connect; `limit` bytes are buffered before the test reads them, twice as many at most."""
        reader, writer = await asyncio.open_connection(host, port, limit=limit)
        return cls(reader, writer)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass  # the broker closed it first

    def send(self, request: Request, version: int, client_id: str | None = "test") -> int:
        """Send a request without waiting for the response; return its correlation id."""
        self.asked += 1
        self.writer.write(encode_request(request, version, self.asked, client_id))
        return self.asked

    async def frame(self) -> bytes:
        """The next frame without its size."""
        async with asyncio.timeout(PATIENCE):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def ask(self, request: Request, version: int, answer: type[R], client_id: str | None = "test") -> R:
        """Send a request and wait for its response, an `answer`."""
        assert answer is api(ApiKey(request.API_KEY)).response
        number = self.send(request, version, client_id)
        frame = await self.frame()
        assert struct.unpack_from(">i", frame)[0] == number
        return decode_response(answer, version, frame)

    async def closed(self) -> bool:
        """Wait for the broker to close the connection; False if it sends a byte instead."""
        async with asyncio.timeout(PATIENCE):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True
