"""The groups that this broker coordinates, and the carrying out of what their machines decide. A shell."""

from asyncio import Future, get_running_loop
from collections.abc import Callable
from math import inf
from typing import Any

from barnabas_broker.groups.classic.group import Group, GroupSettings
from barnabas_broker.groups.classic.states import GroupState
from barnabas_broker.groups.coordinator.timers import Timers
from barnabas_broker.groups.coordinator.writer import Writer
from barnabas_broker.groups.effects import Effect, Kind, Note, Persist
from barnabas_broker.groups.events.lines import line_of
from barnabas_broker.groups.offsets.offsets import GroupOffsets
from barnabas_broker.groups.ports import OffsetsLog, Scheduler
from barnabas_broker.groups.records import group_key, group_value, offset_key, offset_key_head
from barnabas_broker.logs import logger
from barnabas_protocol.errors import EncodeError, ErrorCode
from barnabas_protocol.messages.join_group import JoinGroupResponse
from barnabas_protocol.schema import Response

log = logger("coordinator")

#: Groups without members, offsets or a past that are kept at most: a client may ask for ids in ever new groups.
MAX_EMBRYOS = 20_000


class Partition:
    """A partition of ``__consumer_offsets`` that this broker leads.

    Attributes:
        index: its number.
        leader_epoch: of the leadership that it was loaded for.
        loading: whether its replay is not over.
        groups: ids of the groups whose records it has.
    """

    __slots__ = ("groups", "index", "leader_epoch", "loading")

    def __init__(self, index: int, leader_epoch: int) -> None:
        self.index = index
        self.leader_epoch = leader_epoch
        self.loading = True
        self.groups: set[str] = set()


class Hosted:
    """A group with its offsets and its place.

    Attributes:
        group: its machine.
        offsets: what it has committed.
        partition: whose records it is made of.
        armed: see :class:`~barnabas_broker.groups.coordinator.timers.Timed`.
    """

    __slots__ = ("_head", "_host", "_topic", "armed", "group", "offsets", "partition")

    def __init__(self, host: "Host", partition: int, group: Group, offsets: GroupOffsets) -> None:
        self._host = host
        self.partition = partition
        self.group = group
        self.offsets = offsets
        self.armed = inf
        self._head = b""
        self._topic: str | None = None

    def key(self, topic: str, partition: int) -> bytes:
        """The key of the record of an offset.

        Raises:
            ValueError: a name is longer than a record may hold.
        """
        if topic != self._topic:
            # Of the topic that was committed to last: nearly always that is the group's only one.
            self._head = offset_key_head(self.group.group_id, topic)
            self._topic = topic
        return offset_key(self._head, partition)

    def next_deadline(self) -> float:
        return self.group.next_deadline()

    def fire(self, now: float) -> None:
        self._host.act(self, self.group.tick(now))


class Parked:
    """A request that its group's machine answers, at once or later.

    Attributes:
        version: of the request.
        response: the answer, once it is there.
    """

    __slots__ = ("_future", "response", "version")

    def __init__(self, version: int) -> None:
        self.version = version
        self.response: Response | None = None
        self._future: Future[Any] | None = None

    def answer(self, response: Response) -> None:
        """Give the answer, in the shape of the request's version."""
        if isinstance(response, JoinGroupResponse) and self.version < 7 and response.protocol_name is None:
            response.protocol_name = ""  # Rule 29.
        self.response = response
        if self._future is not None and not self._future.done():
            self._future.set_result(response)

    def outcome(self, loop: Scheduler) -> Any:
        """The response, or a future of it."""
        if self.response is not None:
            return self.response
        self._future = loop.create_future()
        return self._future


class _GroupWaiter:
    """A group whose record is on its way into the log."""

    __slots__ = ("_host", "_hosted", "_ticket")

    def __init__(self, host: "Host", hosted: Hosted, ticket: int) -> None:
        self._host = host
        self._hosted = hosted
        self._ticket = ticket

    def done(self, error: ErrorCode) -> None:
        host, hosted = self._host, self._hosted
        host.act(hosted, hosted.group.persisted(self._ticket, error, host.now()))

    def late(self) -> None:
        """The group went on without it, and has written or will write another record."""


