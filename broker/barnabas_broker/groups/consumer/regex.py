"""Regular expressions that consumers subscribe with (``SubscribedTopicRegex``). Pure.

The syntax is RE2's, as in Kafka, and a topic matches if the whole of its name does. Google's RE2 and Kafka's RE2/J
differ where two capturing groups have one name, which only RE2 accepts; in what they say of some errors; and where
RE2/J merges alternatives that start alike but for their case: ``xB|x(?i:b)`` does not match "xb" in Kafka.

RE2 does not backtrack: the time of a match grows with the length of a name times the size of the compiled expression,
and both are bounded here.

Compiling takes up to 50 ms, and matching 100,000 topics with a sane expression half a second:
:class:`~barnabas_broker.groups.coordinator.topic_patterns.TopicPatterns` does both in threads.

Source: Kafka's ``TopicRegexResolver``, ``GroupMetadataManager.maybeUpdateRegularExpressions``.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

import re2

from barnabas_broker.steps import Steps

#: The longest expression, in bytes of UTF-8. Kafka has no such limit.
MAX_LENGTH: Final = 10 * 1024

#: The largest compiled expression, in RE2's instructions: a list of names of 10 KB fits. A hostile expression needs
#: 30 ms for a name of 249 characters.
MAX_INSTRUCTIONS: Final = 12_000

#: The largest sum of the counts of an expression, as 8 in ``a{5}b{1,3}``: the name of a topic has 249 characters.
MAX_COUNTS: Final = 2_000

#: How often an expression may name a Unicode class (``\pL``): RE2 needs a quarter of a millisecond for each.
MAX_UNICODE_CLASSES: Final = 64

#: Seconds that have to pass between two refreshes of a group's expressions.
MIN_REFRESH_INTERVAL: Final = 10.0

#: Topics that are matched in one step, and those that are authorized.
_TOPICS_PER_STEP: Final = 20
_AUTHORIZED_PER_STEP: Final = 100

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
    """An expression does not compile or is too large. The text is the error message for the client."""

    def __init__(self, regex: str, reason: str) -> None:
        # A text of 10 KB in each answer has no use.
        shown = regex if len(regex) <= 200 else regex[:200] + "..."
        super().__init__(f"SubscribedTopicRegex `{shown}` is not a valid regular expression: {reason}.")


class ResolvedRegex(NamedTuple):
    """What an expression matched (``ConsumerGroupRegularExpressionValue``).

    Attributes:
        topics: the names of the topics.
        version: of the metadata that was searched.
        timestamp_ms: when.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class Resolve(NamedTuple):
    """Match all topics with each expression, then report with ``ConsumerGroup.regexes_resolved``.

    Attributes:
        ticket: for the report.
        regexes: the expressions of all members.
        may_describe: whether the client whose request starts the search may describe a topic; None if it may describe
            all. As in Kafka, this client decides for the whole group.
    """

    ticket: int
    regexes: frozenset[str]
    may_describe: Callable[[str], bool] | None


class TopicRegex:
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
        if sum(max(int(least), int(most or 0)) for least, most in _COUNTED.findall(encoded)) > MAX_COUNTS:
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

    def matches(self, topic: str) -> bool:
        """Whether the whole name of a topic matches."""
        return self._pattern.fullmatch(topic.encode()) is not None

    def matching(self, topics: Iterable[str]) -> Steps[frozenset[str]]:
        """Those of `topics` that match, some topics per step."""
        fullmatch = self._pattern.fullmatch
        found = []
        for number, topic in enumerate(topics, 1):
            if fullmatch(topic.encode()) is not None:
                found.append(topic)
            if number % _TOPICS_PER_STEP == 0:
                yield
        return frozenset(found)


def authorized(
    matches: Mapping[str, frozenset[str]], may_describe: Callable[[str], bool]
) -> Steps[dict[str, frozenset[str]]]:
    """What expressions match, without topics that a client may not describe, some topics per step.

    Args:
        matches: the names of topics by expression.
        may_describe: whether the client may describe a topic; it is asked once for each.
    """
    allowed: dict[str, bool] = {}
    kept: dict[str, frozenset[str]] = {}
    for regex, topics in matches.items():
        found = []
        for number, topic in enumerate(topics, 1):
            may = allowed.get(topic)
            if may is None:
                may = allowed[topic] = may_describe(topic)
            if may:
                found.append(topic)
            if number % _AUTHORIZED_PER_STEP == 0:
                yield
        kept[regex] = frozenset(found)
        yield
    return kept


def refresh_due(
    subscribed: Collection[str],
    resolved: Collection[str],
    *,
    refreshed_at: float,
    version: int,
    newest_topics_version: int,
    interval: float,
    now: float,
) -> bool:
    """Whether a group's expressions have to be matched with all topics again. Ask it with each heartbeat of a member.

    Args:
        subscribed: the different expressions of the members, with the change of this heartbeat.
        resolved: those of them for which there is a result.
        refreshed_at: when all of them were matched last, in seconds; -inf for never.
        version: of the topics that they were matched with.
        newest_topics_version: the version at which topics were created last.
        interval: ``group.consumer.regex.refresh.interval.ms``, in seconds.
        now: the time, in seconds.

    A group whose refresh has not ended must not start another.
    """
    if not subscribed or now <= refreshed_at + MIN_REFRESH_INTERVAL:
        return False
    return len(subscribed) != len(resolved) or version < newest_topics_version or now > refreshed_at + interval
