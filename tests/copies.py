"""Copies of folders that are in use."""

import shutil
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path


def _copy_if_there(source: str, target: str) -> None:
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def copy_tree(source: Path, target: Path, ignore: Callable[[str, list[str]], Iterable[str]] | None = None) -> Path:
    """Copy a folder in which programs or threads may rename and remove files at the same time.

    Args:
        source: the folder.
        target: its copy, which does not exist.
        ignore: as for `shutil.copytree`.
    """
    shutil.copytree(source, target, ignore=ignore, copy_function=_copy_if_there)
    return target
