"""Names that come more than once in a request. Pure.

Kafka answers some of its APIs for each time that a name comes: then a request of some kilobytes gets an answer of
hundreds of megabytes. Here the answers to repeated names are bounded.
"""

from typing import Final

#: Rows of an answer up to which repeated names are answered like all others.
MOST_ROWS: Final = 100_000


class Repeats:
    """Decides whether a name of a request that comes again is answered again.

    A name that comes for the first time always is: what it has is stored by this broker, once.

    Args:
        most: rows of the whole answer up to which all names are answered.
    """

    def __init__(self, most: int = MOST_ROWS) -> None:
        self._left = most
        self._names: set[str] = set()

    def refuses(self, name: str) -> bool:
        """Whether a name has come before, and the answer has too many rows to say the same again."""
        return self._left <= 0 and name in self._names

    def answered(self, name: str, rows: int) -> None:
        """Count a name that is answered with this many rows."""
        self._names.add(name)
        self._left -= rows
