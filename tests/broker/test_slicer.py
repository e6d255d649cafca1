"""The turns of the event loop: one budget for all jobs, given to the client that has used least."""

import asyncio
import gc
import weakref
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise

import pytest

from barnabas_broker.handlers.stepwise import _response
from barnabas_broker.slicer import CREDIT, QUANTUM, SLICE, Account, Slicer, Work


class Clock:
    """A clock that moves when something is done."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time

    def worked(self, seconds: float) -> None:
        self.time += seconds


async def turn() -> None:
    """Wait for the next turn of the event loop."""
    await asyncio.sleep(0)


@contextmanager
def each_turn(see: Callable[[], None]) -> Iterator[None]:
    """Call `see` in each turn of the event loop."""
    ended = False

    def turned() -> None:
        if not ended:
            see()
            asyncio.get_running_loop().call_soon(turned)

    asyncio.get_running_loop().call_soon(turned)
    yield
    ended = True


def test_work_of_one_step_reads_no_clock() -> None:
    def now() -> float:
        raise AssertionError("the clock is read")

    def work(result: int) -> Generator[None, None, int]:
        yield from ()
        return result

    assert Slicer(now).run(work(7), Account()) == 7


async def test_work_goes_on_at_once_until_the_budget_of_the_turn_is_over() -> None:
    clock, done = Clock(), 0

    def work() -> Generator[None, None, int]:
        nonlocal done
        for _ in range(20):
            done += 1
            clock.worked(SLICE / 4)
            yield
        return done

    slicer = Slicer(clock)
    assert slicer.starts(clock.time)
    running = slicer.run(work(), Account())
    assert isinstance(running, Work)
    assert done == 4, "a slice"
    assert await running == 20


async def test_a_first_step_that_uses_up_the_budget_is_the_only_one_in_its_turn() -> None:
    clock = Clock()

    def work() -> Generator[None, None, None]:
        clock.worked(2 * SLICE)
        yield
        for _ in range(20):
            clock.worked(SLICE / 4)
            yield

    slicer, times = Slicer(clock), list[float]()
    assert slicer.starts(clock.time)
    running = slicer.run(work(), Account())
    assert isinstance(running, Work)
    assert clock.time == 1000 + 2 * SLICE
    with each_turn(lambda: times.append(clock.time)):
        await running
    assert max(after - before for before, after in pairwise(times)) <= SLICE + 1e-9


async def test_what_arrives_after_jobs_that_have_used_up_a_turn_waits_for_the_next_one() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    slicer.wait(Account(), lambda: clock.worked(SLICE))
    await turn()
    assert not slicer.starts(clock.time)
    await turn()
    assert slicer.starts(clock.time)


async def test_all_work_that_is_begun_in_a_turn_has_one_budget() -> None:
    clock, done = Clock(), 0

    def work() -> Generator[None, None, None]:
        nonlocal done
        for _ in range(20):
            done += 1
            clock.worked(SLICE / 4)
            yield

    slicer = Slicer(clock)
    assert slicer.starts(clock.time)
    running = [slicer.run(work(), Account()) for _ in range(10)]
    assert done == 4 + 9, "a slice, and the first step of each"
    for each in running:
        assert isinstance(each, Work)
        await each


@pytest.mark.parametrize("fails", [False, True])
async def test_work_that_is_cancelled_by_its_own_step_stops_no_other(fails: bool) -> None:
    slicer = Slicer(lambda: 0.0)
    work: list[Work[int]] = []

    def first() -> Generator[None, None, int]:
        yield from ()
        work[0].cancel()
        if fails:
            raise ValueError("a bug")
        return 1

    def second() -> Generator[None, None, int]:
        yield
        return 2

    work.append(slicer.enqueue(first(), Account()))
    assert await slicer.enqueue(second(), Account()) == 2
    assert work[0].cancelled()


class Flood:
    """A client with many short pieces of work."""

    def __init__(self, slicer: Slicer, clock: Clock, pieces: int, seconds: float) -> None:
        self.account = Account()
        self.left = pieces
        self.done = 0
        self._slicer, self._clock, self._seconds = slicer, clock, seconds

    def start(self) -> None:
        self._slicer.wait(self.account, self._proceed)

    def _proceed(self) -> None:
        while self.left:
            if self._clock() >= self._slicer.until:
                self.start()
                return
            self.left -= 1
            self.done += 1
            self._clock.worked(self._seconds)


async def test_a_turn_gives_all_clients_together_one_slice() -> None:
    clock, piece = Clock(), QUANTUM / 5
    slicer = Slicer(clock)
    flood = [Flood(slicer, clock, 50, piece) for _ in range(100)]
    for each in flood:
        each.start()
    turns: list[float] = []
    with each_turn(lambda: turns.append(clock.time)):
        while any(each.left for each in flood):
            await turn()
    held = [after - before for before, after in pairwise(turns)]
    assert max(held) <= SLICE + piece + 1e-9


async def test_clients_share_turns_evenly() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    # The pieces of some take as long as 20 of the others.
    coarse = [Flood(slicer, clock, 1000, QUANTUM * 2) for _ in range(5)]
    fine = [Flood(slicer, clock, 1000, QUANTUM / 10) for _ in range(5)]
    for each in coarse + fine:
        each.start()
    while clock.time < 1000 + 100 * SLICE:
        await turn()
    used = [each.done * QUANTUM * 2 for each in coarse] + [each.done * QUANTUM / 10 for each in fine]
    assert max(used) - min(used) <= 3 * QUANTUM
    for each in coarse + fine:
        each.left = 0


async def test_a_client_does_not_pay_for_the_time_of_others() -> None:
    clock, processor = Clock(), Clock()
    slicer = Slicer(clock, processor)
    client = Account()

    def interrupted() -> None:
        processor.worked(QUANTUM / 2)
        clock.worked(SLICE)

    slicer.join(client)
    before = client.used
    slicer.wait(client, interrupted)
    await turn()
    assert client.used - before == pytest.approx(QUANTUM / 2)


async def test_each_client_pays_for_its_own_time_in_a_turn_of_short_and_long_jobs() -> None:
    """The processor's time is not asked after short jobs."""
    clock, processor = Clock(), Clock()
    slicer = Slicer(clock, processor)
    jobs = [(0.05, 0.05), (0.2, 1.5), (0.05, 0.05), (0.3, 2.0), (0.4, 0.4)]
    clients = [Account() for _ in jobs]

    def work(used: float, took: float) -> None:
        processor.worked(used / 1000)
        clock.worked(took / 1000)

    for client, job in zip(clients, jobs, strict=True):
        slicer.join(client)
        slicer.wait(client, partial(work, *job))
    before = clients[0].used
    await turn()
    assert [(each.used - before) * 1000 for each in clients] == pytest.approx([used for used, _ in jobs])


