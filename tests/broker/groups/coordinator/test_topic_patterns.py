"""Regular expressions are compiled and matched in threads, and their results are remembered."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from barnabas_broker.groups.consumer.regex import InvalidRegexError
from barnabas_broker.groups.coordinator import topic_patterns
from barnabas_broker.groups.coordinator.topic_patterns import TopicPatterns


@pytest.fixture
async def patterns() -> AsyncIterator[TopicPatterns]:
    patterns = TopicPatterns()
    yield patterns
    await patterns.close()


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


async def test_regexes_are_checked(patterns: TopicPatterns) -> None:
    await patterns.check("orders.*")
    with pytest.raises(InvalidRegexError, match=r"missing closing \)"):
        await patterns.check("(")


async def test_topics_are_searched_in_a_thread_once_for_each_version(patterns: TopicPatterns) -> None:
    topics = Topics("orders", "orders-eu", "payments")
    expected = {"orders.*": {"orders", "orders-eu"}, "p.*": {"payments"}, "none": set[str]()}
    for version in (1, 1, 2):
        assert await patterns.resolve(expected, topics, version) == expected
    assert topics.searched == 6
    assert all(name.startswith("regex-match") for name in topics.threads)


async def test_few_results_are_remembered(patterns: TopicPatterns, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_patterns, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(topic_patterns, "MAX_REMEMBERED_NAMES", 3)
    topics = Topics("a1", "a2", "b1", "b2")

    async def searches(*regexes: str) -> int:
        before = topics.searched
        for regex in regexes:
            assert await patterns.resolve([regex], topics, 1) == {
                regex: {name for name in topics if name[0] == regex[0]}
            }
            topics.searched -= 1  # by this test
        return topics.searched - before

    assert await searches("a.", "a.") == 1
    assert await searches("b.", "a.") == 2  # four names are too many
    assert await searches("x", "a.", "y", "a.") == 2  # of three, the least recently used is forgotten
    assert await searches("x") == 1


async def test_a_regex_that_takes_too_long_is_left_out(
    patterns: TopicPatterns, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = [f"topic-{number}" for number in range(1_000)]
    monkeypatch.setattr(topic_patterns, "TIME_LIMIT", -1.0)
    assert await patterns.resolve(["topic-1"], topics, 1) == {}
    monkeypatch.setattr(topic_patterns, "TIME_LIMIT", 600.0)
    assert await patterns.resolve(["topic-1"], topics, 1) == {"topic-1": {"topic-1"}}


async def test_closing_gives_up_what_still_runs() -> None:
    patterns = TopicPatterns()
    started = threading.Event()

    def endless() -> Iterator[str]:
        while True:
            started.set()
            yield "topic"

    class Endless(list[str]):
        def __iter__(self) -> Iterator[str]:
            return endless()

    running = asyncio.create_task(patterns.resolve(["a"], Endless(), 1))
    await asyncio.to_thread(started.wait, 60)
    await patterns.close()
    assert await running == {}
