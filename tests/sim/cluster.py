"""Two brokers with the real coordinator each, and a model of the log that they share.

The log loses nothing that it reported durable. Everything else may happen to an append: it is refused, it is durable
but reported late or never, it survives the death of its broker or does not, it comes from a broker that leads no
more.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

from barnabas_broker.config import Config
from barnabas_broker.config_keys import BROKER_KEYS
from barnabas_broker.coordinator.effects import Kind, Note
from barnabas_broker.coordinator.service import Caller, GroupCoordinator
from barnabas_protocol.apis.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas_protocol.apis.heartbeat import HeartbeatRequest
from barnabas_protocol.apis.join_group import JoinGroupRequest
from barnabas_protocol.apis.leave_group import LeaveGroupRequest
from barnabas_protocol.apis.offset_commit import OffsetCommitRequest
from barnabas_protocol.apis.offset_fetch import OffsetFetchRequest
from barnabas_protocol.apis.sync_group import SyncGroupRequest
from barnabas_protocol.errors import ErrorCode
from barnabas_protocol.records import read_header, restamp
from barnabas_protocol.schema import Request, Response
from tests.sim.invariants import Invariants
from tests.sim.world import Timer, World

GROUP = "group"
_CONFIG = Config(
    BROKER_KEYS,
    {
        "offsets.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "1000",
        "group.min.session.timeout.ms": "1000",
        "offsets.commit.timeout.ms": "3000",
    },
)
Done = Callable[[ErrorCode], None]
Respond = Callable[[Response], None]


class Future:
    """The part of an asyncio future that the coordinator and the network use; callbacks run at once."""

    __slots__ = ("_callbacks", "_result")

    def __init__(self) -> None:
        self._result: Any = None
        self._callbacks: list[Respond] = []

    def done(self) -> bool:
        return self._result is not None

    def set_result(self, result: Any) -> None:
        assert self._result is None
        self._result = result
        for callback in self._callbacks:
            callback(result)

    def then(self, callback: Respond) -> None:
        """Hear the result."""
        if self._result is not None:
            callback(self._result)
        else:
            self._callbacks.append(callback)


class Append:
    """An append on its way."""

    __slots__ = ("batch", "done", "epoch", "gone", "life", "node")

    def __init__(self, node: "Node", batch: bytearray, done: Done) -> None:
        self.node = node
        self.life = node.life
        self.epoch = node.epoch
        self.batch = batch
        self.done = done
        self.gone = False


class SharedLog:
    """The one partition of ``__consumer_offsets``.

    Attributes:
        leader: the broker that leads it.
        epoch: of its leadership; appends of an older one are refused.
        batches: what is durable.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.leader: Node | None = None
        self.epoch = 0
        self.batches: list[bytes] = []
        self.ends: list[int] = []
        self._coming: deque[Append] = deque()
        self._lands_at = 0.0
        self._reports_at = 0.0

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    def append(self, node: "Node", batch: bytearray, done: Done) -> None:
        """Take an append; appends land in their order."""
        entry = Append(node, batch, done)
        self._coming.append(entry)
        delay = self.world.between(0.0, 0.02) if not self.world.happens(0.03) else self.world.between(0.5, 4.0)
        self._lands_at = max(self._lands_at, self.world.now + delay)
        self.world.at(self._lands_at, self._land, entry)

    def broker_died(self, node: "Node") -> None:
        """Of what was on its way, the first few may have reached the other replicas."""
        mine = [entry for entry in self._coming if entry.node is node]
        survive = self.world.chance.randint(0, len(mine)) if node is self.leader else 0
        for at, entry in enumerate(mine):
            entry.gone = True
            if at < survive and entry.epoch == self.epoch:
                self._keep(entry.batch)
        self._coming = deque(entry for entry in self._coming if entry.node is not node)

    def _land(self, entry: Append) -> None:
        if entry.gone:
            return
        self._coming.remove(entry)
        error = ErrorCode.NONE
        delay = self.world.between(0.0, 0.01)
        if entry.epoch != self.epoch or entry.node is not self.leader:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif self.world.happens(0.02):
            error = ErrorCode.NOT_ENOUGH_REPLICAS
        else:
            self._keep(entry.batch)
            if self.world.happens(0.01):
                delay = self.world.between(3.0, 6.0)
        self._reports_at = max(self._reports_at, self.world.now + delay)
        self.world.at(self._reports_at, self._report, entry, error)
        entry.node.moment("landed")

    def _report(self, entry: Append, error: ErrorCode) -> None:
        if entry.node.life == entry.life:
            entry.done(error)

    def _keep(self, batch: bytearray) -> None:
        restamp(batch, 0, self.end, self.epoch)
        self.batches.append(bytes(batch))
        self.ends.append(read_header(batch).next_offset)


class Port:
    """One broker's view of the log."""

    def __init__(self, node: "Node", log: SharedLog) -> None:
        self._node = node
        self._log = log

    def append(self, partition: int, batch: bytearray, done: Done) -> None:
        self._log.append(self._node, batch, done)

    def end_offset(self, partition: int) -> int:
        return self._log.end

    def start_offset(self, partition: int) -> int:
        return 0

    async def read(self, partition: int, offset: int) -> bytes:
        out = []
        for batch, end in zip(self._log.batches, self._log.ends, strict=True):
            if end > offset:
                out.append(batch)
        return b"".join(out[:20])


