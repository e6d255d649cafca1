"""Damage to the files of one broker, combined with changes of roles.

A bit flips, a log file is cut to its half, a file or the folder of a partition vanishes: while the broker runs, after a
clean stop or after a kill. Before and after that, leaderships move: by elections, new orders of replicas, stops, kills.
One broker is damaged at a time, and only when all others have everything: until it is whole again, no other broker may
lose anything. Everything that was committed must be served in the end.

It draws its numbers from a generator of its own: runs without damage stay as they are.
"""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from barnabas_broker.cluster.controller import prefer_leaders, reassign
from barnabas_broker.cluster.image import Event, Image, PartitionInfo
from barnabas_broker.storage import TopicPartition
from barnabas_broker.storage.names import INDEXES, LOG, partition_directory
from barnabas_protocol.records.batches import HEADER_SIZE
from tests.world.adversary import Adversary
from tests.world.broker import DATA
from tests.world.ledger import Checker
from tests.world.nodes import TOPIC, Node
from tests.world.world import World

#: Of so many seeds one has damage.
ONE_OF: Final = 3
#: The first byte of a batch that its CRC covers: damage before it cannot be told from other values.
_COVERED: Final = 21
_WAITS: Final = (0.2, 1.5)
#: Seconds that a stop may take.
_STOPS: Final = 5.0


