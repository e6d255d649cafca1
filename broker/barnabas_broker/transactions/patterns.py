"""Patterns of transactional ids (KIP-1152): regular expressions, matched in linear time. Pure.

Python's matcher backtracks, and a hostile pattern could hold the broker for hours. This one goes through the text once
and keeps the set of all places in the pattern where a match could be (Thompson's construction). What that cannot do
is refused: back references, lookaround, flags, possessive quantifiers.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas_broker.steps import Steps

#: The most places that a pattern may have, with bounded repetitions written out.
_MOST_PLACES: Final = 500
#: The deepest nesting of groups.
_DEEPEST: Final = 50
#: Characters of a text that are compared in one step.
_STEP: Final = 100
_CLASSES: Final[dict[str, Callable[[str], bool]]] = {
    "d": lambda char: "0" <= char <= "9",
    "w": lambda char: char.isascii() and (char.isalnum() or char == "_"),
    "s": lambda char: char in " \t\n\r\f\v",
}
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}

#: Whether a character fits.
Test = Callable[[str], bool]


class InvalidPattern(Exception):
    """The pattern is not a regular expression, or needs a matcher with backtracking."""


class _Repeat(NamedTuple):
    """A part of a pattern, repeated; no upper bound if `high` is None."""

    part: "Test | _Group"
    low: int
    high: int | None


#: Alternatives, each of them a sequence.
_Group = list[list[_Repeat]]


class Pattern:
    """A pattern that whole texts are compared with.

    Args:
        pattern: in the syntax that Java and Python share: literals, ``.``, classes, groups, ``|``, ``* + ? {m,n}``,
            ``^`` and ``$`` at the ends.

    Raises:
        InvalidPattern: see there.
    """

    def __init__(self, pattern: str) -> None:
        pattern = pattern.removeprefix("^")
        group = _Parser(pattern[:-1] if pattern.endswith("$") and not pattern.endswith("\\$") else pattern).whole()
        #: Per place: the test of a character, None for a place that needs none; and the places that follow.
        self._tests: list[Test | None] = []
        self._next: list[list[int]] = []
        self._end = self._place(None)
        self._start = self._build(group, self._end)

    def matches(self, text: str) -> Steps[bool]:
        """Whether the whole of `text` fits."""
        places = self._closure({self._start})
        for at, char in enumerate(text, 1):
            reached: set[int] = set()
            for place in places:
                test = self._tests[place]
                if test is not None and test(char):
                    reached.update(self._next[place])
            if not reached:
                return False
            places = self._closure(reached)
            if not at % _STEP:
                yield
        return self._end in places

    def _closure(self, places: set[int]) -> set[int]:
        """The places that can be reached without a character."""
        found = set(places)
        left = list(places)
        while left:
            place = left.pop()
            if self._tests[place] is None:
                for other in self._next[place]:
                    if other not in found:
                        found.add(other)
                        left.append(other)
        return found

    def _place(self, test: Test | None, *then: int) -> int:
        if len(self._tests) >= _MOST_PLACES:
            raise InvalidPattern("the pattern is too large")
        self._tests.append(test)
        self._next.append(list(then))
        return len(self._tests) - 1

    def _build(self, part: "Test | _Group", then: int) -> int:
        """The place where a part starts that leads to the place `then`."""
        if not isinstance(part, list):
            return self._place(part, then)
        starts = []
        for sequence in part:
            start = then
            for repeat in reversed(sequence):
                start = self._repeat(repeat, start)
            starts.append(start)
        return self._place(None, *starts)

    def _repeat(self, repeat: _Repeat, then: int) -> int:
        part, low, high = repeat
        if high is None:
            loop = self._place(None, then)
            self._next[loop].append(self._build(part, loop))
            then = loop
        else:
            done = then
            for _ in range(high - low):
                then = self._place(None, self._build(part, then), done)
        for _ in range(low):
            then = self._build(part, then)
        return then


class _Parser:
    """Parses a pattern, from its first character to its last."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._at = 0

    def whole(self) -> _Group:
        """The whole pattern."""
        group = self._group(0)
        if self._at < len(self._pattern):
            raise InvalidPattern(f"unexpected {self._peek()!r}")
        return group

    def _peek(self) -> str:
        return self._pattern[self._at : self._at + 1]

    def _take(self) -> str:
        char = self._peek()
        if not char:
            raise InvalidPattern("the pattern ends too early")
        self._at += 1
        return char

    def _group(self, depth: int) -> _Group:
        if depth > _DEEPEST:
            raise InvalidPattern("groups are nested too deep")
        alternatives: _Group = [[]]
        while (char := self._peek()) not in ("", ")"):
            if char == "|":
                self._at += 1
                alternatives.append([])
            else:
                alternatives[-1].append(_Repeat(self._atom(depth), *self._quantifier()))
        return alternatives

    def _quantifier(self) -> tuple[int, int | None]:
        char = self._peek()
        bounds = _QUANTIFIERS.get(char)
        if bounds is not None:
            self._at += 1
        elif char == "{":
            bounds = self._bounds()
        else:
            return 1, 1
        if self._peek() == "?":
            self._at += 1  # Lazy or not: whole texts match or do not.
        elif self._peek() in _QUANTIFIERS:
            raise InvalidPattern("possessive and repeated quantifiers are not supported")
        return bounds

    def _bounds(self) -> tuple[int, int | None]:
        """A quantifier in braces."""
        end = self._pattern.find("}", self._at)
        first, comma, second = self._pattern[self._at + 1 : max(end, 0)].partition(",")
        if not _is_number(first) or (second and not _is_number(second)):
            raise InvalidPattern("a repetition needs numbers of at most four digits")
        self._at = end + 1
        low = int(first)
        high = int(second) if second else None if comma else low
        if high is not None and high < low:
            raise InvalidPattern("a repetition ends before it begins")
        return low, high

    def _atom(self, depth: int) -> "Test | _Group":
        char = self._take()
        if char == "(":
            if self._peek() == "?":
                self._at += 1
                if self._take() != ":":
                    raise InvalidPattern("lookaround, flags and named groups are not supported")
            group = self._group(depth + 1)
            if self._take() != ")":
                raise InvalidPattern("a group is not closed")
            return group
        if char == ".":
            return _any
        if char == "[":
            return self._class()
        if char == "\\":
            return self._escape()
        if char in "*+?{)^$":
            raise InvalidPattern(f"unexpected {char!r}")
        return _between(char, char)

    def _escape(self) -> Test:
        char = self._take()
        if char in _CLASSES:
            return _CLASSES[char]
        if char.lower() in _CLASSES:
            return _none_of([_CLASSES[char.lower()]])
        if char.isalnum() and char not in _ESCAPES:
            raise InvalidPattern(f"\\{char} is not supported")
        found = _ESCAPES.get(char, char)
        return _between(found, found)

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Test] = []
        while not tests or self._peek() != "]":
            char = self._take()
            if char == "[" or (char == "&" and self._peek() == "&"):
                raise InvalidPattern("operations on classes are not supported")
            if char == "\\":
                tests.append(self._escape())
            elif self._peek() == "-" and self._pattern[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                if last in "[\\" or last < char:
                    raise InvalidPattern("a range of characters needs a first and a last one")
                tests.append(_between(char, last))
            else:
                tests.append(_between(char, char))
        self._at += 1
        return _none_of(tests) if negated else _one_of(tests)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4


def _any(char: str) -> bool:
    return char != "\n"


def _between(first: str, last: str) -> Test:
    return lambda char: first <= char <= last


def _one_of(tests: list[Test]) -> Test:
    return lambda char: any(test(char) for test in tests)


def _none_of(tests: list[Test]) -> Test:
    return lambda char: not any(test(char) for test in tests)
