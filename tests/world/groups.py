"""A group of real consumers on real brokers, with faults. Invariants:

- No partition of a generation has two owners, and no committed offset goes back.
- Each acknowledged record is read, none is there twice, and of a transaction all records are read or none.
- Topics that were created exist.
- After the last fault the group recovers, and no transaction stays open.
"""

import asyncio
import errno
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from barnabas import Consumer, ConsumerRebalanceListener, ConsumerRecord, Producer, TopicPartition
from barnabas_broker.cluster import image_file, local
from barnabas_broker.cluster.local import LocalStore
from barnabas_broker.errors import BrokerError
from barnabas_broker.storage import TopicPartition as LogPartition
from barnabas_broker.transactions.service import HostedTransaction, TransactionCoordinator
from barnabas_client.consumer.fetched import _Aborted
from barnabas_client.errors import KafkaError
from barnabas_client.lifecycle import State
from barnabas_protocol.messages.offset_commit import OffsetCommitRequest
from barnabas_protocol.records import BatchHeader
from barnabas_protocol.registry import ApiKey
from barnabas_protocol.schema import Request
from tests.sim import bugs
from tests.witnesses import named
from tests.world.broker import DATA
from tests.world.loop import Life
from tests.world.programs import Machine, Simulation
from tests.world.writer import Writer

GROUP: Final = "g"
TOPIC: Final = "t"


def transactions_live_by_the_time_of_day() -> AbstractContextManager[Any]:
    """After a clock has been set back a transaction is open for as long as it was set back."""

    def wrong(self: TransactionCoordinator, hosted: HostedTransaction) -> int:
        return self._wall_ms() - hosted.machine.metadata.start_ms

    return patch.object(TransactionCoordinator, "_open_ms", wrong)


def the_metadata_journal_has_no_copy() -> AbstractContextManager[Any]:
    """Events are appended to the journal only: damage to it loses them."""
    right = LocalStore._append

    def wrong(self: LocalStore, handles: Sequence[int], events: Any) -> None:
        right(self, handles[:1], events)

    return patch.object(LocalStore, "_append", wrong)


def an_abort_marker_that_begins_a_fetch_hides_what_follows() -> AbstractContextManager[Any]:
    """A Fetch that begins at an ABORT marker takes what the producer wrote after it for aborted, too."""
    right = _Aborted.hides

    def wrong(self: _Aborted, header: BatchHeader, batch: memoryview) -> bool:
        if header.is_control and header.producer_id not in self._producers:
            return True
        return right(self, header, batch)

    return patch.object(_Aborted, "hides", wrong)


#: Planted bugs, which the invariants find.
BUGS: Final = named(
    bugs.generation_is_not_bumped,
    bugs.silent_members_are_kept,
    an_abort_marker_that_begins_a_fetch_hides_what_follows,
    transactions_live_by_the_time_of_day,
    the_metadata_journal_has_no_copy,
)
#: Seconds by which a clock is set forward or back.
_JUMPS: Final = (-86_400.0, -300.0, 300.0, 86_400.0)
#: Seconds of faults, and until everything must have recovered: sessions, rebalances and requests time out before.
_STORM: Final = 30.0
_RECOVERY: Final = 90.0
_FAULTS: Final = (
    *("abandon", "broker", "clock", "clock", "cut", "delay", "freeze", "full"),
    *("kill", "kill", "leave", "lose", "new", "reset", "topic"),
)
#: The requests whose answers are lost or late.
_APIS: Final = (
    "ConsumerGroupHeartbeat",
    "Fetch",
    "FindCoordinator",
    "Heartbeat",
    "JoinGroup",
    "Metadata",
    "OffsetCommit",
    "OffsetFetch",
    "Produce",
    "SyncGroup",
)


