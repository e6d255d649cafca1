"""`make cluster-demo`: partition leaders are killed under load, and no acknowledged record is lost.

The demo starts three brokers and etcd on free ports. A producer with acks=all writes to a topic with three replicas and
min.insync.replicas=2; a group of two consumers reads it. The leader of most partitions is killed with kill -9 and
restarted, then the coordinator of the group. At the end all records are read back and compared with the acknowledged
ones. The exit status is 0 if each of them is in the topic once and in order.
"""

import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from barnabas import Admin, KafkaError, NewTopic
from examples.cluster.load import GROUP, PARTITIONS, TOPIC, Ledger, Outage, Verdict, Writer, judge, read, read_back
from examples.cluster.machines import NODES, SESSION_MS, Machines
from examples.cluster.view import Demo, View

#: Timeout of the demo in seconds.
DEADLINE: Final = 300.0


class Stage:
    """The running demo: its processes, clients and background tasks."""

    def __init__(self, view: View, machines: Machines, admin: Admin, calm: int) -> None:
        self.view = view
        self.demo = view.demo
        self.machines = machines
        self.admin = admin
        self.calm = calm
        self.tasks: list[asyncio.Task[None]] = []

    async def until(self, reached: Callable[[], bool]) -> None:
        """Wait until a condition holds; raise if a background task has failed."""
        while not reached():
            for task in self.tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.02)

    async def watch(self) -> None:
        """Update the leaders and the coordinator every 0.2 seconds."""
        while True:
            try:
                async with asyncio.timeout(5):
                    topics = await self.admin.describe_topics([TOPIC])
                    (group,) = await self.admin.describe_consumer_groups([GROUP])
            except (KafkaError, TimeoutError):
                await asyncio.sleep(0.2)
                continue
            partitions = topics[0].partitions.values()
            self.demo.leaders = {each.partition: each.leader for each in partitions}
            self.demo.in_sync = {each.partition: each.isr for each in partitions}
            self.demo.coordinator = -1 if group.coordinator is None else group.coordinator.node_id
            await asyncio.sleep(0.2)

    async def refresh(self) -> None:
        """Redraw the view every 0.1 seconds."""
        while True:
            self.view.refresh()
            await asyncio.sleep(0.1)

    def healthy(self) -> bool:
        """Return whether all replicas of all partitions are in sync and the group has a coordinator."""
        sizes = [len(isr) for isr in self.demo.in_sync.values()]
        return sizes == [len(NODES)] * PARTITIONS and self.demo.coordinator >= 0

    async def quiet(self) -> None:
        """Wait for more acknowledged records, without a kill."""
        goal = len(self.demo.ledger.offsets) + self.calm
        await self.until(lambda: len(self.demo.ledger.offsets) >= goal and self.healthy())

    async def kill(self, node: int, why: str) -> None:
        """Kill a broker under load, wait until the other brokers have taken over, and restart it."""
        led = frozenset(number for number, leader in self.demo.leaders.items() if leader == node)
        self.view.log(f"broker {node}, {why}, is killed with kill -9: it led partitions {_listed(led)}")
        outage = Outage(node, time.monotonic(), led)
        self.demo.ledger.outages.append(outage)
        self.demo.states[node] = "killed"
        await self.machines.kill(node)
        await self.until(lambda: outage.over)
        pause = max(outage.acknowledged.values(), default=0.0)
        self.view.log(f"the others have taken over: records were acknowledged again after at most {pause:.1f} s")
        self.demo.states[node] = "starting"
        await self.machines.start_broker(node)
        self.demo.states[node] = "up"
        self.view.log(f"broker {node} is up again")
        await self.until(self.healthy)
        self.view.log("all replicas are in sync")


def _listed(numbers: Sequence[int] | frozenset[int]) -> str:
    return ", ".join(map(str, sorted(numbers))) or "none"


async def run(rate: float, calm: float) -> bool:
    """Run the demo.

    Args:
        rate: records a second.
        calm: seconds of load before and after each kill.

    Returns:
        Whether each acknowledged record is in the topic once and in order.

    Raises:
        BrokerError: the cluster does not start.
    """
    demo = Demo(Ledger())
    verdict: Verdict | None = None
    with tempfile.TemporaryDirectory(prefix="barnabas-cluster-") as folder, View(demo) as view:
        machines = Machines(Path(folder))
        try:
            async with asyncio.timeout(DEADLINE):
                await machines.start()
                demo.states.update(dict.fromkeys(NODES, "up"))
                view.log(f"three brokers listen on {machines.bootstrap_servers}")
                view.log(f"a broker without a heartbeat for {SESSION_MS / 1000:g} s is replaced")
                async with Admin(bootstrap_servers=machines.bootstrap_servers) as admin:
                    await _create(admin)
                    await _run_load(Stage(view, machines, admin, int(calm * rate)), rate)
                view.log("reading all records back")
                verdict = judge(demo.ledger, await read_back(machines.bootstrap_servers))
        except TimeoutError:
            view.log(f"not finished after {DEADLINE:.0f} s")
        finally:
            await machines.close()
    if verdict is None:
        return False
    view.totals(verdict)
    return verdict.kept


async def _create(admin: Admin) -> None:
    """Create the topic once all brokers have joined the cluster."""
    known = 0
    while known < len(NODES):
        known = len((await admin.describe_cluster()).brokers)
        await asyncio.sleep(0.05)
    await admin.create_topics([NewTopic(TOPIC, PARTITIONS, len(NODES), topic_configs={"min.insync.replicas": "2"})])


async def _run_load(stage: Stage, rate: float) -> None:
    """Run the load and kill two brokers."""
    servers, ledger = stage.machines.bootstrap_servers, stage.demo.ledger
    writer = Writer(servers, ledger, rate)
    readers = [read(servers, f"reader-{number}", ledger) for number in (1, 2)]
    stage.tasks = [asyncio.create_task(work) for work in (*readers, stage.watch(), stage.refresh())]
    writing = asyncio.create_task(writer.run())
    try:
        await stage.quiet()
        (busiest, _), *_ = Counter(stage.demo.leaders.values()).most_common()
        await stage.kill(busiest, "the leader of most partitions")
        await stage.quiet()
        await stage.kill(stage.demo.coordinator, "the group's coordinator")
        await stage.quiet()
        writer.stopping = True
        await writing
        stage.view.log("the producer has stopped")
        await stage.until(lambda: ledger.consumed_acknowledged)
        stage.view.log("the group has consumed everything")
    finally:
        for task in (*stage.tasks, writing):
            task.cancel()
        await asyncio.gather(*stage.tasks, writing, return_exceptions=True)
