"""Tokens in files."""

import asyncio
import os
from typing import Final

from barnabas_client.tokens import AbstractTokenProvider

#: Maximum bytes of a file with a token.
_LARGEST: Final = 1024 * 1024


class FileTokenProvider(AbstractTokenProvider):
    """Reads the token from a file each time, because another program renews it there.

    Args:
        path: the file. White space around the token is left out.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = path

    async def token(self) -> str:
        """Return the token.

        Raises:
            OSError: the file cannot be read.
        """
        return await asyncio.to_thread(self._read)

    def _read(self) -> str:
        with open(self.path, "rb") as file:
            return file.read(_LARGEST).decode("utf-8", "replace").strip()