class _Member(ConsumerRebalanceListener):
    """A program that reads until it is killed or stopped.

    Attributes:
        life: its process.
        owned: the partitions that it has.
    """

    def __init__(self, group: "Group", name: str) -> None:
        self.life = Life(group.world.loop, name)
        self.owned: set[int] = set()
        self.stopping = False
        self._group = group
        self._consumer: Any = None
        self.life.spawn(self._run(), name)

    async def _run(self) -> None:
        group, chance = self._group, self._group.world.chance
        settings: dict[str, Any] = {
            "bootstrap_servers": group.addresses,
            "group_id": GROUP,
            "group_protocol": group.protocol,
            "client_id": self.life.name,
            "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": 1000,
            "request_timeout_ms": 5000,
            "metadata_max_age_ms": 10_000,
            "isolation_level": "read_committed" if group.reads_committed else "read_uncommitted",
            "max_partition_fetch_bytes": group.fetch_bytes,
        }
        if group.protocol == "classic":
            settings |= {"session_timeout_ms": 6000, "heartbeat_interval_ms": 2000}
        self._consumer = Consumer(**settings)
        try:
            await self._consumer.start()
            self._consumer.subscribe([TOPIC], listener=self)
            while not self.stopping:
                for records in (await self._consumer.getmany(timeout_ms=500)).values():
                    group.was_read(self.life.name, records)
                if chance.random() < 0.2:
                    await self._consumer.commit()
        except KafkaError as error:
            group.world.note("%s ends: %s", self.life.name, error)
            group.world.after(1.0, group.restart, self)
        finally:
            self.owned.clear()
            await self._consumer.stop()

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        self.owned |= {each.partition for each in assigned}
        generation = self._consumer.group_metadata().generation_id
        self._group.assigned(self.life.name, generation, sorted(each.partition for each in assigned))

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        self.owned -= {each.partition for each in revoked}
        self._group.world.note("%s gives back %s", self.life.name, sorted(each.partition for each in revoked))

    def kill(self) -> None:
        """Kill the program."""
        self.life.kill()
        self._group.world.network.died(self.life, silent=False)
        for thread in self.life.threads:
            self._group.world.network.died(thread, silent=False)
        self.owned.clear()

    def forget(self) -> None:
        """Its process ends: nothing is stopped, and nothing complains of that."""
        if self._consumer is not None:
            self._consumer._life.state = State.STOPPED


