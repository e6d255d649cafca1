"""Regular expressions are compiled and matched in threads, and their results are remembered."""

import asyncio
import threading
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack

import pytest

from barnabas_broker.groups.consumer.regex import InvalidRegexError
from barnabas_broker.groups.coordinator import topic_patterns
from barnabas_broker.groups.coordinator.offload import Offloaded
from barnabas_broker.groups.coordinator.topic_patterns import TopicPatterns


class Patterns(TopicPatterns):
    """Patterns whose results are awaited."""

    async def checked(self, regex: str) -> Exception | None:
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.check(regex, future.set_result)
        return await future

    async def resolved(
        self, regexes: Collection[str], topics: Collection[str], version: int
    ) -> Mapping[str, frozenset[str]]:
        future: asyncio.Future[Mapping[str, frozenset[str]]] = asyncio.get_running_loop().create_future()
        self.resolve(regexes, topics, version, future.set_result)
        return await future


@pytest.fixture
async def patterns() -> AsyncIterator[Patterns]:
    async with AsyncExitStack() as stack:
        patterns = Patterns(Offloaded(stack, "regex-compile"), Offloaded(stack, "regex-match"))
        stack.callback(patterns.close)
        yield patterns


class Topics(list[str]):
    """Topics that count how often they are searched, and in which threads."""

    def __init__(self, *names: str) -> None:
        super().__init__(names)
        self.searched = 0
        self.threads: set[str] = set()

    def __iter__(self) -> Iterator[str]:
        self.searched += 1
        self.threads.add(threading.current_thread().name)
        return super().__iter__()


async def test_regexes_are_checked(patterns: Patterns) -> None:
    assert await patterns.checked("orders.*") is None
    refused = await patterns.checked("(")
    assert isinstance(refused, InvalidRegexError) and "missing closing )" in str(refused)


async def test_topics_are_searched_in_a_thread_once_for_each_version(patterns: Patterns) -> None:
    topics = Topics("orders", "orders-eu", "payments")
    expected = {"orders.*": {"orders", "orders-eu"}, "p.*": {"payments"}, "none": set[str]()}
    for version in (1, 1, 2):
        assert await patterns.resolved(expected, topics, version) == expected
    assert topics.searched == 6
    assert all(name.startswith("regex-match") for name in topics.threads)


async def test_few_results_are_remembered(patterns: Patterns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(topic_patterns, "MAX_REMEMBERED_NAMES", 3)
    topics = Topics("a1", "a2", "b1", "b2")

    async def searches(*regexes: str) -> int:
        before = topics.searched
        for regex in regexes:
            assert await patterns.resolved([regex], topics, 1) == {
                regex: {name for name in topics if name[0] == regex[0]}
            }
            topics.searched -= 1  # by this test
        return topics.searched - before

    assert await searches("a.", "a.") == 1
    assert await searches("b.", "a.") == 2  # four names are too many
    assert await searches("x", "a.", "y", "a.") == 2  # of three, the least recently used is forgotten
    assert await searches("x") == 1


async def test_a_regex_that_takes_too_long_is_left_out(patterns: Patterns, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = [f"topic-{number}" for number in range(1_000)]
    monkeypatch.setattr(topic_patterns, "TIME_LIMIT", -1.0)
    assert await patterns.resolved(["topic-1"], topics, 1) == {}
    monkeypatch.setattr(topic_patterns, "TIME_LIMIT", 600.0)
    assert await patterns.resolved(["topic-1"], topics, 1) == {"topic-1": {"topic-1"}}


async def test_a_regex_that_cannot_be_used_is_left_out(patterns: Patterns) -> None:
    assert await patterns.resolved(["(", "a"], ["a", "("], 1) == {"a": {"a"}}


async def test_closing_gives_up_what_still_runs(patterns: Patterns) -> None:
    started = threading.Event()

    def endless() -> Iterator[str]:
        while True:
            started.set()
            yield "topic"

    class Endless(list[str]):
        def __iter__(self) -> Iterator[str]:
            return endless()

    running = asyncio.create_task(patterns.resolved(["a"], Endless(), 1))
    await asyncio.to_thread(started.wait, 60)
    patterns.close()
    assert await running == {}
