"""Three brokers and programs that write and read a replicated topic, with faults; then everything must recover.

Invariants: see :mod:`tests.world.ledger`. Each acknowledged record is read in its place, and is there once if its
producer is idempotent.
"""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final

from barnabas_broker.cluster import image_file
from barnabas_broker.storage import TopicPartition
from tests.world.adversary import Adversary
from tests.world.broker import DATA
from tests.world.clients import Reading, Writing
from tests.world.damage import ONE_OF, Damage
from tests.world.etcd import ETCD
from tests.world.ledger import Checker
from tests.world.nodes import TOPIC, Node
from tests.world.programs import Simulation

BROKERS: Final = 3
#: Seconds in which the cluster must recover after the last fault.
RECOVERY_SECONDS: Final = 60.0
#: The largest drift of a clock, a little less than the margin of the fence.
DRIFT: Final = 0.15
#: Seconds between two looks whether a backup can be made.
_LOOK_SECONDS: Final = 0.2
_FAULTS: Final = (
    "kill",
    "kill",
    "kill",
    "power",
    "power",
    "replace",
    "replace",
    "blackout",
    "blackout",
    "blackout",
    "freeze",
    "freeze",
    "restart",
    "cut brokers",
    "cut brokers",
    "isolate",
    "refuse",
    "cut etcd",
    "cut etcd",
    "cut clients",
    "etcd leader",
    "etcd loss",
    "watches",
    "compact",
    "slow",
    "slow",
    "slow etcd",
    "slow etcd",
    "flap",
    "flap",
    "grow",
    "restore",
    "restore",
    "full disk",
    "full disk",
)


