"""Background tasks: kept alive, reported when they raise, cancelled by the owner's close."""

import asyncio
from typing import Any

import pytest

from barnabas_client.tasks import BackgroundTasks, end, reject, resolve


@pytest.fixture
def failures() -> list[BaseException]:
    return []


async def test_a_task_leaves_the_set_when_it_ends(failures: list[BaseException]) -> None:
    tasks = BackgroundTasks(failures.append)
    release = asyncio.Event()

    async def wait() -> None:
        await release.wait()

    task = tasks.spawn(wait(), name="waiting")
    assert (list(tasks), len(tasks), task.get_name()) == ([task], 1, "waiting")
    release.set()
    await task
    await asyncio.sleep(0)
    assert (list(tasks), failures) == ([], [])


async def test_the_exception_of_a_task_is_reported(failures: list[BaseException]) -> None:
    tasks = BackgroundTasks(failures.append)
    error = RuntimeError("no")

    async def fail() -> None:
        raise error

    await asyncio.wait([tasks.spawn(fail())])
    await asyncio.sleep(0)
    assert (failures, len(tasks)) == ([error], 0)


async def test_close_cancels_and_waits(failures: list[BaseException]) -> None:
    tasks = BackgroundTasks(failures.append)
    cleaned_up = False

    async def run() -> None:
        nonlocal cleaned_up
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned_up = True

    tasks.spawn(run())
    await asyncio.sleep(0)
    await tasks.close()
    assert (cleaned_up, failures, len(tasks)) == (True, [], 0)


async def test_a_failure_during_close_is_reported(failures: list[BaseException]) -> None:
    tasks = BackgroundTasks(failures.append)

    async def run() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("while ending")

    tasks.spawn(run())
    await asyncio.sleep(0)
    await tasks.close()
    assert [str(one) for one in failures] == ["while ending"]


class Interrupted(asyncio.Future[int]):
    """Cancelled at the very moment at which it is resolved, as by Ctrl-C: asyncio.run does that in a signal handler."""

    def set_result(self, result: int, /) -> None:
        self.cancel()
        super().set_result(result)

    def set_exception(self, exception: Any, /) -> None:
        self.cancel()
        super().set_exception(exception)


async def test_a_future_that_is_cancelled_while_it_is_resolved() -> None:
    resolved, rejected = Interrupted(), Interrupted()
    resolve(resolved, 1)
    reject(rejected, ValueError())
    assert resolved.cancelled()
    assert rejected.cancelled()


async def test_a_future_is_resolved_once() -> None:
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    resolve(future, 1)
    resolve(future, 2)
    reject(future, ValueError())
    assert await future == 1
    failed: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    reject(failed, ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await failed


async def test_end_waits_for_a_task() -> None:
    await end(None)
    task = asyncio.create_task(asyncio.sleep(3_600))
    await end(task)
    assert task.cancelled()
