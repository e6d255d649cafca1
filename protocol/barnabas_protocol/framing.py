"""Cuts frames out of a byte stream: an int32 size and that many bytes. The size is checked before memory is reserved.

:class:`Framer` owns one buffer and serves an `asyncio.BufferedProtocol`: the transport writes into what
:meth:`Framer.get_buffer` returns, and :meth:`Framer.received` then yields the complete frames. A frame is a `bytearray`
of its own: it stays valid when the buffer is used again, and record batches in it may be restamped in place.
"""

import struct
from collections.abc import Iterator
from typing import Final

from barnabas_protocol.errors import DecodeError

_INT32: Final = struct.Struct(">i")
_ROOM: Final = 64 * 1024
#: With less room than this at the end, pending bytes move to the front.
_LEAST_ROOM: Final = 4 * 1024
#: First buffer of a large frame. It doubles when as many bytes have arrived.
_FIRST_ROOM: Final = 1024 * 1024


class FrameTooLarge(DecodeError):
    """A frame announces a size that is negative or over the limit.

    Args:
        size: the announced size in bytes.
        max_bytes: the limit.
    """

    def __init__(self, size: int, max_bytes: int) -> None:
        super().__init__(f"frame of {size} bytes, at most {max_bytes} are accepted")
        self.size = size


class Framer:
    """Cuts frames out of a stream of bytes.

    Args:
        max_bytes: the largest accepted frame in bytes, without its size field.

    Attributes:
        pending: whether a part of a frame has arrived.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray(_ROOM)
        self._view = memoryview(self._buffer)
        self._start = 0
        self._end = 0
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_end = 0
        self.pending = False

    @property
    def room(self) -> int:
        """The size of the large frame's buffer that :meth:`get_buffer` returns next; 0 if no large frame arrives."""
        if self._large is None:
            return 0
        if self._large_end < len(self._large):
            return len(self._large)
        return min(self._large_size, max(2 * self._large_end, _FIRST_ROOM))

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes, never empty.

        A frame over 64 KiB has a buffer of its own that ends where the frame ends. It is at most 1 MiB or twice as
        large as the bytes that have arrived, so announcing a large frame takes no memory.
        """
        if self._large is not None:
            if self._large_end == len(self._large):
                # A new buffer: the transport may still have a view of the old one, which therefore cannot be resized.
                grown = bytearray(self.room)
                grown[: self._large_end] = self._large
                self._large = grown
            return memoryview(self._large)[self._large_end :]
        if self._end > _ROOM - _LEAST_ROOM and self._start:
            pending = self._end - self._start
            self._view[:pending] = bytes(self._view[self._start : self._end])
            self._start, self._end = 0, pending
        return self._view[self._end :]

    def received(self, count: int) -> Iterator[bytearray]:
        """Count `count` bytes that were written to the last buffer, and yield the frames that are complete now.

        It is a generator: exhaust it before the next call of :meth:`get_buffer`.

        Raises:
            FrameTooLarge: a size is negative or over the limit. Close the connection.
        """
        if self._large is not None:
            self._large_end += count
            if self._large_end == self._large_size:
                frame, self._large, self.pending = self._large, None, False
                yield frame
            return
        self._end += count
        while self._end - self._start >= 4:
            (size,) = _INT32.unpack_from(self._buffer, self._start)
            if not 0 <= size <= self.max_bytes:
                raise FrameTooLarge(size, self.max_bytes)
            at = self._start + 4
            if self._end - at >= size:
                self._start = at + size
                yield self._buffer[at : at + size]
            elif size > _ROOM - 4:
                have = self._end - at
                self._large = bytearray(self._view[at : self._end])
                self._large_size, self._large_end = size, have
                self._start = self._end = 0
                self.pending = True
                return
            else:
                break
        self.pending = self._start != self._end
        if not self.pending:
            self._start = self._end = 0