class Cluster:
    """The run of one seed.

    Args:
        seed: of all chance there is.
        level: as of :class:`Simulation`.
    """

    #: Milliseconds that producers wait for an answer, and how often an idempotent one begins anew after a record.
    request_ms = 2000
    restarts = 0.3

    def __init__(self, seed: int, **settings: Any) -> None:
        world = self.world = Simulation(seed, **settings)
        chance = world.chance
        #: Which directions are cut; a choice of its own, so that seeds stay as they are otherwise.
        self._ways = Random(f"ways {seed}")
        self.network, self.etcd = world.network, world.etcd
        self.network.jitter = chance.choice((0.0, 0.01, 0.05))
        self.etcd.loss = chance.choice((0.0, 0.0, 0.01, 0.05))
        self.etcd.lateness = chance.choice((0.0, 0.01, 0.03))
        self.checker = Checker(world, self.etcd)
        self.session = chance.choice((2.0, 3.0, 3.0, 8.0))
        self.min_isr = chance.choice((1, 2, 2, 2))
        self.partitions = [TopicPartition(TOPIC, index) for index in range(chance.choice((1, 1, 2)))]
        damaged = seed % ONE_OF == ONE_OF - 1 and self.min_isr > 1
        configs = {
            "broker.session.timeout.ms": str(int(self.session * 1000)),
            "replica.lag.time.max.ms": chance.choice(("1000", "2000", "4000")),
            "leader.imbalance.check.interval.seconds": chance.choice(("2", "5", "1000")),
            "log.flush.interval.messages": chance.choice(("1", "9223372036854775807", "9223372036854775807")),
            "min.insync.replicas": str(self.min_isr),
            "log.segment.bytes": "512" if damaged else chance.choice(("1048576", "2048")),
        }
        for node_id in range(BROKERS):
            node = self.checker.nodes[node_id] = Node(world, node_id, configs)
            world.rates[node.name] = world.between(1 - DRIFT, 1 + DRIFT)
        self.adversary = Adversary(
            world,
            self.network,
            self.etcd,
            self.checker.nodes,
            lambda: self.checker.truth.topics[TOPIC].partitions[0],
            lambda: world.faults and TOPIC in self.checker.truth.topics and not self._power_lost(),
        )
        self.producers: list[Writing] = []
        self.consumers: list[Reading] = []
        self.damage: Damage | None = None
        if damaged:
            self.damage = Damage(world, self.checker, self.adversary, self.partitions, self._calm, self._read)
        self._powerless: Node | None = None
        self._quiet_until = 0.0
        #: Half of the kinds of faults: all of them at once seldom let the cluster come to rest between two.
        kinds = {kind for kind in sorted(set(_FAULTS)) if chance.random() < 0.5}
        self._kinds = [kind for kind in _FAULTS if kind in kinds] or _FAULTS
        self._mean = chance.choice((0.4, 1.0, 2.0))
        if self.damage is not None:
            self._mean *= 3  # otherwise there is seldom a time when damage may begin

    @property
    def nodes(self) -> list[Node]:
        """The machines of the brokers."""
        return list(self.checker.nodes.values())

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: an invariant does not hold.
        """
        with self.checker.installed(), self.adversary.installed():
            self.world.play(self._run)

    async def _run(self) -> None:
        world, chance = self.world, self.world.chance
        for node in self.nodes:
            world.after(world.between(0.0, 0.5), node.begin)
        world.faults = False
        await self.until(self._all_registered, 20.0, "not all brokers are registered")
        await self.nodes[0].create(TOPIC, len(self.partitions), min_insync_replicas=str(self.min_isr))
        world.faults = True
        for number in range(chance.choice((1, 2, 3))):
            where = self.partitions[number % len(self.partitions)]
            idempotent, pause = chance.random() < 0.8, world.between(0.05, chance.choice((0.2, 0.2, 1.5)))
            self.producers.append(
                Writing(
                    self.checker,
                    number,
                    where,
                    idempotent=idempotent,
                    pause=pause,
                    request_ms=self.request_ms,
                    restarts=self.restarts,
                )
            )
        self.consumers = [Reading(self.checker, where) for where in self.partitions]
        await self._suffer()
        self._heal()
        await self.until(self._recovered, RECOVERY_SECONDS, "the cluster has not recovered")
        for producer in self.producers:
            producer.stop = True
        await self.until(self._done, RECOVERY_SECONDS, "clients have not finished")
        for consumer in self.consumers:
            consumer.stop = True
        self._check_end()

    async def until(self, done: Callable[[], bool], seconds: float, what: str) -> None:
        """Run until `done`, which is checked ten times a second."""
        world = self.world
        deadline = world.now + seconds
        while not done():
            if world.now >= deadline:
                world.fail(f"{what} after {seconds:.0f} s: {self._state()}")
            await asyncio.sleep(0.1)

    def _all_registered(self) -> bool:
        """Whether all brokers are registered and have the latest image."""
        return len(self.checker.truth.brokers) == BROKERS and all(
            node.up and node.broker.services.cluster.sequence == self.checker.sequence for node in self.nodes
        )

    def _read(self, where: TopicPartition) -> None:
        """Read a partition from its beginning."""
        if self.world.faults:
            self.consumers.append(Reading(self.checker, where, len(self.consumers)))

    # Faults

    async def _suffer(self) -> None:
        """Inject random faults for some time."""
        world = self.world
        end = world.now + world.between(6.0, 14.0)
        world.after(world.between(0.1, 1.5), self._disturb, end)
        if self.damage is not None:
            self.damage.begin(end)
        await asyncio.sleep(end - world.now)

    def _disturb(self, end: float) -> None:
        world = self.world
        if world.now < end:
            if not self._power_lost() and world.now >= self._quiet_until:
                self._fault(world.chance.choice(self._kinds))
            world.after(world.between(0.0, 2 * self._mean), self._disturb, end)

    def _fault(self, kind: str) -> None:
        world, chance, session = self.world, self.world.chance, self.session
        node, other = chance.sample(self.nodes, 2)
        running = node.running
        if kind == "power":
            if self._calm():
                self._powerless = node
                node.kill(power=True)
                world.after(chance.choice((0.05, world.between(0.1, 2 * session))), node.begin)
                if chance.random() < 0.7:
                    for each in self.nodes:
                        self._slow(node.name, each.name)
            return
        if kind == "replace":
            if self._calm():
                self._replace(node)
            return
        if kind == "blackout":
            if self._calm():
                self._blackout(node)
            return
        if kind == "restore":
            if self._calm():
                world.after(world.between(0.1, 4.0), self._restore, self.checker.backup())
            elif world.faults:
                world.after(_LOOK_SECONDS, self._fault, kind)
            return
        world.note("fault: %s, broker %d, broker %d", kind, node.node_id, other.node_id)
        match kind:
            case "kill":
                node.kill()
                world.after(chance.choice((0.05, world.between(0.1, 3 * session))), node.begin)
            case "freeze" if running is not None and not running.life.frozen:
                running.life.freeze()
                world.after(world.between(0.3, 2.5 * session), running.life.thaw)
            case "restart" if running is not None:
                running.stop()
                world.after(world.between(2.0, 5.0), self._killed_and_started, node)
            case "cut brokers":
                self._cut(node.name, other.name, world.between(0.3, 2.5 * session))
            case "isolate":
                seconds = world.between(0.3, 2.5 * session)
                for each in self.nodes:
                    if each is not node:
                        self._cut(node.name, each.name, seconds)
                if chance.random() < 0.5:
                    self._cut(node.name, ETCD, seconds)
            case "refuse" if running is not None:
                self.checker.refused.add(running.life)
                self.network.refuse(running.life, world.between(0.3, 2.5 * session))
            case "full disk" if running is not None:
                node.fill(world.between(0.3, 2.5 * session))
            case "cut etcd":
                self._cut(node.name, ETCD, world.between(0.3, 2.5 * session))
            case "cut clients":
                for client in (*self.producers, *self.consumers):
                    self.network.cut(client.name, node.name, world.between(0.3, 4.0))
            case "etcd leader":
                self.etcd.elect(world.between(0.1, session))
            case "etcd loss":
                before, self.etcd.loss = self.etcd.loss, 0.4
                world.after(world.between(0.3, session), setattr, self.etcd, "loss", min(before, 0.05))
            case "watches" if running is not None:
                running.break_watches()
            case "compact":
                self.etcd.model.compact()
            case "grow":
                self.adversary.grow()
            case "flap":
                self.adversary.flap()
            case "slow":
                self._slow(node.name, other.name)
            case "slow etcd":
                self._slow(*((node.name, ETCD) if chance.random() < 0.5 else (ETCD, node.name)))

    def _cut(self, one: str, other: str, seconds: float) -> None:
        """Cut both directions of a connection, or only one of them."""
        source, target = self._ways.sample((one, other), 2)
        self.network.cut(source, target, seconds, back=self._ways.random() < 0.5)

    def _slow(self, source: str, target: str) -> None:
        world = self.world
        self.network.slow[source, target] = world.between(0.05, 0.9 if ETCD in (source, target) else 1.5)
        world.after(world.between(0.5, 6.0), self.network.slow.pop, (source, target), None)

    def _blackout(self, victim: Node) -> None:
        """Stop all brokers, some of them cleanly, and start them in a random order. One may have lost records."""
        world, chance = self.world, self.world.chance
        loss = chance.choice(("wiped", "power", "power", "nothing"))
        world.note("fault: all brokers stop; broker %d loses: %s", victim.node_id, loss)
        nodes = chance.sample(self.nodes, BROKERS)
        # With one replica that suffices for acks=all, the last broker that runs is the only one that has its records.
        gaps = self.min_isr > 1 and chance.random() < 0.6
        down = 0.0
        for node in nodes:
            if node is not victim and chance.random() < 0.5:
                world.after(down, self._stop, node)
            else:
                world.after(down, self._lose, node, loss if node is victim else "nothing")
            down += world.between(0.0, 1.5 * self.session) if gaps else 0.0
        up = down + world.between(1.0, 2.0)
        first = chance.random() < 0.5
        for node in nodes:
            world.after(up if first and node is victim else up + world.between(0.0, 3 * self.session), node.begin)

    def _stop(self, node: Node) -> None:
        if node.running is not None and self.world.faults:
            node.running.stop()
            self.world.after(1.0, node.kill)

    def _lose(self, node: Node, loss: str) -> None:
        """Kill a broker, which loses a part of what was not synced, or everything."""
        if not self.world.faults:
            return
        known = self.checker.truth.brokers.get(node.node_id)
        in_doubt = node.running is None or known is None or known.epoch != node.running.epoch or self._power_lost()
        in_doubt = in_doubt or self._is_damaged
        if loss == "nothing" or in_doubt:
            node.kill()
        else:
            self._powerless = node
            node.kill(power=True)
            if loss == "wiped":
                node.wipe()

    def _restore(self, restore: Callable[[], bool]) -> None:
        """Stop all brokers, restore a backup of etcd, and start them."""
        world = self.world
        if world.faults and not self._power_lost() and restore():
            world.note("etcd is restored to batch %d", self.checker.sequence)
            # Partitions wait for all of their replicas: without a pause, little would happen after a restore.
            self._quiet_until = world.now + world.between(0.0, 10.0)
            for node in (*self.nodes, *self.checker.replaced):
                node.kill()
                node.lost_epoch = -2
                node.files.lose(DATA / image_file.NAME)  # as an operator does to go on with the backup
                world.after(world.between(0.0, 2.0), node.begin)

    def _replace(self, node: Node) -> None:
        """A machine with an empty disk takes over the node id of another, which is dead, or frozen and thaws later."""
        world, zombie = self.world, node.running
        assert zombie is not None
        zombie.life.freeze()
        new = self.checker.nodes[node.node_id] = self._powerless = node.replace()
        self.checker.replaced.append(node)
        world.after(world.between(0.0, 1.0), new.begin)
        if world.chance.random() < 0.3:
            node.kill()
            return
        for each in self.nodes:
            if world.chance.random() < 0.7:
                self._slow(each.name, new.name)

        ends = world.now + world.between(4.0, 4.0 * self.session)

        def thaw() -> None:
            known = self.checker.truth.brokers.get(node.node_id)
            if known is None or known.epoch == new.lost_epoch:
                world.after(0.05, thaw)  # until its lease is over it is the broker
            else:
                world.note("broker %d: %s thaws", node.node_id, node.name)
                zombie.life.thaw()
                bury()

        def bury() -> None:
            if world.now < ends and zombie.epoch in (-1, new.lost_epoch):
                world.after(0.05, bury)
            else:
                node.kill()

        world.after(world.between(0.3, 2.5 * self.session), thaw)

    def _killed_and_started(self, node: Node) -> None:
        """Restart a broker that takes too long to stop."""
        node.kill()
        node.begin()

    def _power_lost(self) -> bool:
        """Whether a broker that has lost unsynced records may still be in an ISR. No other broker may fail meanwhile:
        no configuration covers two losses at a time."""
        node = self._powerless
        if node is None:
            return False
        known = self.checker.truth.brokers.get(node.node_id)
        if known is not None and known.epoch == node.lost_epoch:
            return True
        self._powerless = None
        return False

    @property
    def _is_damaged(self) -> bool:
        return self.damage is not None and self.damage.pending

    def _calm(self) -> bool:
        """Whether all brokers run and reach each other, and every ISR has a second member."""
        truth, running = self.checker.truth, [node.running for node in self.nodes]
        return (
            not self._is_damaged
            and not self.network.cuts
            and not self.etcd.down
            and self.etcd.loss < 0.1
            and len(truth.brokers) == BROKERS
            and all(r is not None and not r.life.frozen and not r.stopping for r in running)
            and all(r is not None and r.epoch == truth.brokers[r.node.node_id].epoch for r in running)
            and all(len(info.isr) > 1 for info in truth.topics[TOPIC].partitions)
        )

    def _heal(self) -> None:
        world = self.world
        world.note("end of the faults")
        world.faults = False
        self.network.cuts.clear()
        self.network.refusing.clear()
        self.network.slow.clear()
        self.etcd.lag.clear()
        for replaced in self.checker.replaced:
            replaced.kill()
        for node in self.nodes:
            node.files.fault = None
            if node.running is not None and node.running.life.frozen:
                node.running.life.thaw()
            node.begin()

    # Recovery

    def _recovered(self) -> bool:
        truth, sequence = self.checker.truth, self.checker.sequence
        live = {node.node_id for node in self.nodes if node.running is not None}
        for node in self.nodes:
            running = node.running
            if running is None or running.cluster is None or running.stopping or running.cluster.sequence != sequence:
                return False
        return len(truth.brokers) == BROKERS and all(
            info.leader in live and len(info.isr) == BROKERS for info in truth.topics[TOPIC].partitions
        )

    def _done(self) -> bool:
        if not self._recovered() or not all(producer.over for producer in self.producers):
            return False
        for consumer in self.consumers:
            end = self.checker.ledger(consumer.where).end
            if consumer.position != end:
                return False
            for node in self.nodes:
                assert node.running is not None
                assert node.running.directory is not None
                log = node.running.directory.logs[consumer.where]
                if not log.log_end_offset == log.high_watermark == end:
                    return False
        return True

    def _check_end(self) -> None:
        """Check that acknowledged records are in the log, exactly once if the producer is idempotent."""
        world = self.world
        for producer in self.producers:
            ledger = self.checker.ledger(producer.where)
            everything = b"".join(batch for _, batch in ledger.batches.values())
            for value, offset in producer.acknowledged:
                times = everything.count(value)
                if value not in ledger.batches[offset][1] or times < 1 or (producer.idempotent and times > 1):
                    world.fail(f"{producer.where}: {value!r}, acknowledged at {offset}, is in the log {times} times")

    def _state(self) -> str:
        truth = self.checker.truth
        parts = [f"metadata {self.checker.sequence}"]
        if TOPIC in truth.topics:
            parts += [str(info) for info in truth.topics[TOPIC].partitions]
        parts.append(f"brokers {[(b.node_id, b.epoch) for b in truth.brokers.values()]}")
        for node in self.nodes:
            up = node.running
            if up is None:
                parts.append(f"broker {node.node_id} is down")
                continue
            logs = up.directory.logs if up.directory is not None else {}
            logged = {str(where): (log.log_end_offset, log.high_watermark) for where, log in logs.items()}
            sequence = None if up.cluster is None else up.cluster.sequence
            parts.append(
                f"broker {node.node_id}: epoch {up.epoch}, metadata {sequence}, (end, high watermark) {logged}"
            )
        parts += [f"{c.name} at {c.position} of {self.checker.ledger(c.where).end}" for c in self.consumers]
        parts += [f"{p.name} is running" for p in self.producers if not p.over]
        return "\n    ".join(parts)


def run_seed(seed: int) -> Cluster:
    """Run one seed.

    Raises:
        Violation: an invariant does not hold.
    """
    cluster = Cluster(seed)
    cluster.run()
    return cluster
