"""One run: a group on two brokers, a while in which anything may go wrong, and a while in which it must recover."""

from tests.sim.cluster import GROUP, Node, SharedLog
from tests.sim.invariants import PARKED_SECONDS, Invariants
from tests.sim.members import Consumer
from tests.sim.world import World

#: The moments of a rebalance at which a coordinator may die (row C9), and more of them.
MOMENTS = (
    "rebalance started",
    "heartbeat told of the rebalance",
    "join received",
    "join phase over",
    "landed",
    "sync answered",
)
_FAULTS = ("kill", "kill", "leave", "stall", "new", "node", "node", "move", "double", "grow")
#: Seconds in which every group must be Stable once nothing goes wrong any more.
RECOVERY_SECONDS = 150.0


class Scenario:
    """A run with a seed.

    Args:
        seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        world = self.world = World(seed)
        chance = world.chance
        self.invariants = Invariants(world)
        self.log = SharedLog(world)
        self.nodes = [Node(world, self.log, number, self.invariants) for number in (1, 2)]
        self.partitions = self._at_first = chance.randint(1, 6)
        self.consumers: dict[str, Consumer] = {}
        self._lives = 0
        self._check_at = 0.0
        for node in self.nodes:
            node.died = self._node_died
            node.start()
        world.check = self._check

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: an invariant does not hold.
        """
        world, chance = self.world, self.world.chance
        self._elect()
        for number in range(chance.randint(1, 5)):
            static = chance.random() < 0.35
            world.after(world.between(0.0, 3.0), self._start, f"member-{number}", static)
        end = world.between(20.0, 45.0)
        for _ in range(chance.randint(1, 9)):
            world.after(world.between(2.0, end), self._disturb)
        for moment in chance.sample(MOMENTS, chance.randint(0, 3)):
            chance.choice(self.nodes).plan[moment] = chance.randint(1, 6)
        world.run(end)
        world.note("nothing goes wrong any more")
        world.faults = False
        for node in self.nodes:
            if not node.alive:
                node.start()
        leader = self.log.leader
        if leader is None or leader.epoch != self.log.epoch:
            self._elect()
        if not any(consumer.alive for consumer in self.consumers.values()):
            self._start("last", False)
        deadline = world.now + RECOVERY_SECONDS
        world.run(deadline, self._recovered)
        if not self._recovered():
            world.fail(f"not Stable {RECOVERY_SECONDS:.0f} s after the last fault: {self._states()}")
        world.run(world.now + 10.0)
        if not self._recovered():
            world.fail(f"Stable, and not Stable a little later although nothing went wrong: {self._states()}")
        world.run(world.now + PARKED_SECONDS + 8.0, self._nothing_parked)
        self._check_parked()
        self._check_log()

    # What goes wrong

    def _disturb(self) -> None:
        chance, world = self.world.chance, self.world
        alive = [consumer for consumer in self.consumers.values() if consumer.alive]
        kind = chance.choice(_FAULTS)
        if kind == "grow":
            self.partitions += 1
            for consumer in self.consumers.values():
                world.after(world.between(0.0, 3.0), consumer.topic_grew, self.partitions)
        elif kind == "node":
            chance.choice(self.nodes).kill()
        elif kind == "move":
            self._elect()
        elif kind == "new":
            self._start(f"late-{len(self.consumers)}", chance.random() < 0.3)
        elif alive:
            victim = chance.choice(alive)
            if kind == "kill":
                victim.kill()
                if chance.random() < 0.7:
                    world.after(world.between(0.1, 9.0), self._restart, victim)
            elif kind == "leave":
                victim.leave()
                if chance.random() < 0.5:
                    world.after(world.between(0.1, 9.0), self._restart, victim)
            elif kind == "stall":
                victim.stall(world.between(1.0, 15.0))
            elif victim.instance is not None:
                # A second process with the same instance id: one of the two is fenced.
                self._lives += 1
                self._start(f"{victim.name}~{self._lives}", True, victim.instance)

    def _start(self, name: str, static: bool, instance: str | None = None) -> None:
        if static and instance is None:
            instance = name
        identity = instance if static else None
        consumer = Consumer(self.world, self.invariants, name, identity, self.nodes, self.partitions)
        consumer.gave_up = self._gave_up
        self.consumers[name] = consumer
        consumer.start()

    def _restart(self, old: Consumer) -> None:
        if not old.retired:
            self._lives += 1
            self._start(f"{old.name.partition('+')[0]}+{self._lives}", old.instance is not None, old.instance)

    def _gave_up(self, consumer: Consumer) -> None:
        if not consumer.retired:
            self.world.after(1.0, self._restart, consumer)

    def _node_died(self, node: Node) -> None:
        world = self.world
        for consumer in self.consumers.values():
            world.after(world.between(0.0, 0.3), consumer.network_lost, node)
        if self.log.leader is node:
            world.after(world.between(0.1, 3.0), self._elect)
        world.after(world.between(0.5, 8.0), self._revive, node)

    def _revive(self, node: Node) -> None:
        if not node.alive:
            node.start()
            leader = self.log.leader
            if leader is None or not leader.alive or leader is node:
                self._elect()

    def _elect(self) -> None:
        """Another broker leads the partition, if there is one; the old one learns of it when it does."""
        alive = [node for node in self.nodes if node.alive]
        if not alive:
            return
        others = [node for node in alive if node is not self.log.leader]
        leader = self.world.chance.choice(others or alive)
        before = self.log.leader
        self.log.leader = leader
        self.log.epoch += 1
        epoch = self.log.epoch
        self.world.note("node %d is elected, epoch %d", leader.node_id, epoch)
        self.world.after(self.world.between(0.0, 0.5), leader.lead, epoch)
        if before is not None and before is not leader:
            self.world.after(self.world.between(0.0, 3.0), before.resign, epoch)

    # What must hold

    def _check(self) -> None:
        owners: dict[tuple[int, int], Consumer] = {}
        for consumer in self.consumers.values():
            for partition in consumer.held:
                other = owners.setdefault((consumer.generation, partition), consumer)
                if other is not consumer and other.instance != consumer.instance:
                    self.world.fail(
                        f"{other.name} and {consumer.name} hold partition {partition} in generation"
                        f" {consumer.generation}"
                    )
        if self.world.now >= self._check_at:
            self._check_at = self.world.now + 5.0
            self._check_parked()

    def _check_parked(self) -> None:
        for node in self.nodes:
            if node.alive:
                for asked, request in node.parked.values():
                    if self.world.now - asked > PARKED_SECONDS:
                        self.world.fail(f"parked since {asked:.3f} s: {request}")

    def _nothing_parked(self) -> bool:
        return not any(node.parked for node in self.nodes if node.alive)

    def _recovered(self) -> bool:
        """Every consumer has its share of the same generation, and every partition has an owner."""
        alive = [consumer for consumer in self.consumers.values() if consumer.alive]
        if not alive or not all(consumer.stable for consumer in alive):
            return False
        if len({consumer.generation for consumer in alive}) != 1:
            return False
        held = sorted(partition for consumer in alive for partition in consumer.held)
        least = self._at_first if any(consumer.leads_by_return for consumer in alive) else self.partitions
        leader = self.log.leader
        if held != list(range(len(held))) or len(held) < least or leader is None or not leader.alive:
            return False
        hosted = leader.groups._groups.get(GROUP)
        # Nobody is left in the group who is dead.
        return hosted is not None and hosted.group.state.value == "Stable" and len(hosted.group.members) == len(alive)

    def _states(self) -> str:
        return ", ".join(
            f"{consumer.name} {'stable' if consumer.stable else 'not stable'} in {consumer.generation} with"
            f" {sorted(consumer.held)}"
            for consumer in self.consumers.values()
            if consumer.alive
        )

    def _check_log(self) -> None:
        """What was acknowledged is what a coordinator finds that starts now."""
        leader = self.log.leader
        assert leader is not None
        hosted = leader.groups._groups.get("group")
        offsets = {} if hosted is None else hosted.offsets.topics.get("topic", {})
        for partition, offset in self.invariants.committed.items():
            if partition not in offsets or offsets[partition].offset < offset:
                self.world.fail(f"offset {offset} of partition {partition} was acknowledged, and is not there any more")


def run_seed(seed: int) -> Scenario:
    """Run one seed.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    scenario = Scenario(seed)
    scenario.run()
    return scenario
