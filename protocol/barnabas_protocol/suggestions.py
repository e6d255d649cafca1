"""A name that was perhaps meant, for errors about unknown names."""

from collections.abc import Iterable
from importlib import import_module
from typing import Final

#: How alike two names have to be, from 0 to 1; the default of difflib.
_ALIKE: Final = 0.6


def nearest(name: str, known: Iterable[str], alike: float = _ALIKE) -> str | None:
    """The known name that `name` is most like; None if none is alike.

    Upper and lower case do not count.

    Args:
        name: the unknown name.
        known: the names that exist.
        alike: how alike two names have to be, from 0 to 1 for equal.
    """
    by_lower = {each.lower(): each for each in known}
    # Imported here: most programs name nothing that does not exist.
    found = import_module("difflib").get_close_matches(name.lower(), by_lower, 1, alike)
    return by_lower[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of an error about an unknown name: ``, did you mean NAME?``, or nothing if no known name is alike."""
    found = nearest(name, known)
    return "" if found is None else f", did you mean {found}?"
