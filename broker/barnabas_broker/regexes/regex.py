"""A regular expression of a client (``SubscribedTopicRegex``, ``TransactionalIdPattern``). Pure.

The syntax is RE2's, as in Kafka, and a name matches if the whole of it does. Google's RE2 and Kafka's RE2/J differ
where two capturing groups have one name, which only RE2 accepts; in what they say of some errors; and where RE2/J
merges alternatives that start alike but for their case: ``xB|x(?i:b)`` does not match "xb" in Kafka.

RE2 does not backtrack: the time of a match grows with the length of a name times the size of the compiled expression,
and both are bounded here.

Compiling takes up to 10 ms, and matching 100,000 topics with a sane expression half a second:
:class:`~barnabas_broker.regexes.search.RegexSearch` does both in threads.

Source: Kafka's ``TopicRegexResolver``, ``TransactionStateManager.listTransactionStates``.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import re2

from barnabas_broker.steps import Steps

#: The longest expression, in bytes of UTF-8. Kafka has no such limit.
MAX_LENGTH: Final = 10 * 1024

#: The largest compiled expression, in RE2's instructions: a list of names of 10 KB fits. A hostile expression needs
#: 30 ms for a name of 249 characters.
MAX_INSTRUCTIONS: Final = 12_000

#: The largest sum of the counts of an expression, as 9 in ``a{5}b{1,3}c?``: the name of a topic has 249 characters. RE2
#: needs 8 ms to compile 2,000 optional characters, and four times as long for twice as many.
MAX_COUNTS: Final = 2_000

#: How often an expression may name a Unicode class (``\pL``): RE2 needs a quarter of a millisecond for each.
MAX_UNICODE_CLASSES: Final = 64

_COUNTED: Final = re.compile(rb"\{(\d{1,4})(?:,(\d{0,4}))?\}")
_UNICODE_CLASS: Final = re.compile(rb"\\[pP]")

_TOO_LARGE: Final = f"it compiles to more than {MAX_INSTRUCTIONS} instructions"

# RE2 says the same as RE2/J, Kafka's, in other words.
_WORDS: Final[Mapping[str, str]] = {
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "pattern too large - compile failed": _TOO_LARGE,
}


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    # Only whether a name matches counts: with captures, RE2 needs seconds for a name and thousands of groups.
    options.never_capture = True
    # For the program and for the states that RE2 keeps; a program that needs more does not compile.
    options.max_mem = 512 * 1024
    return options


_OPTIONS: Final = _options()


class InvalidRegexError(ValueError):
    """An expression does not compile or is too large. The text is the end of an error message for the client."""

    def __init__(self, regex: str, reason: str) -> None:
        # A text of 10 KB in each answer has no use.
        shown = regex if len(regex) <= 200 else regex[:200] + "..."
        super().__init__(f"`{shown}` is not a valid regular expression: {reason}.")


class Regex:
    """A compiled expression.

    Args:
        regex: its text.

    Raises:
        InvalidRegexError: it does not compile or is too large.
    """

    __slots__ = ("_pattern",)

    def __init__(self, regex: str) -> None:
        try:
            encoded = regex.encode()
        except UnicodeEncodeError as error:
            raise InvalidRegexError(repr(regex), "invalid UTF-8") from error
        if len(encoded) > MAX_LENGTH:
            raise InvalidRegexError(regex, f"it has {len(encoded)} bytes, more than {MAX_LENGTH}")
        # RE2 holds Python's global lock while it compiles: what would take long is refused before.
        if len(_UNICODE_CLASS.findall(encoded)) > MAX_UNICODE_CLASSES:
            raise InvalidRegexError(regex, f"it has more than {MAX_UNICODE_CLASSES} Unicode classes")
        counts = sum(max(int(least), int(most or 0)) for least, most in _COUNTED.findall(encoded))
        if counts + encoded.count(b"?") > MAX_COUNTS:
            raise InvalidRegexError(regex, f"its counts add up to more than {MAX_COUNTS}")
        try:
            self._pattern = re2.compile(regex, _OPTIONS)
        except re2.error as error:
            reason = error.args[0].decode(errors="replace") if error.args else "it does not compile"
            # RE2 adds the part that it does not understand; Kafka's error has none.
            kind = reason.partition(": ")[0]
            raise InvalidRegexError(regex, _WORDS.get(kind, kind)) from error
        if self._pattern.programsize > MAX_INSTRUCTIONS:
            raise InvalidRegexError(regex, _TOO_LARGE)

    def matches(self, name: str) -> bool:
        """Whether the whole of a name matches."""
        return self._pattern.fullmatch(name.encode()) is not None

    def matching(self, names: Iterable[str]) -> Steps[frozenset[str]]:
        """Those of `names` that match, one name per step: a hostile expression needs long for each."""
        fullmatch = self._pattern.fullmatch
        found = []
        for name in names:
            if fullmatch(name.encode()) is not None:
                found.append(name)
            yield
        return frozenset(found)
