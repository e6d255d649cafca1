"""Regular expressions are compiled and matched in threads, and their results are remembered."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest

from barnabas_broker.offload import Offloaded
from barnabas_broker.regexes import InvalidRegexError, RegexSearch, TooSlowError, search

ONE, OTHER = ("User:one", "/10.0.0.1"), ("User:two", "/10.0.0.2")


class Search(RegexSearch):
    """A search whose results are awaited."""

    async def checked(self, regex: str) -> Exception | None:
        future: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.check(regex, ONE, future.set_result)
        return await future

    async def resolved(
        self, regexes: Collection[str], topics: Collection[str], version: int
    ) -> Mapping[str, frozenset[str]]:
        future: asyncio.Future[Mapping[str, frozenset[str]]] = asyncio.get_running_loop().create_future()
        self.resolve(regexes, topics, version, ONE, future.set_result)
        return await future

    async def filtered(self, regex: str, names: Collection[str]) -> frozenset[str] | Exception:
        future: asyncio.Future[frozenset[str] | Exception] = asyncio.get_running_loop().create_future()
        self.filter(regex, names, ONE, future.set_result)
        return await future


@asynccontextmanager
async def threads(**options: Any) -> AsyncIterator[Search]:
    """A search with threads."""
    async with AsyncExitStack() as stack:
        searching = Search(Offloaded(stack, "regex-compile"), Offloaded(stack, "regex-match"), **options)
        stack.callback(searching.close)
        yield searching


@pytest.fixture
async def searching() -> AsyncIterator[Search]:
    async with threads() as searching:
        yield searching


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


async def test_regexes_are_checked(searching: Search) -> None:
    assert await searching.checked("orders.*") is None
    refused = await searching.checked("(")
    assert isinstance(refused, InvalidRegexError) and "missing closing )" in str(refused)


async def test_topics_are_searched_in_a_thread_once_for_each_version(searching: Search) -> None:
    topics = Topics("orders", "orders-eu", "payments")
    expected = {"orders.*": {"orders", "orders-eu"}, "p.*": {"payments"}, "none": set[str]()}
    for version in (1, 1, 2):
        assert await searching.resolved(expected, topics, version) == expected
    assert topics.searched == 6
    assert all(name.startswith("regex-match") for name in topics.threads)


async def test_few_results_are_remembered(searching: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "MAX_REMEMBERED", 2)
    monkeypatch.setattr(search, "MAX_REMEMBERED_NAMES", 3)
    topics = Topics("a1", "a2", "b1", "b2")

    async def searches(*regexes: str) -> int:
        before = topics.searched
        for regex in regexes:
            assert await searching.resolved([regex], topics, 1) == {
                regex: {name for name in topics if name[0] == regex[0]}
            }
            topics.searched -= 1  # by this test
        return topics.searched - before

    assert await searches("a.", "a.") == 1
    assert await searches("b.", "a.") == 2  # four names are too many
    assert await searches("x", "a.", "y", "a.") == 2  # of three, the least recently used is forgotten
    assert await searches("x") == 1


async def test_a_regex_that_takes_too_long_is_left_out() -> None:
    topics = [f"topic-{number}" for number in range(1_000)]
    async with threads(limit=-1.0, clock=count().__next__) as searching:
        assert await searching.resolved(["topic-1"], topics, 1) == {}
        slow = await searching.filtered("topic-1", topics)
        assert isinstance(slow, TooSlowError) and str(slow) == "it took more than -1 s"
    async with threads(limit=600.0) as searching:
        assert await searching.resolved(["topic-1"], topics, 1) == {"topic-1": {"topic-1"}}


async def test_a_regex_that_cannot_be_used_is_left_out(searching: Search) -> None:
    assert await searching.resolved(["(", "a"], ["a", "("], 1) == {"a": {"a"}}


async def test_closing_gives_up_what_still_runs(searching: Search) -> None:
    started = threading.Event()

    def endless() -> Iterator[str]:
        while True:
            started.set()
            yield "topic"

    class Endless(list[str]):
        def __iter__(self) -> Iterator[str]:
            return endless()

    running = asyncio.create_task(searching.resolved(["a"], Endless(), 1))
    await asyncio.to_thread(started.wait, 60)
    searching.close()
    assert await running == {}


async def test_names_are_filtered_once_and_errors_are_results(searching: Search) -> None:
    found = await searching.filtered("orders-.", ["orders-1", "orders-2", "other"])
    assert found == frozenset({"orders-1", "orders-2"})
    assert isinstance(await searching.filtered("(", []), InvalidRegexError)


async def test_equal_results_are_one_object(searching: Search) -> None:
    topics = [f"topic-{number}" for number in range(100)]
    found = await searching.resolved([".*", "topic-.*", "t[^x]*"], topics, 1)
    assert len(found) == 3 and len({id(names) for names in found.values()}) == 1
    again = await searching.resolved([".*"], topics, 2)
    assert again[".*"] is found[".*"]


def test_an_expression_of_many_groups_is_searched_once_for_each_version() -> None:
    waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []
    # No turn ends because its time is over.
    searching = RegexSearch(matching=lambda work, done: waiting.append((work, done)), clock=lambda: 0.0)
    topics = Topics("a", "b")
    found: list[Mapping[str, frozenset[str]]] = []
    for client in (ONE, OTHER, ONE):
        searching.resolve(["a"], topics, 1, client, found.append)
    while waiting:
        work, done = waiting.pop()
        done(work())
    assert found == [{"a": {"a"}}] * 3
    assert topics.searched == 1
