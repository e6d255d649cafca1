"""Compiles the regular expressions of clients and matches names with them, outside the event loop."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Final
from weakref import WeakValueDictionary

from barnabas_broker.log_throttle import Folded
from barnabas_broker.logs import logger
from barnabas_broker.offload import Offload, at_once
from barnabas_broker.regexes.regex import Regex
from barnabas_broker.regexes.turns import Client, Turns
from barnabas_broker.steps import Steps

#: Seconds that one expression gets for all names by default: only one made to be slow needs more.
TIME_LIMIT: Final = 10.0

#: Expressions, and names of topics that these matched, that are remembered for other groups.
MAX_REMEMBERED: Final = 1_000
MAX_REMEMBERED_NAMES: Final = 1_000_000

log = logger(__name__)


class RegexSearch:
    """The expressions of all clients of this broker.

    What an expression matched is remembered as long as the topics are the same: many groups with the same expression
    cost as much as one. Equal results are one object.

    Args:
        compiling: compiles, so that a heartbeat gets its error soon; by default at once.
        matching: matches; RE2 releases Python's global lock there. The expressions of several clients take turns.
        limit: seconds that one expression gets for all names.
        clock: a monotonic clock in seconds, for these threads.
    """

    def __init__(
        self,
        compiling: Offload = at_once,
        matching: Offload = at_once,
        limit: float = TIME_LIMIT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._compiling = Turns(compiling, clock, limit)
        self._matching = Turns(matching, clock, limit)
        self._matched: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()
        self._names = 0
        self._not_matched = Folded(
            log.warning, "regular expression not matched", "regular expressions not matched", clock
        )
        #: The results that are in use, by their hash.
        self._results: WeakValueDictionary[int, frozenset[str]] = WeakValueDictionary()

    def check(self, regex: str, client: Client, done: Callable[[Exception | None], None]) -> None:
        """Check that `regex` can be used.

        Args:
            regex: the expression.
            client: that wants to use it.
            done: gets the :class:`~barnabas_broker.regexes.regex.InvalidRegexError` if it does not compile or is too
                large: INVALID_REGULAR_EXPRESSION.
        """
        if regex in self._matched:
            done(None)
        else:
            self._compiling.run(client, _compile(regex), done)

    def filter(
        self, regex: str, names: Collection[str], client: Client, done: Callable[[frozenset[str] | Exception], None]
    ) -> None:
        """Find the names that an expression matches, once.

        Args:
            regex: the expression.
            names: not changed while this runs.
            client: that wants to know.
            done: gets the names; an :class:`~barnabas_broker.regexes.regex.InvalidRegexError`, or a
                :class:`~barnabas_broker.regexes.turns.TooSlowError` if that takes too long.
        """
        self._matching.run(client, _match(regex, names), done)

    def resolve(
        self,
        regexes: Collection[str],
        topics: Collection[str],
        version: int,
        client: Client,
        done: Callable[[Mapping[str, frozenset[str]]], None],
    ) -> None:
        """Find the topics that each expression matches, without any authorization.

        Args:
            regexes: expressions that :meth:`check` has accepted.
            topics: the names of all topics; not changed while this runs.
            version: of the metadata that `topics` come from.
            client: whose request wants to know.
            done: gets the matches by expression, without expressions that cannot be used, and without those that took
                too long: the group keeps what it has for these.
        """
        resolved: dict[str, frozenset[str]] = {}
        left = list(regexes)

        def go_on() -> None:
            while left:
                regex = left.pop()
                remembered = self._matched.get(regex)
                if remembered is None or remembered[0] != version:
                    self._matching.run(client, self._search(regex, topics, version), partial(matched, regex))
                    return
                self._matched.move_to_end(regex)
                resolved[regex] = remembered[1]
            done(resolved)

        def matched(regex: str, found: Any) -> None:
            if isinstance(found, frozenset):
                resolved[regex] = found
                self._remember(regex, (version, found))
            else:
                principal, host = client
                self._not_matched.add(
                    host, principal=principal, regex=regex[:200], topics=len(topics), reason=str(found)
                )
            go_on()

        go_on()

    def close(self) -> None:
        """Give up what is still being searched: it counts as too slow."""
        self._compiling.close()
        self._matching.close()

    def _search(self, regex: str, topics: Collection[str], version: int) -> Steps[frozenset[str]]:
        """In the thread: what `regex` matches. Another client may have found it while this one waited for its turn."""
        remembered = self._matched.get(regex)
        if remembered is not None and remembered[0] == version:
            return remembered[1]
        found = yield from Regex(regex).matching(topics)
        same = self._results.get(hash(found))
        if same == found:
            return same
        self._results[hash(found)] = found
        return found

    def _remember(self, regex: str, matched: tuple[int, frozenset[str]]) -> None:
        before = self._matched.pop(regex, None)
        if before is not None:
            self._names -= len(before[1])
        self._matched[regex] = matched
        self._names += len(matched[1])
        while len(self._matched) > MAX_REMEMBERED or self._names > MAX_REMEMBERED_NAMES:
            _, (_, names) = self._matched.popitem(last=False)
            self._names -= len(names)


def _compile(regex: str) -> Steps[None]:
    yield
    Regex(regex)


def _match(regex: str, names: Collection[str]) -> Steps[frozenset[str]]:
    found = yield from Regex(regex).matching(names)
    return found
