"""Batches that stay in their file until they are sent.

A large Fetch response is not read into memory: the kernel sends it from the page cache as fast as the peer reads
(sendfile), or it is read piece by piece. So a response of 50 MB takes no more memory than a small one.
"""

from collections.abc import Iterable

from barnabas_broker.files import Files


class OpenFile:
    """A file handle that is closed with the last reference to this object: a segment may be closed or renamed while
    responses from it are still being sent.

    Args:
        files: the file system.
        handle: of the file; this object owns it.
    """

    __slots__ = ("files", "handle")

    def __init__(self, files: Files, handle: int) -> None:
        self.files = files
        self.handle = handle

    def __del__(self) -> None:
        self.files.close(self.handle)


class FileSlice:
    """A range of a file; its length is the part that has not been read or sent yet.

    Args:
        file: the file.
        position: where the range begins.
        size: in bytes.
    """

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, size: int) -> bytes:
        """Read the next `size` bytes, or all that are left.

        Raises:
            OSError: they cannot be read, or the file is shorter.
        """
        size = min(size, self._size)
        data = self._file.files.read(self._file.handle, size, self._position)
        if len(data) < size:
            raise self._cut(len(data))
        self._position += size
        self._size -= size
        return data

    def send(self, socket: int, size: int) -> int:
        """Send at most `size` of the next bytes, without copying them into this process.

        Args:
            socket: a non-blocking descriptor.
            size: the most to send.

        Returns:
            The number of bytes sent.

        Raises:
            BlockingIOError: the socket's buffer is full.
            OSError: the socket or the file fails, or the file is shorter.
        """
        sent = self._file.files.send(self._file.handle, min(size, self._size), self._position, socket)
        if not sent:
            raise self._cut(0)
        self._position += sent
        self._size -= sent
        return sent

    def _cut(self, got: int) -> OSError:
        return OSError(f"the file ends at {self._position + got}, {self._size - got} bytes too early")


#: Batches that a log returns: in memory, or still in their file.
Part = memoryview | FileSlice


def joined(parts: Iterable[Part]) -> bytes:
    """Read all parts into memory.

    Raises:
        OSError: as :meth:`FileSlice.read`.
    """
    return b"".join(part.read(len(part)) if isinstance(part, FileSlice) else part for part in parts)
