"""Which process has used a data directory last (:data:`NAME`).

A broker that finds a registration with the id of its directory knows by it whether that is its own from before a
restart, or that of a broker with a copy of the directory.
"""

import json
from pathlib import Path
from typing import Final

from barnabas_broker.files import Files, put_file, read_all

#: The name of the file in a data directory.
NAME: Final = "cluster.owner"
#: Bytes of the file that are read.
_MOST_BYTES: Final = 4096


def take_over(files: Files, directory: Path, incarnation: str) -> str | None:
    """Write down that this process uses a directory, which it has locked.

    Args:
        files: the file system.
        directory: the data directory.
        incarnation: the unique name of the process.

    Returns:
        The process that has used it before; None if there was none, or if the directory is a copy: then the file has
        the inode of another directory.

    Raises:
        OSError: the disk failed.
    """
    path, inode = directory / NAME, files.identity(directory)
    try:
        fields = json.loads(read_all(files, path, _MOST_BYTES))
        before = str(fields["incarnation"]) if fields["inode"] == inode else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        before = None
    put_file(files, path, json.dumps({"incarnation": incarnation, "inode": inode}).encode())
    return before