class Damage:
    """Damages files.

    Args:
        world: time, and the trace.
        checker: knows the nodes, and what is committed.
        adversary: changes the metadata.
        partitions: of the topic.
        calm: whether all brokers run and reach each other.
        read: begins to read a partition from its beginning.
    """

    def __init__(
        self,
        world: World,
        checker: Checker,
        adversary: Adversary,
        partitions: Sequence[TopicPartition],
        calm: Callable[[], bool],
        read: Callable[[TopicPartition], None],
    ) -> None:
        self._world = world
        self._checker = checker
        self._adversary = adversary
        self._partitions = partitions
        self._calm = calm
        self._read = read
        self._chance = random.Random(world.seed + 0.5)
        self._end = 0.0
        #: The broker whose files are damaged, until it is whole again.
        self._node: Node | None = None
        #: Whether that has yet to come: until then it looks whole.
        self._is_due = False

    def begin(self, end: float) -> None:
        """Damage something now and then, until the time `end`."""
        self._end = end
        self._world.after(self._between(1.0, 2.0), self._try)

    @property
    def pending(self) -> bool:
        """Whether a broker is damaged, and may not be whole again."""
        node = self._node
        if node is None:
            return False
        if not self._is_due and self._is_whole(node):
            self._world.note("broker %d is whole again", node.node_id)
            node.damaged = False
            self._node = None
        return self._node is not None

    def _between(self, low: float, high: float) -> float:
        return low + (high - low) * self._chance.random()

    def _is_whole(self, node: Node) -> bool:
        known, running = self._checker.truth.brokers.get(node.node_id), node.running
        if running is None or known is None or known.epoch != running.epoch or running.directory is None:
            return False
        infos = self._checker.truth.topics[TOPIC].partitions
        for where in self._partitions:
            committed = b"".join(batch for _, batch in self._checker.ledger(where).batches.values())
            stored = b"".join(node.files.content(path) for path in self._logs(node, where))
            if node.node_id not in infos[where.partition].isr or not stored.startswith(committed):
                return False
        return True

    def _logs(self, node: Node, where: TopicPartition) -> list[Path]:
        folder = DATA / partition_directory(where)
        if not node.files.exists(folder):
            return []
        return [folder / name for name in sorted(node.files.names(folder)) if name.endswith(LOG)]

    # One after the other

    def _try(self) -> None:
        world, chance = self._world, self._chance
        if not world.faults or world.now >= self._end:
            return
        truth = self._checker.truth.topics[TOPIC].partitions
        full = all(len(truth[each.partition].isr) == len(self._checker.nodes) for each in self._partitions)
        if not self.pending and full and self._calm() and all(self._checker.ledger(w).end for w in self._partitions):
            node, where = chance.choice(list(self._checker.nodes.values())), chance.choice(self._partitions)
            self._node, self._is_due = node, True
            chance.choice((self._flipped, self._flipped, self._stopped, self._killed, self._all_stopped))(node, where)
        world.after(self._between(0.1, 0.5), self._try)

    def _flipped(self, node: Node, where: TopicPartition) -> None:
        """A bit flips while the broker is down; leaderships move before and after a client reads it."""
        if self._chance.random() < 0.7:
            self._stop(node, self._flip_and_start, node, where)
        else:
            self._flip_and_start(node, where)

    def _flip_and_start(self, node: Node, where: TopicPartition) -> None:
        self._down(node)
        self._is_due = False
        self._world.after(0.1, node.begin)
        files = [path for path in self._logs(node, where) if len(node.files.content(path)) > HEADER_SIZE]
        if not files or not self._may_hurt(node, where):
            return
        # A start reads the last segment, and finds what is damaged there: only a reader finds it in those before.
        path = self._chance.choice(files[:-1] or files)
        content = node.files.content(path)
        positions, at = [], 0
        while at + HEADER_SIZE < len(content):
            size = int.from_bytes(content[at + 8 : at + 12], "big") + 12
            positions.append((at, size))
            at += size
        at, size = self._chance.choice(positions[:-1] or positions)
        at += self._chance.randrange(_COVERED, size)
        self._world.note("damage: bit, in %s of broker %d, at %d", path.name, node.node_id, at)
        node.damaged = True
        flipped = bytes([content[at] ^ 1 << self._chance.randrange(8)])
        node.files.damage(path, content[:at] + flipped + content[at + 1 :])
        if self._chance.random() < 0.7:
            self._lead_and_read(node, where)
            return
        self._world.after(self._between(0.5, 2.5), self._read, where)
        for _ in range(self._chance.choice((2, 3, 4))):
            self._world.after(self._between(0.3, 5.0), self._move, node, where)

    def _lead_and_read(self, node: Node, where: TopicPartition) -> None:
        """The damaged broker leads, a client reads its log, and then the roles change."""
        me = node.node_id

        def read() -> None:
            self._read(where)
            for _ in range(self._chance.choice((1, 2, 3))):
                self._world.after(self._between(0.1, 2.5), self._move, node, where)

        self._when(
            lambda: me in self._info(where).isr and node.running is not None and self._info(where).leader != me,
            lambda: self._prefer(where, me),
        )
        self._when(lambda: self._info(where).leader == me, read)

    def _info(self, where: TopicPartition) -> PartitionInfo:
        return self._checker.truth.topics[TOPIC].partitions[where.partition]

    def _when(self, ready: Callable[[], bool], step: Callable[[], None]) -> None:
        """Call `step` when it is `ready`, unless that takes too long or the faults have ended."""
        deadline = self._world.now + _STOPS

        def check() -> None:
            if not self._world.faults or self._world.now > deadline:
                return
            if ready():
                step()
            else:
                self._world.after(0.05, check)

        check()

    def _prefer(self, where: TopicPartition, first: int) -> None:
        """Make a replica the preferred leader, and elect it."""
        replicas = [first, *(each for each in self._info(where).replicas if each != first)]

        def decide(image: Image) -> list[Event]:
            moved = reassign(image, TOPIC, where.partition, replicas)
            return [moved, *prefer_leaders(image.apply(moved))]

        self._adversary.change(decide)

    def _move(self, node: Node, where: TopicPartition) -> None:
        """Change who leads."""
        if not self._world.faults:
            return
        info = self._info(where)
        leader = self._checker.nodes.get(info.leader)
        how = self._chance.choice(("prefer", "order", "order", "stop", "kill leader"))
        self._world.note("damage: %s, %s", how, where)
        match how:
            case "prefer":
                self._adversary.change(prefer_leaders)
            case "order":
                self._prefer(where, self._chance.choice(info.replicas))
            case "stop" if node.running is not None:
                self._stop(node, node.begin)
            case "kill leader" if leader is not None:
                leader.kill()
                self._world.after(self._between(*_WAITS), leader.begin)

    def _stopped(self, node: Node, where: TopicPartition) -> None:
        """Files of a broker are damaged after a clean stop."""
        self._stop(node, self._hurt_and_start, node, where, self._between(*_WAITS))

    def _killed(self, node: Node, where: TopicPartition) -> None:
        """Files of a broker are damaged after it was killed."""
        self._hurt_and_start(node, where, self._between(*_WAITS))

    def _all_stopped(self, node: Node, where: TopicPartition) -> None:
        """All brokers are stopped, mostly the damaged one last, and often that is the first to start."""
        nodes = list(self._checker.nodes.values())
        self._chance.shuffle(nodes)
        if self._chance.random() < 0.7:
            nodes.sort(key=lambda each: each is node)
        first = self._chance.random() < 0.6

        def stop_next() -> None:
            if nodes:
                self._stop(nodes.pop(0), stop_next)
                return
            self._hurt_and_start(node, where, 0.0 if first else self._between(0.0, 4.0))
            for each in self._checker.nodes.values():
                if each is not node:
                    self._world.after(self._between(0.5 if first else 0.0, 6.0), each.begin)

        stop_next()

    def _stop(self, node: Node, then: Callable[..., None], *args: Any) -> None:
        """Stop a broker, call `then` when it has stopped; a stop that takes too long becomes a kill."""
        if not self._world.faults:
            self._start_all()
            return
        if node.running is not None:
            node.running.stop()
        deadline = self._world.now + _STOPS

        def check() -> None:
            if node.running is not None and self._world.now < deadline and self._world.faults:
                self._world.after(0.05, check)
            else:
                self._down(node)
                then(*args)

        check()

    def _start_all(self) -> None:
        for node in self._checker.nodes.values():
            node.begin()

    def _down(self, node: Node) -> None:
        known = self._checker.truth.brokers.get(node.node_id)
        if known is not None:
            node.lost_epoch = known.epoch
        node.kill()

    def _may_hurt(self, node: Node, where: TopicPartition) -> bool:
        """Whether another broker has everything that is committed."""
        end = self._checker.ledger(where).end
        others = (each for each in self._checker.nodes.values() if each is not node)
        return self._world.faults and any(each.log_end(where) >= end for each in others)

    def _hurt_and_start(self, node: Node, where: TopicPartition, pause: float) -> None:
        self._down(node)
        self._is_due = False
        if self._may_hurt(node, where):
            node.damaged = True
            self._hurt(node, where)
        self._world.after(pause, node.begin)

    def _hurt(self, node: Node, where: TopicPartition) -> None:
        """Damage what is on the disk of a broker that is down."""
        files, chance, folder = node.files, self._chance, DATA / partition_directory(where)
        paths = self._logs(node, where)
        if not paths:
            return
        kind, path = chance.choice(("folder", "files", "file", "half", "half of the files")), chance.choice(paths)
        self._world.note("damage: %s of %s on broker %d, %s", kind, where, node.node_id, path.name)
        match kind:
            case "folder":
                files.lose(folder)
            case "files":
                for name in list(files.names(folder)):
                    files.lose(folder / name)
            case "file":
                files.lose(path)
                if chance.random() < 0.5:
                    for suffix in INDEXES:
                        files.lose(path.with_suffix(suffix))
            case "half":
                content = files.content(path)
                files.damage(path, content[: len(content) // 2])
            case "half of the files":
                for each in paths[: (len(paths) + 1) // 2]:
                    for suffix in (LOG, *INDEXES):
                        files.lose(each.with_suffix(suffix))