async def test_a_quiet_client_comes_before_a_flood() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    quiet = Account()
    slicer.join(quiet)
    flood = [Flood(slicer, clock, 500, QUANTUM) for _ in range(100)]
    for each in flood:
        slicer.join(each.account)
        each.start()
    while not flood[-1].done:
        await turn()
    waited = []
    for _ in range(20):
        await turn()
        asked, answered = clock.time, False

        def answer() -> None:
            nonlocal answered
            answered = True

        slicer.wait(quiet, answer, quiet=True)
        while not answered:
            await turn()
        waited.append(clock.time - asked)
    assert max(waited) <= SLICE + QUANTUM
    for each in flood:
        each.left = 0


async def test_a_quiet_client_comes_before_those_that_have_come_after_it() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    quiet, seen = Account(), list[str]()
    slicer.join(quiet)
    clock.worked(3 * QUANTUM)
    flood = [Account() for _ in range(100)]
    for each in flood:
        slicer.join(each)
        slicer.wait(each, lambda: seen.append("flood"))
    slicer.wait(quiet, lambda: seen.append("quiet"), quiet=True)
    await turn()
    assert seen == ["quiet"] + ["flood"] * 100


async def test_a_single_request_comes_before_many_of_clients_that_have_been_as_quiet() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    clients, seen = [Account() for _ in range(101)], list[str]()
    for each in clients:
        slicer.join(each)
    clock.worked(SLICE)
    for each in clients[1:]:
        slicer.wait(each, lambda: seen.append("many"))
    slicer.wait(clients[0], lambda: seen.append("single"), quiet=True)
    await turn()
    assert seen == ["single"] + ["many"] * 100


async def test_single_requests_come_first_while_those_with_many_have_their_first_turn() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    quiet = Account()
    slicer.join(quiet)
    clock.worked(SLICE)
    flood = [Flood(slicer, clock, 10, QUANTUM * 3) for _ in range(100)]
    for each in flood:
        each.start()
    for _ in range(5):
        waiting = [0]
        slicer.wait(quiet, lambda: clock.worked(QUANTUM), quiet=True)
        slicer.wait(quiet, waiting.clear, quiet=True)
        await turn()
        assert not waiting
    assert not all(each.done for each in flood)
    for each in flood:
        each.left = 0


async def test_single_requests_do_not_keep_a_client_with_many_out() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    flood = Flood(slicer, clock, 10_000, QUANTUM / 5)
    flood.start()
    others = [Account() for _ in range(20)]
    for each in others:
        slicer.join(each)
    for _ in range(100):
        for each in others:
            if each not in slicer._jobs:
                slicer.wait(each, lambda: clock.worked(QUANTUM / 2), quiet=True)
        await turn()
    used = (clock.time - 1000) / 21
    assert abs(flood.done * QUANTUM / 5 - used) <= CREDIT + 3 * QUANTUM, "it has its share"
    flood.left = 0


async def test_clients_that_are_always_new_do_not_keep_others_out() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    old = Flood(slicer, clock, 10_000, QUANTUM)
    old.start()
    for _ in range(100):
        for _ in range(20):
            new = Flood(slicer, clock, 1, QUANTUM)
            slicer.join(new.account)
            new.start()
        await turn()
    while slicer._heap and old.done < 100:
        await turn()
    assert old.done >= 100
    assert clock.time - 1000 <= 2200 * QUANTUM, "those that came later waited behind it"
    old.left = 0


