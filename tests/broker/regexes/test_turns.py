"""Work in a thread: no client waits for all of another's."""

from collections.abc import Callable
from typing import Any

from barnabas_broker.offload import at_once
from barnabas_broker.regexes.turns import SLICE, Client, TooSlowError, Turns
from barnabas_broker.steps import Steps

ONE: Client = ("User:one", "/10.0.0.1")
OTHER: Client = ("User:two", "/10.0.0.2")


class Thread:
    """A thread that works when it is told to; a step takes a slice."""

    def __init__(self, limit: float = 1_000.0) -> None:
        self.now = 0.0
        self.done: list[tuple[str, Any]] = []
        self.slices: list[str] = []
        self.turns = Turns(self.offload, lambda: self.now, limit)
        self._waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def offload(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Keep work until :meth:`work`."""
        self._waiting.append((work, done))
        assert len(self._waiting) == 1, "one slice after the other"

    def run(self, client: Client, name: str, steps: int, result: Any = None) -> None:
        """Begin work of some steps."""
        self.turns.run(client, self.steps(name, steps, result), lambda it: self.done.append((name, it)))

    def steps(self, name: str, steps: int, result: Any) -> Steps[Any]:
        """The work."""
        for _ in range(steps):
            self.slices.append(name)
            self.now += SLICE
            yield
        if isinstance(result, Exception):
            raise result
        return result

    def work(self, slices: int = 1_000_000) -> None:
        """Do some slices, or all."""
        while self._waiting and slices:
            work, done = self._waiting.pop()
            done(work())
            slices -= 1


def test_a_client_waits_for_one_slice_of_each_other_client_and_not_for_all_of_their_work() -> None:
    thread = Thread()
    for number in range(100):
        thread.run(ONE, f"slow-{number}", 1_000)
    thread.work(50)
    thread.run(OTHER, "quick", 1, "found")
    before = len(thread.slices)
    thread.work(4)
    assert thread.done == [("quick", "found")]
    assert thread.slices[before:].index("quick") <= 1


def test_clients_with_long_work_get_the_same_time() -> None:
    thread = Thread()
    for number in range(10):
        thread.run(ONE, f"one-{number}", 1_000)
    thread.work(40)
    thread.run(OTHER, "other", 1_000)
    del thread.slices[:]
    thread.work(100)
    assert 49 <= thread.slices.count("other") <= 51, "it has neither more turns, nor saved up those before it came"


def test_short_work_of_a_client_does_not_wait_for_all_of_its_long_work() -> None:
    thread = Thread()
    for number in range(20):
        thread.run(ONE, f"slow-{number}", 1_000)
    thread.work(100)
    thread.run(ONE, "quick", 1, "found")
    thread.work(3)
    assert thread.done == [("quick", "found")]


def test_work_that_takes_too_long_is_ended() -> None:
    thread = Thread(limit=10 * SLICE)
    thread.run(ONE, "slow", 1_000)
    thread.run(ONE, "quick", 3, "found")
    thread.work()
    assert [name for name, _ in thread.done] == ["quick", "slow"]
    assert isinstance(thread.done[1][1], TooSlowError) and str(thread.done[1][1]) == "it took more than 0.1 s"


def test_an_error_of_the_work_is_its_result() -> None:
    thread, error = Thread(), ValueError("no")
    thread.run(ONE, "bad", 2, error)
    thread.work()
    assert thread.done == [("bad", error)]


def test_closing_ends_what_runs_what_waits_and_what_comes() -> None:
    thread = Thread()
    thread.run(ONE, "one", 1_000)
    thread.run(OTHER, "other", 1_000)
    thread.turns.close()
    thread.run(OTHER, "late", 1)
    thread.work()
    assert sorted(name for name, _ in thread.done) == ["late", "one", "other"]
    assert all(isinstance(result, TooSlowError) for _, result in thread.done)


def test_without_a_thread_all_work_is_done_at_once_and_work_that_follows_too() -> None:
    now = 0.0
    done: list[Any] = []

    def steps() -> Steps[int]:
        nonlocal now
        for _ in range(10_000):
            now += SLICE
            yield
        return 1

    turns = Turns(at_once, lambda: now, 1_000.0)

    def first(result: Any) -> None:
        done.append(result)
        turns.run(ONE, steps(), done.append)

    turns.run(ONE, steps(), first)
    assert done == [1, 1]
