"""The runtime of coordinators: order of requests, appends that fail or take long, loads and unloads."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from barnabas_broker.coordinators.replay import PartitionReplay, Report
from barnabas_broker.coordinators.result import Result
from barnabas_broker.coordinators.runtime import Hosted, HostedPartition, Runtime
from barnabas_broker.logs import logger
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.records import BatchHeader, Record
from tests.broker.groups.memory import MemoryLog
from tests.sim.virtual import run

E = ErrorCode
#: Seconds until a request whose records are being appended is answered, and until one that waits is.
TIMEOUT, PATIENCE = 5.0, 20.0

#: An answer: the number, or why there is none.
Answer = int | ErrorCode
Decision = Result[int, Answer, str]


class Counter:
    """Counts; while it is at a number that can be divided by 10, requests wait."""

    def __init__(self) -> None:
        self.number = 0

    @property
    def gone(self) -> bool:
        return self.number == 0

    def apply(self, record: int) -> None:
        self.number = record

    def add(self, count: int) -> Decision:
        if self.number and not self.number % 10:
            return Decision(waits=True)
        return self.set(self.number + count)

    def set(self, number: int) -> Decision:
        return Decision((number,), number, (f"{number}",))


Partition = HostedPartition["Counted"]


class Counted(Hosted[Counter, Partition]):
    __slots__ = ()


class Replay(PartitionReplay):
    def __init__(self, report: Report, start: int) -> None:
        super().__init__(report, start)
        self.counters: dict[str, Counter] = {}

    def apply(self, header: BatchHeader, record: Record) -> None:
        self.counters.setdefault((record.key or b"").decode(), Counter()).apply(int(record.value or b""))


class Counters:
    """A coordinator of one partition.

    Attributes:
        answers: what was answered, in order, with the name of the request.
        events: those that were published.
    """

    what = "counters"
    ids = "counters"
    busy: Answer = E.CONCURRENT_TRANSACTIONS

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.log = MemoryLog()
        self.answers: list[tuple[str, Answer]] = []
        self.events: list[str] = []
        self.runtime: Runtime[Partition, Counted, Answer] = Runtime(
            "__counters",
            1,
            self,
            self.log,
            logger("counters"),
            loop,
            loop,
            loop.time,
            lambda: 0,
            timeout=TIMEOUT,
            patience=PATIENCE,
        )

    def partition(self, index: int, leader_epoch: int) -> Partition:
        return HostedPartition(index, leader_epoch)

    def replay(self, report: Report, start: int) -> Replay:
        return Replay(report, start)

    def restore(self, home: Partition, replay: Replay) -> Iterator[None]:
        for name, counter in replay.counters.items():
            home.hosted[name] = Counted(name, home, counter)
            yield

    def resume(self, home: Partition) -> Iterator[None]:
        yield

    def encode(self, hosted: Counted, record: int) -> tuple[bytes, bytes | None]:
        return hosted.name.encode(), str(record).encode()

    def publish(self, hosted: Counted, event: str) -> None:
        self.events.append(event)

    def applied(self, hosted: Counted) -> None:
        self.events.append(f"applied {hosted.machine.number}")

    def refusal(self, error: ErrorCode) -> Answer:
        return error

    def unloaded(self, home: Partition) -> None:
        self.events.append("unloaded")

    # What tests do

    def hosted(self, name: str = "a") -> Counted:
        home = self.runtime.home(name)
        return home.hosted.setdefault(name, Counted(name, home, Counter()))

    def ask(self, name: str, count: int = 1) -> None:
        def respond(answer: Answer) -> None:
            self.answers.append((name, answer))

        self.runtime.ask(self.hosted(), lambda hosted: hosted.machine.add(count), respond)

    @property
    def number(self) -> int:
        return self.hosted().machine.number


def scenario(test: Callable[[Counters], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test with a loaded coordinator, in virtual time."""

    async def main() -> None:
        counters = Counters()
        await counters.runtime.load(0, 1)
        await test(counters)
        await counters.runtime.close()

    def wrapped() -> None:
        run(main())

    wrapped.__doc__ = test.__doc__
    return wrapped


async def turns() -> None:
    """Let what is due happen."""
    for _ in range(3):
        await asyncio.sleep(0)


