"""Runs of a share group: two brokers, a time with faults, and a time in which every record must be processed.

Brokers have the real coordinators of share groups and of their state, on logs with the faults of real files, and the
real share partitions. Members fetch, accept, release, reject and renew, forget what they have, die and return. Brokers
die, coordinators and leaders move, clocks jump, requests and answers are lost, state cannot be written.

:mod:`tests.sim.share_rules` says what must be true of records. Beside that, what coordinators have in memory is what a
replay of their logs gives, what a share partition has in memory is what the next leader would read, and a member whose
session has ended has no records.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, Final, TypeVar
from uuid import UUID

from barnabas_broker.groups.share.group import LEAVE_EPOCH
from barnabas_broker.groups.share.partition import Acknowledged, Acknowledgement
from barnabas_broker.share_partitions.hosted import Delivery, LedSharePartition
from barnabas_broker.share_partitions.sessions import FINAL_EPOCH
from barnabas_broker.shares.records import ShareKey
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC, SHARE_GROUPS_TOPIC
from barnabas_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.sim.brokers import Elections, Role
from tests.sim.share_data import TOPIC, DataLog
from tests.sim.share_nodes import GROUP, Connection, ShareNode, config_of, place, states_of
from tests.sim.share_rules import ShareRules
from tests.sim.storage import PARTITIONS, CoordinatorPartition, SimulatedLoop
from tests.sim.world import World

T = TypeVar("T")

#: Moments at which a broker may die: when the log has taken a record of a coordinator.
MOMENTS: Final = (f"landed in {SHARE_GROUPS_TOPIC}", f"landed in {OFFSETS_TOPIC}")
#: Seconds after the last fault until every record must be processed.
RECOVERY_SECONDS: Final = 120.0
#: Seconds between two comparisons of memory and logs.
_CHECK_SECONDS: Final = 3.0
#: Seconds that a request may take.
_TIMEOUT: Final = 10.0
#: Answers to heartbeats after which a member joins again.
_REJOIN: Final = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
_FAULTS: Final = (
    *("kill", "kill", "leave", "stall", "new", "node", "node", "state", "state", "group"),
    *("data", "data", "disk", "disk", "clock", "delete", "cut", "cut"),
)
_KINDS: Final = (
    *(Acknowledgement.ACCEPT,) * 6,
    *(Acknowledgement.RELEASE,) * 3,
    Acknowledgement.REJECT,
    Acknowledgement.GAP,
)


class Member:
    """A program with a share consumer.

    Attributes:
        name: its member id.
        alive: whether the program runs.
    """

    def __init__(self, scenario: "ShareScenario", name: str) -> None:
        self.name = name
        self.alive = True
        self._scenario = scenario
        self._world = scenario.world
        self._epoch = 0
        self._assigned: set[int] = set()
        self._connections: list[Connection] = []
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._stalled_until = 0.0
        self._spawn(self._heartbeats())
        for node in scenario.nodes:
            self._spawn(self._fetches(node))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._world.fail(f"{self.name}: {error!r}")

    def kill(self) -> None:
        """Die, with all that it has."""
        self._world.note("%s dies", self.name)
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self.cut()

    def leave(self) -> None:
        """Close the sessions, and leave the group."""
        self._world.note("%s leaves", self.name)
        self.alive = False
        for task in list(self._tasks):
            task.cancel()
        self._spawn(self._leave())

    def cut(self) -> None:
        """Lose all connections."""
        for connection in self._connections:
            connection.break_("a cut")
        self._connections.clear()

    def stall(self, seconds: float) -> None:
        """Do nothing for a while: no heartbeats, no fetches, no acknowledgements."""
        self._world.note("%s stalls for %.1f s", self.name, seconds)
        self._stalled_until = self._world.now + seconds

    async def _sleep(self, seconds: float) -> None:
        """Wait, and as long as it is stalled."""
        await asyncio.sleep(seconds)
        if self._world.now < self._stalled_until:
            await self._sleep(self._stalled_until - self._world.now)

    async def _ask(self, connection: Connection, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Send a request.

        Raises:
            ConnectionError: it, or its answer, is lost.
            KafkaError: the answer.
        """
        node, world = connection.node, self._world
        await asyncio.sleep(node.delay())
        if world.happens(0.01):
            connection.break_("the network")
        if not connection.arrives or (not connection.open and world.happens(0.5)):
            connection.break_("the broker's death")
            raise ConnectionError("lost")
        answering = node.spawn(work())
        await asyncio.wait([answering], timeout=_TIMEOUT)
        if not answering.done() or answering.cancelled() or not connection.open or world.happens(0.01):
            if answering.done() and not answering.cancelled():
                answering.exception()
            connection.break_("a lost answer")
            raise ConnectionError("the answer is lost")
        await asyncio.sleep(node.delay())
        return answering.result()

    # The group

    async def _heartbeats(self) -> None:
        while True:
            node = self._scenario.coordinator()
            if node is not None:
                try:
                    await self._heartbeat(node)
                except ConnectionError:
                    await self._sleep(0.5)
                    continue
            await self._sleep(self._world.between(0.8, 1.5))

    async def _heartbeat(self, node: ShareNode) -> None:
        names = [TOPIC] if self._epoch == 0 else None
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=self.name, member_epoch=self._epoch, subscribed_topic_names=names
        )
        answer = await self._ask(Connection(node, self.name), lambda: node.heartbeat(request))
        if answer.error_code == ErrorCode.NONE:
            self._epoch = answer.member_epoch
            if answer.assignment is not None:
                self._assigned = {index for topic in answer.assignment.topic_partitions for index in topic.partitions}
        elif answer.error_code in _REJOIN:
            self._epoch, self._assigned = 0, set()

    async def _leave(self) -> None:
        for connection in self._connections:
            with suppress(ConnectionError, KafkaError):
                await self._fetch(connection, FINAL_EPOCH, set(), set())
        self.cut()
        coordinator = self._scenario.coordinator()
        if coordinator is not None:
            self._epoch = LEAVE_EPOCH
            with suppress(ConnectionError):
                await self._heartbeat(coordinator)

    # Records

    async def _fetches(self, node: ShareNode) -> None:
        world = self._world
        connection: Connection | None = None
        epoch = 0
        session: set[int] = set()
        while True:
            mine = {index for index in self._assigned if self._scenario.leader(index) is node}
            if not mine and not session:
                await self._sleep(world.between(0.2, 0.5))
                continue
            if connection is None or not connection.open:
                connection, epoch, session = Connection(node, self.name), 0, set()
                self._connections = [each for each in self._connections if each.open]
                self._connections.append(connection)
            to = connection
            try:
                found = await self._fetch(to, epoch, mine - session, session - mine)
            except ConnectionError:
                await self._sleep(world.between(0.05, 0.5))
                continue
            except KafkaError as error:
                if error.code in (ErrorCode.SHARE_SESSION_NOT_FOUND, ErrorCode.INVALID_SHARE_SESSION_EPOCH):
                    epoch, session = 0, set()
                else:
                    connection.break_(error.code.name)
                await self._sleep(world.between(0.05, 0.5))
                continue
            epoch += 1
            session = mine
            for index, each in found.items():
                if isinstance(each, Delivery):
                    work = self._process(to, index, [(run.first, run.last) for run in each.acquired])
                    if world.happens(0.2):
                        self._spawn(work)  # and fetch more meanwhile
                    else:
                        await work
            if not any(isinstance(each, Delivery) for each in found.values()) and found:
                await self._sleep(world.between(0.05, 0.3))

    async def _fetch(
        self, connection: Connection, epoch: int, added: set[int], forgotten: set[int]
    ) -> dict[int, Delivery | KafkaError]:
        """Send a ShareFetch.

        Raises:
            ConnectionError: it, or its answer, is lost.
            KafkaError: the session.
        """
        chance = self._world.chance
        wanted = {
            "max_bytes": 1_000_000,
            "max_records": chance.choice((1, 3, 10, 50)),
            "batch_size": chance.choice((0, 4, 100)),
            "strict": chance.random() < 0.5,
            "committed": self._scenario.committed,
        }
        node = connection.node
        return await self._ask(
            connection, lambda: node.fetch(connection, epoch, sorted(added), sorted(forgotten), wanted)
        )

    async def _process(self, connection: Connection, index: int, runs: Sequence[tuple[int, int]]) -> None:
        """Work on records, and acknowledge them in some way."""
        world, chance = self._world, self._world.chance
        for first, last in runs:
            if world.happens(0.1):
                await self._sleep(world.between(0.5, 1.6) * self._scenario.lock_seconds)
            else:
                await self._sleep(world.between(0.0, 0.3))
            if world.happens(0.05):
                continue  # it forgets them: their locks expire
            if world.happens(0.1):
                await self._acknowledge(connection, index, [Acknowledged(first, last, [Acknowledgement.RENEW])])
            await self._acknowledge(connection, index, self._said(first, last))
            if world.happens(0.05):
                await self._acknowledge(connection, index, [Acknowledged(first, last, [chance.choice(_KINDS)])])

    def _said(self, first: int, last: int) -> list[Acknowledged]:
        world, chance = self._world, self._world.chance
        if not world.happens(0.6):
            return [Acknowledged(first, last, [Acknowledgement.ACCEPT])]
        if chance.random() < 0.5:
            return [Acknowledged(first, last, [chance.choice(_KINDS) for _ in range(last - first + 1)])]
        middle = chance.randint(first, last)
        said = [Acknowledged(first, middle, [chance.choice(_KINDS)])]
        if middle < last and chance.random() < 0.7:
            said.append(Acknowledged(middle + 1, last, [chance.choice(_KINDS)]))
        return said

    async def _acknowledge(self, connection: Connection, index: int, batches: list[Acknowledged]) -> None:
        node = connection.node
        try:
            await self._ask(connection, lambda: node.acknowledge(self.name, index, batches))
        except (ConnectionError, KafkaError) as error:
            self._world.note("%s: %s of %d: %r", self.name, batches, index, error)


