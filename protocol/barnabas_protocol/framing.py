"""Cuts frames out of a byte stream: an int32 size and that many bytes. The size is checked before memory is reserved.

:class:`Framer` serves an `asyncio.BufferedProtocol`: the transport writes into what :meth:`Framer.get_buffer` returns,
and :meth:`Framer.received` then gives the complete frames, as many as are asked for; :meth:`Framer.cut` yields those
that are left. A frame is a `bytearray` of its own: it stays valid when
the buffer is used again, and record batches in it may be restamped in place. Between two reads a framer keeps nothing
but the bytes of a frame that has arrived in part, so that all framers of an event loop may share one buffer.
"""

import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Final

from barnabas_protocol.errors import DecodeError

_INT32: Final = struct.Struct(">i")
#: Bytes of a buffer for small frames.
ROOM: Final = 64 * 1024
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
        shared: the buffer of all framers of an event loop, of :data:`ROOM` bytes; None for one of its own. A transport
            must fill what :meth:`get_buffer` returns, and :meth:`received` must be exhausted, before another framer is
            asked for its buffer. The transports of asyncio and uvloop do both in one step.

    Attributes:
        pending: whether a part of a frame has arrived, or frames are left.
        left: whether a whole frame has arrived that was not asked for: see :meth:`cut`.
    """

    def __init__(self, max_bytes: int, shared: bytearray | None = None) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray(ROOM) if shared is None else shared
        self._view = memoryview(self._buffer)
        self.pending = self.left = False
        #: The beginning of a frame that has arrived in part, with its size; before that, frames that are left.
        self._rest = b""
        self._large: bytearray | None = None
        self._large_size = 0
        self._large_end = 0

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
        rest = self._rest
        if rest:
            self._view[: len(rest)] = rest
            return self._view[len(rest) :]
        return self._view

    def received(self, count: int, most: int = sys.maxsize) -> Iterable[bytearray]:
        """Count `count` bytes that were written to the last buffer; the frames that are complete now.

        Exhaust it before the next call of :meth:`get_buffer`.

        Args:
            count: bytes.
            most: frames to yield, at least 1: 64 KiB may have thousands. If more are complete, they are :attr:`left`.

        Raises:
            FrameTooLarge: a size is negative or over the limit. Close the connection.
        """
        if self._large is not None:
            self._large_end += count
            if self._large_end < self._large_size:
                return ()
            frame, self._large, self.pending = self._large, None, False
            return (frame,)
        if count >= 4 and not self._rest:  # most requests come alone, and whole
            (size,) = _INT32.unpack_from(self._buffer)
            if size == count - 4 and size <= self.max_bytes:
                return (self._buffer[4:count],)
        return self._cut(self._buffer, self._view, len(self._rest) + count, most)

    def cut(self, most: int) -> Iterator[bytearray]:
        """Yield up to `most` of the frames that are left; exhaust it, as :meth:`received`.

        Raises:
            FrameTooLarge: as :meth:`received`.
        """
        rest = bytearray(self._rest)
        return self._cut(rest, memoryview(rest), len(rest), most)

    def _cut(self, buffer: bytearray, view: memoryview, end: int, most: int) -> Iterator[bytearray]:
        start, self._rest = 0, b""
        self.pending = self.left = False
        while end - start >= 4:
            (size,) = _INT32.unpack_from(buffer, start)
            if not 0 <= size <= self.max_bytes:
                raise FrameTooLarge(size, self.max_bytes)
            at = start + 4
            if end - at >= size:
                if not most:
                    self.left = True
                    break
                most -= 1
                start = at + size
                yield buffer[at:start]
            elif size > ROOM - 4:
                self._large = bytearray(view[at:end])
                self._large_size, self._large_end, self.pending = size, end - at, True
                return
            else:
                break
        if start != end:
            self._rest, self.pending = bytes(view[start:end]), True