@scenario
async def test_a_decision_is_appended_then_applied_then_answered(counters: Counters) -> None:
    counters.log.hold = True
    counters.ask("one")
    await turns()
    assert counters.log.appends == 1
    assert (counters.number, counters.answers, counters.events) == (0, [], []), "not before it is durable"
    counters.log.release()
    assert (counters.number, counters.answers, counters.events) == (1, [("one", 1)], ["1", "applied 1"])


@scenario
async def test_requests_about_an_id_are_decided_one_after_the_other(counters: Counters) -> None:
    counters.log.hold = True
    for name in ("one", "two", "three"):
        counters.ask(name)
    await turns()
    for number in (1, 2, 3):
        assert (counters.log.appends, counters.number) == (number, number - 1)
        counters.log.release()
        await turns()
    assert counters.answers == [("one", 1), ("two", 2), ("three", 3)]


@scenario
async def test_the_appends_of_an_iteration_are_one_batch(counters: Counters) -> None:
    home = counters.runtime.home("a")
    for number in range(50):
        hosted = home.hosted[f"{number}"] = Counted(f"{number}", home, Counter())
        counters.runtime.ask(hosted, lambda hosted: hosted.machine.add(1), lambda answer: None)
    await turns()
    assert (counters.log.appends, counters.runtime.count) == (1, 50)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.NOT_COORDINATOR, E.NOT_COORDINATOR),
    ],
)
def test_an_append_that_fails_changes_nothing(error: ErrorCode, answer: ErrorCode) -> None:
    @scenario
    async def test(counters: Counters) -> None:
        counters.ask("one")
        await turns()
        counters.events.clear()
        counters.log.fail = error
        counters.ask("two")
        await turns()
        assert (counters.number, counters.answers[1:], counters.events) == (1, [("two", answer)], [])
        counters.log.fail = E.NONE
        counters.ask("three")
        await turns()
        assert counters.answers[2:] == [("three", 2)]

    test()


@pytest.mark.parametrize("durable", [True, False])
def test_an_id_waits_for_an_append_that_takes_long(durable: bool) -> None:
    """The client is answered; whether the records become durable is not known yet, so that nothing can be decided."""

    @scenario
    async def test(counters: Counters) -> None:
        counters.log.hold = True
        counters.ask("one")
        await asyncio.sleep(TIMEOUT + 1)
        assert counters.answers == [("one", E.COORDINATOR_NOT_AVAILABLE)]
        counters.ask("two", 5)
        await turns()
        assert (counters.number, counters.log.appends) == (0, 1)
        ((done, _),) = counters.log.held
        counters.log.held.clear()
        done(E.NONE if durable else E.KAFKA_STORAGE_ERROR)
        assert counters.number == (1 if durable else 0)
        await turns()
        counters.log.release()
        assert counters.answers[1:] == [("two", 6 if durable else 5)]

    test()


@scenario
async def test_a_machine_that_waits_is_asked_again_after_its_next_change(counters: Counters) -> None:
    counters.ask("ten", 10)
    await turns()
    for name in ("one", "two"):
        counters.ask(name)
    await asyncio.sleep(PATIENCE - 1)
    assert counters.answers == [("ten", 10)]
    assert counters.runtime.do(counters.hosted(), lambda hosted: hosted.machine.set(11))
    await turns()
    assert counters.answers[1:] == [("one", 12), ("two", 13)]
    assert counters.hosted().waiting is None


@scenario
async def test_requests_wait_for_so_long_and_so_many_of_them(counters: Counters) -> None:
    counters.ask("ten", 10)
    await turns()
    for number in range(101):
        counters.ask(f"{number}")
    assert counters.answers[1:] == [("100", counters.busy)]
    await asyncio.sleep(PATIENCE + 1)
    assert [answer for _, answer in counters.answers[1:]] == [counters.busy] * 101
    assert counters.hosted().waiting is None and not counters.runtime._waiting


@scenario
async def test_a_step_that_no_client_asks_for_is_not_taken_during_an_append(counters: Counters) -> None:
    counters.log.hold = True
    counters.ask("one")
    assert not counters.runtime.do(counters.hosted(), lambda hosted: hosted.machine.set(7))
    await turns()
    counters.log.release()
    assert counters.number == 1