class _Burial:
    """Tombstones on their way into the log."""

    __slots__ = ("_host", "_hosted", "_keys", "_sequence", "_then", "_whole")

    def __init__(
        self,
        host: "Host",
        hosted: Hosted,
        keys: list[tuple[str, int]],
        whole: bool,
        then: Callable[[ErrorCode], None],
    ) -> None:
        self._host = host
        self._hosted = hosted
        self._keys = keys
        self._whole = whole
        self._then = then
        self._sequence = host.next_sequence()

    def done(self, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            self.late()
        self._then(error)

    def late(self) -> None:
        for topic, partition in self._keys:
            self._hosted.offsets.remove(topic, partition, self._sequence)
        if self._whole:
            self._host.retire(self._hosted)


class Host:
    """Holds groups by id, acts for their machines, and writes their records.

    Args:
        settings: of all groups.
        port: the log.
        now: seconds on a clock that never goes back.
        wall_ms: the time of day, in ms since 1970.
        commit_timeout: seconds that an append may take.
        loop: an event loop; the running one if None.
        listen: hears every note of every group; whether the log shall be spared the line.
    """

    def __init__(
        self,
        settings: GroupSettings,
        port: OffsetsLog,
        now: Callable[[], float],
        wall_ms: Callable[[], int],
        commit_timeout: float,
        loop: Scheduler | None,
        listen: Callable[[str, Note], bool],
    ) -> None:
        self.settings = settings
        self.port = port
        self.now = now
        self.wall_ms = wall_ms
        self.groups: dict[str, Hosted] = {}
        self.partitions: dict[int, Partition] = {}
        self.writer = Writer(port, self.loop, now, wall_ms, commit_timeout)
        self.timers = Timers(self.loop, now)
        self._loop = loop
        self._listen = listen
        self._sequence = 0
        #: Groups that nobody has entered yet, oldest first.
        self._embryos: dict[str, None] = {}
        deadline = _WriterDeadline(self)
        self.writer.flushed = lambda: self.timers.arm(deadline)

    def loop(self) -> Scheduler:
        """The loop that everything here runs in."""
        if self._loop is None:
            self._loop = get_running_loop()
        return self._loop

    # Groups

    def create(self, group_id: str, partition: int) -> Hosted:
        """A group that nobody has heard of; it is hosted from the first effect or offset on."""
        return Hosted(self, partition, Group(group_id, self.settings, self.now()), GroupOffsets())

    def keep(self, hosted: Hosted) -> None:
        """Host a group from now on."""
        group_id = hosted.group.group_id
        if group_id in self.groups:
            return
        self.groups[group_id] = hosted
        self.partitions[hosted.partition].groups.add(group_id)

    def forget(self, hosted: Hosted) -> None:
        """Host a group no longer."""
        group_id = hosted.group.group_id
        if self.groups.get(group_id) is hosted:
            del self.groups[group_id]
            self._embryos.pop(group_id, None)
            if hosted.partition in self.partitions:
                self.partitions[hosted.partition].groups.discard(group_id)

    def watch_embryo(self, hosted: Hosted) -> None:
        """Bound the number of groups that were only asked about: the oldest makes room."""
        group = hosted.group
        if len(group.members) or group.generation or hosted.offsets:
            self._embryos.pop(group.group_id, None)
            return
        self._embryos[group.group_id] = None
        if len(self._embryos) > MAX_EMBRYOS:
            group_id = next(iter(self._embryos))
            del self._embryos[group_id]
            oldest = self.groups.get(group_id)
            if oldest is not None:
                oldest.group.members.pending.clear()
                self.bury(oldest, [], NOBODY.done, whole=True)

    def bury(
        self, hosted: Hosted, keys: list[tuple[str, int]], then: Callable[[ErrorCode], None], *, whole: bool = False
    ) -> None:
        """Write tombstones of offsets (topic, partition), and of the group itself if `whole`.

        What they are about is forgotten when they are in the log, the group only if nobody has entered it meanwhile.
        """
        records: list[tuple[bytes, bytes | None]] = [(hosted.key(*each), None) for each in keys]
        if whole:
            records.append((group_key(hosted.group.group_id), None))
        self.writer.add(hosted.partition, records, _Burial(self, hosted, keys, whole, then))

    def retire(self, hosted: Hosted) -> None:
        """A group's tombstone is in the log."""
        group = hosted.group
        if group.state is GroupState.EMPTY and not hosted.offsets and not group.members.pending:
            self.forget(hosted)
            group.die(self.now())

    def next_sequence(self) -> int:
        """The place of the next record in the order of appends."""
        self._sequence += 1
        return self._sequence

    def skip_sequences(self, offset: int) -> None:
        """What was replayed up to `offset` is older than everything that is appended from now on."""
        self._sequence = max(self._sequence, offset)

    # Effects

    def act(self, hosted: Hosted, effects: list[Effect]) -> None:
        """Carry out what a group's machine wants done, in that order, and set its next deadline."""
        group = hosted.group
        for effect in effects:
            if isinstance(effect, Note):
                self.note(group.group_id, effect)
            elif isinstance(effect, Persist):
                self._persist(hosted, effect)
            elif isinstance(effect.token, Parked):
                effect.token.answer(effect.response)
        if group.state is GroupState.DEAD:
            self._bury(hosted)
        elif group.next_deadline() < hosted.armed:
            self.timers.arm(hosted)

    def _bury(self, hosted: Hosted) -> None:
        """A machine has died: of a group that could not be written, what was committed meanwhile stays."""
        group_id = hosted.group.group_id
        if hosted.offsets and self.groups.get(group_id) is hosted:
            hosted.group = Group(group_id, self.settings, self.now())
            hosted.group.fresh = False
        else:
            self.forget(hosted)

    def note(self, group_id: str, note: Note) -> None:
        """Pass a note on, and log it."""
        quiet = self._listen(group_id, note)
        line = line_of(group_id, note)
        if line is not None:
            getattr(log, "debug" if quiet else line[0])(line[1])

    def _persist(self, hosted: Hosted, effect: Persist) -> None:
        value = effect.value
        if effect.since is not None:
            value.current_state_timestamp = self.wall_ms() - int((self.now() - effect.since) * 1000)
        waiter = _GroupWaiter(self, hosted, effect.ticket)
        try:
            record = (group_key(hosted.group.group_id), group_value(value))
        except EncodeError as error:
            log.warning("group cannot be written", group=hosted.group.group_id, reason=str(error))
            # Not now: the machine is in the middle of a call.
            self.loop().call_soon(waiter.done, ErrorCode.RECORD_LIST_TOO_LARGE)
            return
        self.writer.add(hosted.partition, [record], waiter)


class _WriterDeadline:
    """The writer's deadline, among those of the groups."""

    __slots__ = ("_host", "armed")

    def __init__(self, host: Host) -> None:
        self._host = host
        self.armed = inf

    def next_deadline(self) -> float:
        deadline = self._host.writer.next_deadline()
        return inf if deadline is None else deadline

    def fire(self, now: float) -> None:
        self._host.writer.expire()


class _Nobody:
    """Waits for nothing."""

    __slots__ = ()

    def done(self, error: ErrorCode) -> None:
        if error != ErrorCode.NONE:
            log.warning("append to __consumer_offsets failed", error=error.name)

    def late(self) -> None:
        pass


NOBODY = _Nobody()


def note_of(kind: Kind, group: Group, **data: Any) -> Note:
    """A note that the shell makes."""
    return Note(kind, group.generation, data)
