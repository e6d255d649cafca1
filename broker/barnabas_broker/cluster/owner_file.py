"""Which process has used a data directory last (:data:`NAME`).

A broker that finds a registration with the id of its directory knows by it whether that is its own from before a
restart, or that of a broker with a copy of the directory.
"""

import json
import os
from pathlib import Path
from typing import Final

#: The name of the file in a data directory.
NAME: Final = "cluster.owner"
#: Maximum bytes of the file.
_MAX_BYTES: Final = 4096


def take_over(directory: Path, incarnation: str) -> str | None:
    """Write down that this process uses a directory, which it has locked.

    Args:
        directory: the data directory.
        incarnation: the unique name of the process.

    Returns:
        The process that has used it before; None if there was none, or if the directory is a copy: then the file has
        the inode of another directory.

    Raises:
        OSError: the disk failed.
    """
    path, inode = directory / NAME, directory.stat().st_ino
    try:
        fields = json.loads(path.read_bytes()[:_MAX_BYTES])
        before = str(fields["incarnation"]) if fields["inode"] == inode else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        before = None
    temporary = path.with_name(NAME + ".tmp")
    with temporary.open("w") as file:
        json.dump({"incarnation": incarnation, "inode": inode}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    return before