class ShareScenario:
    """A run with a seed.

    Attributes:
        world: time, chance and the trace.
        committed: whether members read only what is committed.
        lock_seconds: how long a lock holds.
    """

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        chance = world.chance
        synced = chance.random() < 0.5
        limit = chance.choice((2, 3, 5))
        self.lock_seconds = chance.choice((2.0, 6.0, 30.0))
        self.committed = chance.random() < 0.5
        self.data = [DataLog(world, index) for index in range(chance.choice((1, 1, 2)))]
        self.rules = ShareRules(world, self.data, self._leads, limit, self.lock_seconds, committed=self.committed)
        self._data_leaders: list[tuple[ShareNode | None, int, int]] = [(None, -1, 0)] * len(self.data)
        self.state: list[CoordinatorPartition[Role]] = [
            CoordinatorPartition(world, index, synced, SHARE_GROUPS_TOPIC, "delete") for index in range(PARTITIONS)
        ]
        self.offsets: list[CoordinatorPartition[Role]] = [
            CoordinatorPartition(world, index, synced) for index in range(PARTITIONS)
        ]
        configs = {"share.auto.offset.reset": "earliest"}
        if self.committed:
            configs["share.isolation.level"] = "read_committed"
        self._elections: Elections[ShareNode] = Elections(world)
        config = config_of(limit, int(self.lock_seconds * 1000))
        self.nodes = [
            ShareNode(
                world,
                number,
                config,
                configs,
                self.state,
                self.offsets,
                self.data,
                self._elections.changes,
                self.rules,
            )
            for number in (1, 2)
        ]
        self._elections.nodes = self.nodes
        self.members: list[Member] = []
        self._names = count()
        self._check_at = 0.0
        self._producing = True
        for node in self.nodes:
            node.cluster = self.nodes
            node.died = self._died
        for partition in (*self.state, *self.offsets):
            partition.failed = self._disk_failed
        world.check = self._check

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: an invariant does not hold.
        """
        with SimulatedLoop(self.world).running(), self.rules.observing():
            try:
                self._run()
            finally:
                self._end()

    def _run(self) -> None:
        world, chance = self.world, self.world.chance
        for node in self.nodes:
            node.start()
        for partition in (*self.state, *self.offsets):
            self._elect(partition)
        for index in range(len(self.data)):
            self._elect_data(index)
            world.after(world.between(0.0, 1.0), self._produce, index)
        for _ in range(chance.randint(1, 4)):
            world.after(world.between(0.0, 3.0), self._start)
        end = world.between(20.0, 45.0)
        for _ in range(chance.randint(2, 12)):
            world.after(world.between(1.0, end), self._disturb)
        for moment in chance.sample(MOMENTS, chance.randint(0, 2)):
            chance.choice(self.nodes).plan[moment] = chance.randint(1, 20)
        world.run(end)
        world.note("no more faults")
        world.faults = self._producing = False
        for node in self.nodes:
            self._revive(node)
        for partition in (*self.state, *self.offsets):
            if not partition.works:
                self._elect(partition)
        for index, (leader, life, _) in enumerate(self._data_leaders):
            self.data[index].end_transactions()
            if leader is None or not leader.alive or leader.life != life:
                self._elect_data(index)
        if not any(member.alive for member in self.members):
            self._start()
        deadline = world.now + RECOVERY_SECONDS
        while not self._processed() and world.now < deadline:
            world.run(world.now + 0.5)
        if not self._processed():
            world.fail(f"not processed {RECOVERY_SECONDS:.0f} s after the last fault: {self._states()}")
        world.run(world.now + 10.0)
        self._check_memory()
        self.rules.check_letters()

    def _end(self) -> None:
        """End all that goes on, so that nothing is left of the run."""
        world = self.world
        world.check, world.faults, world.violation = lambda: None, False, None
        for member in self.members:
            if member.alive:
                member.kill()
        for node in self.nodes:
            node.died = lambda node: None
            node.kill(power=False)
        world.run(world.now + 30.0)

    # Records

    def _produce(self, index: int) -> None:
        world, chance, log = self.world, self.world.chance, self.data[index]
        if not self._producing or log.log_end_offset > 400:
            return
        gap = chance.randint(1, 5) if chance.random() < 0.1 else 0
        producer_id = chance.randint(1, 1_000_000) if chance.random() < 0.25 else -1
        log.produce(chance.choice((1, 1, 2, 5, 20)), gap=gap, producer_id=producer_id)
        if producer_id >= 0:
            commit = chance.random() < 0.5
            world.after(world.between(0.0, 3.0), lambda: log.end_transaction(producer_id, commit=commit))
        world.after(world.between(0.02, 1.5), self._produce, index)

    def leader(self, index: int) -> ShareNode | None:
        """The broker that leads a partition, as a member knows it."""
        if self.world.happens(0.05):
            return self.world.chance.choice(self.nodes)
        return self._data_leaders[index][0]

    def coordinator(self) -> ShareNode | None:
        """The coordinator of the group, as a member knows it."""
        if self.world.happens(0.05):
            return self.world.chance.choice(self.nodes)
        leader = self.offsets[self.nodes[0].groups.partition_for(GROUP)].leader
        return leader.node if leader is not None and leader.alive else None

    def _leads(self, hosted: LedSharePartition) -> bool:
        node, life, epoch = self._data_leaders[hosted.place.partition]
        if node is None or not node.alive or node.life != life:
            return False
        replica: Any = hosted.replica
        return hosted.leader_epoch == epoch and replica is node.replicas[hosted.place.partition]

    # Faults

    def _start(self) -> None:
        self.members.append(Member(self, f"member-{next(self._names)}"))

    def _disturb(self) -> None:
        world, chance = self.world, self.world.chance
        alive = [member for member in self.members if member.alive]
        fault = chance.choice(_FAULTS)
        if fault == "new":
            self._start()
        elif fault == "node":
            chance.choice(self.nodes).kill(power=chance.random() < 0.4)
        elif fault == "state":
            self._elect(chance.choice(self.state))
        elif fault == "group":
            self._elect(self.offsets[self.nodes[0].groups.partition_for(GROUP)])
        elif fault == "data":
            self._elect_data(chance.randrange(len(self.data)))
        elif fault == "disk":
            partitions = self.state if chance.random() < 0.7 else self.offsets
            chance.choice(partitions).doom(chance.choice(("full", "full", "sync", "stop")), chance.randint(1, 40))
        elif fault == "clock":
            node = chance.choice(self.nodes)
            node.ahead += world.between(0.0, 20.0)
            node.wall_ahead += world.between(-100_000.0, 100_000.0)
            world.note("the clocks of node %d jump: %.3f s ahead", node.node_id, node.ahead)
        elif fault == "delete":
            log = chance.choice(self.data)
            log.delete_before(chance.randint(log.log_start_offset, log.high_watermark))
            world.note("%s begins at %d", log.topic_partition, log.log_start_offset)
        elif alive:
            victim = chance.choice(alive)
            if fault == "kill":
                victim.kill()
            elif fault == "leave":
                victim.leave()
            elif fault == "cut":
                victim.cut()
            else:
                victim.stall(world.between(1.0, 15.0))
            if not victim.alive and chance.random() < 0.7:
                world.after(world.between(0.1, 5.0), self._start)

    def _died(self, node: ShareNode) -> None:
        world = self.world
        for partition in (*self.state, *self.offsets):
            if partition.leader is not None and partition.leader.node is node:
                world.after(world.between(0.1, 3.0), self._elect_unless, partition)
        for index, (leader, _, _) in enumerate(self._data_leaders):
            if leader is node:
                world.after(world.between(0.1, 3.0), self._elect_data, index)
        world.after(world.between(0.5, 8.0), self._revive, node)

    def _revive(self, node: ShareNode) -> None:
        if node.alive:
            return
        node.start()
        for partition in (*self.state, *self.offsets):
            self._elect_unless(partition)
        for index, (leader, life, _) in enumerate(self._data_leaders):
            if leader is None or not leader.alive or leader.life != life:
                self._elect_data(index)

    def _disk_failed(self, partition: "CoordinatorPartition[Role]") -> None:
        self.world.after(self.world.between(0.1, 3.0), self._elect, partition)

    def _elect_unless(self, partition: "CoordinatorPartition[Role]") -> None:
        if partition.leader is None or not partition.leader.alive:
            self._elect(partition)

    def _elect(self, partition: "CoordinatorPartition[Role]") -> None:
        """Elect another leader of a coordinator's partition; the old one learns of it later."""
        self._elections.elect(partition)

    def _elect_data(self, index: int) -> None:
        """Elect another leader of a partition of the topic; the old one learns of it later."""
        before, _, epoch = self._data_leaders[index]
        node = self._elections.candidate(before, TOPIC, index)
        if node is not None:
            self._data_leaders[index] = node, node.life, epoch + 1
            self._elections.elected(node, TOPIC, index, epoch + 1, before)

    # Checks

    def _check(self) -> None:
        self.rules.check_windows()
        if self.world.now >= self._check_at:
            self._check_at = self.world.now + _CHECK_SECONDS
            self._check_memory()

    def _check_memory(self) -> None:
        world = self.world
        for partition in (*self.state, *self.offsets):
            leader = partition.leader
            if leader is not None and leader.alive and partition.works and partition.settled:
                for difference in leader.node.differences(leader, partition.index, partition.contents()):
                    world.fail(difference)
        for node in self.nodes:
            for hosted in node.queues.hosted if node.alive else ():
                self.rules.check_sessions(hosted, partial(node.queues.sessions.of, GROUP), node.gone)
                self._check_stored(hosted)

    def _check_stored(self, hosted: LedSharePartition) -> None:
        """What a share partition has in memory is what the next leader would read."""
        if not self._leads(hosted) or hosted.closed is not None or self.rules.leaders[hosted].in_doubt:
            return
        if hosted._writer is not None or hosted.machine.has_unwritten:
            return
        home = self.state[self.nodes[0].shares.runtime.partition_for(_key(hosted))]
        leader = home.leader
        if leader is None or not leader.alive or not home.works or not home.settled:
            return
        stored = leader.node.stored(hosted.place.partition)
        if stored is None:
            return
        memory, later = states_of(hosted, stored)
        if memory != later or stored.start_offset != hosted.machine.start_offset:
            self.world.fail(
                f"{hosted.place} begins at {hosted.machine.start_offset} with {memory} in memory; stored is"
                f" {stored.start_offset} with {later}"
            )

    def _hosted(self, index: int) -> LedSharePartition | None:
        node = self._data_leaders[index][0]
        if node is None or not node.alive:
            return None
        return next((each for each in node.queues.hosted if each.place == place(index)), None)

    def _processed(self) -> bool:
        """Whether all records are processed, and this is durable."""
        for index, log in enumerate(self.data):
            hosted = self._hosted(index)
            if hosted is None or not self._leads(hosted) or hosted.machine.start_offset < log.log_end_offset:
                return False
            leader = self.state[self.nodes[0].shares.runtime.partition_for(_key(hosted))].leader
            stored = None if leader is None or not leader.alive else leader.node.stored(index)
            if stored is None or stored.start_offset < log.log_end_offset:
                return False
        return True

    def _states(self) -> str:
        found = []
        for index, log in enumerate(self.data):
            hosted = self._hosted(index)
            machine = None if hosted is None else hosted.machine
            where = "not open" if machine is None else f"{machine.start_offset} to {machine.end_offset}"
            parts = None if machine is None else machine.parts(3)
            found.append(f"partition {index}: {where} of {log.log_end_offset}, {parts}")
        return "; ".join(found)


def _key(hosted: LedSharePartition) -> str:
    return ShareKey(GROUP, UUID(bytes=hosted.place.topic_id), hosted.place.partition).name


def run_share_seed(seed: int) -> ShareScenario:
    """Run one seed.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    scenario = ShareScenario(seed)
    scenario.run()
    return scenario