@scenario
async def test_a_step_that_has_to_succeed_is_taken_until_its_records_are_in_the_log(counters: Counters) -> None:
    counters.log.fail = E.NOT_ENOUGH_REPLICAS
    asked = 0

    def step(hosted: Counted) -> Decision:
        nonlocal asked
        asked += 1
        return hosted.machine.set(7) if hosted.machine.number != 7 else Decision()

    hosted = counters.hosted()
    counters.runtime.insist(hosted, step)
    await asyncio.sleep(60)
    assert 5 <= asked <= 12, "with back-off"
    counters.log.fail = E.NONE
    await asyncio.sleep(20)
    assert hosted.machine.number == 7
    last = asked
    await asyncio.sleep(60)
    assert asked == last


@scenario
async def test_an_unload_answers_what_waits_and_later_results_have_no_effect(counters: Counters) -> None:
    counters.log.hold = True
    counters.ask("one")
    counters.ask("two")
    await turns()
    hosted = counters.hosted()
    counters.runtime.unload(0)
    assert counters.answers == [("one", E.NOT_COORDINATOR), ("two", E.NOT_COORDINATOR)]
    counters.log.release()
    await turns()
    assert (hosted.machine.number, counters.events, len(counters.answers)) == (0, ["unloaded"], 2)
    with pytest.raises(KafkaError) as raised:
        counters.runtime.home("a")
    assert raised.value.code is E.NOT_COORDINATOR


@scenario
async def test_records_of_an_id_that_was_unloaded_are_not_appended(counters: Counters) -> None:
    hosted, results = counters.hosted(), list[ErrorCode]()
    await counters.runtime.load(0, 2)
    counters.runtime.append(hosted, [(b"a", b"7")], results.append)
    assert results == []
    await turns()
    assert (results, counters.log.appends) == ([E.NOT_COORDINATOR], 0)


@scenario
async def test_an_unload_during_an_append_that_takes_long(counters: Counters) -> None:
    counters.log.hold = True
    counters.ask("one")
    await asyncio.sleep(TIMEOUT + 1)
    counters.ask("two")
    await counters.runtime.load(0, 2)
    assert counters.answers == [("one", E.COORDINATOR_NOT_AVAILABLE), ("two", E.NOT_COORDINATOR)]
    assert counters.number == 1, "the replay has found what was appended"
    counters.log.release()
    await turns()
    assert (counters.number, len(counters.answers), counters.events) == (1, 2, ["unloaded"])


@scenario
async def test_a_load_gives_the_same_state(counters: Counters) -> None:
    for count in (3, 4):
        counters.ask("add", count)
    await turns()
    for epoch, number in ((1, 7), (2, 7)):
        before = counters.hosted()
        loading = asyncio.create_task(counters.runtime.load(0, epoch))
        await asyncio.sleep(0)
        if epoch == 2:
            with pytest.raises(KafkaError) as raised:
                counters.runtime.home("a")
            assert raised.value.code is E.COORDINATOR_LOAD_IN_PROGRESS
        await loading
        assert (counters.number, counters.hosted() is before) == (number, epoch == 1), "once for each leader epoch"


@scenario
async def test_an_id_about_which_nothing_is_in_the_log_is_forgotten(counters: Counters) -> None:
    counters.log.fail = E.NOT_ENOUGH_REPLICAS
    counters.ask("one")
    assert counters.runtime.count == 1
    await turns()
    assert counters.runtime.count == 0


@scenario
async def test_a_closed_coordinator_refuses_and_has_answered_everything(counters: Counters) -> None:
    counters.ask("one")
    closed = counters.runtime.close()
    with pytest.raises(KafkaError) as raised:
        counters.runtime.home("a")
    assert raised.value.code is E.COORDINATOR_NOT_AVAILABLE
    await closed
    assert counters.answers == [("one", 1)]


@pytest.mark.parametrize("closed", [False, True])
def test_many_requests_that_wait_are_refused_some_per_turn(closed: bool) -> None:
    async def scenario() -> None:
        counters = Counters()
        await counters.runtime.load(0, 1)
        counters.log.hold = True
        home = counters.runtime.home("a")
        answers: list[Answer] = []
        for number in range(50):
            hosted = home.hosted[f"{number}"] = Counted(f"{number}", home, Counter())
            for _ in range(61):
                counters.runtime.ask(hosted, lambda hosted: hosted.machine.add(1), answers.append)
        await asyncio.sleep(0)
        counters.runtime.unload(0)
        # The appends that are under way, and a part of what waits for them.
        assert 50 < len(answers) < 50 * 61
        if closed:
            await counters.runtime.close()
        else:
            for _ in range(3):
                await asyncio.sleep(0)
        assert answers == [E.NOT_COORDINATOR] * 50 * 61

    run(scenario())
