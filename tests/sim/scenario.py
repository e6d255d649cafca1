"""One run: groups on two brokers, a time with faults, and a time in which the groups must recover."""

from random import Random
from typing import Any, Final

from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.records import iter_batches
from tests.sim.brokers import Elections, Role
from tests.sim.cluster import GROUPS, Node
from tests.sim.invariants import DEFERRED_SECONDS, NOTHING, Invariants
from tests.sim.members import TOPIC, Consumer
from tests.sim.processors import Processor
from tests.sim.storage import PARTITIONS, CoordinatorPartition, Done, SimulatedLoop
from tests.sim.transactions import Marker, Transactions
from tests.sim.world import World

#: Moments at which a coordinator may die: those of a rebalance, and the end of an append.
MOMENTS: Final = (
    "rebalance started",
    "heartbeat asks to rejoin",
    "join received",
    "join phase over",
    f"landed in {OFFSETS_TOPIC}",
    "sync answered",
)
#: Moments of transactional commits and of markers.
TRANSACTION_MOMENTS: Final = (
    "transactional commit received",
    "transaction verified",
    "marker received",
    "marker applied",
)
_FAULTS: Final = ("kill", "kill", "leave", "stall", "new", "node", "node", "move", "double", "grow", "disk", "disk")
#: Seconds after the last fault until every group must be Stable.
RECOVERY_SECONDS: Final = 150.0
#: Seconds in which a member may still notice that its coordinator has moved: it waits for a response of the former one
#: for 8 s, in which it sends no heartbeats, and its session lasts 6 s.
_MOVE_NOTICED_SECONDS: Final = 14.0