async def test_a_job_that_fails_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    slicer = Slicer(Clock())
    seen: list[int] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: seen.append(0))

    def failing() -> None:
        raise ValueError("a bug")

    slicer.wait(Account(), failing)
    slicer.wait(Account(), lambda: seen.append(1))
    for _ in range(3):
        await turn()
    assert seen == [0, 1]


async def test_what_waits_is_cancelled_at_the_end() -> None:
    slicer = Slicer(lambda: 0.0)
    closed = False

    def work() -> Generator[None, None, None]:
        nonlocal closed
        try:
            while True:
                yield
        finally:
            closed = True

    waiting = slicer.enqueue(work(), Account())
    slicer.wait(Account(), lambda: pytest.fail("it is closed"))
    slicer.close()
    assert waiting.cancelled()
    await turn()
    assert not closed, "it had not begun"


class Busy:
    """Requests of one client that work in each turn of the event loop, and wait for the next one."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.account = Account()
        self.done = 0
        self._clock, self._seconds = clock, seconds

    async def request(self, pieces: int) -> int:
        """Do some pieces of work, each in a turn of its own."""
        for _ in range(pieces):
            self._clock.worked(self._seconds)
            self.done += 1
            await turn()
        return pieces


async def test_coroutines_of_all_clients_together_have_one_slice_in_a_turn() -> None:
    clock, piece = Clock(), QUANTUM / 2
    slicer = Slicer(clock)
    clients = [Busy(clock, piece) for _ in range(10)]
    times: list[float] = []
    with each_turn(lambda: times.append(clock.time)):
        running = [slicer.start(client.request(3), client.account) for client in clients for _ in range(20)]
        assert await asyncio.gather(*running) == [3] * 200
    assert clock.time == pytest.approx(1000 + 600 * piece)
    assert max(after - before for before, after in pairwise(times)) <= SLICE + QUANTUM + piece
    assert len(times) >= 600 * piece / (SLICE + QUANTUM + piece)
    for client in clients:
        assert client.account.spent == pytest.approx(60 * piece), "it is charged for all that it did"


async def test_coroutines_of_a_client_with_many_do_not_keep_another_one_waiting() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    flood, other = Busy(clock, QUANTUM / 2), Busy(clock, QUANTUM / 2)
    running = [slicer.start(flood.request(1), flood.account) for _ in range(1000)]
    await turn()
    await turn()
    await slicer.start(other.request(1), other.account)
    assert flood.done <= 5 * SLICE / (QUANTUM / 2)
    await asyncio.gather(*running)


async def test_coroutines_wait_for_no_turn_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    slicer = Slicer(Clock())
    monkeypatch.setattr(slicer, "wait", lambda *_, **__: pytest.fail("it waits"))
    busy = Busy(Clock(), 1.0)
    assert await slicer.start(busy.request(3), busy.account) == 3


def use_up(slicer: Slicer, clock: Clock) -> None:
    """Use up the budget of this turn of the event loop and of the next one."""
    slicer.starts(clock.time)
    clock.worked(SLICE)
    slicer.did(SLICE)


@pytest.mark.parametrize("how", ["cancelled", "closed"])
async def test_a_coroutine_that_waits_for_its_turn_can_be_ended(how: str) -> None:
    clock = Clock()
    slicer = Slicer(clock)
    waiting = slicer.start(Busy(clock, 1.0).request(1), Account())
    end = slicer.close if how == "closed" else waiting.cancel
    asyncio.get_running_loop().call_soon(end)
    use_up(slicer, clock)
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert clock.time == 1000 + SLICE, "it has done nothing"


async def test_a_coroutine_that_waits_for_its_turn_gets_the_error_of_what_it_has_waited_for() -> None:
    clock = Clock()
    slicer = Slicer(clock)
    failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def request() -> str:
        try:
            await failing
        except ValueError as error:
            return str(error)
        return "no error"

    waiting = slicer.start(request(), Account())
    failing.set_exception(ValueError("a bug"))
    use_up(slicer, clock)
    assert await waiting == "a bug"


class Frame(bytearray):
    """The frame of a request, which a reference can watch."""


async def test_what_a_failed_request_holds_is_freed_at_once() -> None:
    """Not when the collector runs: it may be a batch of a megabyte."""
    slicer = Slicer(lambda: 0.0)
    frames = [Frame(7)]
    gone = weakref.ref(frames[0])

    def failing(frame: Frame) -> Generator[None, None, None]:
        yield
        raise ValueError(len(frame))

    async def request() -> str:
        try:
            await _response(slicer.enqueue(failing(frames.pop()), Account()))
        except ValueError as error:
            return str(error)
        return "no error"

    gc.disable()
    try:
        assert await request() == "7"
        await asyncio.sleep(0)  # the loop is done with the future
        assert gone() is None
    finally:
        gc.enable()
