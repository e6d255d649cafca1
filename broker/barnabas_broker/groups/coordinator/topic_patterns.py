"""Compiles the regular expressions of consumer groups and matches topics with them, outside the event loop."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final

from barnabas_broker.groups.consumer.regex import TopicRegex
from barnabas_broker.groups.coordinator.offload import Offload
from barnabas_broker.logs import logger

#: Seconds that one expression gets for all topics: only one made to be slow needs more.
TIME_LIMIT: Final = 10.0

#: Expressions, and names of topics that these matched, that are remembered for other groups.
MAX_REMEMBERED: Final = 1_000
MAX_REMEMBERED_NAMES: Final = 1_000_000

log = logger(__name__)


class TopicPatterns:
    """The expressions of all groups of this broker.

    What an expression matched is remembered as long as the topics are the same: many groups with the same expression
    cost as much as one.

    Args:
        compiling: compiles, so that a heartbeat gets its error soon.
        matching: matches; RE2 releases Python's global lock there. The expressions of several groups take turns.
    """

    def __init__(self, compiling: Offload, matching: Offload) -> None:
        self._compiling = compiling
        self._matching = matching
        self._matched: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()
        self._names = 0
        self._closed = False

    def check(self, regex: str, done: Callable[[Exception | None], None]) -> None:
        """Check that `regex` can be used.

        Args:
            regex: the expression.
            done: gets the :class:`~barnabas_broker.groups.consumer.regex.InvalidRegexError` if it does not compile or
                is too large: INVALID_REGULAR_EXPRESSION.
        """
        if regex in self._matched:
            done(None)
        else:
            self._compiling(lambda: TopicRegex(regex), lambda it: done(it if isinstance(it, Exception) else None))

    def resolve(
        self,
        regexes: Collection[str],
        topics: Collection[str],
        version: int,
        done: Callable[[Mapping[str, frozenset[str]]], None],
    ) -> None:
        """Find the names that each expression matches, without any authorization.

        Args:
            regexes: expressions that :meth:`check` has accepted.
            topics: the names of all topics; not changed while this runs.
            version: of the metadata that `topics` come from.
            done: gets the matches by expression, without expressions that cannot be used, and without those that needed
                more than :data:`TIME_LIMIT` seconds: the group keeps what it has for these.
        """
        resolved: dict[str, frozenset[str]] = {}
        left = list(regexes)

        def go_on() -> None:
            while left:
                regex = left.pop()
                remembered = self._matched.get(regex)
                if remembered is None or remembered[0] != version:
                    self._matching(partial(self._match, regex, topics), partial(matched, regex))
                    return
                self._matched.move_to_end(regex)
                resolved[regex] = remembered[1]
            done(resolved)

        def matched(regex: str, found: Any) -> None:
            if isinstance(found, frozenset):
                resolved[regex] = found
                self._remember(regex, (version, found))
            else:
                reason = f"it took more than {TIME_LIMIT:g} s" if found is None else str(found)
                log.warning("regular expression not matched", regex=regex[:200], topics=len(topics), reason=reason)
            go_on()

        go_on()

    def close(self) -> None:
        """Give up what is still being matched: it counts as too slow."""
        self._closed = True

    def _match(self, regex: str, topics: Collection[str]) -> frozenset[str] | None:
        # In the thread.
        deadline = time.monotonic() + TIME_LIMIT
        steps = TopicRegex(regex).matching(topics)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: frozenset[str] = stop.value
                return found
            if self._closed or time.monotonic() > deadline:
                return None

    def _remember(self, regex: str, matched: tuple[int, frozenset[str]]) -> None:
        before = self._matched.pop(regex, None)
        if before is not None:
            self._names -= len(before[1])
        self._matched[regex] = matched
        self._names += len(matched[1])
        while len(self._matched) > MAX_REMEMBERED or self._names > MAX_REMEMBERED_NAMES:
            _, (_, names) = self._matched.popitem(last=False)
            self._names -= len(names)
