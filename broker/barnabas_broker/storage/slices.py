"""Batches that stay in their file until they are sent.

A large answer to Fetch is not read before it is written: the connection has the kernel send it from the page cache, as
fast as its peer takes it, or reads it piece by piece. So an answer of 50 MB takes no more memory than a small one, and
the peer has its beginning before the end is looked at.
"""

from collections.abc import Iterable

from barnabas_broker.storage.files import Files


class OpenFile:
    """A file's handle, given back when nobody has this object any more: a segment is closed or renamed away while
    answers from it are still on their way.

    Args:
        files: the file system.
        handle: of the file; it belongs to this object from now on.
    """

    __slots__ = ("files", "handle")

    def __init__(self, files: Files, handle: int) -> None:
        self.files = files
        self.handle = handle

    def __del__(self) -> None:
        self.files.close(self.handle)


class FileSlice:
    """A stretch of a file; its length is what has not been read of it yet.

    Args:
        file: that it is in.
        position: where it begins.
        size: of it, in bytes.
    """

    __slots__ = ("_file", "_position", "_size")

    def __init__(self, file: OpenFile, position: int, size: int) -> None:
        self._file = file
        self._position = position
        self._size = size

    def __len__(self) -> int:
        return self._size

    def read(self, size: int) -> bytes:
        """The next bytes, `size` of them or what is left.

        Raises:
            OSError: they cannot be read, or are not there any more.
        """
        size = min(size, self._size)
        data = self._file.files.read(self._file.handle, size, self._position)
        if len(data) < size:
            raise self._cut(len(data))
        self._position += size
        self._size -= size
        return data

    def send(self, socket: int, size: int) -> int:
        """Send the next bytes, `size` of them at most, without a copy of them in this process.

        Args:
            socket: its descriptor, which does not block.
            size: how much.

        Returns:
            How many have been sent.

        Raises:
            BlockingIOError: none, the peer has to take some first.
            OSError: the socket does not take them, or they cannot be read, or are not there any more.
        """
        sent = self._file.files.send(self._file.handle, min(size, self._size), self._position, socket)
        if not sent:
            raise self._cut(0)
        self._position += sent
        self._size -= sent
        return sent

    def _cut(self, got: int) -> OSError:
        return OSError(f"the file ends at {self._position + got}, {self._size - got} bytes too early")


#: Batches as a log gives them: in memory, or still in their file.
Part = memoryview | FileSlice


def joined(parts: Iterable[Part]) -> bytes:
    """All of it, read now.

    Raises:
        OSError: as :meth:`FileSlice.read`.
    """
    return b"".join(part.read(len(part)) if isinstance(part, FileSlice) else part for part in parts)