class Group:
    """A run of a seed.

    Args:
        seed: of all chance there is.
        brokers: 1, or 3 for a cluster.
        level: as of :class:`Simulation`.
    """

    machines: list[Machine]
    writer: Writer

    def __init__(self, seed: int, brokers: int = 1, **settings: Any) -> None:
        self.world = Simulation(seed, **settings)
        chance = self.world.chance
        self._brokers = brokers
        self.protocol = chance.choice(("classic", "consumer"))
        self.members: list[_Member] = []
        self.reads_committed = chance.random() < 0.5
        self._partitions = chance.randint(1, 4)
        #: Of each partition in a response: everything, or, in one of four seeds, two batches or three.
        self.fetch_bytes = 250 if seed % 4 == 3 else 1 << 20
        self._names = 0
        #: Where each value was read, and the topics that were created.
        self._places: dict[bytes, tuple[int, int]] = {}
        self._topics: set[str] = set()
        self._acknowledged: set[tuple[int, int]] = set()
        self._read: set[tuple[int, int]] = set()
        self._owners: dict[tuple[int, int], str] = {}
        self._committed: dict[int, int] = {}
        self._commits: dict[tuple[int, int], str] = {}
        self._all: list[_Member] = []

    def run(self) -> None:
        """Run it.

        Raises:
            Violation: an invariant does not hold.
        """
        try:
            self.world.play(self._run)
        finally:
            for member in self._all:
                member.forget()

    async def _run(self) -> None:
        world, chance = self.world, self.world.chance
        world.network.torn, world.network.jitter = chance.choice((0.0, 0.1)), chance.choice((0.0, 0.02))
        keys = {
            "group_consumer_session_timeout_ms": "6000",
            "group_consumer_min_session_timeout_ms": "1000",
            "group_consumer_min_heartbeat_interval_ms": "1000",
            "group_consumer_heartbeat_interval_ms": "2000",
            "group_min_session_timeout_ms": "1000",
            "min_insync_replicas": str((self._brokers + 1) // 2),
            "transaction_abort_timed_out_transaction_cleanup_interval_ms": "1000",
        }
        single = self._brokers == 1
        self.machines = [await world.machine(**keys)] if single else await world.cluster(self._brokers, **keys)
        await self.machines[0].create(TOPIC, self._partitions)
        for machine in self.machines:
            machine.script.always(ApiKey.OFFSET_COMMIT, self._commit_arrives)
        self.writer = Writer(world, world.network, TOPIC, self._partitions, lambda: self.addresses)
        self.writer.start()
        producing = asyncio.create_task(self._produce())
        checking = asyncio.create_task(self._check())
        for _ in range(chance.randint(1, 3)):
            self._start()
        end = world.now + _STORM
        for _ in range(chance.randint(1, 8)):
            world.after(world.between(0.5, _STORM), self._disturb)
        await asyncio.sleep(end - world.now)
        world.note("no more faults")
        world.faults = False
        world.network.jitter = world.network.torn = 0.0
        for machine in self.machines:
            machine.files.fault = None
            for rule in machine.rules:
                machine.rules.remove(rule.number)
        self.writer.kill()
        for member in self.members:
            member.life.thaw()
        if not self.members:
            self._start()
        deadline = world.now + _RECOVERY
        await producing
        while world.now < deadline and not self._recovered():  # noqa: ASYNC110
            await asyncio.sleep(0.5)
        if not self._recovered():
            world.fail(f"not recovered {_RECOVERY:.0f} s after the last fault: {self._wrong()}")
        checking.cancel()

    async def _produce(self) -> None:
        world, number = self.world, 0
        async with Producer(bootstrap_servers=self.addresses, request_timeout_ms=5000) as producer:
            while world.faults:
                await asyncio.sleep(world.between(0.1, 0.5))
                try:
                    number, partition = number + 1, world.chance.randrange(self._partitions)
                    written = await producer.send_and_wait(TOPIC, b"%d" % number, partition=partition)
                except KafkaError as error:
                    world.note("not written: %s", error)
                else:
                    self._acknowledged.add((written.partition, written.offset))

    def _start(self) -> None:
        self._names += 1
        member = _Member(self, f"member-{self._names}")
        self.world.note("%s starts", member.life.name)
        self.members.append(member)
        self._all.append(member)

    def restart(self, member: _Member) -> None:
        """A member has ended by itself; another one takes its place."""
        if member in self.members:
            self.members.remove(member)
            self._start()

    @property
    def addresses(self) -> list[str]:
        """The addresses of the brokers."""
        return [machine.address for machine in self.machines]

    # Faults

    def _disturb(self) -> None:
        world, chance = self.world, self.world.chance
        machine = self.machines[chance.randrange(len(self.machines))] if self._brokers > 1 else self.machines[0]
        fault = chance.choice(_FAULTS)
        member = chance.choice(self.members) if self.members else None
        world.note("fault: %s %s", fault, member and member.life.name)
        if fault in ("lose", "delay"):
            api, times = chance.choice(_APIS), chance.randint(1, 3)
            if fault == "lose":
                machine.rules.add("drop", api, times=times, executed=True)
            else:
                machine.rules.add("delay", api, times=times, seconds=world.between(0.5, 8.0))
        elif fault == "broker":
            if all(each.up for each in self.machines):
                self._begin(self._restart, machine)
        elif fault == "clock":
            programs = ["program", self.writer.life.name, *(each.life.name for each in self.members)]
            name = machine.name if chance.random() < 0.5 else chance.choice(programs)
            if chance.random() < 0.5:
                self.writer.kill()  # with its transaction open while the clock jumps
            world.clocks[name] = chance.choice(_JUMPS)
            world.note("the clock of %s is set: %+.0f s", name, world.clocks[name])
        elif fault == "full":
            machine.files.fault = _full
            world.after(world.between(0.5, 8.0), setattr, machine.files, "fault", None)
        elif fault == "abandon":
            self.writer.kill()
        elif fault == "topic":
            self._begin(self._create, machine)
        elif fault == "new" or member is None:
            if len(self.members) < 4:
                self._start()
        elif fault == "reset":
            for life in (member.life, *member.life.threads):
                world.network.refuse(life, 0.0)
        elif fault == "cut":
            for life in (member.life, *member.life.threads):
                world.network.cut(life.name, machine.name, world.between(1.0, 12.0), back=chance.random() < 0.5)
        elif fault == "freeze":
            for life in (member.life, *member.life.threads):
                life.freeze()
                world.after(8.0, life.thaw)
        else:
            self.members.remove(member)
            if fault == "kill":
                member.kill()
            else:
                member.stopping = True
            world.after(world.between(0.1, 8.0), self._start)

    def _begin(self, work: Callable[[Machine], Any], machine: Machine) -> None:
        self.world.loop.keep(asyncio.Task(work(machine), loop=self.world.loop))

    async def _restart(self, machine: Machine) -> None:
        """A broker hands over and stops, is killed or loses power, and returns later."""
        world, chance = self.world, self.world.chance
        how = chance.choice(("stop", "kill", "power" if self._brokers > 1 else "kill"))
        if how == "stop":
            await machine.stop()
            world.note("%s has stopped", machine.name)
        machine.kill(power=how == "power")
        self._damage_metadata(machine)
        await asyncio.sleep(world.between(0.1, 3.0))
        while not machine.up:
            try:
                await machine.start()
            except BrokerError as error:
                self.world.note("%s does not start: %s", machine.name, error)
                machine.life.kill()
                await asyncio.sleep(1.0)

    async def _create(self, machine: Machine) -> None:
        name = f"more-{len(self._topics)}"
        try:
            await machine.create(name)
        except AssertionError as error:
            self.world.note("%s is not created: %s", name, error)
        else:
            self._topics.add(name)

    def _damage_metadata(self, machine: Machine) -> None:
        """Damage one of the files with metadata on the disk of a broker that is down, or none."""
        chance = self.world.chance
        path = DATA / chance.choice((local.NAME, local.COPY) if self._brokers == 1 else (image_file.NAME,))
        if not machine.files.exists(path):
            return
        content = bytearray(machine.files.content(path))
        kind = chance.choice(("none", "bit", "half", "file"))
        self.world.note("damage: %s, of %s on %s", kind, path.name, machine.name)
        if kind == "bit" and content:
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            machine.files.damage(path, bytes(content))
        elif kind == "half":
            machine.files.damage(path, bytes(content[: len(content) // 2]))
        elif kind == "file":
            machine.files.lose(path)

    # Checks

    def was_read(self, member: str, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        """A member has read records."""
        for record in records:
            place = record.partition, record.offset
            if self._places.setdefault(record.value, place) != place:
                self.world.fail(f"{record.value} is at {self._places[record.value]} and at {place}")
            number, dot, _ = record.value.partition(b".")
            if dot and self.reads_committed and not self.writer.may_be_read(int(number)):
                self.world.fail(f"{member} reads {record.value}, whose transaction was not committed")
            self._read.add(place)

    def assigned(self, member: str, generation: int, partitions: Sequence[int]) -> None:
        """A member has got partitions."""
        self.world.note("%s gets %s in generation %d", member, partitions, generation)
        for partition in partitions:
            before = self._owners.setdefault((generation, partition), member)
            if before != member:
                self.world.fail(f"{before} and {member} own partition {partition} in generation {generation}")

    def _commit_arrives(self, request: Request) -> None:
        assert isinstance(request, OffsetCommitRequest)
        for topic in request.topics:
            for one in topic.partitions:
                self._commits[one.partition_index, one.committed_offset] = request.member_id

    async def _check(self) -> None:
        """Committed offsets do not go back, unless a commit of the same member arrives late over a connection that
        broke: it has no sequence number, and Kafka accepts it as well."""
        while True:
            await asyncio.sleep(0.05)
            up = [each.broker.services.groups for each in self.machines if each.up]
            coordinators = [each for each in up if 0 in each.loaded]
            if len(coordinators) != 1:
                continue  # none, or a former one that does not know it yet
            hosted = coordinators[0].groups.get(GROUP)
            for partition, found in ({} if hosted is None else hosted.offsets.topics.get(TOPIC, {})).items():
                last, self._committed[partition] = self._committed.get(partition, -1), found.offset
                members = {self._commits.get((partition, each)) for each in (last, found.offset)}
                if found.offset < last and len(members) > 1:
                    self.world.fail(f"the committed offset of partition {partition} goes back from {last} to {found}")

    def _recovered(self) -> bool:
        return not self._wrong()

    def _wrong(self) -> str:
        """What has not recovered yet; empty if everything has."""
        owned = {member.life.name: sorted(member.owned) for member in self.members}
        if sorted(partition for each in owned.values() for partition in each) != list(range(self._partitions)):
            return f"the partitions are assigned as {owned}"
        if not all(machine.up for machine in self.machines):
            return "not all brokers run"
        due = set(self._acknowledged)
        for number, outcome in self.writer.outcomes.items():
            written = self.writer.written[number]
            if outcome or not self.reads_committed or (outcome is None and written & self._read):
                due |= written
        if not due <= self._read:
            return f"records were not read: {sorted(due - self._read)}"
        images = [machine.broker.services.cluster.image for machine in self.machines]
        for machine, image in zip(self.machines, images, strict=True):
            if not self._topics <= image.topics.keys():
                return f"{machine.name} lacks topics: {self._topics - image.topics.keys()}"
        for index, info in enumerate(images[0].topics[TOPIC].partitions):
            if info.leader < 0:
                return f"partition {index} has no leader"
            log = self.machines[info.leader].broker.directory.logs[LogPartition(TOPIC, index)]
            if log.last_stable_offset < log.log_end_offset:
                return f"a transaction is open in partition {index} since {log.last_stable_offset}"
        return ""


def _full(what: str, path: Path) -> None:
    if what.startswith(("write", "create", "mkdir")):
        raise OSError(errno.ENOSPC, "No space left on device")


def run_seed(seed: int, brokers: int = 1) -> Group:
    """Run one seed; `brokers` as of :class:`Group`.

    Raises:
        Violation: an invariant does not hold; the text starts with the seed.
    """
    group = Group(seed, brokers)
    group.run()
    return group