class Loop:
    """The event loop of one life of a broker: when the broker dies, nothing of it is called any more."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._life = node.life

    def call_soon(self, callback: Callable[..., object], *args: Any) -> Timer:
        return self._node.world.after(0.0, self._call, callback, args)

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> Timer:
        return self._node.world.after(delay, self._call, callback, args)

    def create_future(self) -> Any:
        return Future()

    def _call(self, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._node.life == self._life and self._node.alive:
            callback(*args)


class Node:
    """A broker.

    Attributes:
        life: counts its restarts.
        epoch: of the leadership that it believes to have.
        plan: moments at which it is to die, with how often they must have come before.
    """

    def __init__(self, world: World, log: SharedLog, node_id: int, invariants: Invariants) -> None:
        self.world = world
        self.log = log
        self.node_id = node_id
        self.invariants = invariants
        self.alive = False
        self.life = 0
        self.epoch = -1
        self.plan: dict[str, int] = {}
        self.died: Callable[[Node], None] = lambda node: None
        self.parked: dict[int, tuple[float, Request]] = {}
        self._ids = count(1)
        self._requests = count(1)

    def start(self) -> None:
        """Begin a new life; nothing is left of the last one but the log."""
        self.alive = True
        self.epoch = -1
        self.parked = {}
        life = self.life
        self.groups = GroupCoordinator(
            _CONFIG,
            Port(self, self.log),
            now=lambda: self.world.now,
            wall_ms=lambda: int(self.world.now * 1000),
            new_id=lambda: f"{self.node_id}.{life}.{next(self._ids)}",
            loop=Loop(self),
            listen=self._listen,
        )
        self.world.note("node %d starts", self.node_id)

    def kill(self) -> None:
        """Die at once, in the middle of whatever it is."""
        if self.alive:
            self.world.note("node %d dies", self.node_id)
            self.alive = False
            self.life += 1
            self.log.broker_died(self)
            self.died(self)

    def lead(self, epoch: int) -> None:
        """Learn that it leads."""
        if self.alive and epoch > self.epoch:
            self.epoch = epoch
            self.world.note("node %d loads, epoch %d", self.node_id, epoch)
            self._drive(self.groups.load(0, epoch), self.life)

    def resign(self, epoch: int) -> None:
        """Learn that somebody else leads since `epoch`."""
        if self.alive and self.epoch < epoch:
            self.world.note("node %d unloads", self.node_id)
            self.groups.unload(0)

    @property
    def leads(self) -> bool:
        """Whether it leads in truth, not only in its own belief."""
        return self.alive and self.log.leader is self and self.epoch == self.log.epoch

    def moment(self, name: str) -> None:
        """One of the moments at which a coordinator may die has come; in a turn of its own, as processes do."""
        if name in self.plan and self.world.faults:
            self.plan[name] -= 1
            if self.plan[name] <= 0:
                del self.plan[name]
                self.world.after(0.0, self.kill)

    def handle(self, client: str, request: Request, respond: Respond) -> None:
        """Handle a request."""
        caller = Caller(client, "/127.0.0.1")
        groups = self.groups
        answer: Any
        if isinstance(request, FindCoordinatorRequest):
            answer = self._find()
        elif isinstance(request, JoinGroupRequest):
            self.moment("join received")
            answer = groups.join(request, 9, caller)
        elif isinstance(request, SyncGroupRequest):
            answer = groups.sync(request, 5, caller)
        elif isinstance(request, HeartbeatRequest):
            answer = groups.heartbeat(request, 4, caller)
            if answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.moment("heartbeat told of the rebalance")
        elif isinstance(request, LeaveGroupRequest):
            answer = groups.leave(request, 5, caller)
        elif isinstance(request, OffsetCommitRequest):
            self.invariants.commit_arrives(self.node_id, request)
            answer = groups.commit_offsets(request, 9, caller)
        elif isinstance(request, OffsetFetchRequest):
            if not self.leads and self.epoch >= 0:
                return  # A stale coordinator's memory is stale; whoever reads from it waits until it is found out.
            answer = groups.fetch_offsets(request, 9, caller)
        else:
            raise AssertionError(f"{request} in a simulation")
        number = next(self._requests)
        asked = self.world.now
        known = self.invariants.snapshot() if isinstance(request, OffsetFetchRequest | OffsetCommitRequest) else None
        self.parked[number] = (asked, request)

        def answered(response: Response) -> None:
            del self.parked[number]
            self.invariants.answered(self.leads, request, response, known)
            if isinstance(request, SyncGroupRequest) and getattr(response, "error_code", 1) == 0:
                self.moment("sync answered")
            respond(response)

        if isinstance(answer, Future):
            answer.then(answered)
        else:
            answered(answer)

    def _find(self) -> FindCoordinatorResponse:
        leader = self.log.leader
        found = Coordinator(key=GROUP, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1)
        if leader is not None and leader.alive:
            node_id = self.world.chance.randint(1, 2) if self.world.happens(0.1) else leader.node_id
            found = Coordinator(key=GROUP, node_id=node_id, host="node", port=node_id)
        return FindCoordinatorResponse(coordinators=[found])

    def _listen(self, group_id: str, note: Note) -> None:
        self.world.note("node %d: %s of generation %d: %s", self.node_id, note.kind.value, note.generation, note.data)
        if note.kind is Kind.REBALANCE_STARTED:
            self.moment("rebalance started")
        elif note.kind is Kind.JOIN_PHASE_OVER:
            self.moment("join phase over")

    def _drive(self, load: Coroutine[Any, Any, None], life: int) -> None:
        """Run the coroutine of a load, a step a time."""
        if self.life != life or not self.alive:
            load.close()
            return
        try:
            load.send(None)
        except StopIteration:
            return
        delay = self.world.between(0.0, 0.02) if not self.world.happens(0.05) else self.world.between(0.2, 2.0)
        self.world.after(delay, self._drive, load, life)
