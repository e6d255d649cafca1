"""Compiles the regular expressions of consumer groups and matches topics with them, outside the event loop."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from barnabas_broker.groups.consumer.regex import TopicRegex
from barnabas_broker.logs import logger

#: Seconds that one expression gets for all topics: only one made to be slow needs more.
TIME_LIMIT: Final = 10.0

#: Expressions, and names of topics that these matched, that are remembered for other groups.
MAX_REMEMBERED: Final = 1_000
MAX_REMEMBERED_NAMES: Final = 1_000_000

log = logger(__name__)


class TopicPatterns:
    """The expressions of all groups of this broker.

    One thread compiles, so that a heartbeat gets its error soon. Another one matches, and RE2 releases Python's global
    lock there. What an expression matched is remembered as long as the metadata version is the same: many groups with
    the same expression cost as much as one.
    """

    def __init__(self) -> None:
        self._compiling = ThreadPoolExecutor(1, "regex-compile")
        self._matching = ThreadPoolExecutor(1, "regex-match")
        self._matched: OrderedDict[str, tuple[int, frozenset[str]]] = OrderedDict()
        self._names = 0
        self._closed = False

    async def check(self, regex: str) -> None:
        """Check that `regex` can be used.

        Raises:
            InvalidRegexError: it does not compile or is too large: INVALID_REGULAR_EXPRESSION.
        """
        if regex not in self._matched:
            await asyncio.get_running_loop().run_in_executor(self._compiling, TopicRegex, regex)

    async def resolve(
        self, regexes: Collection[str], topics: Collection[str], version: int
    ) -> Mapping[str, frozenset[str]]:
        """The names that each expression matches, without any authorization.

        Args:
            regexes: expressions that :meth:`check` has accepted.
            topics: the names of all topics; not changed while this runs.
            version: of the metadata that `topics` come from.

        Returns:
            The matches by expression, without expressions that needed more than :data:`TIME_LIMIT` seconds: the group
            keeps what it has for these.

        Raises:
            InvalidRegexError: an expression cannot be used.
        """
        resolved = {}
        loop = asyncio.get_running_loop()
        for regex in regexes:
            remembered = self._matched.get(regex)
            if remembered is None or remembered[0] != version:
                found = await loop.run_in_executor(self._matching, self._match, regex, topics)
                if found is None:
                    log.warning("regular expression took too long", regex=regex[:200], topics=len(topics))
                    continue
                remembered = version, found
                self._remember(regex, remembered)
            else:
                self._matched.move_to_end(regex)
            resolved[regex] = remembered[1]
        return resolved

    async def close(self) -> None:
        """End the threads; what they still match is given up: such a `resolve` returns without it."""
        self._closed = True
        for pool in (self._compiling, self._matching):
            await asyncio.to_thread(pool.shutdown, cancel_futures=True)

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