class Scenario:
    """A run with a seed.

    Args:
        seed: of all random choices.
        transactional: whether the members of every group commit in transactions, in every run.

    Attributes:
        contents: those of the logs at the end.
    """

    contents: list[bytes]

    def __init__(self, seed: int, *, transactional: bool = False) -> None:
        world = self.world = World(seed)
        chance = world.chance
        #: Half of the runs sync every append, and machines may lose power; in the others only processes die.
        synced = chance.random() < 0.5
        self.groups = GROUPS[: chance.choice((1, 1, 2, 3, 4))]
        #: The groups whose members commit in transactions: none in two of three runs.
        choice = Random(f"transactions {seed}")
        some = choice.random() < 1 / 3
        self.transactional = {group for group in self.groups if transactional or (some and choice.random() < 0.7)}
        self.invariants = {group: self._rules() for group in self.groups}
        self.transactions = Transactions(world)
        self.transactions.send = self._send_marker
        self.logs: list[CoordinatorPartition[Role]] = [
            CoordinatorPartition(world, index, synced) for index in range(PARTITIONS)
        ]
        self._elections: Elections[Node] = Elections(world)
        self.nodes = self._elections.nodes = [
            Node(world, number, self._elections.changes, self.logs, self.invariants, self.transactions)
            for number in (1, 2)
        ]
        self._homes: dict[str, CoordinatorPartition[Role]] = {}
        self.partitions = chance.randint(1, 6)
        self.consumers: dict[str, Consumer] = {}
        self._lives = 0
        self._to_come = 0
        #: When the elections that are planned, and all their consequences, are over.
        self._settled_at = 0.0
        self._check_at = 0.0
        for log in self.logs:
            log.failed = self._disk_failed
        for node in self.nodes:
            node.died = self._node_died
        world.check = self._check

    def _rules(self) -> Invariants:
        """The invariants of a group."""
        return Invariants(self.world)

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: an invariant does not hold.
        """
        with SimulatedLoop(self.world).running():
            try:
                self._run()
                self.contents = [log.contents() for log in self.logs]
            finally:
                self._end()

    def _run(self) -> None:
        world, chance = self.world, self.world.chance
        for node in self.nodes:
            node.start()
        for log in self.logs:
            self._elect(log)
        for number in range(chance.randint(max(1, len(self.groups) - 1), 5)):
            static = chance.random() < 0.35
            group = self.groups[number % len(self.groups)]
            world.after(world.between(0.0, 3.0), self._start, group, f"member-{number}", static)
        end = world.between(20.0, 45.0)
        for _ in range(chance.randint(1, 9)):
            world.after(world.between(2.0, end), self._disturb)
        for moment in chance.sample(MOMENTS, chance.randint(0, 3)):
            chance.choice(self.nodes).plan[moment] = chance.randint(1, 6)
        if self.transactional:
            for moment in chance.sample(TRANSACTION_MOMENTS, chance.randint(0, 3)):
                chance.choice(self.nodes).plan[moment] = chance.randint(1, 6)
            for _ in range(chance.randint(0, 3)):
                world.after(world.between(2.0, end), self.transactions.kill)
        world.run(end)
        world.note("no more faults")
        world.faults = False
        for node in self.nodes:
            if not node.alive:
                node.start()
        for log in self.logs:
            if not log.works:
                self._elect(log)
        if not self._alive(self.groups[0]):
            self._start(self.groups[0], "last", False)
        deadline = world.now + RECOVERY_SECONDS
        world.run(deadline, self._recovered)
        if not self._recovered():
            world.fail(f"not Stable {RECOVERY_SECONDS:.0f} s after the last fault: {self._states()}")
        world.run(world.now + 10.0)
        if not self._recovered():
            world.fail(f"Stable, and not Stable 10 s later without a fault: {self._states()}")
        world.run(world.now + DEFERRED_SECONDS + 8.0, self._none_deferred)
        self._check_deferred()
        self.transactions.closing = True
        world.run(world.now + RECOVERY_SECONDS, lambda: self.transactions.ended)
        if not self.transactions.ended:
            world.fail("a transaction has not ended")
        self._check_memory()
        self._check_logs()

    def _end(self) -> None:
        """End all that goes on, so that nothing is left of the run."""
        world = self.world
        world.check, world.faults, world.violation = lambda: None, False, None
        for consumer in self.consumers.values():
            consumer.kill()
        for node in self.nodes:
            node.died = lambda node: None
            node.kill(power=False)
        world.run(world.now)

    # Faults

    def _disturb(self) -> None:
        chance, world = self.world.chance, self.world
        alive = [consumer for consumer in self.consumers.values() if consumer.alive]
        fault = chance.choice(_FAULTS)
        if fault == "grow":
            self.partitions += 1
            self._grew()
            for consumer in self.consumers.values():
                world.after(world.between(0.0, 3.0), consumer.topic_grew, self.partitions)
        elif fault == "node":
            chance.choice(self.nodes).kill(power=chance.random() < 0.4)
        elif fault == "move":
            self._elect(self._log_of(chance.choice(self.groups)))
        elif fault == "disk":
            log = self._log_of(chance.choice(self.groups))
            log.doom(chance.choice(("full", "sync", "stop")), chance.randint(1, 40))
        elif fault == "new":
            group = chance.choice(self.groups)
            self._start(group, f"late-{len(self.consumers)}", chance.random() < 0.3)
        elif alive:
            victim = chance.choice(alive)
            if fault == "kill":
                victim.kill()
                if chance.random() < 0.7:
                    self._restart_after(world.between(0.1, 9.0), victim)
            elif fault == "leave":
                victim.leave()
                if chance.random() < 0.5:
                    self._restart_after(world.between(0.1, 9.0), victim)
            elif fault == "stall":
                victim.stall(world.between(1.0, 15.0))
            elif victim.instance is not None:
                # A second process with the same instance id: one of the two is fenced.
                self._lives += 1
                self._start(victim.group, f"{victim.name}~{self._lives}", True, victim.instance)

    def _grew(self) -> None:
        """The topic has more partitions now."""

    def _start(self, group: str, name: str, static: bool, instance: str | None = None) -> None:
        if static and instance is None:
            instance = name
        identity = instance if static else None
        invariants = self.invariants[group]
        arguments = (self.world, invariants, group, name, identity, self.nodes, self.partitions)
        consumer = self._consumer(group, arguments)
        consumer.gave_up = self._gave_up
        self.consumers[name] = consumer
        consumer.start()

    def _consumer(self, group: str, arguments: Any) -> Consumer:
        """A consumer of a group, which its members' kind depends on."""
        return Processor(self.transactions, *arguments) if group in self.transactional else Consumer(*arguments)

    def _send_marker(self, marker: Marker, done: Done) -> None:
        """A marker arrives at the broker that leads its partition, or believes to."""
        leader = self.logs[marker.partition].leader
        if self.world.happens(0.05):
            leader = self.world.chance.choice(self.nodes).offsets
        if leader is not None and leader.alive:
            leader.node.write_marker(marker, done)

    def _restart_after(self, seconds: float, old: Consumer) -> None:
        self._to_come += 1
        self.world.after(seconds, self._restart, old)

    def _restart(self, old: Consumer) -> None:
        self._to_come -= 1
        if not old.retired:
            self._lives += 1
            name = f"{old.name.partition('+')[0]}+{self._lives}"
            self._start(old.group, name, old.instance is not None, old.instance)

    def _gave_up(self, consumer: Consumer) -> None:
        if not consumer.retired:
            self._restart_after(1.0, consumer)

    def _node_died(self, node: Node) -> None:
        world = self.world
        for consumer in self.consumers.values():
            world.after(world.between(0.0, 0.3), consumer.network_lost, node)
        for log in self.logs:
            if log.leader is not None and log.leader.node is node:
                self._elect_after(world.between(0.1, 3.0), log)
        world.after(world.between(0.5, 8.0), self._revive, node)

    def _disk_failed(self, log: CoordinatorPartition[Role]) -> None:
        self._elect_after(self.world.between(0.1, 3.0), log)

    def _elect_after(self, seconds: float, log: CoordinatorPartition[Role]) -> None:
        self._settles(self.world.now + seconds)
        self.world.after(seconds, self._elect, log)

    def _settles(self, moment: float) -> None:
        """A partition moves at that time: what follows from it is no error."""
        self._settled_at = max(self._settled_at, moment + _MOVE_NOTICED_SECONDS)

    def _revive(self, node: Node) -> None:
        if not node.alive:
            node.start()
            for log in self.logs:
                if log.leader is None or not log.leader.alive:
                    self._elect(log)

    def _elect(self, log: CoordinatorPartition[Role]) -> None:
        """Elect another leader for the partition, if there is one; the old leader learns of it later."""
        self._settles(self._elections.elect(log))

    # Checks

    def _check(self) -> None:
        owners: dict[tuple[str, int, int], Consumer] = {}
        for consumer in self.consumers.values():
            for partition in consumer.held:
                other = owners.setdefault((consumer.group, consumer.generation, partition), consumer)
                if other is not consumer and other.instance != consumer.instance:
                    self.world.fail(
                        f"{other.name} and {consumer.name} hold partition {partition} in generation"
                        f" {consumer.generation}"
                    )
        if self.world.now >= self._check_at:
            self._check_at = self.world.now + 5.0
            self._check_deferred()
            self._check_memory()

    def _check_deferred(self) -> None:
        for node in self.nodes:
            if node.alive:
                for asked, request in node.deferred.values():
                    if self.world.now - asked > DEFERRED_SECONDS:
                        self.world.fail(f"no response since {asked:.3f} s: {request}")

    def _none_deferred(self) -> bool:
        return not any(node.deferred for node in self.nodes if node.alive)

    def _alive(self, group: str) -> list[Consumer]:
        return [consumer for consumer in self.consumers.values() if consumer.alive and consumer.group == group]

    def _recovered(self) -> bool:
        # A consumer that will restart causes another rebalance, and so may an election that was planned before.
        settled = not self._to_come and self.world.now >= self._settled_at
        return settled and all(self._stable(group) for group in self.groups)

    def _stable(self, group: str) -> bool:
        """Every consumer has an assignment of the same generation, every partition an owner, and no member is dead."""
        alive = self._alive(group)
        log = self._log_of(group)
        if not log.works or log.leader is None or not all(consumer.stable for consumer in alive):
            return False
        hosted = log.leader.node.groups.groups.get(group)
        if not alive:
            return log.index in log.leader.node.groups.loaded and (hosted is None or not len(hosted.group.members))
        if len({consumer.generation for consumer in alive}) != 1:
            return False
        owned = self.partitions
        for consumer in alive:
            if consumer.leads_by_return:
                # Partitions that were added while the leader was away have no owner (KIP-814), but later ones have.
                owned = self.invariants[group].assigned.get(consumer.generation, self.partitions)
                if consumer.counted != self.partitions:
                    return False
        if sorted(partition for consumer in alive for partition in consumer.held) != list(range(owned)):
            return False
        return hosted is not None and hosted.group.state.value == "Stable" and len(hosted.group.members) == len(alive)

    def _log_of(self, group: str) -> CoordinatorPartition[Role]:
        if group not in self._homes:
            self._homes[group] = self.logs[self.nodes[0].groups.partition_for(group)]
        return self._homes[group]

    def _states(self) -> str:
        return ", ".join(
            f"{consumer.name} {'stable' if consumer.stable else 'not stable'} in {consumer.generation} with"
            f" {sorted(consumer.held)}"
            for consumer in self.consumers.values()
            if consumer.alive
        )

    def _check_memory(self) -> None:
        """What coordinators have in memory is what a replay of the log gives them, and a replay after compaction."""
        for log in self.logs:
            leader = log.leader
            if leader is None or not log.works or not log.settled:
                continue
            batches = [bytes(batch) for _, batch in iter_batches(log.contents())]
            for difference in leader.node.differences(log.index, batches):
                self.world.fail(difference)

    def _check_logs(self) -> None:
        """A coordinator that replays the log now finds the acknowledged commits."""
        world = self.world
        for log in self.logs:
            self._elect(log)
        world.run(world.now + 10.0, self._loaded)
        for group, invariants in self.invariants.items():
            leader = self._log_of(group).leader
            assert leader is not None
            if not self._loaded():
                world.fail("the partitions of __consumer_offsets are not loaded 10 s after their leaders were elected")
            hosted = leader.node.groups.groups.get(group)
            offsets = {} if hosted is None else hosted.offsets.topics.get(TOPIC, {})
            if group in self.transactional:
                found = {partition: each.offset for partition, each in offsets.items()}
                if found != self.transactions.processed.get(group, {}) or (hosted and hosted.offsets.in_transaction):
                    world.fail(f"the offsets are {found}, but must be {self.transactions.processed.get(group)}")
                continue
            for partition in range(self.partitions):
                offset = offsets[partition].offset if partition in offsets else -1
                invariants.found(partition, offset, invariants.last.get(partition, NOTHING))

    def _loaded(self) -> bool:
        return all(log.works and log.leader and log.index in log.leader.node.groups.loaded for log in self.logs)


def run_seed(seed: int, *, transactional: bool = False) -> Scenario:
    """Run one seed; `transactional` as in :class:`Scenario`.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    scenario = Scenario(seed, transactional=transactional)
    scenario.run()
    return scenario
