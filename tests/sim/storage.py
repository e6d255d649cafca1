"""The partitions of coordinators' topics: real logs on files in memory, with the faults of real files.

A partition's files outlive the broker that leads it, and the next leader finds what is left of its records: all of
them if the process was killed or deposed, fewer if the machine stopped. Appends run through the
broker's own port, replica manager and log directory, whose background work is done in virtual time.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from barnabas_broker.cluster.image import BrokerRegistered, Image, PartitionInfo, TopicCreated
from barnabas_broker.config import BROKER_KEYS, Config
from barnabas_broker.memory_files import Crash, MemoryFiles
from barnabas_broker.replication.coordinator_logs import CoordinatorTopicLog
from barnabas_broker.replication.durability import Completion
from barnabas_broker.replication.manager import ReplicaManager
from barnabas_broker.storage import Inline, LogDirectory
from barnabas_broker.storage.directory import LogDirectoryError
from barnabas_protocol.errors import ErrorCode, KafkaError
from barnabas_protocol.internal_topics import OFFSETS_TOPIC
from barnabas_protocol.records import iter_batches
from tests.sim.world import Timer, World

T = TypeVar("T")
L = TypeVar("L", bound="Leader")
Done = Callable[[ErrorCode], None]
#: Appends something to the log, and calls back with the result.
Write = Callable[[Done], None]

#: Partitions of a coordinator's topic.
PARTITIONS: Final = 3
_ROOT: Final = Path("/data")
_TOPIC_ID: Final = bytes(range(16))
#: The files belong to the partition, whichever broker has them open.
_OWNER: Final = 1
_CONFIG: Final = Config(BROKER_KEYS, {"node.id": "1", "log.cleaner.min.cleanable.ratio": "0.1"})
#: Seconds between two rounds of maintenance.
_MAINTENANCE: Final = 12.0
#: Batches that one read of a replay returns.
_CHUNK: Final = 20


class Leader(Protocol):
    """A broker in one of its lives that may lead partitions of a topic."""

    @property
    def alive(self) -> bool:
        """Whether its process runs."""

    @property
    def epochs(self) -> Mapping[int, int]:
        """The leader epochs of the partitions that it believes to lead."""

    def kill(self, *, power: bool) -> None:
        """Die at once, at any point; `power`: with the whole machine."""

    def moment(self, name: str) -> None:
        """A moment at which the broker may die."""


class SimulatedLoop:
    """The part of an event loop that storage, futures and tasks use, in virtual time."""

    def __init__(self, world: World) -> None:
        self._world = world

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop."""
        asyncio._set_running_loop(self._itself())
        try:
            yield
        finally:
            asyncio._set_running_loop(None)

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self._itself())

    def create_task(self, work: Coroutine[Any, Any, T], **options: Any) -> "asyncio.Task[T]":
        return asyncio.Task(work, loop=self._itself(), **options)

    def time(self) -> float:
        return self._world.now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Timer:
        return self.call_later(0.0, callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        return self.call_at(self._world.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Timer:
        if context is not None:
            return self._world.at(when, context.run, callback, *args)
        return self._world.at(when, callback, *args)

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Ignore futures that fail after their broker has died."""

    def _itself(self) -> asyncio.AbstractEventLoop:
        return cast(asyncio.AbstractEventLoop, self)


class _Background:
    """The storage thread: runs in virtual time until the files are released."""

    def __init__(self, partition: "CoordinatorPartition[Any]") -> None:
        self._partition = partition
        self._coming: deque[Callable[[], None]] = deque()

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None:
        world = self._partition.world

        def do() -> None:
            self._coming.remove(do)
            try:
                result: T | Exception = work()
            except Exception as error:
                result = error
            done(result)

        def due() -> None:
            if do in self._coming:
                self._partition.carefully(do)

        self._coming.append(do)
        delay = world.between(0.0005, 0.02) if not world.happens(0.02) else world.between(0.5, 4.0)
        world.after(delay, due)

    def run_all(self, work: Iterable[Callable[[], object]]) -> None:
        Inline().run_all(work)

    def close(self) -> None:
        """Finish all started work."""
        while self._coming:
            self._coming[0]()

    def forget(self) -> None:
        """Drop all started work: its broker is dead."""
        self._coming.clear()


class _Append(Generic[L]):
    """An append without a result."""

    __slots__ = ("done", "epoch", "node", "outcome", "write")

    def __init__(self, node: L, epoch: int, write: Write, done: Done) -> None:
        self.node = node
        self.epoch = epoch
        self.write = write
        self.done = done
        self.outcome: ErrorCode | None = None


class CoordinatorPartition(Generic[L]):
    """A partition of a coordinator's topic.

    Batches that were reported as durable are not lost. Anything else may happen to an append: it is refused; its result
    is reported late or never; it survives its broker or does not; it comes from a former leader.

    Args:
        world: its clock and random numbers.
        index: its number.
        synced: every append is synced before it is reported (``flush.messages``); then machines may stop;
            otherwise only processes die.
        topic: the coordinator's topic.
        policy: its ``cleanup.policy``.

    Attributes:
        topic: see above.
        leader: the broker that really leads it.
        epoch: the leader epoch; appends with an older one are refused.
        failed: called when its disk has failed, or the files could not be opened.
    """

    def __init__(
        self, world: World, index: int, synced: bool, topic: str = OFFSETS_TOPIC, policy: str = "compact"
    ) -> None:
        self.world = world
        self.index = index
        self.topic = topic
        self.synced = synced
        self.leader: L | None = None
        self.epoch = 0
        self.failed: Callable[[CoordinatorPartition[L]], None] = lambda partition: None
        self._files = MemoryFiles()
        self._directory: LogDirectory | None = None
        self._background = _Background(self)
        self._log: CoordinatorTopicLog | None = None
        self._replicas_open: ReplicaManager | None = None
        #: Appends that have not landed, and those that have and are not reported.
        self._coming: deque[_Append[L]] = deque()
        self._landed: deque[_Append[L]] = deque()
        self._lands_at = self._reports_at = 0.0
        #: Number of results that are on their way.
        self._reporting = 0
        #: Whether the disk has failed in an append since the log was opened: the records may be there, or not.
        self._in_doubt = False
        self._failing = False
        #: The fault that will happen on the disk, and in how many steps.
        self._doom: tuple[str, int] | None = None
        configs = {"cleanup.policy": policy, "segment.bytes": "4096", "file.delete.delay.ms": "1000"}
        if synced:
            configs["flush.messages"] = "1"
        self._configs = configs

    # Leaders

    def elect(self, node: L) -> None:
        """Make another broker the leader, whether or not the last one knows."""
        self._release(power=False)
        self.leader = node
        self.epoch += 1
        self._failing = False

    def broker_died(self, node: L, power: bool) -> None:
        """The leader's process is dead, or its machine without `power`."""
        self._coming = deque(entry for entry in self._coming if entry.node is not node)
        self._landed = deque(entry for entry in self._landed if entry.node is not node)
        if node is self.leader:
            self._release(power=power)

    def open(self) -> bool:
        """The leader opens the files; returns whether it could."""
        world = self.world
        self._files.fault = self._fault
        self._in_doubt = False
        try:
            directory = LogDirectory.open(
                _ROOT,
                _CONFIG,
                node_id=_OWNER,
                now_ms=self._now_ms(),
                now=lambda: self.world.now,
                files=self._files,
                background=self._background,
                random_bytes=world.chance.randbytes,
            )
            replicas = self._replicas(directory)
        except Crash:
            self._machine_stopped()
            return False
        except (LogDirectoryError, KafkaError) as error:
            world.note("partition %d cannot be opened: %s", self.index, error)
            self._fails()
            return False
        if not replicas.holds(self.topic, self.index):
            # The disk is full. The broker would try it again, but then it does not lead any more.
            replicas.wake_fetches()
            self._fails()
            return False
        self._directory, self._replicas_open = directory, replicas
        self._log = CoordinatorTopicLog(self.topic, replicas, self._now_ms)
        world.after(world.between(1.0, _MAINTENANCE), self.carefully, self._maintain, directory)
        return True

    def _replicas(self, directory: LogDirectory) -> ReplicaManager:
        image = Image(cluster_id=directory.cluster_id, controller_id=_OWNER)
        elsewhere = PartitionInfo(leader=0, leader_epoch=0, replicas=(0,), isr=(0,))
        here = PartitionInfo(leader=_OWNER, leader_epoch=self.epoch, replicas=(_OWNER,), isr=(_OWNER,))
        partitions = tuple(here if index == self.index else elsewhere for index in range(PARTITIONS))
        for event in (
            BrokerRegistered(_OWNER, {"PLAINTEXT": ("node", 9092)}),
            TopicCreated(self.topic, _TOPIC_ID, partitions, self._configs),
        ):
            image = image.apply(event)
        replicas = ReplicaManager(directory, _CONFIG, _OWNER, self._now_ms, now=lambda: self.world.now)
        replicas.start(image)
        return replicas

    def _release(self, *, power: bool) -> None:
        """Release the files; the next leader opens them as they are."""
        directory, self._directory, self._log = self._directory, None, None
        chance = self.world.chance
        if directory is not None and not power and directory.failure is None and chance.random() < 0.3:
            try:
                directory.close(self._now_ms())
            except Crash:
                power = True
        self._background.forget()
        self._background = _Background(self)
        power = power or (self.synced and chance.random() < 0.3)
        self._files = self._files.crash(chance) if power and self.synced else self._files.kill()
        if self._doom is not None and self._doom[1] <= 0:
            self._doom = None
        for entry in list(self._landed):
            self._settle(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    # Faults

    def doom(self, kind: str, steps: int) -> None:
        """Make the disk full, an fsync fail, or the machine stop, `steps` steps from now."""
        self._doom = (kind, steps)

    def _fault(self, what: str, path: Path) -> None:
        if self._doom is None or not self.world.faults or what == "read":
            return
        kind, steps = self._doom
        self._doom = (kind, steps - 1)
        if steps > 1:
            return
        if kind == "stop":
            self._doom = None
            self._files.crash_at = self._files.steps + 1
        elif kind == "full" and what.startswith("write"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        elif kind == "sync" and what == "sync":
            # A machine with such a disk stops soon.
            self._doom = ("stop", self.world.chance.randint(1, 4))
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    def carefully(self, step: Callable[..., object], *args: Any) -> None:
        """Run a step that uses the disk; the machine may stop during it."""
        try:
            step(*args)
        except Crash:
            self._machine_stopped()
            return
        if self._directory is not None and self._directory.failure is not None:
            self._fails()

    def _machine_stopped(self) -> None:
        self.world.note("the machine of partition %d stops in the middle of a step", self.index)
        leader = self.leader
        assert leader is not None
        leader.kill(power=True)

    def _fails(self) -> None:
        if not self._failing:
            self._failing = True
            self.world.note("the disk of partition %d has failed", self.index)
            self.failed(self)

    @property
    def works(self) -> bool:
        """Whether the leader has the log open, or will open it."""
        leader = self.leader
        return leader is not None and leader.alive and not self._failing and leader.epochs.get(self.index) == self.epoch

    def _maintain(self, directory: LogDirectory) -> None:
        if self._directory is directory:
            directory.maintain(self._now_ms())
            self.world.after(_MAINTENANCE, self.carefully, self._maintain, directory)

    # Requests of the leader

    def append(self, node: L, epoch: int, write: Write, done: Done) -> None:
        """Append what `write` appends; appends land in their order, and their results are reported in their order."""
        entry = _Append(node, epoch, write, done)
        self._coming.append(entry)
        world = self.world
        delay = world.between(0.0, 0.02) if not world.happens(0.03) else world.between(0.5, 4.0)
        self._lands_at = max(self._lands_at, world.now + delay)
        world.at(self._lands_at, self.carefully, self._land, entry)

    def _land(self, entry: _Append[L]) -> None:
        if entry not in self._coming:
            return
        self._coming.remove(entry)
        self._landed.append(entry)
        if entry.epoch != self.epoch or entry.node is not self.leader or self._log is None:
            self._settle(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self.world.happens(0.02):
            self._settle(entry, ErrorCode.NOT_ENOUGH_REPLICAS)
        else:
            entry.write(lambda error: self._settle(entry, error))
        entry.node.moment("landed")

    def _settle(self, entry: _Append[L], error: ErrorCode) -> None:
        """The log reports the result of an append."""
        world, landed = self.world, self._landed
        if entry.outcome is not None:
            return
        entry.outcome = error
        self._in_doubt = self._in_doubt or error == ErrorCode.KAFKA_STORAGE_ERROR
        while landed and landed[0].outcome is not None:
            first = landed.popleft()
            late = first.outcome == ErrorCode.NONE and world.happens(0.01)
            delay = world.between(3.0, 6.0) if late else world.between(0.0, 0.01)
            self._reports_at = max(self._reports_at, world.now + delay)
            self._reporting += 1
            world.at(self._reports_at, self._report, first)

    def _report(self, entry: _Append[L]) -> None:
        self._reporting -= 1
        if entry.node.alive and entry.outcome is not None:
            entry.done(entry.outcome)

    def batch(self, data: bytearray, verification: Any) -> Write:
        """Appends a batch of the coordinator."""
        return lambda done: self.opened().append(self.index, data, done, verification)

    def marker(self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, commit: bool) -> Write:
        """Appends a marker, as WriteTxnMarkers does."""

        def write(done: Done) -> None:
            assert self._replicas_open is not None
            try:
                replica = self._replicas_open.find(self.topic, self.index)
                info = replica.append_marker(
                    producer_id,
                    producer_epoch,
                    self._now_ms(),
                    commit=commit,
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=2,
                )
                conditions = replica.unacknowledged(info.last_offset, acks_all=True)
            except KafkaError as error:
                done(error.code)
                return
            if conditions:
                Completion(conditions, lambda error: done(ErrorCode.NONE if error is None else error.code))
            else:
                done(ErrorCode.NONE)

        return write

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as the coordinator of share partitions does.

        Raises:
            KafkaError: it is not led here, or the disk fails.
        """
        if self._replicas_open is None or self._log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        replica = self._replicas_open.find(self.topic, self.index)
        self._replicas_open.delete_records(replica, min(offset, replica.log.high_watermark))

    @property
    def settled(self) -> bool:
        """Whether the coordinator knows of each append what became of it: all are reported, and the disk is well."""
        return not (self._coming or self._landed or self._reporting or self._in_doubt)

    def start_offset(self) -> int:
        return self.opened().start_offset(self.index)

    def end_offset(self) -> int:
        return self.opened().end_offset(self.index)

    async def read(self, offset: int) -> bytes:
        """A few batches from `offset` on."""
        data = await self.opened().read(self.index, offset)
        return b"".join(batch for _, (_, batch) in zip(range(_CHUNK), iter_batches(data), strict=False))

    def opened(self) -> CoordinatorTopicLog:
        """The log of the leader.

        Raises:
            KafkaError: it is not open.
        """
        if self._log is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self._log

    def contents(self) -> bytes:
        """The whole content of the log, as far as it is committed."""
        data, offset = b"", self.start_offset()
        while offset < self.end_offset():
            chunk = _run(self.read(offset))
            if not chunk:
                break  # what follows is not committed
            *_, (header, _) = iter_batches(chunk)
            data, offset = data + chunk, header.next_offset
        return data

    def _now_ms(self) -> int:
        return int(self.world.now * 1000)


def _run(reading: Any) -> bytes:
    """The result of a coroutine that never waits."""
    try:
        reading.send(None)
    except StopIteration as stop:
        result: bytes = stop.value
        return result
    raise AssertionError("a read waits")
